"""Other tables of the catalog that need files of a table: by claims on single files, or as aliases of the whole table.

A file can be added to a second table as it is, and tables may lie in each other's folders. Files that another table has are not
deleted, whatever folder they lie in. Only manifests tell which files those are, so other tables are read: all that show a sign
of such files (overlapping folders, a mapping of column names, which foreign files need, `gc.enabled` not true, metadata
elsewhere), and of the rest up to `_MOST_LISTS` manifest lists. Each is read once as long as it only loses snapshots.

A table with an alias is not swept. Registering a table twice makes one: the names diverge with their next commits, and each
still reads what the other has expired. Two tables in one folder, as renaming and creating anew leaves them, are as bad. An
alias is found if it is registered before the look that precedes the deletion: among all tables that this opened store read
last, which a look re-reads wherever they may have changed, and in a SQL catalog among all tables whose newest metadata lies
where this one's does or would by default. Aliases in other catalogs are not found.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from threading import Lock

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from retention_assets.errors import Refused
from retention_assets.stores.iceberg.fence import TableFence, file_identity
from retention_assets.stores.iceberg.log import collects_garbage
from retention_assets.stores.iceberg.manifests import ParsedFiles, Unreadable
from retention_assets.stores.iceberg.notes import notes_of, with_asides
from retention_assets.stores.iceberg.reachability import Reachability, staying_lists

_NAME_MAPPING = "schema.name-mapping.default"
# manifest lists read of tables without a sign, over the life of an opened store
_MOST_LISTS = 2_000
# attempts to read a table whose files go meanwhile
_TRIES = 3


@dataclass(frozen=True)
class TableSummary:
    """Facts about another table from its metadata, and the folders of its foreign files, if these were read."""

    location: str  # of the metadata
    fence: TableFence
    snapshots: frozenset[int]
    shows_sign: bool
    # folders outside of its own in which it has files; None: not read
    folders: frozenset[str] | None = None


class _Dropped(Exception):
    """A table that the catalog listed is gone."""


@dataclass
class _Places:
    """Index from folders to tables, to find the few of thousands that are near another one."""

    # roots and outside folders of each table
    _by_table: dict[str, tuple[tuple[str, ...], frozenset[str]]] = field(default_factory=dict)
    # per folder: tables with a root there, and tables with a root or an outside folder there or below
    _roots: dict[str, set[str]] = field(default_factory=dict)
    _at_or_below: dict[str, set[str]] = field(default_factory=dict)

    def put(self, name: str, summary: TableSummary) -> None:
        places = summary.fence.roots, summary.folders or frozenset()
        if self._by_table.get(name) == places:
            return
        self.drop(name)
        self._by_table[name] = places
        for root in places[0]:
            self._roots.setdefault(root, set()).add(name)
        for folder in _folders_of(places):
            self._at_or_below.setdefault(folder, set()).add(name)

    def drop(self, name: str) -> None:
        if (places := self._by_table.pop(name, None)) is None:
            return
        for root in places[0]:
            self._roots[root].discard(name)
        for folder in _folders_of(places):
            self._at_or_below[folder].discard(name)

    def near(self, fence: TableFence) -> set[str]:
        """Return the tables that have a root in or around a root of this one, or files below one."""
        names = set[str]()
        for root in fence.roots:
            names |= self._at_or_below.get(root, set())
            for place in _at_and_above(root):
                names |= self._roots.get(place, set())
        return names


def _folders_of(places: tuple[tuple[str, ...], frozenset[str]]) -> set[str]:
    roots, folders = places
    return {parent for place in (*roots, *(f"{folder}/" for folder in folders)) for parent in _at_and_above(place)}


def _at_and_above(place: str) -> list[str]:
    return [place[: at + 1] for at, sign in enumerate(place) if sign == "/"]


@dataclass
class OtherTables:
    """Knowledge of one opened store about the tables of its catalog, by dataset."""

    parsed: ParsedFiles
    # summary of each table that was used last
    _known: dict[str, TableSummary] = field(default_factory=dict)
    _places: _Places = field(default_factory=_Places)
    # tables of which only overlapping ones have asked: it is not decided yet whether to read folders of their foreign files
    _undecided: set[str] = field(default_factory=set)
    # tables that may have changed since they were read
    _unsure: set[str] = field(default_factory=set)
    # summaries of tables that were read for other purposes, until these are asked
    _seen: dict[str, TableSummary] = field(default_factory=dict)
    _lists_read: int = 0

    def remember(self, name: str, table: Table) -> None:
        """Note a table that was just read, so that it is not read again from that metadata."""
        at = table.metadata_location
        if at not in (summary.location for summary in (self._known.get(name), self._seen.get(name)) if summary):
            self._seen[name] = _summary_of(table)

    def notice(self, names: Iterable[str]) -> None:
        self._unsure.update(names)

    def claims(
        self,
        dataset: str,
        table: Table,
        wanted: Set[str],
        tables: Mapping[str, str | None],
        load: Callable[[str], Table | None],
        threads: Executor,
    ) -> dict[str, str]:
        """Return the wanted files (by identity) that another table has, each with that table's name.

        `tables` are the datasets of the catalog with the places of their metadata, where known without loading; call `notice`
        for changes first. Raises Refused if one of them can't be read: then nobody can say what may go.
        """
        fence = TableFence.of(table.metadata)
        own = {file for file in wanted if fence.names(file)}
        claims: dict[str, str] = {}
        for name in self._to_ask(dataset, fence, tables) if own else ():
            try:
                ask = partial(self._claimed_by, name, tables[name], fence, own - claims.keys(), load, threads)
                claimed = self._patiently(name, ask)
            except (Unreadable, Refused) as fault:
                text = f"it is unknown whether {name} has files of this table, so nothing was deleted"
                raise Refused(f"{text}; mend it or drop that name: {fault}") from fault
            claims |= dict.fromkeys(claimed, name)
        return claims

    def _to_ask(self, dataset: str, fence: TableFence, tables: Mapping[str, str | None]) -> list[str]:
        self._unsure = {name for name in self._unsure if name in tables and not self._is_current(name, tables[name])}
        near = {name for name in (*self._places.near(fence), *self._undecided) if name in tables}
        return sorted((self._unsure | near) - {dataset})

    def _is_current(self, name: str, location: str | None) -> bool:
        known = self._known.get(name)
        return known is not None and location in (None, known.location)

    def _patiently(self, name: str, ask: Callable[[], Set[str]]) -> Set[str]:
        # its files may go meanwhile, as when a sweep of its own expires snapshots
        for more_tries in reversed(range(_TRIES)):
            try:
                return ask()
            except Unreadable as fault:
                # whatever happens next, its present state is unknown
                self._known.pop(name, None)
                if not (more_tries and fault.missing):
                    raise
            except _Dropped:
                self._known.pop(name, None)
                self._places.drop(name)
                self._undecided.discard(name)
                # asked again if the catalog lists it once more
                self._unsure.add(name)
                return frozenset()
        raise AssertionError("the last attempt returns or raises")

    def _claimed_by(
        self,
        name: str,
        location: str | None,
        fence: TableFence,
        own: Set[str],
        load: Callable[[str], Table | None],
        threads: Executor,
    ) -> Set[str]:
        """Return the files of a table (its own, inside of its fence) that another table has; that one's manifests are read only
        if the two overlap, or if it is known to have files inside of the fence. Raises _Dropped if the other one is gone."""

        @cache
        def loaded() -> Table:
            if (table := load(name)) is None:
                raise _Dropped
            return table

        summary = self._summary_at(name, location, loaded)
        overlaps = summary.fence.overlaps(fence)
        # an overlapping table is read anyway, for this question only; the next one to ask may need the folders
        is_decided = summary.folders is not None or not overlaps
        if is_decided and summary.folders is None and self._may_read(summary):
            summary = replace(summary, folders=_folders_elsewhere(loaded(), summary.fence, threads, self.parsed))
        self._known[name] = summary
        self._places.put(name, summary)
        (self._undecided.discard if is_decided else self._undecided.add)(name)
        if overlaps or any(fence.names(f"{folder}/") for folder in summary.folders or ()):
            return _files_needed(loaded(), own, threads, self.parsed)
        return frozenset()

    def _summary_at(self, name: str, location: str | None, load: Callable[[], Table]) -> TableSummary:
        known, seen = self._known.get(name), self._seen.get(name)
        if known is not None and self._is_current(name, location):
            return known
        present = seen if seen is not None and seen.location == location else _summary_of(load())
        # Loading a table remembers it, too.
        self._seen.pop(name, None)
        # If a table has only lost snapshots, the folders that were read of it suffice.
        if known is not None and present.fence == known.fence and present.snapshots <= known.snapshots:
            return replace(present, folders=known.folders)
        return present

    def _may_read(self, summary: TableSummary) -> bool:
        if summary.shows_sign:
            return True
        if self._lists_read + len(summary.snapshots) > _MOST_LISTS:
            return False
        self._lists_read += len(summary.snapshots)
        return True


def _summary_of(other: Table) -> TableSummary:
    metadata = other.metadata
    own, ids = TableFence.of(metadata), frozenset(one.snapshot_id for one in metadata.snapshots)
    files = (other.metadata_location, *(one.manifest_list for one in metadata.snapshots))
    is_elsewhere = not all(own.names(file_identity(file)) for file in files)
    shows_sign = _NAME_MAPPING in metadata.properties or not collects_garbage(metadata) or is_elsewhere
    return TableSummary(other.metadata_location, own, ids, shows_sign)


def _folders_elsewhere(other: Table, own: TableFence, threads: Executor, parsed: ParsedFiles) -> frozenset[str]:
    reach = Reachability(other.io, threads, parsed)
    files = reach.find_live(staying_lists(other.metadata))
    return frozenset(file.rpartition("/")[0] for file in (*files, *_named(other.metadata)) if not own.names(file))


def _files_needed(other: Table, own: Set[str], threads: Executor, parsed: ParsedFiles) -> Set[str]:
    reach = Reachability(other.io, threads, parsed)
    return own & (reach.find_live(staying_lists(other.metadata)) | set(_named(other.metadata)))


def _named(metadata: TableMetadata) -> Iterable[str]:
    for note in notes_of(with_asides(metadata)).values():
        yield file_identity(note.manifest_list)
        yield from (file_identity(file.location) for file in note.statistics)


@dataclass
class TableAliases:
    """Identities by which the datasets of one store could be told apart when it last read them."""

    _traits: dict[str, frozenset[str]] = field(default_factory=dict)
    _with_trait: dict[str, set[str]] = field(default_factory=dict)
    # tables are read by several threads
    _lock: Lock = field(default_factory=Lock)

    def remember(self, dataset: str, table: Table | None) -> None:
        """Note a table that was just read, or that it is gone."""
        traits = frozenset() if table is None else _traits_of(table)
        with self._lock:
            before = self._traits.pop(dataset, frozenset())
            for trait in before - traits:
                self._with_trait[trait].discard(dataset)
            for trait in traits - before:
                self._with_trait.setdefault(trait, set()).add(dataset)
            if traits:
                self._traits[dataset] = traits

    def of(self, dataset: str, table: Table, near: Iterable[str], load: Callable[[str], Table | None]) -> str | None:
        """Say why nothing of a table may be deleted if it has an alias, near or remembered. `load` re-reads a suspect."""
        with self._lock:
            remembered = {name for trait in _traits_of(table) for name in self._with_trait.get(trait, ())}
        suspects = sorted({*near, *remembered} - {dataset})
        return next((why for name in suspects if (why := _reason(name, table, load)) is not None), None)


def _reason(name: str, table: Table, load: Callable[[str], Table | None]) -> str | None:
    try:
        other = load(name)
    except Refused as fault:
        text = f"it is unknown whether {name} also reads the files of this table, so nothing was deleted"
        return f"{text}; mend it or drop that name: {fault}"
    if other is None:
        return None
    if _uuid(other) == _uuid(table):
        text, copied = f"{name} is the same table under a second name and may read what would be deleted", "one of the two"
    elif _folder_of_table(other) == _folder_of_table(table):
        text, copied = f"{name} is another table in the same folder and may read what would be deleted", "one of them"
    else:
        return None
    remedy = f"copy {copied} into its own folder if it is still needed, then drop its name without purging"
    return f"{text}, so nothing was; {remedy}"


def _traits_of(table: Table) -> frozenset[str]:
    return frozenset((_uuid(table), _folder_of_table(table)))


def _uuid(table: Table) -> str:
    return str(table.metadata.table_uuid)


def _folder_of_table(table: Table) -> str:
    return file_identity(table.location()).rstrip("/")

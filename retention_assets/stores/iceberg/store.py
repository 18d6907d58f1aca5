"""The `iceberg` store: the tables of a PyIceberg catalog, each a dataset, each snapshot a transaction.

A dataset is called `store/namespace.table`, the parts of a nested namespace joined by dots; a dot or percent sign inside of a
part is written %2E or %25. PyIceberg knows the catalog by the store's name, or by the property `name`: a SQL catalog keeps its
tables under that name.
"""

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import TypeVar

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, NoSuchViewError
from pyiceberg.io import PY_IO_IMPL
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier

from retention_assets.errors import Refused
from retention_assets.frames.log import LINES
from retention_assets.outcomes import Order
from retention_assets.policy.durations import Duration
from retention_assets.policy.globs import matching
from retention_assets.settings.places import Url, mask_secrets
from retention_assets.settings.secrets import masked
from retention_assets.sql.engines import GONE
from retention_assets.sql.foreign import ForeignDatabase
from retention_assets.stores.iceberg.catalog import (
    CatalogTables,
    catalog_place,
    load_table,
    open_catalog,
    see_all_rows,
    table_locations,
)
from retention_assets.stores.iceberg.commit import can_commit
from retention_assets.stores.iceberg.delete import ExactFileIO
from retention_assets.stores.iceberg.log import Line, lines_of
from retention_assets.stores.iceberg.manifests import ParsedFiles
from retention_assets.stores.iceberg.notes import left_of_dropped, note_from
from retention_assets.stores.iceberg.other_tables import OtherTables, TableAliases
from retention_assets.stores.iceberg.reachability import ReachedFiles, files_reached
from retention_assets.stores.iceberg.settings import IcebergSettings
from retention_assets.stores.iceberg.sweep import FORGET, RestoreOrder, SnapshotsOrder, Unloadable, prepare_table, remains_of
from retention_assets.stores.protocol import Only, Permit, PreparedTarget, Remains, Store, SweptTarget, Target, always

_FILE_IO = f"{ExactFileIO.__module__}.{ExactFileIO.__qualname__}"
_THREADS = 8
_Answer = TypeVar("_Answer")


class IcebergStore(Store):
    """A store over a catalog. Travels as its settings; opens the catalog on first use."""

    settings: IcebergSettings
    log_is_complete = True
    drops_refs = True

    def __init__(self, settings: IcebergSettings) -> None:
        super().__init__(settings)
        self._opening = threading.Lock()
        self._opened: Catalog | None = None
        self._parsed = ParsedFiles()
        self._known_tables = CatalogTables(partial(_name_of, settings.name))
        self._aliases = TableAliases()
        self._others = OtherTables(self._parsed)

    def datasets(self) -> list[str]:
        return self._ask_catalog(lambda catalog: sorted(self._listed(catalog, catalog.list_tables, self.settings.namespaces)))

    def read(self, datasets: Sequence[str], only: Only | None = None) -> pa.Table:  # noqa: ARG002 - it is read whole
        with ThreadPoolExecutor(_THREADS) as threads:
            lines = [line for lines in threads.map(self._lines_of, datasets) for line in lines]
        return pa.Table.from_pylist(lines, schema=LINES)

    def tokens(self, datasets: Sequence[str]) -> Mapping[str, str]:
        """Return the location of the metadata, which changes with each commit."""
        names = {name: (".".join(namespace), last) for name in datasets for *namespace, last in [self._identifier(name)]}
        locations = self._ask_catalog(lambda catalog: table_locations(catalog, names.values())) if datasets else None
        if locations is not None:
            return {name: locations[key] for name, key in names.items() if key in locations}
        with ThreadPoolExecutor(_THREADS) as threads:
            tokens = zip(datasets, threads.map(self._token_of, datasets), strict=True)
            return {name: token for name, token in tokens if token is not None}

    def present(self) -> datetime | None:
        """Return the server's time for SQL catalogs; others tell none."""
        uri = self.settings.catalog.get("uri", "")
        is_sql = uri.startswith(("postgresql", "mysql", "mariadb"))
        return ForeignDatabase(Url(uri), self.name).present() if is_sql else None

    def prepare(self, dataset: str, transactions: Sequence[str]) -> list[PreparedTarget]:
        try:
            table = self._load(dataset)
        except Unloadable as fault:
            raise Refused(f"{fault}. {dataset} is not swept until it can be read.") from fault
        if table is None:
            return [PreparedTarget(transaction) for transaction in transactions]
        return prepare_table(table, transactions, _THREADS, self._parsed)

    def undo_warnings(self, undo: Duration) -> list[str]:
        return [
            f"Other engines don't know what the store {self.name} sets aside for {undo.words()}: their removal of orphan files"
            " deletes its files whatever their age, and their expiry of snapshots those that expired snapshots share with it."
            f" Leave both to retention, with scans of an `objects` store that refers to `{{store: {self.name}}}`."
        ]

    def carry_out(
        self, order: Order, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always
    ) -> list[SweptTarget]:
        """Expire snapshots and delete what no remaining one reaches, or keep them in properties of the table; put them back
        with a tag `restored-ID` and no parent, or delete what only they reach. Each is one commit; none if there is an alias.
        """
        swept, groups = list[SweptTarget](), dict[str, list[Target]]()
        for target in targets:
            note = note_from(target.note) if order is Order.DELETE_ASIDE else None
            groups.setdefault(note.table if note else "", []).append(target)
        kind = RestoreOrder if order is Order.RESTORE else SnapshotsOrder
        with ThreadPoolExecutor(parallelism) as threads:
            for uuid, part in groups.items():
                load = partial(self._load_by_uuid, dataset, uuid, part) if uuid else partial(self._load, dataset)
                swept += kind(order, permit, load, self._ask_others, self._parsed, threads).run(part)
        return swept

    def place(self, dataset: str, claim: bool = False) -> str | None:  # noqa: ARG002 - a table has an identity of its own
        """Return the table's uuid and its catalog. None without a table: the sweep reports that."""
        table = self._load(dataset)
        return f"table {table.metadata.table_uuid} in {catalog_place(self._catalog())}" if table else None

    def store_place(self, claim: bool = False) -> str | None:  # noqa: ARG002 - a catalog has an identity of its own
        """Return the catalog; None while its file does not exist."""
        place = self._ask_catalog(catalog_place)
        return None if place.endswith(GONE) else place

    def remains(self, dataset: str, targets: Sequence[Target]) -> Mapping[str, Remains]:
        """Snapshots are in the metadata until they are expired; their manifest list goes last."""
        table = self._load(dataset)
        return {one.transaction: remains_of(table, one) for one in targets} if table else {}

    def views(self) -> list[str]:
        def list_views(catalog: Catalog) -> list[str]:
            try:
                return sorted(self._listed(catalog, catalog.list_views, self.settings.namespaces))
            except NotImplementedError:
                # most catalogs keep no views
                return []

        return self._ask_catalog(list_views)

    def view_folders(self, view: str) -> list[str]:
        """Return the folders of a view's metadata; none if it is gone. Raises Refused if it can't be read."""
        catalog = self._ask_catalog(lambda catalog: catalog)
        try:
            loaded = catalog.load_view(self._identifier(view))
        except (NoSuchViewError, NoSuchNamespaceError):
            return []
        # a catalog raises what its driver raises
        except Exception as fault:
            name = view.removeprefix(f"{self.name}/")
            raise Refused(f"The view {name} can't be read: {_error_line(fault)}. Mend it, or drop it.") from fault
        written = loaded.metadata.properties.get("write.metadata.path")
        return [loaded.metadata.location, *([written] if written else [])]

    def reached(self, dataset: str) -> tuple[str, Iterator[ReachedFiles]] | None:
        """Return the place of a table's metadata, and every file that it reaches; None without a table.

        Raises Refused, and Unreadable while the files are iterated.
        """
        table = self._load(dataset)
        return (table.metadata_location, files_reached(table, _THREADS)) if table else None

    def close(self) -> None:
        with self._opening:
            if self._opened is not None:
                self._opened.close()
            self._opened = None

    def _catalog(self) -> Catalog:
        with self._opening:
            if self._opened is None:
                # reading changes nothing: don't create the tables of a SQL catalog
                properties = {"init_catalog_tables": "false", PY_IO_IMPL: _FILE_IO, **self.settings.catalog}
                catalog = open_catalog(self.name, properties)
                see_all_rows(catalog)
                weakref.finalize(self, catalog.close)
                self._opened = catalog
            return self._opened

    def _ask_catalog(self, question: Callable[[Catalog], _Answer]) -> _Answer:
        try:
            return question(self._catalog())
        # a catalog raises what its driver raises; nothing can be read through it
        except Exception as fault:
            raise Refused(
                f"The catalog of the store {self.name} can't be read: {_error_line(fault)}. Check `catalog` in the settings,"
                " and that it is up."
            ) from fault

    def _listed(
        self, catalog: Catalog, list_in: Callable[[Identifier], Iterable[Identifier]], globs: Sequence[str]
    ) -> Iterator[str]:
        namespaces = sorted(set(_namespaces(catalog, ())))
        chosen = matching([_join_name(namespace) for namespace in namespaces], globs)
        for namespace, is_wanted in zip(namespaces, chosen, strict=True):
            with _unless_dropped(catalog, namespace):
                yield from (self._dataset(tuple(name)) for name in (list_in(namespace) if is_wanted else ()))

    def _dataset(self, table: Identifier) -> str:
        return f"{self.name}/{_join_name(table)}"

    def _identifier(self, dataset: str) -> Identifier:
        parts = dataset.removeprefix(f"{self.name}/").split(".")
        return tuple(part.replace("%2E", ".").replace("%25", "%") for part in parts)

    def _load(self, dataset: str) -> Table | None:
        # None if there is no such table. Raises Unloadable, or Refused if the catalog itself is away.
        catalog = self._ask_catalog(lambda catalog: catalog)
        try:
            table = _load_table(catalog, self._identifier(dataset), self._parsed)
        except Unloadable:
            # the exception does not tell which: ask the catalog for something else
            self._ask_catalog(lambda catalog: catalog.list_namespaces())
            raise
        self._aliases.remember(dataset, table)
        if table is not None:
            self._others.remember(dataset, table)
        return table

    def _load_by_uuid(self, dataset: str, uuid: str, targets: Sequence[Target]) -> Table:
        # the table that set something aside, whatever its name is now; after it was dropped, as its metadata files describe it
        table = self._load(dataset)
        if table is None or str(table.metadata.table_uuid) != uuid:
            every = map(self._load, self._ask_catalog(lambda catalog: [*self._every_table(catalog)]))
            table = next((other for other in every if other and str(other.metadata.table_uuid) == uuid), None)
        if table is not None:
            return table
        catalog = self._ask_catalog(lambda catalog: catalog)
        lists = {note.manifest_list for target in targets if (note := note_from(target.note))}
        io, folders = ExactFileIO(catalog.properties), sorted({location.rpartition("/")[0] for location in lists})
        try:
            files = [file for folder in folders for file in io.list_folder(folder) if ".metadata.json" in file]
            metadata = left_of_dropped([FromInputFile.table_metadata(io.new_input(file)) for file in files], uuid, lists)
        # file systems raise anything, and so does what parses the content
        except Exception as fault:
            raise Unloadable(f"metadata beside what was set aside can't be read: {_error_line(fault)}") from fault
        if metadata is None:
            why = f"its table was dropped, and no metadata in {', '.join(folders)} tells who else needs its files, so they stay"
            raise Unloadable(f"{why}. {FORGET}")
        return Table((), metadata, metadata.location, io, catalog)

    def _every_table(self, catalog: Catalog) -> Iterator[str]:
        return self._listed(catalog, catalog.list_tables, ("*",))

    def _ask_others(self, table: Table, wanted: Set[str], threads: Executor) -> dict[str, str]:
        # a table that was dropped has no name: the one that has its name or folder now is asked like the others
        dataset, look = self._dataset(table.name()), self._known_tables.look
        self._others.notice(self._ask_catalog(lambda catalog: look(catalog, self._every_table(catalog))))
        claims = self._others.claims(dataset, table, wanted, self._known_tables.locations, self._load, threads)
        # all of them are read by now
        near = self._known_tables.sharing_folder(table)
        if table.name() and (why := self._aliases.of(dataset, table, near, self._load)) is not None:
            raise Refused(why)
        return claims

    def _lines_of(self, dataset: str) -> list[Line]:
        try:
            table = self._load(dataset)
        except Unloadable as fault:
            return [{"dataset": dataset, "fault": str(fault)}]
        return lines_of(dataset, table.metadata, self.settings.model, commits=can_commit(table)) if table else []

    def _token_of(self, dataset: str) -> str | None:
        try:
            table = self._load(dataset)
        except Unloadable as fault:
            return str(fault)
        return table.metadata_location if table else None


def _load_table(catalog: Catalog, identifier: Identifier, parsed: ParsedFiles) -> Table | None:
    if len(identifier) < 2:
        # every table has a namespace; catalogs differ in how they say that it doesn't exist
        return None
    for again in (True, False):
        try:
            return load_table(catalog, identifier, parsed)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except Exception as fault:
            # a commit may remove the metadata file that the catalog has just named
            if not (again and isinstance(fault, FileNotFoundError)):
                raise Unloadable(f"the table's metadata can't be read: {_error_line(fault)}") from fault
    raise AssertionError("the second attempt returns or raises")


@contextmanager
def _unless_dropped(catalog: Catalog, namespace: Identifier) -> Iterator[None]:
    # Passes over a namespace that was dropped while others were listed. Raises if it still exists: its tables can't be seen, as
    # with a wrong address or a proxy before the catalog.
    try:
        yield
    except NoSuchNamespaceError:
        if _is_listed(catalog, namespace):
            raise


def _is_listed(catalog: Catalog, namespace: Identifier) -> bool:
    # the parent may have been dropped too; the top level always exists
    if not namespace:
        return True
    try:
        return namespace in map(tuple, catalog.list_namespaces(namespace[:-1]))
    except NoSuchNamespaceError:
        return _is_listed(catalog, namespace[:-1])


def _namespaces(catalog: Catalog, parent: Identifier) -> Iterator[Identifier]:
    with _unless_dropped(catalog, parent):
        for namespace in catalog.list_namespaces(parent):
            # catalogs without nesting answer the same for every namespace
            if len(namespace) > len(parent) and tuple(namespace[: len(parent)]) == parent:
                yield tuple(namespace)
                yield from _namespaces(catalog, tuple(namespace))


def _join_name(parts: Identifier) -> str:
    return ".".join(part.replace("%", "%25").replace(".", "%2E") for part in parts)


def _name_of(store: str, namespace: str, table: str) -> str:
    return f"{store}/{_join_name((*namespace.split('.'), table))}"


def _error_line(fault: Exception) -> str:
    # without passwords in URLs, and without the pages that some drivers add
    first = str(fault).strip().partition("\n")[0]
    return mask_secrets(masked(f"{type(fault).__name__}: {first}" if first else type(fault).__name__))

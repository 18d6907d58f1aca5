"""Files for heads: the end of the ledger's chain, in HEAD.json of the warehouse and beside the data of a store, where an older
copy of the ledger does not reach.

They also say whose warehouse or data it is: another ledger that finds such a file leaves the data alone. So does one that knows
a store at another place, until a person accepts that.

A file has one line for each ledger that goes on by itself under the same id, as copies do: each of them finds there what the
other has recorded since, and neither sweeps. Nothing here needs Spark.
"""

import json
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from secrets import token_hex

import pyarrow as pa
import pyarrow.fs as pafs

from retention_assets.datasets import DatasetFilter, by_store, store_of
from retention_assets.errors import Refused
from retention_assets.ledger import Ledger
from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.database import LedgerDatabase
from retention_assets.ledger.ledger import (
    REMEDY,
    LedgerHead,
    NotedPlace,
    head_fault,
    head_of,
    noted_places,
    owner_fault,
    remember_places,
)
from retention_assets.ledger.stores import StorePlace, newest_places
from retention_assets.pipeline.file_systems import inside, place_of, without_query
from retention_assets.settings.places import mask_secrets, mask_text
from retention_assets.stores.places import IDENTITY, is_on_disk
from retention_assets.stores.protocol import Store, call_store

NAME = "HEAD.json"
_LOG = logging.getLogger(__name__)
_HASH_LENGTH = 64
_ACTOR = "::system"
# object stores write atomically; elsewhere a file is written under another name first
_ATOMIC = ("s3", "gcs", "abfs")
# attempts to write a head while the chain grows
_ATTEMPTS = 3


class _Unreadable(Refused):
    """The file can't be read, so it is unknown whether it exists."""


@dataclass(frozen=True)
class HeadFile:
    """The file below the root of a warehouse."""

    root: str

    @property
    def store(self) -> str | None:
        """The store whose data it is beside; None for a warehouse."""
        return None

    @property
    def path(self) -> str:
        return inside(self.root, NAME)

    def read_text(self) -> str | None:
        files, place = place_of(self.path)
        if files.get_file_info(place).type is pafs.FileType.NotFound:
            return None
        with files.open_input_stream(place) as stream:
            return bytes(stream.read()).decode(errors="replace")

    def write_text(self, text: str) -> bool:
        """Replace the content atomically; False where it can't be kept."""
        files, place = place_of(self.path)
        files.create_dir(place.rpartition("/")[0], recursive=True)
        if isinstance(files, pafs.LocalFileSystem):
            from retention_assets.stores.places.own_files import write_file

            write_file(place, text.encode())
            return True
        target = place if files.type_name in _ATOMIC else f"{place}.{token_hex(8)}"
        with files.open_output_stream(target) as stream:
            stream.write(text.encode())
        if target != place:
            files.move(target, place)
        return True

    def heads(self) -> list[LedgerHead]:
        """Return the noted heads. Raises Refused if the file is unreadable or damaged."""
        try:
            text = self.read_text()
        except (OSError, pa.ArrowException) as fault:
            text = mask_text(str(fault))
            raise _Unreadable(f"{self.key} can't be read: {text}. Mend the access; nothing is swept until then.") from None
        return [] if text is None else [self._head_of(line) for line in text.splitlines() or [""]]

    def _head_of(self, line: str) -> LedgerHead:
        try:
            content = json.loads(line)
        except ValueError:
            content = None
        match content:
            case {"ledger": str(ledger), "position": int(position), "hash": str(digest)} if len(digest) == _HASH_LENGTH:
                return LedgerHead(ledger, position, digest)
        raise Refused(
            f"{self.path} is damaged: it names no end of a record, so it is unknown whether this ledger is the newest. {REMEDY}"
        )

    def write(self, *heads: LedgerHead) -> bool:
        return self.write_text("".join(f"{json.dumps(asdict(head))}\n" for head in heads))

    def note(self, database: LedgerDatabase) -> None:
        """Note where the chain of a ledger ends now. A failure is a warning and is recorded: it undoes nothing.

        A head that the chain does not hold stays: it shows that the ledger is not the newest.
        """
        try:
            is_noted, fault = self._note(database)
        except (OSError, pa.ArrowException, Refused) as error:
            is_noted, fault = False, mask_text(str(error))
        with database.reading() as connection:
            before = noted_places(connection).get(self.key)
        if fault:
            end = "" if fault.endswith((".", "…")) else "."
            _LOG.warning("The end of the record was not noted in %s: %s%s The record itself is complete.", self.key, fault, end)
        elif not is_noted:
            return
        after = NotedPlace(self.key, self.store, is_noted or (before is not None and before.noted), fault)
        if after != before:
            database.write(lambda tx: remember_places(tx, [after], _ACTOR))

    def _note(self, database: LedgerDatabase) -> tuple[bool, str | None]:
        noted, fault = self.heads(), None
        if not noted and (missing := self._missing(database)):
            # writing a head would hide that the file is gone
            return True, missing
        for _ in range(_ATTEMPTS):
            with database.reading() as connection:
                present = head_of(connection)
                strange = {head: why for head in noted if (why := head_fault(connection, head, self.key))}
            fault = next(iter(strange.values()), None)
            if any(head.ledger != present.ledger for head in strange):
                return False, fault
            if any(head.position >= present.position for head in noted if head not in strange):
                break
            # another act may have come meanwhile, whose program saw the older head: check once more
            noted = [*strange, present]
            if not self.write(*noted):
                return False, None
        return True, fault

    @property
    def key(self) -> str:
        return mask_secrets(self.path)

    def fault(self, database: LedgerDatabase) -> str | None:
        """Say why a ledger is not the newest by this file: it lacks a noted head, or the file lacks a head that it noted."""
        try:
            noted = self.heads()
        except _Unreadable as fault:
            # only a warehouse stops every sweep: an unreachable store is refused by itself
            return None if self.store else str(fault)
        except Refused as fault:
            return str(fault)
        if not noted:
            return self._missing(database)
        with database.reading() as connection:
            # data with another ledger's head is refused store by store
            own = [head for head in noted if self.store is None or head.ledger == head_of(connection).ledger]
            return next((why for head in own if (why := head_fault(connection, head, self.key))), None)

    def _missing(self, database: LedgerDatabase) -> str | None:
        with database.reading() as connection:
            noted = [place for place in noted_places(connection).values() if place.noted]
        if not any(self.has_been(place, database) for place in noted):
            return None
        moved = f"If its data is elsewhere now, run `retention audit accept --store {self.store} --reason …`. "
        return (
            f"{self.key} is missing, but this ledger noted the end of its record there: it is unknown whether an older "
            f"ledger was restored since. {moved if self.store else ''}{REMEDY}"
        )

    def has_been(self, noted: NotedPlace, database: LedgerDatabase) -> bool:  # noqa: ARG002 - roots of stores are renamed
        """Tell whether a head was noted in this file."""
        return noted.place == self.key

    def check(self, database: LedgerDatabase) -> None:
        if fault := self.fault(database):
            raise Refused(fault)

    def check_owner(self, ledger: str) -> None:
        if fault := self.other_owner(ledger):
            raise Refused(f"Nothing is written or removed there: {fault}")

    def other_owner(self, ledger: str) -> str | None:
        """Say why the file belongs to another ledger than the one of this id; None if it does not."""
        return next((fault for head in self.heads() if (fault := owner_fault(ledger, head, self.key))), None)


@dataclass(frozen=True)
class StoreHeadFile(HeadFile):
    """The identity file in the root of a store's data; left alone where the ledger does not know the data."""

    name: str

    @property
    def store(self) -> str | None:
        return self.name

    @property
    def path(self) -> str:
        return f"{self.root.rstrip('/')}/{IDENTITY}"

    def _note(self, database: LedgerDatabase) -> tuple[bool, str | None]:
        return super()._note(database) if self.is_known(database) else (False, None)

    def is_known(self, database: LedgerDatabase) -> bool:
        from retention_assets.stores.places.own_files import is_at, place_of_root

        with database.reading() as connection:
            noted = newest_places(connection).get(self.name)
        return noted is not None and is_at(noted.place, place_of_root(self.root))

    def has_been(self, noted: NotedPlace, database: LedgerDatabase) -> bool:
        # by another name, before its root was renamed: of places that were given up no head is noted
        with suppress(OSError):
            renamed = noted.place != self.key and noted.store == self.name and is_on_disk(self.root)
            return noted.place == self.key or (renamed and self.is_known(database))
        return False

    def read_text(self) -> str | None:
        # None if the root has neither head nor identity
        from retention_assets.stores.places.own_files import read_notes

        return read_notes(self.root) or None

    def write_text(self, text: str) -> bool:
        from retention_assets.stores.places.own_files import write_notes

        return write_notes(self.root, text)


def remembered_files(database: LedgerDatabase, files: Iterable[HeadFile]) -> list[HeadFile]:
    """Add the files that a ledger remembers: settings may lead elsewhere now, and roots are renamed with their files."""
    given = [*files]
    with database.reading() as connection:
        noted = [place for place in noted_places(connection).values() if place.noted]
    for remembered in noted:
        if not any(file.has_been(remembered, database) for file in given):
            place, query = without_query(remembered.place)
            root = place.rpartition("/")[0]
            given.append(HeadFile(root + query) if remembered.store is None else StoreHeadFile(root, remembered.store))
    return given


def note_heads(files: Iterable[HeadFile], database: LedgerDatabase, acts: Sequence[Act]) -> None:
    """Note where the chain ends, in the warehouse and beside the data of each store that the acts are about."""
    filters = [_stores_of(act) for act in acts]
    for file in files:
        if not acts or file.store is None or any(datasets.may_select_of(file.store) for datasets in filters):
            file.note(database)


def _stores_of(act: Act) -> DatasetFilter:
    # by its datasets; all where it names none
    if act.dataset is not None:
        return DatasetFilter((f"{store_of(act.dataset)}/*",))
    if act.deed == ActType.HOLD:
        return DatasetFilter(tuple(act.detail["datasets"].get("include", ("*",))))
    published = act.detail.get("published")
    names = [name for group in published["groups"] for name in group["datasets"]] if published else act.detail.get("datasets")
    return DatasetFilter(tuple(f"{store}/*" for store in by_store(names)) if names else ("*",))


def place_of_store(store: Store, claim: bool = False) -> str | None:
    """Return the place of all data of a store, if it can tell. `claim` leaves an identity there."""
    return call_store(store, partial(store.store_place, claim))


def head_file_of(store: Store) -> StoreHeadFile | None:
    root = store.settings.data_root
    return StoreHeadFile(root, store.name) if root else None


def place_faults(ledger: Ledger, stores: Iterable[Store], actor: str | None = None) -> dict[str, Refused]:
    """Return, by store, why nothing of it may be marked or swept. With an actor, new stores and names of roots are noted."""
    faults, found = dict[str, Refused](), dict[str, str]()
    with ledger.database.one_moment():
        noted_before, ledger_id = ledger.places.newest(), ledger.id
    for store in stores:
        noted, place = noted_before.get(store.name), None
        try:
            if fault := other_place(ledger_id, store, noted):
                raise Refused(fault)
            if actor is not None:
                place = place_of_store(store, claim=True)
        except Refused as fault:
            faults[store.name] = fault
        # a known root may have got an identity or another name, or a folder of its own when a backup was put back
        if place is not None and (noted is None or not noted.place.startswith(place)):
            found[store.name] = place
    if found and actor is not None:
        ledger.places.note(found, actor, "A run found its data there.", noted_before)
    return faults


def other_place(ledger: str, store: Store, noted: StorePlace | None) -> str | None:
    """Say why a store is not the one that the ledger of this id knows; None if it is."""
    from retention_assets.stores.places.own_files import is_at

    remedy = (
        f"Nothing of {store.name} is marked or swept. Mend the settings. If this is intended, run `retention audit accept "
        f"--store {store.name} --reason …`, which spares earlier marks."
    )
    place = place_of_store(store)
    if noted is not None and place is not None and not is_at(noted.place, place):
        return f"the data of {store.name} is at {place}, but this ledger knows it at {noted.place}. {remedy}"
    file = head_file_of(store)
    owner = file.other_owner(ledger) if file else None
    return f"{owner} {remedy}" if owner else None

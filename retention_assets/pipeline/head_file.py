"""Files for heads: the end of the ledger's chain, kept where an older copy of the ledger does not reach.

Belongs here: HEAD.json in the warehouse and the file beside the data of a store, reading and writing both, and holding a ledger
against them. They also say whose warehouse or data it is: another ledger that finds its like there leaves it alone. So does one
that knows a store at another place, until a person accepts that.
Does not belong here: the folders of the warehouse (warehouse.py, which needs Spark; this is asked where there is none), and the
file in a store's root itself (stores/files/root_file.py).

A file has one line for each ledger that goes on by itself under the same id, as copies do: each of them finds there what the
other has recorded since, and neither sweeps.
"""

import json
import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from secrets import token_hex

import pyarrow as pa
import pyarrow.fs as pafs

from retention_assets.datasets import DatasetFilter, by_store, store_of
from retention_assets.errors import Refused
from retention_assets.ledger import Ledger
from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.audit.heads import (
    REMEDY,
    LedgerHead,
    NotedPlace,
    head_fault,
    head_of,
    noted_places,
    remember_places,
)
from retention_assets.ledger.database import LedgerDatabase
from retention_assets.ledger.places import StorePlace, newest_places
from retention_assets.pipeline.file_systems import inside, place_of, without_query
from retention_assets.settings.urls import mask_secrets, mask_text
from retention_assets.stores.files.paths import IDENTITY
from retention_assets.stores.protocol import KNOWN_BY, PlacedStore, Store, StoreFailed, call_store, is_same_place

NAME = "HEAD.json"
_LOG = logging.getLogger(__name__)
_HASH_LENGTH = 64
_ACTOR = "::system"
# Where an object is there whole or not at all; elsewhere a file is written under another name first.
_WHOLE = ("s3", "gcs", "abfs")
# How often a head is written anew because the chain has grown meanwhile.
_TIMES = 3


class _Unreadable(Refused):
    """A file of which nobody can say whether it is there."""


@dataclass(frozen=True)
class HeadFile:
    """The file below the root of a warehouse."""

    root: str

    @property
    def store(self) -> str | None:
        """The store beside whose data it is."""
        return None

    @property
    def path(self) -> str:
        """Where it is."""
        return inside(self.root, NAME)

    def read_text(self) -> str | None:
        """The lines of it; none where it is not there."""
        files, place = place_of(self.path)
        if files.get_file_info(place).type is pafs.FileType.NotFound:
            return None
        with files.open_input_stream(place) as stream:
            return bytes(stream.read()).decode(errors="replace")

    def write_text(self, text: str) -> bool:
        """Replace its lines, at once or not at all; whether there is a place for them."""
        files, place = place_of(self.path)
        files.create_dir(place.rpartition("/")[0], recursive=True)
        if isinstance(files, pafs.LocalFileSystem):
            from retention_assets.stores.files.root_file import replace_file

            replace_file(place, text.encode())
            return True
        target = place if files.type_name in _WHOLE else f"{place}.{token_hex(8)}"
        with files.open_output_stream(target) as stream:
            stream.write(text.encode())
        if target != place:
            files.move(target, place)
        return True

    def heads(self) -> list[LedgerHead]:
        """The heads that were noted; refused where nobody can say."""
        try:
            text = self.read_text()
        except (OSError, pa.ArrowException) as fault:
            text = mask_text(str(fault))
            raise _Unreadable(f"{self.key} can't be read: {text}. Mend the access to it; nothing is swept before.") from None
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
            f"{self.path} is damaged: it names no end of a record, so nobody knows whether this ledger is the newest. {REMEDY}"
        )

    def read(self) -> LedgerHead | None:
        """The newest head that was noted, if any."""
        return next(iter(self.heads()[::-1]), None)

    def write(self, *heads: LedgerHead) -> bool:
        """Replace what was noted; whether there is a place for it."""
        return self.write_text("".join(f"{json.dumps(asdict(head))}\n" for head in heads))

    def note(self, database: LedgerDatabase) -> None:
        """Note where the chain of a ledger ends now. A failure is a warning and is recorded: it undoes nothing.

        A head that the chain does not hold stays: it is what shows that the ledger is not the newest.
        """
        try:
            is_noted, fault = self._note(database)
        except (OSError, pa.ArrowException, Refused) as error:
            is_noted, fault = False, mask_text(str(error))
        with database.reading() as connection:
            before = noted_places(connection).get(self.key)
        if fault:
            _LOG.warning("The end of the record was not noted in %s: %s What was recorded stands.", self.key, _ended(fault))
        elif not is_noted:
            return
        after = NotedPlace(self.key, self.store, is_noted or (before is not None and before.noted), fault)
        if after != before:
            database.write(lambda tx: remember_places(tx, [after], _ACTOR))

    def _note(self, database: LedgerDatabase) -> tuple[bool, str | None]:
        noted, fault = self.heads(), None
        if not noted and (missing := self._missing(database)):
            # To write one would hide that it is gone.
            return True, missing
        for _ in range(_TIMES):
            with database.reading() as connection:
                present = head_of(connection)
                strange = {head: why for head in noted if (why := head_fault(connection, head, self.key))}
            fault = next(iter(strange.values()), None)
            if any(head.ledger != present.ledger for head in strange):
                return False, fault
            if any(head.position >= present.position for head in noted if head not in strange):
                break
            # Another act may have come by the time it is written, whose program has seen the older head: looked at once more.
            noted = [*strange, present]
            if not self.write(*noted):
                return False, None
        return True, fault

    @property
    def key(self) -> str:
        """How the ledger remembers it."""
        return mask_secrets(self.path)

    def faults(self, database: LedgerDatabase) -> list[str]:
        """Why a ledger is not the newest by this file: a head that it does not hold, or none where it noted one."""
        try:
            noted = self.heads()
        except _Unreadable as fault:
            # A store that is away is refused by itself; a warehouse stops every sweep.
            return [] if self.store else [str(fault)]
        except Refused as fault:
            return [str(fault)]
        if not noted:
            return [missing] if (missing := self._missing(database)) else []
        with database.reading() as connection:
            # Data that carries another ledger's head is refused store by store.
            mine = [head for head in noted if self.store is None or head.ledger == head_of(connection).ledger]
            return [why for head in mine if (why := head_fault(connection, head, self.key))]

    def _missing(self, database: LedgerDatabase) -> str | None:
        with database.reading() as connection:
            remembered = noted_places(connection).get(self.key)
        if remembered is None or not remembered.noted:
            return None
        return (
            f"{self.key} is missing, and this ledger noted the end of its record there: nobody can tell whether an older ledger"
            f" was put back since. {REMEDY}"
        )

    def check(self, database: LedgerDatabase) -> None:
        """Refuse a ledger that does not hold what was noted."""
        if faults := self.faults(database):
            raise Refused(faults[0])

    def check_owner(self, database: LedgerDatabase) -> None:
        """Refuse a warehouse that belongs to another ledger."""
        if fault := self.other_owner(database):
            raise Refused(f"Nothing is written or removed there: {fault}")

    def other_owner(self, database: LedgerDatabase) -> str | None:
        """Why it belongs to another ledger, if so."""
        noted = self.heads()
        with database.reading() as connection:
            present = head_of(connection)
            faults = (head_fault(connection, head, self.key) for head in noted if head.ledger != present.ledger)
            return next(faults, None)


@dataclass(frozen=True)
class StoreHeadFile(HeadFile):
    """The file beside the data of a store, by which its root is known; left alone where the ledger does not know the data."""

    name: str

    @property
    def store(self) -> str | None:
        return self.name

    @property
    def path(self) -> str:
        return f"{self.root.rstrip('/')}/{IDENTITY}"

    def _note(self, database: LedgerDatabase) -> tuple[bool, str | None]:
        from retention_assets.stores.files.root_file import place_of_root

        with database.reading() as connection:
            noted = newest_places(connection).get(self.name)
        is_known = noted is not None and is_same_place(noted.place, place_of_root(self.root))
        return super()._note(database) if is_known else (False, None)

    def read_text(self) -> str | None:
        # A root that carries no head, or is not known yet, has none.
        from retention_assets.stores.files.root_file import read_notes

        return read_notes(self.root) or None

    def write_text(self, text: str) -> bool:
        from retention_assets.stores.files.root_file import write_notes

        return write_notes(self.root, text)


def remembered_files(database: LedgerDatabase, files: Iterable[HeadFile]) -> list[HeadFile]:
    """Files for heads, and those that a ledger remembers besides: the settings may lead elsewhere now."""
    known = {file.key: file for file in files}
    with database.reading() as connection:
        for one in noted_places(connection).values():
            if one.noted and one.place not in known:
                place, query = without_query(one.place)
                root = place.rpartition("/")[0]
                known[one.place] = HeadFile(root + query) if one.store is None else StoreHeadFile(root, one.store)
    return [*known.values()]


def stores_of(act: Act) -> DatasetFilter:
    """The stores that an act is about, as the datasets of it say; all where nothing does."""
    if act.dataset is not None:
        return DatasetFilter((f"{store_of(act.dataset)}/*",))
    if act.deed == ActType.HOLD:
        return DatasetFilter(tuple(act.detail["datasets"].get("include", ("*",))))
    published = act.detail.get("published")
    names = [name for group in published["groups"] for name in group["datasets"]] if published else act.detail.get("datasets")
    return DatasetFilter(tuple(f"{store}/*" for store in by_store(names)) if names else ("*",))


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "…")) else f"{sentence}."


def place_of_store(store: Store, claim: bool = False) -> str | None:
    """Where all data of a store is, if it can say that. Claimed: so that it is known again."""
    return call_store(store, lambda: store.store_place(claim) if isinstance(store, PlacedStore) else None)


def head_file_of(store: Store) -> StoreHeadFile | None:
    """The file for heads beside the data of a store, if it has its data below one root."""
    root = getattr(getattr(store, "settings", None), "data_root", None)
    return StoreHeadFile(root, store.name) if root else None


def is_away(fault: Refused) -> bool:
    """Whether the store could not even be asked: whoever reads it says more."""
    return isinstance(fault, StoreFailed)


def place_faults(ledger: Ledger, stores: Iterable[Store], actor: str | None = None) -> dict[str, Refused]:
    """Why nothing of a store may be marked or swept, by its name. With an actor, stores that join are noted."""
    known, faults, joining = ledger.places.newest(), dict[str, Refused](), dict[str, str]()
    for store in stores:
        noted, place = known.get(store.name), None
        try:
            if fault := other_place(ledger, store, noted):
                raise Refused(fault)
            if actor is not None:
                place = place_of_store(store, claim=True)
        except Refused as fault:
            faults[store.name] = fault
        if place is not None and (noted is None or (KNOWN_BY in place and KNOWN_BY not in noted.place)):
            joining[store.name] = place
    if joining and actor is not None:
        ledger.places.note(joining, actor, "The store joins.", known)
    return faults


def other_place(ledger: Ledger, store: Store, noted: StorePlace | None) -> str | None:
    """Why a store is not the one that the ledger knows, if it is another one."""
    remedy = (
        f"Nothing of {store.name} is marked or swept. Mend the settings, or, if this is meant, say `retention audit accept"
        f" --store {store.name} --reason …`; what was marked before is spared then."
    )
    place = place_of_store(store)
    if noted is not None and place is not None and not is_same_place(noted.place, place):
        return f"the data of {store.name} is at {place}, and this ledger knows it at {noted.place}. {remedy}"
    file = head_file_of(store)
    owner = file.other_owner(ledger.database) if file else None
    return f"{owner} {remedy}" if owner else None

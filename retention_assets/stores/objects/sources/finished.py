"""Lists of objects that were finished before they are read, and the place of the objects: only the place knows what exists now.
Columns of a list become those of `tables.OBJECTS`, without copying columns of the right type."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import DataScan, Table

from retention_assets.errors import Refused
from retention_assets.exchange.attributes import attribute_texts
from retention_assets.frames.log import INSTANT
from retention_assets.policy.durations import from_micros
from retention_assets.settings.places import mask_text
from retention_assets.sql.streams import instant_columns
from retention_assets.stores.iceberg.catalog import open_catalog
from retention_assets.stores.objects.notes import tagged_conditions
from retention_assets.stores.objects.settings import FromColumn, ObjectsSettings
from retention_assets.stores.objects.source_settings import ListedColumns, ListingTable
from retention_assets.stores.objects.sources import Pace
from retention_assets.stores.objects.tables import OBJECTS, constant_dataset, whole_batch

_NEEDED = ("key", "created_at")
# roles that an object has only if the settings name their column
_DERIVED = ("realm", "kind")
_ROLES = (*_NEEDED, "size", "etag", "version")


@dataclass(frozen=True)
class ColumnRoles:
    """Pairs of role and column: those that a list must have, and those that it may lack."""

    needed: tuple[tuple[str, str], ...]
    optional: tuple[tuple[str, str], ...]
    # truncate times to seconds, the precision of an object store's answer about one object
    whole_seconds: bool = False

    @classmethod
    def of(cls, columns: ListedColumns, settings: ObjectsSettings, whole_seconds: bool) -> Self:
        """Roles according to the settings. A column that is named there is needed."""
        named = {role: getattr(columns, role) for role in columns.model_fields_set} | derived_columns(settings)
        names = {role: named.get(role) or getattr(columns, role) or role for role in _ROLES}
        names |= {role: name for role in _DERIVED if (name := named.get(role))}
        needed = [(role, name) for role, name in names.items() if role in _NEEDED or named.get(role)]
        return cls(tuple(needed), tuple(one for one in names.items() if one not in needed), whole_seconds)

    @property
    def derived(self) -> bool:
        return any(role in _DERIVED for role, _ in self.needed)

    def among(self, there: Collection[str], where: str) -> dict[str, str]:
        """Columns of a list by role. Raises Refused if a needed one is missing."""
        for role, name in self.needed:
            if name not in there:
                raise Refused(
                    f"{where} has no column {name}, which would say the {role} of each object. It has"
                    f" {', '.join(there) or 'none'}. Name the right one under `columns` in the settings."
                )
        return dict(self.needed) | {role: name for role, name in self.optional if name in there}


def some_roles(roles: dict[str, str], columns: Collection[str] | None) -> dict[str, str]:
    """Restrict roles to the given columns, or keep all; the key always stays."""
    if columns is None:
        return roles
    wanted = {"key", *columns} | ({"etag", "version"} if "condition" in columns else set())
    return {role: name for role, name in roles.items() if role in wanted}


def derived_columns(settings: ObjectsSettings) -> dict[str, str]:
    given = {"realm": settings.realm, "kind": settings.kind_of}
    return {role: one.column for role, one in given.items() if isinstance(one, FromColumn)}


def objects_of(batch: pa.RecordBatch, roles: dict[str, str], whole_seconds: bool, where: str) -> pa.RecordBatch:
    def typed(role: str, kind: pa.DataType) -> pa.Array | None:
        if role not in roles:
            return None
        column = batch[roles[role]]
        try:
            if role in _DERIVED:
                column, faults = attribute_texts(column)
                if fault := next(iter(faults.drop_null()), None):
                    raise pa.ArrowInvalid(f"a value {fault}")
            return column if column.type == kind else column.cast(kind)
        except pa.ArrowException as fault:
            raise _refusal(where, roles[role], str(fault)) from None

    key = typed("key", pa.string())
    assert key is not None, "it is needed"
    if key.null_count:
        raise _refusal(where, roles["key"], "an object has no key")
    texts = {role: typed(role, pa.string()) for role in ("realm", "kind")}
    tags = typed("version", pa.string()), typed("etag", pa.string())
    found = {
        "size": typed("size", pa.int64()),
        "created_at": (
            instants(batch[roles["created_at"]], where, roles["created_at"], whole_seconds) if "created_at" in roles else None
        ),
        "condition": None if tags == (None, None) else tagged_conditions(*tags),
        **texts,
    }
    return whole_batch(key, {role: column for role, column in found.items() if column is not None})


def instants(column: pa.Array, where: str, name: str, whole_seconds: bool = False) -> pa.Array:
    """Convert a column of times to instants; without a zone they are UTC. Raises Refused for numbers, whose unit is unknown."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    try:
        if pa.types.is_timestamp(column.type):
            # Truncation makes no object younger.
            times = (
                column if column.type == INSTANT else column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(INSTANT)
            )
        elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            times = instant_columns(column.cast(pa.string()))
        else:
            raise _refusal(where, name, f"it is of the type {column.type}, and no timestamp")
    except pa.ArrowException as fault:
        raise _refusal(where, name, str(fault)) from None
    return pc.floor_temporal(times, unit="second") if whole_seconds else times


def _refusal(where: str, name: str, what: str) -> Refused:
    [line, *_] = what.splitlines()
    return Refused(
        f"The column {name} of {where} can't be read as a list of objects: {line}. Mend the list, or name another column."
    )


# columns that only a list knows
_SAID = ("realm", "kind")


class ObjectList(Protocol):
    """A list of objects that somebody else made."""

    def begin(self) -> datetime:
        """Time at which the list was made."""

    def shares(self, wanted: int) -> Sequence[Any]:
        """Split the list into about this many parts."""

    def read(self, share: Any, columns: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Objects of a part, with all columns or some. Columns that are left out may be null."""


class ObjectPlace(Protocol):
    def find(self, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Objects present now under the given keys."""


P = TypeVar("P")


def packed(parts: Iterable[P], weight: Callable[[P], int], shares: int) -> list[tuple[P, ...]]:
    """Pack parts into this many shares of about equal weight; heavy parts should come first."""
    packs: list[list[P]] = [[] for _ in range(max(1, shares))]
    weights = [0] * len(packs)
    for part in parts:
        least = weights.index(min(weights))
        packs[least].append(part)
        weights[least] += weight(part)
    return [tuple(pack) for pack in packs]


@dataclass(frozen=True)
class FinishedListing:
    """A finished list, and the place of its objects if the settings name it. `kind` is the list's name in the settings; with
    `derived`, only the list knows realms or kinds."""

    kind: str
    listed: ObjectList
    place: ObjectPlace | None
    derived: bool = False
    # objects of the list read per second; 0 is unlimited
    rate: float = 0

    def begin(self) -> datetime:
        return self.listed.begin()

    def shares(self, wanted: int) -> Sequence[Any]:
        return self.listed.shares(wanted)

    def read(self, share: Any) -> Iterator[pa.RecordBatch]:
        return self.listed.read(share)

    def find(self, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Ask the place; with `derived`, read the list again for realms and kinds and drop what it does not name. Raises
        Refused if the settings name no place."""
        if self.place is None:
            raise Refused(
                f"Where the objects are that the listing of kind {self.kind} names is not known, so that none can be looked at"
                " or deleted. Set `listing.path` to the folder or prefix that holds them."
            )
        found = self.place.find(keys)
        return self._derive(found) if self.derived else found

    def _derive(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Add realms and kinds from the list; a key in two realms gives two rows."""
        found = pa.Table.from_batches(batches, OBJECTS).combine_chunks()
        if not len(found):
            return
        [keys] = found["key"].chunks
        self.listed.begin()
        pace = Pace(self.rate)
        for share in self.listed.shares(1):
            for batch in self.listed.read(share, _SAID):
                pace.take(len(batch))
                at = pc.index_in(batch["key"], value_set=keys)
                if at.null_count == len(at):
                    continue
                named = batch.filter(pc.is_valid(at))
                for known in found.take(at.drop_null()).combine_chunks().to_batches():
                    columns = {name: named[name] if name in _SAID else known[name] for name in OBJECTS.names}
                    yield pa.record_batch(columns, schema=OBJECTS)

    def distinct_names(self, settings: ObjectsSettings) -> list[str] | None:
        constant = constant_dataset(settings)
        return None if constant is None else [constant]


@dataclass(frozen=True)
class TableShare:
    """Every `of`-th data file of a snapshot, by name."""

    snapshot: int
    number: int
    of: int


@dataclass
class TableObjects:
    store: str
    table: ListingTable
    roles: ColumnRoles
    # snapshot that begin() chose
    _snapshot: int | None = None

    def begin(self) -> datetime:
        with self._opened() as table:
            snapshot = table.current_snapshot()
            if snapshot is None:
                raise Refused(f"The table {self.table.name} has no snapshot, so it lists nothing yet. Write it first.")
            self._snapshot = snapshot.snapshot_id
            return from_micros(snapshot.timestamp_ms * 1000)

    def shares(self, wanted: int) -> Sequence[TableShare]:
        if self._snapshot is None:
            self.begin()
        assert self._snapshot is not None, "begin sets it"
        with self._opened() as table:
            scan, _ = self._scan(table, self._snapshot)
            files = sum(1 for _ in scan.plan_files())
        parts = max(1, min(wanted, files))
        return [TableShare(self._snapshot, number, parts) for number in range(parts)]

    def read(self, share: TableShare, columns: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        where = f"the table {self.table.name}"
        with self._opened() as table:
            scan, roles = self._scan(table, share.snapshot, columns)
            files = sorted(scan.plan_files(), key=lambda one: one.file.file_path)[share.number :: share.of]
            rows = ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter)
            for batch in rows.to_record_batches(files):
                yield objects_of(batch, roles, self.roles.whole_seconds, where)

    def _scan(self, table: Table, snapshot: int, columns: Collection[str] | None = None) -> tuple[DataScan, dict[str, str]]:
        there = [field.name for field in table.scan(snapshot_id=snapshot).projection().fields]
        roles = some_roles(self.roles.among(there, f"The table {self.table.name}"), columns)
        return table.scan(selected_fields=tuple(dict.fromkeys(roles.values())), snapshot_id=snapshot), roles

    @contextmanager
    def _opened(self) -> Iterator[Table]:
        properties = {"init_catalog_tables": "false", **self.table.catalog}
        try:
            catalog = open_catalog(self.store, properties)
            try:
                yield catalog.load_table(self.table.name)
            finally:
                catalog.close()
        except Refused:
            raise
        # Catalogs raise their drivers' exceptions: any of them means that the table cannot be read.
        except Exception as fault:
            [line, *_] = str(fault).strip().splitlines() or [""]
            raise Refused(
                f"The table {self.table.name} that lists the objects of the store {self.store} can't be read:"
                f" {type(fault).__name__}: {mask_text(line)}. Check `listing.table`, and that its catalog is up."
            ) from fault

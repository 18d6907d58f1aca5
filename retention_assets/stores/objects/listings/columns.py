"""Converts the columns of a finished list (Parquet, table, inventory) to `tables.OBJECTS`, without copying columns of the right
type."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused
from retention_assets.exchange.attributes import attribute_texts
from retention_assets.frames.log import INSTANT
from retention_assets.sql.streams import instant_columns
from retention_assets.stores.objects.notes import tagged_conditions
from retention_assets.stores.objects.settings import FromColumn, ObjectsSettings
from retention_assets.stores.objects.source_settings import ListedColumns
from retention_assets.stores.objects.tables import whole_batch

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

"""Objects out of the columns of a list that somebody else made: a file of Parquet, a table, an inventory.

Belongs here: which column says what, and types made those of `tables.OBJECTS`. Columns that have the right type already are
passed on as they are.
Does not belong here: reading the list.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused
from retention_assets.exchange.attributes import attribute_texts
from retention_assets.frames.log import INSTANT
from retention_assets.sql.streams import instant_columns
from retention_assets.stores.objects.conditions import tagged_conditions
from retention_assets.stores.objects.listing_settings import ListedColumns
from retention_assets.stores.objects.listings.batches import whole_batch
from retention_assets.stores.objects.settings import FromColumn, ObjectsSettings

_NEEDED = ("key", "created_at")
# What an object has only where the settings say by which column.
_DERIVED = ("realm", "kind")
_ROLES = (*_NEEDED, "size", "etag", "version")


@dataclass(frozen=True)
class ColumnRoles:
    """The column of each role, by the role; those that must be there, and those that may be left out."""

    needed: tuple[tuple[str, str], ...]
    optional: tuple[tuple[str, str], ...]
    # Whether times are cut to whole seconds, as an object store says them when it is asked for one object.
    whole_seconds: bool = False

    @classmethod
    def of(cls, columns: ListedColumns, settings: ObjectsSettings, whole_seconds: bool) -> Self:
        """As the settings name them. A column that is named has to be there."""
        named = {role: getattr(columns, role) for role in columns.model_fields_set} | derived_columns(settings)
        names = {role: named.get(role) or getattr(columns, role) or role for role in _ROLES}
        names |= {role: name for role in _DERIVED if (name := named.get(role))}
        needed = [(role, name) for role, name in names.items() if role in _NEEDED or named.get(role)]
        return cls(tuple(needed), tuple(one for one in names.items() if one not in needed), whole_seconds)

    @property
    def derived(self) -> bool:
        """Whether columns say realms or kinds."""
        return any(role in _DERIVED for role, _ in self.needed)

    def among(self, there: Collection[str], where: str) -> dict[str, str]:
        """The columns that a list has, by their roles. Raises Refused where one that is needed is missing."""
        for role, name in self.needed:
            if name not in there:
                raise Refused(
                    f"{where} has no column {name}, which would say the {role} of each object. It has"
                    f" {', '.join(there) or 'none'}. Name the right one under `columns` in the settings."
                )
        return dict(self.needed) | {role: name for role, name in self.optional if name in there}


def some_roles(roles: dict[str, str], columns: Collection[str] | None) -> dict[str, str]:
    """The roles of some columns of objects, or all; the key is always one of them."""
    if columns is None:
        return roles
    wanted = {"key", *columns} | ({"etag", "version"} if "condition" in columns else set())
    return {role: name for role, name in roles.items() if role in wanted}


def derived_columns(settings: ObjectsSettings) -> dict[str, str]:
    """The columns that `realm` and `kind_of` name."""
    given = {"realm": settings.realm, "kind": settings.kind_of}
    return {role: one.column for role, one in given.items() if isinstance(one, FromColumn)}


def objects_of(batch: pa.RecordBatch, roles: dict[str, str], whole_seconds: bool, where: str) -> pa.RecordBatch:
    """The objects that some rows of a list name."""

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
    """A column of times as instants; a time that names no zone is UTC. Numbers are refused: nobody says of what."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    try:
        if pa.types.is_timestamp(column.type):
            # Finer times are cut: none becomes younger by it.
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

"""Sealed rows: tables that decide something and are written row by row, each row sealed in the act that wrote it.

A seal covers every column by name, without nulls and defaults, so a column added later changes no old seal. Published versions
are the exception: 100,000 nearly equal rows at a time, so their act holds the values once for all datasets.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from functools import cache, lru_cache
from itertools import chain
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, select

from retention_assets.ledger.audit.chain import ActType
from retention_assets.ledger.schema import (
    AUDIT,
    CLOCK,
    DAYS,
    FILE_HOLDS,
    HOLDS,
    NOTED_HEADS,
    OBJECTIONS,
    PLACES,
    PLANS,
    POLICY_VERSIONS,
    PUBLISHED,
    REALMS,
    REPORTS,
    SCANS,
    VISIBILITY,
)
from retention_assets.policy.durations import text_of
from retention_assets.sql.transactions import portions

# Acts that write each table. ACCEPT, by which a person vouches for rows, may hold seals of any table.
WRITERS: Mapping[str, tuple[ActType, ...]] = {
    HOLDS.name: (ActType.HOLD, ActType.RELEASE),
    FILE_HOLDS.name: (ActType.HOLD, ActType.RELEASE),
    REALMS.name: (ActType.REALM,),
    POLICY_VERSIONS.name: (ActType.POLICY,),
    VISIBILITY.name: (ActType.ADVANCE,),
    CLOCK.name: (ActType.CLOCK, ActType.MARK),
    OBJECTIONS.name: (ActType.OBJECT, ActType.WITHDRAW),
    PLANS.name: (ActType.PLAN, ActType.FINISH),
    REPORTS.name: (ActType.REPORT, ActType.SPARE, ActType.SETTLE, ActType.UNMARK),
    DAYS.name: (ActType.REPORT,),
    SCANS.name: (ActType.SCAN, ActType.ACCEPT_SCAN),
    PLACES.name: (ActType.PLACE,),
    NOTED_HEADS.name: (ActType.HEAD,),
}
SEALED: Mapping[str, Table] = {
    table.name: table
    for table in (
        HOLDS, FILE_HOLDS, REALMS, POLICY_VERSIONS, VISIBILITY, CLOCK, OBJECTIONS, PLANS, REPORTS, DAYS, PUBLISHED, SCANS,
        PLACES, NOTED_HEADS,
    )
}  # fmt: skip
# Tables that decide what may be marked and swept.
RULES = (HOLDS, FILE_HOLDS, REALMS, POLICY_VERSIONS, VISIBILITY, CLOCK, OBJECTIONS, PLACES, NOTED_HEADS)
# The newest marking act holds it: the last id that it reserved.
_UNSEALED: Mapping[str, frozenset[str]] = {CLOCK.name: frozenset({"next_mark"})}
# A write replaces the whole row.
_REPLACED = frozenset({POLICY_VERSIONS.name})
# Keys of an act's detail that only the verification reads.
FOR_VERIFICATION = frozenset({"rows", "published"})
_LENGTH = 32

RowKey = tuple[str, tuple[str, ...]]
# table name, key values and seal; None: the row was ended
SealedRow = tuple[str, list[str], str | None]


def key_of(table: Table, row: Mapping[str, Any]) -> RowKey:
    return table.name, tuple(str(_plain(row[column.name])) for column in table.primary_key)


def row_seal(table: Table, row: Mapping[str, Any]) -> str:
    if table is PUBLISHED:
        return _published(row["act"], row["published_at"], row["run"], row["folder"])
    values = {name: _plain(value) for name, value in said_by(table, row).items()}
    text = json.dumps([table.name, values], sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_LENGTH]


@lru_cache
def _published(act: int, at: datetime | str, run: str, folder: str) -> str:
    return json.dumps([act, _plain(at), run, folder])


def said_by(table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
    """The sealed values of a row, without nulls and defaults."""
    present = ((name, default, row[name]) for name, default in _sealed_columns(table) if name in row)
    return {name: value for name, default, value in present if not _is_left_out(default, value)}


@cache
def _sealed_columns(table: Table) -> tuple[tuple[str, str | None], ...]:
    columns = [column for column in table.columns if column.name not in _UNSEALED.get(table.name, ())]
    defaults = (getattr(column.server_default, "arg", None) for column in columns)
    texts = (None if default is None else str(default).strip("'").lower() for default in defaults)
    return tuple(zip((column.name for column in columns), texts, strict=True))


def _is_left_out(default: str | None, value: Any) -> bool:
    if value is None or default is None:
        return value is None
    said = {str(value).lower(), *([str(int(value))] if isinstance(value, bool | int) else [])}
    return default in said


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return text_of(value)
    return value.isoformat() if isinstance(value, date) else value


def sealed_rows(connection: Connection, table: Table, where: ColumnElement[bool]) -> Iterator[tuple[int, SealedRow]]:
    """Rows with their seals, each behind the act that it names."""
    for row in _rows(connection, table, where):
        name, key = key_of(table, row)
        yield row["act"], (name, list(key), row_seal(table, row))


def _rows(connection: Connection, table: Table, where: ColumnElement[bool]) -> list[Mapping[str, Any]]:
    found = connection.execute(select(table).where(where).order_by(*table.primary_key)).mappings()
    return [dict(row) for row in found]


def read_rows(connection: Connection, table: Table) -> Iterator[Mapping[str, Any]]:
    with connection.execute(select(table).order_by(*table.primary_key), execution_options={"yield_per": 5_000}) as found:
        yield from (dict(row) for row in found.mappings())


def changed_past_ledger(
    connection: Connection, table: Table, where: ColumnElement[bool], own: int | None = None
) -> set[RowKey]:
    """Find rows that differ from the act that wrote them last. Rows of the act `own` are not sealed yet."""
    if table.name in _REPLACED:
        return set()
    present = {key_of(table, row): (row["act"], row_seal(table, row)) for row in _rows(connection, table, where)}
    unsure = {key: said for key, said in present.items() if said[0] != own and said != (None, initial_rows().get(key))}
    acts = sorted({act for act, _ in unsure.values() if act is not None})
    mine = (AUDIT.c.act.in_(some) for some in portions(acts))
    # Try the act that a row names, then ACCEPT acts; one query for many rows.
    for which in chain(mine, (AUDIT.c.deed == ActType.ACCEPT,)):
        if not unsure:
            break
        for act, deed, detail in connection.execute(select(AUDIT.c.act, AUDIT.c.deed, AUDIT.c.detail).where(which)):
            for key, seal in rows_in(json.loads(detail)):
                if key in unsure and unsure[key][1] == seal and (unsure[key][0] == act or deed == ActType.ACCEPT):
                    del unsure[key]
    return set(unsure)


def initial_rows() -> dict[RowKey, str | None]:
    """The rows of a new ledger that no act wrote."""
    row = {"id": 1}
    return {key_of(CLOCK, row): row_seal(CLOCK, row)}


def rows_in(detail: Mapping[str, Any]) -> Iterator[tuple[RowKey, str | None]]:
    for table, key, seal in detail.get("rows", ()):
        yield (table, tuple(key)), seal
    if published := detail.get("published"):
        for group in published["groups"]:
            for asset, run, folder in group["assets"]:
                seal = _published(published["act"], published["at"], run, folder)
                for dataset in group["datasets"]:
                    yield (PUBLISHED.name, (asset, dataset)), seal

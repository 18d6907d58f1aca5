"""Sealed rows: the tables that decide something and are written row by row, each row with a seal in the act that wrote it.

Belongs here: which tables these are, which acts write them, what a seal is over, and whether a row has the seal of the act that
it names. A seal is over every column by its name, without what is null or as the table has it where nothing is said: so a
column that is added later changes no seal of before, and is sealed from its first value on. What is published is written a
hundred thousand rows at a time that hardly differ: their act holds their words instead, once for all datasets.
Does not belong here: what is written by the million (seals.py), and sentences about faults (verify.py, before_sweep.py).
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

# The acts that write each table; what a person vouches for is in acts of its own.
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
# What decides what may be marked and swept.
RULES = (HOLDS, FILE_HOLDS, REALMS, POLICY_VERSIONS, VISIBILITY, CLOCK, OBJECTIONS, PLACES, NOTED_HEADS)
# The newest act that marked says it by the last id that it reserved.
_UNSEALED: Mapping[str, frozenset[str]] = {CLOCK.name: frozenset({"next_mark"})}
# Nothing of an earlier row is left where these are written.
_REPLACED = frozenset({POLICY_VERSIONS.name})
# What of an act's detail is for the verification alone.
FOR_VERIFICATION = frozenset({"rows", "published"})
_LENGTH = 32

# A row by the name of its table and the values of its key.
RowKey = tuple[str, tuple[str, ...]]
# What an act says of rows: table, key, and the seal, or none where there is no such row any more.
SealedRow = tuple[str, list[str], str | None]


def key_of(table: Table, row: Mapping[str, Any]) -> RowKey:
    """By what a row is found again."""
    return table.name, tuple(str(_plain(row[column.name])) for column in table.primary_key)


def row_seal(table: Table, row: Mapping[str, Any]) -> str:
    """The seal of a row, as it is."""
    if table is PUBLISHED:
        return _published(row["act"], row["published_at"], row["run"], row["folder"])
    values = {name: _plain(value) for name, value in said_by(table, row).items()}
    text = json.dumps([table.name, values], sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_LENGTH]


@lru_cache
def _published(act: int, at: datetime | str, run: str, folder: str) -> str:
    return json.dumps([act, _plain(at), run, folder])


def said_by(table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
    """What of a row its seal is over."""
    present = ((name, default, row[name]) for name, default in _sealed_columns(table) if name in row)
    return {name: value for name, default, value in present if not _is_left_out(default, value)}


@cache
def _sealed_columns(table: Table) -> tuple[tuple[str, str | None], ...]:
    """The columns that a seal of the table is over, each with what the table has in it where nothing is said."""
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


def sealed_rows(connection: Connection, table: Table, where: ColumnElement[bool]) -> list[SealedRow]:
    """Some rows of a table as they are, with their seals."""
    return [_sealed(table, row) for row in _rows(connection, table, where)]


def sealed_rows_by_act(connection: Connection, table: Table, where: ColumnElement[bool]) -> Iterator[tuple[int, SealedRow]]:
    """The same, each with the act that it names."""
    return ((row["act"], _sealed(table, row)) for row in _rows(connection, table, where))


def _rows(connection: Connection, table: Table, where: ColumnElement[bool]) -> list[Mapping[str, Any]]:
    found = connection.execute(select(table).where(where).order_by(*table.primary_key)).mappings()
    return [dict(row) for row in found]


def _sealed(table: Table, row: Mapping[str, Any]) -> SealedRow:
    name, key = key_of(table, row)
    return name, list(key), row_seal(table, row)


def read_rows(connection: Connection, table: Table) -> Iterator[Mapping[str, Any]]:
    """All rows of a table, without holding them in memory."""
    with connection.execute(select(table).order_by(*table.primary_key), execution_options={"yield_per": 5_000}) as found:
        yield from (dict(row) for row in found.mappings())


def changed_past_ledger(
    connection: Connection, table: Table, where: ColumnElement[bool], own: int | None = None
) -> set[RowKey]:
    """Which of some rows are not what the act says that wrote them last. An act's own rows have no seal yet."""
    if table.name in _REPLACED:
        return set()
    present = {key_of(table, row): (row["act"], row_seal(table, row)) for row in _rows(connection, table, where)}
    unsure = {key: said for key, said in present.items() if said[0] != own and said != (None, initial_rows().get(key))}
    acts = sorted({act for act, _ in unsure.values() if act is not None})
    mine = (AUDIT.c.act.in_(some) for some in portions(acts))
    # The act that a row names, or else one about rows of any table; the acts of many rows are read at once.
    for which in chain(mine, (AUDIT.c.deed == ActType.ACCEPT,)):
        if not unsure:
            break
        for act, deed, detail in connection.execute(select(AUDIT.c.act, AUDIT.c.deed, AUDIT.c.detail).where(which)):
            for key, seal in rows_in(json.loads(detail)):
                if key in unsure and unsure[key][1] == seal and (unsure[key][0] == act or deed == ActType.ACCEPT):
                    del unsure[key]
    return set(unsure)


def strange_row(row: SealedRow) -> SealedRow:
    """The row with a seal that it can't have: it stays a fault until a person vouches for it."""
    table, key, seal = row
    return table, key, f"!{seal}"


def key_in(row: SealedRow) -> RowKey:
    """By what a sealed row is found again."""
    return row[0], tuple(row[1])


def initial_rows() -> dict[RowKey, str | None]:
    """The one row that is there before anybody has done anything."""
    row = {"id": 1}
    return {key_of(CLOCK, row): row_seal(CLOCK, row)}


def rows_in(detail: Mapping[str, Any]) -> Iterator[tuple[RowKey, str | None]]:
    """What an act says of rows."""
    for table, key, seal in detail.get("rows", ()):
        yield (table, tuple(key)), seal
    if published := detail.get("published"):
        for group in published["groups"]:
            for asset, run, folder in group["assets"]:
                seal = _published(published["act"], published["at"], run, folder)
                for dataset in group["datasets"]:
                    yield (PUBLISHED.name, (asset, dataset)), seal

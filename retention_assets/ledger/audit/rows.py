"""Seals of rows. Rows that decide something are sealed in the act that wrote them; rows that change too often for an act each
(leases, paces, evaluations, violations) hold their own seals, and are counted per table.

A seal covers every column by name, without nulls. Published versions are the exception: 100,000 nearly equal rows at a time, so
their act holds the values once for all datasets. A row that was changed past the ledger keeps an impossible seal, whoever
writes it next.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, Table, Text, Update, and_, case, cast, func, select, tuple_, update

from retention_assets.errors import Refused
from retention_assets.ledger.audit.chain import ActType, RowSeal, teach_seals
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
    ROW_COUNTS,
    SCANS,
    STATE,
    VISIBILITY,
)
from retention_assets.policy.durations import text_of
from retention_assets.sql.transactions import insert_or_skip, insert_or_update, portions

T = TypeVar("T")
# Keys of an act's detail that only the verification reads.
_FOR_VERIFICATION = frozenset({"rows", "published"})
_LENGTH, _SHOWN = 32, 300
RowKey = tuple[str, tuple[str, ...]]
# NEW and CHANGED stand between a write and its seal in one transaction; STRANGE: the row did not match its seal before the
# write.
_NEW, _CHANGED, _STRANGE = "new", "changed", "strange"


class Sealing(NamedTuple):
    """The acts that write a table. ACCEPT, by which a person vouches for rows, may hold seals of any table."""

    writers: Collection[ActType]
    # It decides what may be marked and swept.
    is_rule: bool = False
    unsealed: str | None = None


SEALED: Mapping[Table, Sealing] = {
    HOLDS: Sealing((ActType.HOLD, ActType.RELEASE), is_rule=True),
    FILE_HOLDS: Sealing((ActType.HOLD, ActType.RELEASE), is_rule=True),
    REALMS: Sealing((ActType.REALM,), is_rule=True),
    POLICY_VERSIONS: Sealing((ActType.POLICY,), is_rule=True),
    VISIBILITY: Sealing((ActType.ADVANCE,), is_rule=True),
    # The newest marking act holds the next mark: the last id that it reserved.
    CLOCK: Sealing((ActType.CLOCK, ActType.MARK), is_rule=True, unsealed="next_mark"),
    OBJECTIONS: Sealing((ActType.OBJECT, ActType.WITHDRAW), is_rule=True),
    PLACES: Sealing((ActType.PLACE,), is_rule=True),
    NOTED_HEADS: Sealing((ActType.HEAD,), is_rule=True),
    PLANS: Sealing((ActType.PLAN, ActType.FINISH)),
    REPORTS: Sealing((ActType.REPORT, ActType.SPARE, ActType.SETTLE, ActType.RESTORE, ActType.UNMARK)),
    DAYS: Sealing((ActType.REPORT,)),
    SCANS: Sealing((ActType.SCAN, ActType.ACCEPT_SCAN)),
    PUBLISHED: Sealing((ActType.PUBLISH,)),
}


class Recorded(NamedTuple):
    """Newest seal of a row (None: the row was ended) and the position of the act that holds it."""

    seal: str | None
    position: int


class RowFault(NamedTuple):
    """A row that differs from the record; `seal` is its present seal, None if the row is gone."""

    key: RowKey
    sentence: str
    seal: str | None


def row_seal(table: Table, row: Mapping[str, Any]) -> str:
    if table is PUBLISHED:
        return _published(row["act"], row["published_at"], row["run"], row["folder"])
    values = [table.name, _sealed_values(table, row)]
    text = json.dumps(values, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=_as_text)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:_LENGTH]


def _sealed_values(table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
    unsealed = SEALED[table].unsealed
    return {name: value for name, value in row.items() if value is not None and name != unsealed}


@lru_cache
def _published(act: int, at: datetime | str, run: str, folder: str) -> str:
    return json.dumps([act, text_of(at) if isinstance(at, datetime) else at, run, folder])


def _as_text(value: Any) -> str:
    # A value written past the ledger may have any type.
    return text_of(value) if isinstance(value, datetime) else str(value)


def _key_of(table: Table, row: Mapping[str, Any]) -> RowKey:
    return table.name, tuple(str(row[column.name]) for column in table.primary_key)


# The row of a new ledger that no act wrote.
INITIAL: Mapping[RowKey, Recorded] = {(CLOCK.name, ("1",)): Recorded(row_seal(CLOCK, {"id": 1}), 0)}


def sealed_rows(connection: Connection, table: Table, where: ColumnElement[bool]) -> Iterator[tuple[int | None, RowKey, str]]:
    """Rows with their seals, each behind the act that it names."""
    for row in map(dict, connection.execute(select(table).where(where).order_by(*table.primary_key)).mappings()):
        yield row["act"], _key_of(table, row), row_seal(table, row)


def changed_past_ledger(connection: Connection, table: Table, where: ColumnElement[bool], own: Collection[int]) -> set[RowKey]:
    """Find rows that differ from the act that wrote them last. Rows of the acts `own` are not sealed yet."""
    initial = {key: row.seal for key, row in INITIAL.items()}
    present = ((act, key, seal) for act, key, seal in sealed_rows(connection, table, where) if act not in own)
    unsure = {key: (act, seal) for act, key, seal in present if (act, seal) != (None, initial.get(key))}
    acts = sorted({act for act, _ in unsure.values() if act is not None})
    # Try the act that a row names, then ACCEPT acts; one query for many rows.
    for condition in chain((AUDIT.c.act.in_(part) for part in portions(acts)), (AUDIT.c.deed == ActType.ACCEPT,)):
        if not unsure:
            break
        for act, deed, detail in connection.execute(select(AUDIT.c.act, AUDIT.c.deed, AUDIT.c.detail).where(condition)):
            for key, seal in rows_in(detail_in(detail)):
                if key in unsure and unsure[key][1] == seal and (unsure[key][0] == act or deed == ActType.ACCEPT):
                    del unsure[key]
    return set(unsure)


def rows_in(detail: Mapping[str, Any]) -> Iterator[tuple[RowKey, str | None]]:
    for table, key, seal in detail.get("rows", ()):
        yield (table, tuple(key)), seal
    if published := detail.get("published"):
        for group in published["groups"]:
            for asset, run, folder in group["assets"]:
                seal = _published(published["act"], published["at"], run, folder)
                for dataset in group["datasets"]:
                    yield (PUBLISHED.name, (asset, dataset)), seal


def row_faults(
    connection: Connection, tables: Iterable[Table], recorded: Mapping[RowKey, Recorded], only_recorded: bool = False
) -> Iterator[RowFault]:
    """Find rows that were changed, added or removed; with `only_recorded`, only among rows that the chain mentions."""
    wanted = [*tables]
    names = {table.name for table in wanted}
    missing = {key: last for key, last in recorded.items() if last.seal is not None and key[0] in names}
    for table in wanted:
        query = select(table).order_by(*table.primary_key)
        with connection.execute(query, execution_options={"yield_per": 5_000}) as rows:
            for row in map(dict, rows.mappings()):
                key, seal = _key_of(table, row), row_seal(table, row)
                missing.pop(key, None)
                last = recorded.get(key)
                if (last is None and only_recorded) or (last is not None and last.seal == seal):
                    continue
                says = _shown(_sealed_values(table, row))
                if last is None or last.seal is None:
                    what = f"was added past the ledger: no act wrote it. It contains {says}."
                else:
                    what = f"was changed past the ledger: it contains {says}; {_act_at(connection, last.position)}."
                yield RowFault(key, f"{name_of(key)} {what}", seal)
    for key, last in sorted(missing.items()):
        yield RowFault(key, f"{name_of(key)} was removed past the ledger; {_act_at(connection, last.position)}.", None)


def name_of(key: RowKey) -> str:
    table, values = key
    return f"Row {', '.join(values)} of {table}"


def _act_at(connection: Connection, position: int) -> str:
    row = connection.execute(select(AUDIT.c.deed, AUDIT.c.detail).where(AUDIT.c.position == position)).one_or_none()
    if row is None:
        return "no act is recorded"
    detail = {name: value for name, value in detail_in(row.detail).items() if name not in _FOR_VERIFICATION}
    return f"row {position} of the audit ({row.deed}) recorded {_shown(detail)}"


def detail_in(text: str) -> Mapping[str, Any]:
    """The detail of an act. A row that was changed past the ledger may hold anything; then it is empty."""
    try:
        detail = json.loads(text)
    except (TypeError, ValueError):
        return {}
    return detail if isinstance(detail, dict) else {}


def mapping_in(text: str) -> dict[str, Any]:
    return dict(json.loads(text))


def stored(row: str, text: str, parse: Callable[[str], T]) -> T:
    """Parse what a row has in text. Raises Refused where it can't be read."""
    try:
        return parse(text)
    except (TypeError, ValueError, LookupError, AttributeError):
        raise Refused(
            f"{row} of the ledger can't be read: {text[:_SHOWN]!r}. It was changed past the ledger. `retention audit verify` "
            "says what the record has. Write that back, or restore the newest backup of the ledger."
        ) from None


def _shown(values: Mapping[str, Any]) -> str:
    text = json.dumps(values, ensure_ascii=False, sort_keys=True, default=str)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def text_in(dialect: str, column: ColumnElement[Any]) -> ColumnElement[str]:
    """Cast a column to text, whatever type a SQLite file holds in it."""
    text = cast(column, Text)
    return text if dialect != "sqlite" else case((func.typeof(column) == "blob", func.quote(column)), else_=text)


def _touched(table: Table) -> ColumnElement[str]:
    return case((table.c.seal == RowSeal(table), _CHANGED), else_=_STRANGE)


def put_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]], changed: Collection[str] = ()) -> None:
    """Insert rows. An existing row gets the new values of the columns `changed`, or stays as it is."""
    teach_seals(connection)
    keys = [column.name for column in table.primary_key]
    for part in portions(rows):
        statement = insert_or_skip(connection, table)
        if changed:
            statement = insert_or_update(connection, table, keys, changed, {"seal": _touched(table)})
        connection.execute(statement, [{**row, "seal": _NEW} for row in part])
        written = [tuple(row[key] for key in keys) for row in part]
        _seal_written(connection, table, tuple_(*table.primary_key).in_(written), with_new=True)


def change_rows(connection: Connection, statement: Update, where: ColumnElement[bool]) -> Sequence[Any]:
    """Execute an update, reseal the rows that `where` finds afterwards, and return what the update returns."""
    teach_seals(connection)
    table: Any = statement.table
    done = connection.execute(statement.values(seal=_touched(table)))
    rows = done.all() if done.returns_rows else ()
    _seal_written(connection, table, where, with_new=False)
    return rows


def _seal_written(connection: Connection, table: Table, where: ColumnElement[bool], with_new: bool) -> None:
    if with_new and (count := _count(connection, table, where, table.c.seal == _NEW)):
        here = ROW_COUNTS.c.name == table.name
        change_rows(connection, update(ROW_COUNTS).where(here).values(rows=ROW_COUNTS.c.rows + count), here)
    written = and_(where, table.c.seal.in_([_NEW, _CHANGED]))
    connection.execute(update(table).where(written).values(seal=RowSeal(table)))


def seal_state(connection: Connection) -> None:
    teach_seals(connection)
    for table in STATE:
        row = {"name": table.name, "rows": _count(connection, table), "seal": _NEW}
        connection.execute(insert_or_update(connection, ROW_COUNTS, ["name"], ["rows"]).values(**row))
    for table in (*STATE, ROW_COUNTS):
        seal_rows(connection, table)


def seal_rows(connection: Connection, table: Table) -> None:
    teach_seals(connection)
    connection.execute(update(table).values(seal=RowSeal(table)))


def state_faults(connection: Connection) -> Iterator[str]:
    teach_seals(connection)
    for table in (*STATE, ROW_COUNTS):
        for row in connection.execute(_not_as_sealed(connection.dialect.name, table)).mappings():
            key = ", ".join(str(row[column.name]) for column in table.primary_key)
            values = ", ".join(f"{name} {value}" for name, value in row.items() if name != "seal" and value is not None)
            yield f"Row {key} of {table.name} was changed or added past the ledger: its seal is not that of {values[:300]}."
    counts = select(ROW_COUNTS.c.name, cast(ROW_COUNTS.c.rows, Text))
    written = {name: rows for name, rows in connection.execute(counts)}  # noqa: C416 - the rows are no pairs to a type checker
    for table in STATE:
        count = str(_count(connection, table))
        if written.get(table.name) != count:
            yield (
                f"The table {table.name} has {count} rows, and the ledger wrote "
                f"{written.get(table.name, 'an unknown number')}: rows were added or removed past the ledger."
            )


# to build a statement takes longer than to run it over a small table
@cache
def _not_as_sealed(dialect: str, table: Table) -> Select[Any]:
    texts: list[Any] = [text_in(dialect, column).label(column.name) for column in table.columns]
    return select(*texts).where(table.c.seal.is_distinct_from(RowSeal(table))).order_by(*table.primary_key)


def _count(connection: Connection, table: Table, *where: ColumnElement[bool]) -> int:
    return int(connection.execute(select(func.count()).select_from(table).where(*where)).scalar_one())

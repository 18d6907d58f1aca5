"""Finds rows that differ from the newest seal in the chain, and names each in a sentence."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Boolean, ColumnElement, Connection, Date, Integer, Table, Text, case, cast, func, select, type_coerce

from retention_assets.ledger.audit.chain import ActType
from retention_assets.ledger.audit.rows import FOR_VERIFICATION, RowKey, key_of, read_rows, row_seal, said_by
from retention_assets.ledger.schema import AUDIT, AUDIT_HEAD, CLOCK, MARKS, METADATA

_SHOWN = 300


class Recorded(NamedTuple):
    """Newest seal of a row (None: the row was ended) and the position of the act that holds it."""

    seal: str | None
    position: int


class RowFault(NamedTuple):
    """A row that differs from the record; `seal` is its present seal, None if the row is gone."""

    key: RowKey
    sentence: str
    seal: str | None


def row_faults(
    connection: Connection, tables: Iterable[Table], recorded: Mapping[RowKey, Recorded], only_recorded: bool = False
) -> Iterator[RowFault]:
    """Find rows that were changed, added or removed; with `only_recorded`, only among rows that the chain mentions."""
    wanted = [*tables]
    missing = {key: one for key, one in recorded.items() if one.seal is not None and key[0] in {table.name for table in wanted}}
    for table in wanted:
        for row in read_rows(connection, table):
            key, seal = key_of(table, row), row_seal(table, row)
            missing.pop(key, None)
            found = recorded.get(key)
            if found is None or found.seal is None:
                if not only_recorded or found:
                    what = f"was added past the ledger: no act wrote it. It says {_said(said_by(table, row))}."
                    yield RowFault(key, f"{_name(key)} {what}", seal)
            elif found.seal != seal:
                what = (
                    f"was changed past the ledger: it says {_said(said_by(table, row))}; {_act_at(connection, found.position)}."
                )
                yield RowFault(key, f"{_name(key)} {what}", seal)
    for key, one in sorted(missing.items()):
        yield RowFault(key, f"{_name(key)} was removed past the ledger; {_act_at(connection, one.position)}.", None)


def single_faults(connection: Connection, ledger: str | None) -> Iterator[str]:
    """Check the two single values that no seal covers: the ledger's id and the next mark id."""
    present = connection.execute(select(AUDIT_HEAD.c.ledger)).scalar_one()
    if ledger is not None and ledger != present:
        yield f"The head of the audit says that this is ledger {present}, and its first row is of ledger {ledger}."
    newest = connection.execute(select(func.max(MARKS.c.id))).scalar_one()
    following = connection.execute(select(CLOCK.c.next_mark)).scalar_one_or_none()
    recorded = _next_mark(connection)
    if following != recorded:
        there = "no mark" if newest is None else f"a mark {newest}"
        yield (
            f"The clock says that the next mark is {following}, and there is {there}; by the record it is {recorded}: its"
            " next_mark was changed."
        )


def _next_mark(connection: Connection) -> int:
    """Next mark id by the newest marking act, or by a later act in which a person vouched for another one."""
    marked, vouched = (
        connection.execute(
            select(AUDIT.c.position, AUDIT.c.detail)
            .where(AUDIT.c.deed == deed, AUDIT.c.dataset.is_(None))
            .order_by(AUDIT.c.position.desc())
            .limit(1)
        ).one_or_none()
        for deed in (ActType.MARK, ActType.ACCEPT)
    )
    said = _read(vouched.detail).get("next_mark") if vouched and (not marked or vouched.position > marked.position) else None
    if said is None:
        said = _read(marked.detail).get("last", 0) + 1 if marked else 1
    return int(said)


def text_in(connection: Connection, column: ColumnElement[Any]) -> ColumnElement[str]:
    """Cast a column to text, whatever type a SQLite file holds in it."""
    text = cast(column, Text)
    return (
        text if connection.dialect.name != "sqlite" else case((func.typeof(column) == "blob", func.quote(column)), else_=text)
    )


def unreadable_values(connection: Connection, of: type[object] = object) -> Iterator[str]:
    """Find values of the wrong type, which SQLite allows; `of` limits the check to columns of a type."""
    if connection.dialect.name != "sqlite":
        return
    for table in METADATA.sorted_tables:
        keys = [text_in(connection, column) for column in table.primary_key]
        for column in filter(lambda column: isinstance(column.type, of), table.columns):
            is_text = isinstance(column.type, Text | Date)
            wrong: ColumnElement[bool] = func.typeof(column).not_in(["null", "text" if is_text else "integer"])
            if isinstance(column.type, Boolean):
                wrong |= type_coerce(column, Integer).not_in([0, 1])
            elif isinstance(column.type, Date):
                wrong |= func.date(column).is_distinct_from(type_coerce(column, Text))
            for *key, kind in connection.execute(select(*keys, func.typeof(column)).where(wrong, column.is_not(None))):
                name = _name((table.name, tuple(map(str, key))))
                yield f"{name} was changed past the ledger: its {column.name} can't be read, it is a value of type {kind}."


def _name(key: RowKey) -> str:
    table, values = key
    return f"Row {', '.join(values)} of {table}"


def _act_at(connection: Connection, position: int) -> str:
    row = connection.execute(select(AUDIT.c.deed, AUDIT.c.detail).where(AUDIT.c.position == position)).one_or_none()
    if row is None:
        return "nothing was recorded before anybody did anything"
    detail = {name: value for name, value in _read(row.detail).items() if name not in FOR_VERIFICATION}
    return f"row {position} of the audit ({row.deed}) recorded {_said(detail)}"


def _read(detail: str) -> Mapping[str, Any]:
    try:
        found = json.loads(detail)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _said(values: Mapping[str, Any]) -> str:
    words = json.dumps(values, ensure_ascii=False, sort_keys=True, default=str)
    return words if len(words) <= _SHOWN else f"{words[:_SHOWN]}…"

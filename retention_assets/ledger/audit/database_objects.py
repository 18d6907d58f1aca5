"""Objects of a database that act on the ledger's tables or stand beside them, and values of a wrong type."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Boolean, ColumnElement, Connection, Date, Integer, Select, Text, func, select, text, type_coerce

from retention_assets.ledger.audit.rows import name_of, text_in
from retention_assets.ledger.schema import METADATA
from retention_assets.sql.columns import IdsColumn

_TABLES = {*METADATA.tables}
_INDEXES = {str(index.name) for table in METADATA.tables.values() for index in table.indexes}
_FILE = text("SELECT type, name, tbl_name FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY type, name")
_OURS = "(SELECT to_regclass(quote_ident(name)) FROM unnest(cast(:names AS text[])) AS name)"
_SERVER = text(
    f"""
    SELECT 'trigger', tgname, tgrelid::regclass::text FROM pg_trigger WHERE NOT tgisinternal AND tgrelid IN {_OURS}
    UNION ALL SELECT 'rule', rulename, ev_class::regclass::text
      FROM pg_rewrite WHERE rulename <> '_RETURN' AND ev_class IN {_OURS}
    UNION ALL SELECT 'row level security', relname, oid::regclass::text
      FROM pg_class WHERE relrowsecurity AND oid IN {_OURS}
    UNION ALL SELECT 'kind of relation', relkind::text, oid::regclass::text
      FROM pg_class WHERE relkind <> 'r' AND oid IN {_OURS}
    UNION ALL SELECT 'table that inherits', inhrelid::regclass::text, inhparent::regclass::text
      FROM pg_inherits WHERE inhparent IN {_OURS}
    ORDER BY 1, 2, 3
    """
).bindparams(names=sorted(_TABLES))
OTHER_TABLES = text(
    "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'v', 'm', 'f', 'p')"
    " AND relname <> ALL (:names) AND relname !~ '^staged_[a-z]+_[0-9]+_[0-9a-f]{16}$' ORDER BY relname"
).bindparams(names=sorted(_TABLES))


def unreadable_values(connection: Connection, only_booleans: bool = False) -> Iterator[str]:
    """Find values of the wrong type, which SQLite allows."""
    if connection.dialect.name != "sqlite":
        return
    for table, column, query in _values_of_other_types(only_booleans):
        for *key, kind in connection.execute(query):
            name = name_of((table, tuple(map(str, key))))
            yield f"{name} was changed past the ledger: its {column} can't be read: it has the type {kind}."


# to build a statement takes longer than to run it over a small table
@cache
def _values_of_other_types(only_booleans: bool) -> Sequence[tuple[str, str, Select[Any]]]:
    queries: list[Any] = []
    kind = Boolean if only_booleans else object
    for column in (column for table in METADATA.sorted_tables for column in table.columns if isinstance(column.type, kind)):
        is_text = isinstance(column.type, Text | Date | IdsColumn)
        wrong: ColumnElement[bool] = func.typeof(column).not_in(["null", "text" if is_text else "integer"])
        if isinstance(column.type, Boolean):
            wrong |= type_coerce(column, Integer).not_in([0, 1])
        elif isinstance(column.type, Date):
            wrong |= func.date(column).is_distinct_from(type_coerce(column, Text))
        keys = [text_in("sqlite", key) for key in column.table.primary_key]
        query = select(*keys, func.typeof(column)).where(wrong, column.is_not(None))
        queries.append((column.table.name, column.name, query))
    return queries


def acting_faults(connection: Connection) -> Iterator[str]:
    """Find triggers and other objects that act on the ledger's tables or replace one."""
    if connection.dialect.name != "sqlite":
        for kind, name, table in connection.execute(_SERVER):
            yield _foreign(kind, name, table)
        return
    present = {(kind, name): table for kind, name, table in connection.execute(_FILE)}
    for (kind, name), table in present.items():
        if kind == "trigger" or (kind != "table" and name in _TABLES):
            yield _foreign(kind, name, table)
    for kind, names in (("table", _TABLES), ("index", _INDEXES)):
        for name in sorted(names - {there for its_kind, there in present if its_kind == kind}):
            yield f"The {kind} {name} of the ledger is missing: it was dropped past the ledger."


def foreign_faults(connection: Connection) -> Iterator[str]:
    """Find acting objects and, in a SQLite file, every table, view and index that is not the ledger's."""
    yield from acting_faults(connection)
    if connection.dialect.name == "sqlite":
        for kind, name, table in connection.execute(_FILE):
            if kind != "trigger" and name not in _TABLES | _INDEXES:
                yield _foreign(kind, name, table)


def _foreign(kind: str, name: str, table: str) -> str:
    where = "in the ledger's file" if kind in ("table", "view") else f"on {table}"
    return f"The {kind} {name} {where} is not part of the ledger. Find out who made it and drop it."

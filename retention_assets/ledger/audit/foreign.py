"""Foreign objects in the ledger's database. Anything that acts on ledger tables (trigger, rule, row filter) is a fault.

In a SQLite file any other table, view or index is a fault too; in a shared PostgreSQL schema other tables are a remark.
"""

from collections.abc import Iterator

from sqlalchemy import Connection, text

from retention_assets.ledger.schema import METADATA

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
_OTHERS = text(
    "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'v', 'm', 'f', 'p')"
    " AND relname <> ALL (:names) AND relname !~ '^staged_[a-z]+_[0-9]+_[0-9a-f]{16}$' ORDER BY relname"
).bindparams(names=sorted(_TABLES))


def acting_faults(connection: Connection) -> Iterator[str]:
    """Find triggers and other objects that act on the ledger's tables or replace one."""
    if connection.dialect.name == "sqlite":
        present = {(kind, name): table for kind, name, table in connection.execute(_FILE)}
        for (kind, name), table in present.items():
            if kind == "trigger" or (kind != "table" and name in _TABLES):
                yield _sentence(kind, name, table)
        for kind, names in (("table", _TABLES), ("index", _INDEXES)):
            for name in sorted(names - {there for its_kind, there in present if its_kind == kind}):
                yield f"The {kind} {name} of the ledger is missing: it was dropped past the ledger."
        return
    for kind, name, table in connection.execute(_SERVER):
        yield _sentence(kind, name, table)


def foreign_faults(connection: Connection) -> Iterator[str]:
    """Find acting objects and, in a SQLite file, every table, view and index that is not the ledger's."""
    yield from acting_faults(connection)
    if connection.dialect.name == "sqlite":
        for kind, name, table in connection.execute(_FILE):
            if kind != "trigger" and name not in _TABLES | _INDEXES:
                yield _sentence(kind, name, table)


def other_tables(connection: Connection) -> list[str]:
    if connection.dialect.name == "sqlite":
        return []
    return [f"The table {name} in the ledger's schema is not the ledger's." for name in connection.execute(_OTHERS).scalars()]


def _sentence(kind: str, name: str, table: str) -> str:
    where = "in the ledger's file" if kind in ("table", "view") else f"on {table}"
    return f"The {kind} {name} {where} is not the ledger's. Find out who made it and drop it."

"""References: foreign keys, triggers, rules and partitions, by which a database changes more rows than a deletion names.

Read from the database's catalog, transitively. `References.hidden` tells if it shows only a part: hidden is not absent.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, Table, inspect
from sqlalchemy.exc import DBAPIError

from retention_assets.sql.errors import driver_message, is_transient
from retention_assets.sql.foreign import ForeignDatabase, Place, folds_case, inspecting, place_on, places_on, table_of

# Actions on referring rows. Any other keeps the referenced row from being deleted.
_ACTS = frozenset({"CASCADE", "SET NULL", "SET DEFAULT"})


@dataclass(frozen=True)
class ForeignKey:
    name: str | None
    table: Place
    columns: tuple[str, ...]
    to: Place
    to_columns: tuple[str, ...]
    on_delete: str
    on_update: str

    @property
    def acts(self) -> bool:
        """Referring rows are deleted or changed with the row."""
        return self.on_delete in _ACTS

    @property
    def follows_updates(self) -> bool:
        return self.on_update in _ACTS


@dataclass(frozen=True)
class DeleteHook:
    """A trigger or rule that runs when rows of a table are deleted. `replaces`: it runs instead of the deletion."""

    table: Place
    name: str
    is_rule: bool = False
    replaces: bool = False


@dataclass(frozen=True)
class References:
    """Tables, and all others that lose or change rows with them."""

    asked: tuple[Place, ...]
    # kind of each that is no table, also among their parts
    no_tables: Mapping[Place, str] = field(default_factory=dict)
    # each table itself and what a deletion from it also reaches: partitions and inheriting tables
    parts: Mapping[Place, frozenset[Place]] = field(default_factory=dict)
    keys: tuple[ForeignKey, ...] = ()
    hooks: tuple[DeleteHook, ...] = ()
    # Columns that differ in case are different; otherwise all are lower case here.
    tells_case: bool = True
    # Why this may be incomplete, with its remedy.
    hidden: str | None = None


@dataclass(frozen=True)
class _Catalog(ABC):
    connection: Connection

    def hidden(self) -> str | None:
        return None

    def parts(self, _: Collection[Place]) -> Mapping[Place, frozenset[Place]]:
        return {}

    @abstractmethod
    def no_tables(self, places: Collection[Place]) -> Mapping[Place, str]: ...

    @abstractmethod
    def keys_to(self, places: Collection[Place]) -> Iterable[ForeignKey]: ...

    @abstractmethod
    def hooks(self, places: Collection[Place]) -> Iterable[DeleteHook]: ...


def references_of(database: ForeignDatabase, tables: Sequence[Table]) -> References:
    with inspecting(database) as connection:
        asked = tuple(places_on(connection, tables))
        try:
            return _read(_CATALOGS[database.dialect](connection), asked, database.dialect == "postgresql")
        except DBAPIError as fault:
            if is_transient(fault):
                raise
            return References(asked, hidden=f"{driver_message(fault)}. Let its user read the catalog of the database")


def kind_of(database: ForeignDatabase, name: str) -> str | None:
    """Kind of an object that is no table, such as a view; None for a table. Raises Refused if it is missing."""
    with inspecting(database) as connection:
        place = place_on(connection, table_of(database, name))
        return _CATALOGS[database.dialect](connection).no_tables([place]).get(place)


def _read(catalog: _Catalog, asked: tuple[Place, ...], tells_case: bool) -> References:
    parts: dict[Place, frozenset[Place]] = {}
    keys: dict[ForeignKey, None] = {}
    waiting = set(asked)
    while waiting:
        new = {place: frozenset({place}) for place in waiting} | dict(catalog.parts(waiting))
        parts |= new
        new_keys = list(catalog.keys_to(frozenset().union(*new.values())))
        keys |= dict.fromkeys(new_keys)
        waiting = {key.table for key in new_keys if key.acts or key.follows_updates} - parts.keys()
    own_parts = frozenset().union(*(parts[place] for place in asked))
    hooks = tuple(catalog.hooks(frozenset().union(*parts.values())))
    return References(asked, catalog.no_tables(own_parts), parts, tuple(keys), hooks, tells_case, catalog.hidden())


class _PostgreSQL(_Catalog):
    """PostgreSQL's catalog: all schemas, readable by everybody."""

    def hidden(self) -> str | None:
        role = self.connection.exec_driver_sql("SELECT current_setting('session_replication_role')").scalar()
        if role != "replica":
            return None
        return "session_replication_role is replica for its user, so no foreign key is checked. Set it to origin"

    def no_tables(self, places: Collection[Place]) -> Mapping[Place, str]:
        kinds = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}
        query = f"SELECT wanted.*, c.relkind::text {self._FROM} WHERE c.relkind NOT IN ('r', 'p')"
        rows = self._rows(query, places)
        return {(schema, name): kinds.get(kind, "no table") for schema, name, kind in rows}

    def parts(self, places: Collection[Place]) -> Mapping[Place, frozenset[Place]]:
        query = (
            f"WITH RECURSIVE family (top, part) AS (SELECT c.oid, c.oid {self._FROM} UNION"
            " SELECT family.top, i.inhrelid FROM family JOIN pg_inherits i ON i.inhparent = family.part)"
            " SELECT tn.nspname::text, t.relname::text, pn.nspname::text, p.relname::text FROM family"
            " JOIN pg_class t ON t.oid = family.top JOIN pg_namespace tn ON tn.oid = t.relnamespace"
            " JOIN pg_class p ON p.oid = family.part JOIN pg_namespace pn ON pn.oid = p.relnamespace"
        )
        families: dict[Place, set[Place]] = {}
        for schema, name, *part in self._rows(query, places):
            families.setdefault((schema, name), set()).add((part[0], part[1]))
        return {place: frozenset(members) for place, members in families.items()}

    def keys_to(self, places: Collection[Place]) -> Iterable[ForeignKey]:
        columns = (
            "ARRAY(SELECT a.attname::text FROM unnest(k.{0}key) WITH ORDINALITY AS u (number, position)"
            " JOIN pg_attribute a ON a.attrelid = k.{0}relid AND a.attnum = u.number ORDER BY u.position)"
        )
        query = (
            f"SELECT k.oid, k.conparentid, k.conname::text, fn.nspname::text, f.relname::text, {columns.format('con')},"
            f" wanted.schema, wanted.name, {columns.format('conf')}, k.confdeltype::text, k.confupdtype::text {self._FROM}"
            " JOIN pg_constraint k ON k.confrelid = c.oid AND k.contype = 'f'"
            " JOIN pg_class f ON f.oid = k.conrelid JOIN pg_namespace fn ON fn.oid = f.relnamespace ORDER BY k.oid"
        )
        rows = self._rows(query, places)
        oids = {row[0] for row in rows}
        actions = {"c": "CASCADE", "n": "SET NULL", "d": "SET DEFAULT", "r": "RESTRICT"}
        for _, parent, name, schema, table, referring, to_schema, to_table, referred, deleted, updated in rows:
            # Each partition has a copy of its table's key, which adds nothing.
            if parent not in oids:
                yield ForeignKey(
                    name, (schema, table), tuple(referring), (to_schema, to_table), tuple(referred),
                    actions.get(deleted, "NO ACTION"), actions.get(updated, "NO ACTION"),
                )  # fmt: skip

    def hooks(self, places: Collection[Place]) -> Iterable[DeleteHook]:
        # The fourth bit of a trigger's type, and the fourth event of a rule, mean deletion.
        triggers = (
            f"SELECT wanted.*, t.tgname::text {self._FROM} JOIN pg_trigger t ON t.tgrelid = c.oid"
            " WHERE NOT t.tgisinternal AND t.tgenabled <> 'D' AND t.tgtype::int & 8 <> 0 ORDER BY t.oid"
        )
        rules = (
            f"SELECT wanted.*, r.rulename::text, r.is_instead {self._FROM} JOIN pg_rewrite r ON r.ev_class = c.oid"
            " WHERE r.ev_type = '4' AND r.ev_enabled <> 'D' ORDER BY r.oid"
        )
        hooks = [DeleteHook((schema, table), name) for schema, table, name in self._rows(triggers, places)]
        return hooks + [DeleteHook((row[0], row[1]), row[2], True, row[3]) for row in self._rows(rules, places)]

    _FROM = (
        "FROM unnest(%s::text[], %s::text[]) AS wanted (schema, name)"
        " JOIN pg_namespace n ON n.nspname = wanted.schema"
        " JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name"
    )

    def _rows(self, query: str, places: Collection[Place]) -> Sequence[Any]:
        schemas, names = [place[0] for place in places], [place[1] for place in places]
        return self.connection.exec_driver_sql(query, (schemas, names)).all()


class _SQLite(_Catalog):
    """SQLite's catalog: one schema with case-insensitive names."""

    def no_tables(self, places: Collection[Place]) -> Mapping[Place, str]:
        query = "SELECT name, type, sql FROM sqlite_master WHERE type IN ('table', 'view')"
        kinds = {_main(name): (kind, sql or "") for name, kind, sql in self.connection.exec_driver_sql(query)}
        kinds_by_place = {}
        for place in places:
            kind, sql = kinds.get(place, ("table", ""))
            if kind == "view":
                kinds_by_place[place] = "a view"
            elif re.match(r"\s*CREATE\s+VIRTUAL\b", sql, re.IGNORECASE):
                kinds_by_place[place] = "a virtual table"
        return kinds_by_place

    def keys_to(self, places: Collection[Place]) -> Iterable[ForeignKey]:
        # Names require parsing the table's statement.
        return [replace(key, name=self._names(table).get(key.columns)) for table, key in self._keys if key.to in places]

    def hooks(self, places: Collection[Place]) -> Iterable[DeleteHook]:
        query = "SELECT tbl_name, name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY name"
        for table, name, sql in self.connection.exec_driver_sql(query):
            if _main(table) in places and re.search(r"\bDELETE\s+ON\b", sql, re.IGNORECASE):
                yield DeleteHook(_main(table), name)

    @cached_property
    def _keys(self) -> list[tuple[str, ForeignKey]]:
        # SQLAlchemy parses keys from SQLite's statements and misses some actions, but it has the names.
        query = (
            'SELECT m.name, k.id, k."table", k."from", k."to", k.on_delete, k.on_update FROM sqlite_master m,'
            " pragma_foreign_key_list(m.name) k WHERE m.type = 'table' ORDER BY m.name, k.id, k.seq"
        )
        rows_by_key: dict[tuple[str, int], list[Any]] = {}
        for row in self.connection.exec_driver_sql(query):
            rows_by_key.setdefault((row[0], row[1]), []).append(row)
        keys = []
        for (table, _), rows in rows_by_key.items():
            to = rows[0][2]
            columns = tuple(row[3].lower() for row in rows)
            # A key without columns refers to the primary key.
            to_columns = tuple(row[4].lower() for row in rows if row[4]) or self._primary_key(to)
            key = ForeignKey(None, _main(table), columns, _main(to), to_columns, rows[0][5].upper(), rows[0][6].upper())
            keys.append((table, key))
        return keys

    def _primary_key(self, table: str) -> tuple[str, ...]:
        query = "SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk"
        return tuple(name.lower() for (name,) in self.connection.exec_driver_sql(query, (table,)))

    def _names(self, table: str) -> dict[tuple[str, ...], str | None]:
        keys = inspect(self.connection).get_foreign_keys(table)
        return {tuple(column.lower() for column in key["constrained_columns"]): key["name"] for key in keys}


class _MariaDB(_Catalog):
    """MariaDB's and MySQL's catalog, which shows only tables on which the user has a right."""

    # Each of these, granted globally, shows all keys. SELECT does not.
    _SHOW_ALL = frozenset(
        {"ALL PRIVILEGES", "ALTER", "CREATE", "DELETE", "DROP", "INDEX", "INSERT", "REFERENCES", "TRIGGER", "UPDATE"}
    )
    # engines whose rows are in another table or on another server
    _ELSEWHERE = frozenset({"CONNECT", "FEDERATED", "MRG_MYISAM", "SPIDER"})

    def hidden(self) -> str | None:
        grants = [str(row[0]) for row in self.connection.exec_driver_sql("SHOW GRANTS")]
        rights = {right.strip() for text in grants if (match := _GLOBAL.match(text)) for right in match[1].split(",")}
        if rights & self._SHOW_ALL and not any(text.startswith("REVOKE") for text in grants):
            return None
        return (
            "its user sees only tables on which it has rights, but others may refer to these. GRANT REFERENCES ON *.* "
            "shows it the keys of all tables, without rights to read or change rows; grant that"
        )

    def no_tables(self, places: Collection[Place]) -> Mapping[Place, str]:
        kinds_by_place = {}
        query = "SELECT table_schema, table_name, table_type, engine FROM information_schema.tables WHERE"
        for schema, name, kind, engine in self._rows(query, ("table_schema", "table_name"), places):
            place = self._place(schema, name)
            if place in places and kind not in ("BASE TABLE", "SYSTEM VERSIONED"):
                kinds_by_place[place] = f"a {kind.lower()}"
            elif place in places and str(engine).upper() in self._ELSEWHERE:
                kinds_by_place[place] = f"a table of the engine {engine}, whose rows are elsewhere,"
        return kinds_by_place

    def keys_to(self, places: Collection[Place]) -> Iterable[ForeignKey]:
        return [key for key in self._keys if key.to in places]

    def hooks(self, places: Collection[Place]) -> Iterable[DeleteHook]:
        columns = ("event_object_schema", "event_object_table")
        triggers = f"SELECT {', '.join(columns)}, trigger_name FROM information_schema.triggers"
        query = f"{triggers} WHERE event_manipulation = 'DELETE' AND"
        for schema, table, name in self._rows(query, columns, places):
            if (place := self._place(schema, table)) in places:
                yield DeleteHook(place, name)

    @cached_property
    def _keys(self) -> list[ForeignKey]:
        # Two queries: each view scans all tables, so a join or a query per table would cost much more.
        columns: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
        query = (
            "SELECT table_schema, table_name, constraint_name, column_name, referenced_column_name"
            " FROM information_schema.key_column_usage WHERE referenced_table_name IS NOT NULL ORDER BY ordinal_position"
        )
        for *key, column, to_column in self.connection.exec_driver_sql(query):
            columns.setdefault((key[0], key[1], key[2]), []).append((column.lower(), to_column.lower()))
        query = (
            "SELECT constraint_schema, table_name, constraint_name, unique_constraint_schema, referenced_table_name,"
            " delete_rule, update_rule FROM information_schema.referential_constraints ORDER BY 1, 2, 3"
        )
        keys = []
        for schema, table, name, to_schema, to_table, deleted, updated in self.connection.exec_driver_sql(query):
            pairs = columns.get((schema, table, name), [])
            referring, referred = tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)
            place, to = self._place(schema, table), self._place(to_schema, to_table)
            keys.append(ForeignKey(name, place, referring, to, referred, deleted.upper(), updated.upper()))
        return keys

    @cached_property
    def _folds(self) -> bool:
        return folds_case(self.connection)

    def _place(self, schema: str, name: str) -> Place:
        return (schema.lower(), name.lower()) if self._folds else (schema, name)

    def _rows(self, query: str, columns: tuple[str, str], places: Collection[Place]) -> Sequence[Any]:
        either = " OR ".join([f"({columns[0]} = %s AND {columns[1]} = %s)"] * len(places))
        values = tuple(part for place in places for part in place)
        return self.connection.exec_driver_sql(f"{query} ({either})", values).all()


_GLOBAL = re.compile(r"GRANT (.+?) ON \*\.\* TO ")
_CATALOGS: Mapping[str, Callable[[Connection], _Catalog]] = {
    "postgresql": _PostgreSQL,
    "sqlite": _SQLite,
    "mysql": _MariaDB,
    "mariadb": _MariaDB,
}


def _main(name: str) -> Place:
    return "main", name.lower()

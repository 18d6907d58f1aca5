"""The log of a records store: rows of the root table as RECORD transactions, read page by page along the key.

Pages continue after the last key (OFFSET would read everything again). A unit of work is OPEN until it has closed; its type is
the attribute `type`. No query takes a lock or stays open longer than one page, so that the database need not keep old row
versions for a whole reading.

Writes during a reading may be in the log or not; rows are independent, so none of them is wrong.
"""

import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import BINARY, ColumnElement, Connection, LargeBinary, Row, Select, Text, cast, func, literal, select

from retention_assets.errors import quote
from retention_assets.exchange.attributes import attribute_map
from retention_assets.frames.arrays import join_chunks
from retention_assets.frames.log import INSTANT, LINES
from retention_assets.policy.realms import NAME_RULE, may_own_datasets
from retention_assets.sql.foreign import ForeignDatabase
from retention_assets.sql.streams import are_datetimes
from retention_assets.stores.records.tables import ATTRIBUTE_COLUMNS, TIMES, RecordTables, attribute_text

# units of work read at once: in key order, and by name
PAGE, NAMED = 200_000, 5_000
_HASH = "retention_crc32"


@dataclass(frozen=True)
class KeyPaging:
    """Continuation after a key. Without a size everything is one page: numbers and texts as keys have no common order."""

    tables: RecordTables
    size: float
    as_number: bool

    def query(self, query: Select[Any], after: str | None) -> Select[Any]:
        if self.size != float("inf"):
            query = query.limit(int(self.size))
        return query if after is None else query.where(self.tables.root.key.beyond(after, self.as_number))


def paging_of(database: ForeignDatabase, tables: RecordTables, size: int) -> KeyPaging:
    """Choose the paging for the present keys: only SQLite can mix types in one column."""
    if tables.dialect != "sqlite":
        return KeyPaging(tables, size, as_number=False)
    key = tables.root.key.column
    with database.reading() as connection:
        ends = set(connection.execute(select(func.typeof(func.min(key)), func.typeof(func.max(key)))).one())
    return KeyPaging(tables, size if ends in ({"integer"}, {"text"}) else float("inf"), as_number=ends == {"integer"})


def read_pages(database: ForeignDatabase, tables: RecordTables, query: Select[Any], size: int) -> Iterator[Sequence[Row[Any]]]:
    """Yield rows in key order; the first column is the key as text."""
    paging, after = paging_of(database, tables, size), None
    while True:
        with database.reading() as connection:
            rows = connection.execute(paging.query(query, after)).all()
        if rows:
            yield rows
        if len(rows) < paging.size:
            return
        after = rows[-1][0]


def lines_of(
    database: ForeignDatabase, tables: RecordTables, root: str, datasets: Collection[str], page: int = PAGE
) -> pa.Table:
    """Return units of work as lines, or a line with the fault for each dataset. `root` is the dataset without a realm."""
    realms = [name.removeprefix(f"{root}/") for name in datasets]
    query = _select(tables)
    if len(realms) == 1 and root not in datasets:
        query = query.where(tables.of_realm(realms[0]))
    return _lines_of_batches(_pages(database, tables, query, page), tables, root, datasets)


def realms_of(database: ForeignDatabase, tables: RecordTables) -> list[str | None]:
    """Realms that rows name, as the database has them, None among them if some name none."""
    if tables.realm is None:
        return [None]
    with database.reading() as connection:
        query = select(tables.realm.label("realm")).select_from(tables.root.table)
        return list(connection.execute(query.group_by(*_apart(tables.realm, tables.dialect))).scalars())


def lines_of_some(database: ForeignDatabase, tables: RecordTables, root: str, dataset: str, ids: Sequence[str]) -> pa.Table:
    return _lines_of_batches(_named(database, tables, ids), tables, root, [dataset])


def _lines_of_batches(
    batches: Iterator[pa.RecordBatch], tables: RecordTables, root: str, datasets: Collection[str]
) -> pa.Table:
    try:
        rows = pa.Table.from_batches(batches, _schema_of(tables))
        wrong = next((name for name in TIMES if name in rows.column_names and not are_datetimes(rows[name])), None)
    except pa.ArrowException as fault:
        return _fault_lines(datasets, f"a time of its root table is not an instant: {str(fault).splitlines()[0]}")
    if wrong is not None:
        return _fault_lines(datasets, f"{wrong} of one of its rows is infinite, or outside of the years 1 to 9999")
    if tables.realm is None:
        return _lines_of_rows(rows, pa.repeat(root, len(rows)))
    realms = join_chunks(rows["realm"].dictionary_encode())
    names: list[str] = realms.dictionary.to_pylist()
    own = pa.array([dataset_of(root, name) for name in names], pa.string()).take(realms.indices).fill_null(root)
    lines = _lines_of_rows(rows, own)
    bad = next((name for name in names if not may_own_datasets(name)), None)
    if bad is not None:
        text = f"the realm column holds {quote(bad)}, which is not a valid name: {NAME_RULE}"
        lines = pa.concat_tables([lines, _fault_lines([root], text)])
    return lines.filter(pc.is_in(lines["dataset"], pa.array(sorted(datasets), pa.string())))


def tokens_of(database: ForeignDatabase, tables: RecordTables) -> dict[str | None, str]:
    """Return a text per realm that changes with any change of what its log says. One scan of the root table."""
    texts = [tables.root.key.text, *tables.texts]
    with database.reading() as connection:
        query = _checksum(connection, texts).select_from(tables.root.table)
        if tables.realm is None:
            rows, total = connection.execute(query).one()
            return {None: f"{rows}-{total or 0}"}
        query = query.add_columns(tables.realm).group_by(*_apart(tables.realm, tables.dialect))
        return {realm: f"{rows}-{total or 0}" for rows, total, realm in connection.execute(query).all()}


def _apart(realm: ColumnElement[Any], dialect: str) -> list[ColumnElement[Any]]:
    # texts that the database holds to be equal are groups of their own
    return [realm] if dialect in ("postgresql", "sqlite") else [realm, cast(realm, BINARY)]


def dataset_of(root: str, realm: str | None) -> str:
    """Dataset of the rows of a realm. Rows that name what is no realm are in the root's, with a fault."""
    return root if realm is None or not may_own_datasets(realm) else f"{root}/{realm}"


def _schema_of(tables: RecordTables) -> pa.Schema:
    kinds = {"transaction": pa.string(), **dict.fromkeys(TIMES, INSTANT), **dict.fromkeys(ATTRIBUTE_COLUMNS, pa.string())}
    there = {"transaction", *tables.log_columns}
    return pa.schema([pa.field(name, kind) for name, kind in kinds.items() if name in there])


def _select(tables: RecordTables) -> Select[Any]:
    schema, key = _schema_of(tables), tables.root.key
    columns = {"transaction": key.text, **{name: tables.time(name) for name in TIMES if name in schema.names}}
    for name in ATTRIBUTE_COLUMNS:
        if name in schema.names:
            text = tables.realm if name == "realm" else attribute_text(tables.log_columns[name], tables.dialect)
            assert text is not None
            columns[name] = text
    return select(*(columns[name].label(f"c{at}") for at, name in enumerate(schema.names))).order_by(key.column)


def _named(database: ForeignDatabase, tables: RecordTables, ids: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(ids), NAMED):
        query = _select(tables).where(tables.root.key.exactly(ids[first : first + NAMED]))
        yield from database.batches(query, _schema_of(tables), bytes_too=False)


def _pages(database: ForeignDatabase, tables: RecordTables, query: Select[Any], page: int) -> Iterator[pa.RecordBatch]:
    paging, schema = paging_of(database, tables, page), _schema_of(tables)
    after: str | None = None
    while True:
        rows = 0
        # on SQLite each of these columns is a text or null
        for batch in database.batches(paging.query(query, after), schema, bytes_too=False):
            rows, after = rows + len(batch), batch["transaction"][-1].as_py()
            yield batch
        if rows < paging.size or after is None:
            return


def _lines_of_rows(rows: pa.Table, datasets: pa.Array) -> pa.Table:
    # each column is one array, so that it is not copied
    size, given = len(rows), {name: join_chunks(rows[name]) for name in rows.column_names}
    del rows
    columns = {
        "dataset": datasets,
        "transaction": given["transaction"],
        "parent_given": pa.repeat(True, size),
        "type": pa.repeat("RECORD", size),
        "status": pc.if_else(pc.is_null(given["closed_at"]), "OPEN", "COMMITTED"),
        **{name: given[name] for name in TIMES if name in given},
    }
    if names := [name for name in ATTRIBUTE_COLUMNS if name in given]:
        columns["attributes"] = attribute_map({name: given[name] for name in names})
    nothing = {field.type: pa.nulls(size, field.type) for field in LINES if field.name not in columns}
    return pa.table([columns.get(field.name, nothing.get(field.type)) for field in LINES], schema=LINES)


def _fault_lines(datasets: Collection[str], fault: str) -> pa.Table:
    return pa.Table.from_pylist([{"dataset": name, "fault": fault} for name in sorted(datasets)], schema=LINES)


def _checksum(connection: Connection, texts: list[Any]) -> Select[Any]:
    """Row count and sum of a hash per row, so that values swapped between two rows are noticed."""
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        # a C function, so that no Python runs per row; it wants bytes
        driver.create_function(_HASH, 1, zlib.crc32, deterministic=True)
        hashed: ColumnElement[Any] = getattr(func, _HASH)(cast(func.json_array(*texts), LargeBinary))
        return select(*_sums_of(hashed))
    as_text = connection.dialect.name == "postgresql"
    there = [func.coalesce(cast(text, Text) if as_text else text, "\x1e") for text in texts]
    separated = func.concat(*[part for text in there for part in (text, literal("\x1f"))][:-1])
    hashed = func.hashtextextended(separated, 0) if as_text else func.crc32(separated)
    return select(*_sums_of(hashed))


def _sums_of(hashed: ColumnElement[Any]) -> list[ColumnElement[Any]]:
    return [func.count(), func.sum(hashed)]

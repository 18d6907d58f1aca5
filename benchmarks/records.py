"""Units of work in PostgreSQL, five child tables of two rows each: reading them, deleting them beside the driver alone, and what
a sweep costs those who write meanwhile.

Belongs here: the tables, both sides, and the writers. The server is started for the run, with its own settings; the tables are
loaded by the server itself. The bare side deletes the same keys table by table in one transaction per batch: it asks nothing, and
writes nothing down.
"""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import psycopg

from benchmarks.ledger import postgresql
from benchmarks.measures import Contender
from benchmarks.others import do, tell_waits
from retention_assets.outcomes import Outcome
from retention_assets.stores.protocol import Target
from retention_assets.stores.records import RecordsSettings
from retention_assets.stores.records.log import lines_of, tokens_of
from retention_assets.stores.records.store import RecordsStore
from retention_assets_tests.stores.records.cycle import UnitsCycle

if TYPE_CHECKING:
    from benchmarks.sections import Bench

CHILDREN = ("summary", "process_object", "mds_object", "pds_object", "custom_object")
AS_OF = datetime(2026, 6, 1, tzinfo=UTC)
PARALLELISM = 8
_WRITERS, _WRITES = 2, 1_000


@dataclass
class Depot:
    """Tables with so many units of work in a running server; `taken` of them were deleted so far."""

    url: str
    units: int
    taken: int = 0

    def __post_init__(self) -> None:
        do(
            self.url,
            "CREATE TABLE unit_of_work (id text PRIMARY KEY, started_at timestamptz NOT NULL, finished_at timestamptz,"
            " archived_at timestamptz, journey_type text)",
            "INSERT INTO unit_of_work SELECT 'uow-' || lpad(n::text, 12, '0'), timestamptz '2021-01-01' + n * interval '1 second',"
            f" timestamptz '2021-01-02' + n * interval '1 second', NULL, 'PAYMENT' FROM generate_series(1, {self.units}) n",
            *(statement for child in CHILDREN for statement in self._child(child)),
            "VACUUM ANALYZE",
        )

    def _child(self, name: str) -> tuple[str, str, str]:
        return (
            f"CREATE TABLE {name} (n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, unit_of_work_id text NOT NULL, content text)",
            f"INSERT INTO {name} (unit_of_work_id, content) SELECT 'uow-' || lpad(n::text, 12, '0'), repeat('x', 200)"
            f" FROM generate_series(1, {self.units}) n, generate_series(1, 2)",
            f"CREATE INDEX ON {name} (unit_of_work_id)",
        )

    @property
    def settings(self) -> dict[str, Any]:
        """As somebody writes them."""
        root = {
            "table": "unit_of_work",
            "key": "id",
            "opened_at": "started_at",
            "closed_at": "finished_at",
            "type": "journey_type",
        }
        children = [{"table": name, "key": "unit_of_work_id"} for name in CHILDREN]
        return {"name": "ods", "kind": "records", "url": self.url, "root": root, "children": children}

    def store(self) -> RecordsStore:
        """The store over it."""
        return RecordsStore(RecordsSettings.model_validate(self.settings))

    def next_ids(self, amount: int) -> list[str]:
        """Units of work that nobody has deleted yet, which are then taken."""
        first, self.taken = self.taken + 1, min(self.taken + amount, self.units)
        return [f"uow-{number:012}" for number in range(first, self.taken + 1)]

    def left(self) -> tuple[int, ...]:
        """Rows of units of work that were there from the beginning, by table."""
        counts = []
        with psycopg.connect(self.url) as connection:
            for table, key in (("unit_of_work", "id"), *((child, "unit_of_work_id") for child in CHILDREN)):
                row = connection.execute(f"SELECT count(*) FROM {table} WHERE {key} LIKE 'uow-%'".encode()).fetchone()
                counts.append(row[0] if row else 0)
        return tuple(counts)


def records(bench: "Bench") -> None:
    """Reading and deleting units of work."""
    amount = max(bench.sizes.rows // 100, 400)
    with postgresql(bench.folder / "records") as place:
        bench.say(f"making {amount:,} units of work with {10 * amount:,} rows of children")
        shop = Depot(place("shop"), amount)
        store = shop.store()
        reading: dict[str, Contender] = {
            "read": lambda: _silent(lines_of(store.database, store.tables, store.dataset, [store.dataset])),
            "token": lambda: _silent(tokens_of(store.database, store.tables)),
        }
        bench.meet("records", f"read {amount:,} units of work", reading, amount, 1)
        _sweeping(bench, shop, store)
        _latency(bench, shop, store)
        _whole(bench, shop)
        mine, *children = shop.left()
        bench.report.agree("rows of children and roots", mine, sum(abs(2 * mine - child) for child in children))
        store.close()
    bench.clear("records")
    bench.clear("cycle")


def _silent(_: object) -> None:
    """Seconds are all that counts."""


def _sweeping(bench: "Bench", shop: Depot, store: RecordsStore) -> None:
    """So many at a time, without a pause."""
    share = shop.units // 10
    for batch in (500, 2_000):
        contenders: dict[str, Contender] = {
            "floor: driver alone": partial(_by_driver, shop, shop.next_ids(share), batch),
            "store": partial(_by_store, store, shop.next_ids(share), batch),
        }
        bench.meet("records", f"delete in batches of {batch:,} over {PARALLELISM}, unpaced", contenders, share, 1)


def _by_driver(shop: Depot, ids: Sequence[str], batch: int) -> None:
    with psycopg.connect(shop.url) as connection:
        for at in range(0, len(ids), batch):
            for child in CHILDREN:
                statement = f"DELETE FROM {child} WHERE unit_of_work_id = ANY(%s)".encode()
                connection.execute(statement, [list(ids[at : at + batch])])
            connection.execute("DELETE FROM unit_of_work WHERE id = ANY(%s)", [list(ids[at : at + batch])])
            connection.commit()


def _by_store(store: RecordsStore, ids: Sequence[str], batch: int) -> float:
    """Seconds of the deletions; the notes are made for the whole plan before."""
    targets = [Target(one.transaction, one.note) for one in store.prepare(store.dataset, ids)]
    began = perf_counter()
    for at in range(0, len(targets), batch):
        swept = store.sweep(store.dataset, targets[at : at + batch], PARALLELISM)
        assert all(one.outcome is Outcome.DELETED for one in swept), swept[:3]
    return perf_counter() - began


def _whole(bench: "Bench", shop: Depot) -> None:
    """What is left of them through the engine: the door, the plan, the ledger's record of each batch, and deleting."""
    left = shop.units - shop.taken
    cycle = UnitsCycle(bench.folder / "cycle", [shop])
    select = {"older_than": {"age": "P2Y", "align": "day"}}
    cycle.purges({"name": "ods", "datasets": {"include": ["ods/*"]}, "select": select, "sweep": {"batch": 2_000}})
    seconds = dict[str, Contender]()
    seconds["mark"] = lambda: _silent(cycle.marks(AS_OF))
    seconds["sweep, batches of 2,000"] = lambda: _silent(cycle.sweeps(AS_OF))
    bench.meet("records", f"the whole cycle over {left:,}", seconds, left, 1)
    bench.report.agree("units of work that the cycle left", left, shop.left()[0])


def _latency(bench: "Bench", shop: Depot, store: RecordsStore) -> None:
    """What writers wait for their transactions: alone, beside a sweep at the usual pace, and beside one without a pause."""
    bench.say("records: writers")
    found: dict[str, list[float]] = {}
    writes = max(20, min(_WRITES, shop.units // 100))
    # By turns, so that none of them has the warmest server.
    for turn in range(3):
        for name, every in (
            ("writers alone", None),
            ("beside a sweep of 500 a second", 1.0),
            ("beside a sweep without a pause", 0.0),
        ):
            with _sweep(shop, store, every):
                with ThreadPoolExecutor(_WRITERS) as threads:
                    writers = [f"{turn}{name}{number}" for number in range(_WRITERS)]
                    waits = list(threads.map(partial(_written, shop, writes), writers))
                found.setdefault(name, []).extend(one for some in waits for one in some)
    tell_waits(bench, "records", found)


@contextmanager
def _sweep(shop: Depot, store: RecordsStore, every: float | None) -> Iterator[None]:
    """While open, units of work are deleted, 500 at a time, until a tenth of them is gone."""
    over = threading.Event()

    def sweeps() -> None:
        end = min(shop.taken + shop.units // 20, shop.units)
        while shop.taken < end and not over.is_set():
            # In a small run a batch is smaller too: something has to be left for the whole cycle.
            _by_store(store, shop.next_ids(min(500, shop.units // 20)), 500)
            over.wait(every or 0)

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(sweeps) if every is not None else None
        try:
            yield
        finally:
            over.set()
            if running:
                running.result()


def _written(shop: Depot, amount: int, writer: str) -> list[float]:
    """Seconds of each of so many transactions: a new unit of work with its children, and an older one of the writer's ends."""
    waits = []
    with psycopg.connect(shop.url) as connection:
        for number in range(amount):
            began, name = perf_counter(), f"new-{writer}-{number}"
            connection.execute("INSERT INTO unit_of_work VALUES (%s, now(), NULL, NULL, 'PAYMENT')", [name])
            for child in CHILDREN[:2]:
                connection.execute(f"INSERT INTO {child} (unit_of_work_id, content) VALUES (%s, 'x')".encode(), [name])
            connection.execute("UPDATE unit_of_work SET finished_at = now() WHERE id = %s", [f"new-{writer}-{number - 3}"])
            connection.commit()
            waits.append(perf_counter() - began)
    return waits

"""DataHub's table in PostgreSQL: reading and judging it beside the one SQL statement that does the same, sweeping it, and what
a sweep costs those who write meanwhile.

Belongs here: the table, both sides, and the writers. The server is started for the run, with its own settings; the table is
loaded by the server itself. What is judged: three history versions are kept, and what is younger than thirty days.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import cycle
from pathlib import Path
from shutil import rmtree
from time import perf_counter
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow.compute as pc
import pyarrow.dataset as ds

from benchmarks.ledger import postgresql
from benchmarks.measures import Contender, Times
from benchmarks.others import do, tell_waits
from benchmarks.ours import MARKS, Judge
from retention_assets.frames import columns_for
from retention_assets.outcomes import Outcome
from retention_assets.pipeline.read_logs import read_stores
from retention_assets.pipeline.stage import Source, run_stage
from retention_assets.policy import AspectEntry, Policy, policies_for
from retention_assets.stores.aspects import AspectsSettings
from retention_assets.stores.aspects.log import ROWS
from retention_assets.stores.aspects.rows import key_of
from retention_assets.stores.aspects.store import AspectsStore
from retention_assets.stores.logs import ChosenDatasets
from retention_assets.stores.protocol import Target
from retention_assets_tests.stores.records.cycle import UnitsCycle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from benchmarks.sections import Bench

AS_OF = datetime(2026, 3, 31, 12, tzinfo=UTC)
ENTITIES, ASPECTS = (
    ("chart", "corpuser", "dashboard", "dataFlow", "dataset"),
    ("domains", "ownership", "schemaMetadata", "status"),
)
VERSIONS = 10
_PER_URN = len(ASPECTS) * VERSIONS
_ENTRY = {
    "entity": "*",
    "aspect": "*",
    "config": {"retention": {"version": {"maxVersions": 3}, "time": {"maxAgeInSeconds": 2_592_000}}},
}
_STATEMENT = """
    CREATE UNLOGGED TABLE marked AS SELECT urn, aspect, version FROM (
        SELECT urn, aspect, version, createdon,
            row_number() OVER (PARTITION BY urn, aspect ORDER BY version = 0 DESC, version DESC) AS place
        FROM {table}
    ) AS placed WHERE place > 4 AND createdon < timestamp '2026-03-31 12:00:00' - interval '30 days'
"""
_WRITERS, _WRITES = 2, 1_500


@dataclass
class Hub:
    """A table of so many rows in a running server."""

    url: str
    rows: int
    table: str = field(init=False)

    def __post_init__(self) -> None:
        self.table = f"metadata_aspect_{self.rows}"
        urns = max(self.rows // _PER_URN, 2)
        self.rows = urns * _PER_URN
        aspects, entities = (str(list(words)).replace('"', "'") for words in (ASPECTS, ENTITIES))
        do(
            self.url,
            f"CREATE TABLE {self.table} (urn varchar(500) NOT NULL, aspect varchar(200) NOT NULL, version bigint NOT NULL, metadata"
            " text NOT NULL, systemmetadata text, createdon timestamp(6) NOT NULL, createdby varchar(255) NOT NULL, createdfor"
            " varchar(255))",
            f"INSERT INTO {self.table} SELECT"
            f" 'urn:li:' || (ARRAY{entities})[1 + n % {len(ENTITIES)}] || ':(urn:li:dataPlatform:hive,db.table_' || n || ',PROD)',"
            " aspect, version, '{\"of\": ' || n || ', \"is\": \"' || repeat('x', 80) || '\"}', '{\"runId\": \"no-run-id-provided\"}',"
            f" timestamp '2026-03-31' - (CASE version WHEN 0 THEN 0 ELSE {VERSIONS} - version END) * interval '10 days', 'urn:li:corpuser:x'"
            f" FROM generate_series(1, {urns}) n, unnest(ARRAY{aspects}) aspect, generate_series(0, {VERSIONS - 1}) version",
            f"ALTER TABLE {self.table} ADD PRIMARY KEY (urn, aspect, version)",
            f"VACUUM ANALYZE {self.table}",
        )

    @property
    def settings(self) -> dict[str, Any]:
        """As somebody writes them."""
        return {"name": "meta", "kind": "aspects", "url": self.url, "table": self.table}

    def store(self) -> AspectsStore:
        """The store over it."""
        return AspectsStore(AspectsSettings.model_validate(self.settings))

    def by_statement(self) -> int:
        """Marks by one statement; how many."""
        do(self.url, "DROP TABLE IF EXISTS marked", _STATEMENT.format(table=self.table))
        with psycopg.connect(self.url) as connection:
            row = connection.execute("SELECT count(*) FROM marked").fetchone()
        return row[0] if row else 0

    def by_store(self, spark: "SparkSession", folder: Path, parts: dict[str, float]) -> int:
        """Marks by reading through the store on Spark's tasks, and the stage; how many. `parts` gets the seconds of each."""
        rmtree(folder, ignore_errors=True)
        began = perf_counter()
        store = self.store()
        names = store.datasets()
        listed = perf_counter()
        read_stores(spark, [ChosenDatasets(store, tuple(names))], str(folder / "log"))
        read = perf_counter()
        judge = _judge(names)
        run_stage(spark, [Source(str(folder / "log"))], str(folder / "marks"), MARKS, judge, tuple(columns_for(judge.policies)))
        parts |= {"list": listed - began, "read": read - listed, "judge": perf_counter() - read}
        store.close()
        found = ds.dataset(folder / "marks" / MARKS[0]).scanner(columns=["verdict"], filter=pc.field("verdict") == "mark")
        return int(found.count_rows())

    def streamed(self) -> None:
        """Every row once, and forgotten."""
        store = self.store()
        keys = [key_of("meta", name) for name in store.datasets()]
        assert sum(len(batch) for batch in store.database.batches(store.table.rows(store.table.among(keys)), ROWS)) == self.rows
        store.close()

    def due(self, entity: str, aspect: str, most: int) -> list[str]:
        """Transactions of a dataset that were marked by the statement."""
        with psycopg.connect(self.url) as connection:
            found = connection.execute(
                "SELECT urn || '@' || version FROM marked WHERE aspect = %s AND urn LIKE %s ORDER BY urn, version LIMIT %s",
                (aspect, f"urn:li:{entity}:%", most),
            )
            return [name for (name,) in found]


def _judge(names: list[str]) -> Judge:
    policies: tuple[Policy, ...] = tuple(policies_for([AspectEntry.model_validate(_ENTRY)], names))
    return Judge(policies=policies, as_of=AS_OF)


def aspects(bench: "Bench") -> None:
    """Reading, judging and sweeping DataHub's table."""
    with postgresql(bench.folder / "aspects") as place:
        uri = place("hub")
        small, large = (_made(bench, uri, rows) for rows in (max(bench.sizes.rows // 10, 800), max(bench.sizes.rows, 8_000)))
        streams = {f"{hub.rows:,} rows": hub.streamed for hub in (small, large)}
        bench.meet(
            "aspects", "rows streamed through", streams, {name: int(name.split()[0].replace(",", "")) for name in streams}, 1
        )
        for hub in (small, large):
            counts: dict[str, int] = {}
            parts: dict[str, float] = {}
            contenders: dict[str, Contender] = {
                "one SQL statement": partial(_noted, counts, "statement", hub.by_statement),
                "store and stage": partial(
                    _noted, counts, "store", partial(hub.by_store, bench.spark, bench.folder / "stage", parts)
                ),
            }
            bench.meet("aspects", f"read and judge {hub.rows:,} rows", contenders, hub.rows, 1)
            bench.say(f"aspects: of it {', '.join(f'{name} {seconds:.1f} s' for name, seconds in parts.items())}")
            bench.report.agree(
                f"store and SQL, marks of {hub.rows:,} rows", hub.rows, abs(counts["statement"] - counts["store"])
            )
        _sweeping(bench, large)
        _latency(bench, large)
        _whole(bench, small)
    bench.clear("aspects")
    bench.clear("cycle")
    bench.clear("stage")


def _made(bench: "Bench", uri: str, rows: int) -> Hub:
    bench.say(f"making a table of {rows:,} aspects")
    return Hub(uri, rows)


def _noted(counts: dict[str, int], name: str, run: Callable[[], int]) -> None:
    counts[name] = run()


def _sweeping(bench: "Bench", hub: Hub) -> None:
    """What was marked of one dataset after the other: the plan's notes, and deleting in batches of two sizes."""
    store = hub.store()
    seconds: dict[str, Times] = {}
    amounts: dict[str, int] = {}
    for aspect, batch in zip(ASPECTS, (500, 2_000, 10_000), strict=False):
        names = hub.due("dataset", aspect, 100_000)
        began = perf_counter()
        targets = [Target(one.transaction, one.note) for one in store.prepare(f"meta/dataset.{aspect}", names)]
        planned = perf_counter()
        for first in range(0, len(targets), batch):
            swept = store.sweep(f"meta/dataset.{aspect}", targets[first : first + batch], 8)
            assert all(one.outcome is Outcome.DELETED for one in swept), swept[:3]
        done = perf_counter()
        for name, took in ((f"notes, {aspect}", planned - began), (f"batches of {batch:,} over 8", done - planned)):
            seconds[name], amounts[name] = Times((took,), (1.0,), (0.0,)), len(names)
    bench.report.add("aspects", "sweep, unpaced", seconds, amounts)
    store.close()


def _whole(bench: "Bench", hub: Hub) -> None:
    """What is old of one entity through the engine: the door, the plan, the ledger's record of each batch, and deleting."""
    whole = UnitsCycle(bench.folder / "cycle", [hub])
    policy = {"name": "old", "datasets": {"include": ["meta/chart.*"]}, "select": {"older_than": "30d"}}
    whole.purges({**policy, "sweep": {"batch": 2_000}})
    began = perf_counter()
    amount = whole.marks(AS_OF)
    marked = perf_counter()
    done = sum((one.outcomes for one in whole.sweeps(AS_OF).values()), Counter())
    seconds = {"mark": marked - began, "sweep, batches of 2,000": perf_counter() - marked}
    times = {name: Times((took,), (1.0,), (0.0,)) for name, took in seconds.items()}
    bench.report.add("aspects", f"the whole cycle over {amount:,} of one entity", times, amount)
    bench.report.agree("rows that the cycle left", amount, abs(amount - done[Outcome.DELETED]))


def _latency(bench: "Bench", hub: Hub) -> None:
    """What two writers wait for their transactions: alone, beside a sweep at the usual pace, and beside one without a pace."""
    bench.say("aspects: writers")
    store = hub.store()
    found: dict[str, list[float]] = {}
    # By turns, so that none of them has the warmest server.
    for turn in range(3):
        for name, entity, batch, pause in (
            ("writers alone", None, 0, 0.0),
            ("beside a sweep of 500 a second", "chart", 500, 1.0),
            ("beside a sweep without a pause", "dashboard", 500, 0.0),
        ):
            with _sweep(hub, store, entity, ASPECTS[turn], batch, pause):
                found.setdefault(name, []).extend(_written(hub, f"{turn}{name}", max(20, min(_WRITES, hub.rows // 1_000))))
    tell_waits(bench, "aspects", found)
    store.close()


@contextmanager
def _sweep(hub: Hub, store: AspectsStore, entity: str | None, aspect: str, batch: int, pause: float) -> Iterator[None]:
    """A sweep that goes on as long as the block does."""
    stop = threading.Event()

    def sweep(names: list[str]) -> None:
        dataset = f"meta/{entity}.{aspect}"
        targets = [Target(one.transaction, one.note) for one in store.prepare(dataset, names)]
        for first in cycle(range(0, len(targets), batch)):
            if stop.is_set():
                return
            store.sweep(dataset, targets[first : first + batch], 8)
            stop.wait(pause)

    if entity is None:
        yield
        return
    with ThreadPoolExecutor(1) as threads:
        sweeping = threads.submit(sweep, hub.due(entity, aspect, 200_000))
        try:
            yield
        finally:
            stop.set()
        sweeping.result()


def _written(hub: Hub, by: str, writes: int) -> list[float]:
    """A bounded number of new versions, each written as DataHub does; the seconds of each transaction."""

    def write(writer: int) -> list[float]:
        chance, waits = random.Random(f"{by}{writer}"), []
        with psycopg.connect(hub.url) as connection:
            for number in range(writes):
                urn = f"urn:li:dataset:(urn:li:dataPlatform:hive,db.table_{chance.randrange(1, hub.rows // _PER_URN) // 5 * 5 + 4},PROD)"
                began = perf_counter()
                connection.execute(
                    f"INSERT INTO {hub.table} (urn, aspect, version, metadata, createdon, createdby) VALUES (%s, %s, 0, '{{}}', "
                    "timestamp '2026-03-31', %s)".encode(),
                    (f"urn:li:new:{by}{writer}{number}", "status", by),
                )
                connection.execute(
                    f"UPDATE {hub.table} SET metadata = %s WHERE urn = %s AND aspect = 'domains' AND version = 0".encode(),
                    (f'{{"is": {number}}}', urn),
                )
                connection.commit()
                waits.append(perf_counter() - began)
        return waits

    with ThreadPoolExecutor(_WRITERS) as threads:
        return [wait for waits in threads.map(write, range(_WRITERS)) for wait in waits]

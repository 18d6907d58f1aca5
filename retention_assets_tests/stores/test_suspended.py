"""A sweeper that is stopped in the middle of a batch (SIGSTOP) while another one takes its dataset, over every kind of store.

Meanwhile its lease ends, somebody places a hold, and another sweep spares what is left. Once it goes on, nothing more is deleted.
"""

import json
import multiprocessing
import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from retention_assets.clock import Moment, moment
from retention_assets.environment import Environment
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.ledger import Ledger
from retention_assets.ledger.leases import Leases
from retention_assets.policy import Hold
from retention_assets.settings import Settings, load_settings
from retention_assets.sweep import Sweeper, SweepPermit
from retention_assets_tests.clocks import CLOCK, open_simulated
from retention_assets_tests.databases import new_schema
from retention_assets_tests.forked import forking
from retention_assets_tests.histories import history, to_lines
from retention_assets_tests.ledger.states import change_leases
from retention_assets_tests.stores.aspects.environments import Aspects
from retention_assets_tests.stores.delta.environments import SharedTables
from retention_assets_tests.stores.files.environments import S3, S3Files
from retention_assets_tests.stores.iceberg.tables import Warehouse, append
from retention_assets_tests.stores.iceberg.tables import replace as overwrite
from retention_assets_tests.stores.records.environments import Units
from retention_assets_tests.sweep.datasets import DUE, MARKED, evaluate

CHAIN = "main: " + " - ".join(f"S{number}:SNAPSHOT@{60 - number}d" for number in range(1, 7))
POLICY = "policies: [{{name: p, datasets: {{include: ['*']}}, select: {select}, sweep: {{every: 0s, parallelism: 1}}}}]\n"
HOLD = Hold.model_validate({"name": "legal", "datasets": ["*"], "reason": "case 7"})


@dataclass
class Stoppable:
    """Five due transactions in one store, everything that retention needs of them in one folder, and eyes that see the data."""

    folder: Path
    store: Mapping[str, object]
    look: Callable[[], object]
    select: str = "{beyond: {views: 1}}"
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "policies").mkdir(parents=True)
        (self.folder / "policies" / "p.yaml").write_text(POLICY.format(select=self.select))
        settings = {"clock": CLOCK, "stores": [self.store]}
        (self.folder / "retention.yaml").write_text(json.dumps(settings).replace("$", "$$"))

    def marks(self, ledger: Ledger) -> str:
        settings = load_settings(self.folder / "retention.yaml")
        (store,) = Environment(settings).stores().values()
        (dataset,) = store.datasets()
        assert evaluate(ledger, [store], settings, MARKED) >= 3
        return dataset


def sweep(settings: Settings, ledger: Ledger, holder: str, seconds: float) -> str | None:
    stores = Environment(settings).stores()
    sweeper = Sweeper(ledger, stores, load_rulebook(ledger, settings, holder), DUE, holder, lease_seconds=seconds)
    (result,) = sweeper.run(ledger.marks.datasets_to_sweep(DUE))
    assert result.errors == []
    return result.refused


def sweeps_and_stops(
    folder: Path, environment: dict[str, str], url: str, ask: int, seconds: float, jumps: float, told: Connection
) -> None:
    """The sweep, in a program that is stopped when its permit is asked for the so-manyth time, before it answers."""
    os.environ.update(environment)
    asked, real, beat, alone = 0, SweepPermit.__call__, Leases.beat, threading.Lock()

    def stops(permit: SweepPermit) -> None:
        nonlocal asked
        asked += 1
        if asked == ask:
            # Not in the middle of a beat: that would keep everybody else from the ledger as well.
            with alone:
                told.send("stops")
                os.kill(os.getpid(), signal.SIGSTOP)
            if jumps:
                permit.clocks = lambda: Moment(moment().wall + jumps, moment().running + jumps)
        real(permit)

    def beats(leases: Leases, *lease: Any) -> Any:
        with alone:
            return beat(leases, *lease)

    SweepPermit.__call__, Leases.beat = stops, beats  # type: ignore[method-assign, assignment]
    with open_simulated(url) as ledger:
        told.send(sweep(load_settings(folder / "retention.yaml"), ledger, "stopped", seconds))


def local_files(folder: Path, _: pytest.FixtureRequest) -> Stoppable:
    root = folder / "lake"
    (folder / "log").mkdir(parents=True)
    (folder / "log" / "log.jsonl").write_text("".join(f"{line}\n" for line in to_lines([history(CHAIN, dataset="lake/d")])))
    for number in range(1, 7):
        for name in ("a", "b", "c"):
            place = root / "d" / f"S{number}" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(name * number)
    store = {"name": "lake", "kind": "files", "log": "log", "data": "lake/{dataset}/{transaction}"}
    return Stoppable(folder, store, lambda: {file for file in (root / "d").rglob("*") if file.is_file()})


def s3_files(folder: Path, request: pytest.FixtureRequest) -> Stoppable:
    s3: S3 = request.getfixturevalue("s3")
    lake = S3Files(s3)
    lake.write("lake/a", CHAIN)

    def look() -> object:
        return {place: content for place, content in lake.data().items() if place.startswith("data/a/")}

    store = {"name": "lake", "kind": "files", "log": lake.settings.log, "data": lake.settings.data}
    return Stoppable(folder, store, look, environment=s3.environment)


def iceberg(folder: Path, _: pytest.FixtureRequest) -> Stoppable:
    folder.mkdir()
    with Warehouse(folder) as warehouse:
        table = warehouse.table()
        append(table, 0)
        append(table, 1)
        overwrite(table, 2)
        append(table, 3)
        store = {"name": "ice", "kind": "iceberg", "catalog": warehouse.properties}

    def look() -> object:
        with Warehouse(folder) as seen:
            known = {one.snapshot_id for one in seen.load().metadata.snapshots}
        return known, {file for file in (folder / "data").rglob("*") if file.is_file()}

    return Stoppable(folder, store, look)


def delta(folder: Path, _: pytest.FixtureRequest) -> Stoppable:
    tables = SharedTables(folder)
    tables.write(tables.datasets[0], CHAIN)
    return Stoppable(folder, {"name": "lh", "kind": "delta", "tables": [f"{tables.folder}/*"]}, tables.data)


def aspects(url: str, folder: Path) -> Stoppable:
    table = Aspects(url)
    table.write(Aspects.datasets[0], CHAIN)
    return Stoppable(folder, {"name": "meta", "kind": "aspects", "url": url}, table.data)


def records(url: str, folder: Path) -> Stoppable:
    units = Units(url).has("a", "b", "c", "d", "e")
    return Stoppable(folder, units.settings, lambda: [units.there(name) for name in units.tables], "{older_than: 30d}")


def in_sqlite(make: Callable[[str, Path], Stoppable]) -> Callable[[Path, pytest.FixtureRequest], Stoppable]:
    def made(folder: Path, _: pytest.FixtureRequest) -> Stoppable:
        folder.mkdir(parents=True, exist_ok=True)
        sqlite3.connect(folder / "store.db").close()
        return make(f"sqlite:///{folder / 'store.db'}", folder)

    return made


def in_postgresql(make: Callable[[str, Path], Stoppable]) -> Callable[[Path, pytest.FixtureRequest], Stoppable]:
    return lambda folder, request: make(new_schema(request.getfixturevalue("server")), folder)


# The engine asks three times before the store does. At the first of these nothing is gone, at the second a part.
STORES: dict[str, tuple[Callable[[Path, pytest.FixtureRequest], Stoppable], tuple[int, ...]]] = {
    "files": (local_files, (4, 7, 11)),
    "files on S3": (s3_files, (4, 7)),
    "iceberg": (iceberg, (4, 8)),
    # before the announcement, and after it before another file
    "delta": (delta, (4, 8)),
    "aspects in SQLite": (in_sqlite(aspects), (4, 5)),
    "aspects in PostgreSQL": (in_postgresql(aspects), (4, 5)),
    "records in SQLite": (in_sqlite(records), (4, 8)),
    "records in PostgreSQL": (in_postgresql(records), (4, 6, 9)),
}


@pytest.fixture
def stoppable(request: pytest.FixtureRequest, tmp_path: Path) -> Stoppable:
    return STORES[request.param][0](tmp_path / "w", request)


def stopped(process: Any) -> None:
    stat = Path(f"/proc/{process.pid}/stat")
    while stat.read_text().rpartition(")")[2].split()[0] != "T":
        assert process.is_alive()


@pytest.fixture
def killed_at_last() -> Iterator[list[Any]]:
    """Programs that must not outlive a test that fails while they are stopped."""
    programs: list[Any] = []
    yield programs
    for program in programs:
        if program.is_alive():
            program.kill()
        program.join()


def goes_on_after_another(
    stoppable: Stoppable, url: str, programs: list[Any], ask: int, seconds: float, jumps: float
) -> tuple[str, dict[str, str]]:
    with open_simulated(url) as ledger:
        dataset = stoppable.marks(ledger)
        full = stoppable.look()
        here, there = multiprocessing.Pipe()
        arguments = (stoppable.folder, stoppable.environment, url, ask, seconds, jumps, there)
        sweeper = forking().Process(target=sweeps_and_stops, args=arguments)
        sweeper.start()
        programs.append(sweeper)
        there.close()
        assert here.recv() == "stops"
        stopped(sweeper)
        if jumps:
            change_leases(ledger, "UPDATE leases SET expires_at = taken_at")
        while ledger.leases.held():
            # Who is stopped says nothing; a look now and then is enough.
            assert not here.poll(0.02)
        ledger.holds.place(HOLD, "ann")
        assert sweep(load_settings(stoppable.folder / "retention.yaml"), ledger, "other", 120) is None
        left = stoppable.look()
        assert sweeper.pid
        os.kill(sweeper.pid, signal.SIGCONT)
        said = here.recv()
        sweeper.join()
        assert stoppable.look() == left
        assert ask != 4 or left == full
        rows = ledger.marks.table([dataset]).to_pylist()
        assert {row["status"] for row in rows} <= {"SPARED", "SWEPT"}
        assert ledger.verify().faults == ()
        (report,) = ledger.reports.of(DUE.date())
        assert report["spared"] == sum(row["status"] == "SPARED" for row in rows)
        # Where nothing was gone, all of them are spared.
        assert ask != 4 or report["spared"] == len(rows)
        return said, {row["transaction"]: row["why"] for row in rows if row["status"] == "SPARED"}


@pytest.mark.parametrize(
    ("stoppable", "ask"), [(name, ask) for name, (_, asks) in STORES.items() for ask in asks], indirect=["stoppable"]
)
def test_a_sweeper_that_was_stopped_deletes_nothing_of_what_another_has_spared_since(
    stoppable: Stoppable, ask: int, tmp_path: Path, killed_at_last: list[Any]
) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    said, spared = goes_on_after_another(stoppable, url, killed_at_last, ask, 1000, 2000)
    assert "Nothing further is deleted: the lease of" in said or "has lost the lease" in said
    assert all("Hold 'legal' keeps it." in why for why in spared.values())


@pytest.mark.parametrize("stoppable", ["files"], indirect=True)
def test_a_sweeper_stopped_for_longer_than_its_lease_notices(stoppable: Stoppable, url: str, killed_at_last: list[Any]) -> None:
    said, spared = goes_on_after_another(stoppable, url, killed_at_last, 7, 2, 0)
    assert "Nothing further is deleted" in said or "has lost the lease" in said
    whole, part = (
        "A sweep had begun on it, but has deleted nothing of it.",
        "A sweep had begun on it, and some of it is gone.",
    )
    assert {name: why.partition(" Hold")[0] for name, why in spared.items()} == {
        "S1": part,
        **dict.fromkeys(["S2", "S3", "S4", "S5"], whole),
    }

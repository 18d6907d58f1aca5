"""Readers of a real Iceberg table while it is written to, marked and swept: one who asks and then reads finds every file of
what it was told is readable, and the state that was current then.
"""

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from retention_assets import clock
from retention_assets.environment import Environment
from retention_assets.evaluation.readable import Readable, readable
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.frames import candidate_marks, new_marks, sound_log
from retention_assets.ledger import CANDIDATES, open_ledger
from retention_assets.policy import Duration
from retention_assets.settings import load_settings
from retention_assets.sweep import Sweeper
from retention_assets_tests.rounds import rounds
from retention_assets_tests.stores.iceberg.sweeps import DATASET
from retention_assets_tests.stores.iceberg.tables import STORE, Warehouse, replace

ROUNDS = rounds(60)
GRACE, READING = Duration(seconds=3), Duration(seconds=2)
POLICY = "{name: old, datasets: {include: ['*']}, select: {beyond: {views: 4}}, grace: 3s, sweep: {every: 0s, batch: 2}}"


class BusyTable:
    """A table whose whole content is replaced again and again, and its owner, who marks and sweeps in between."""

    def __init__(self, warehouse: Warehouse) -> None:
        self.folder = warehouse.folder
        (self.folder / "policies").mkdir()
        (self.folder / "policies" / "p.yaml").write_text(f"policies: [{POLICY}]\n")
        store = {"name": STORE, "kind": "iceberg", "catalog": warehouse.properties}
        written = {"ledger": f"sqlite:///{self.folder}/ledger.db", "stores": [store]}
        (self.folder / "retention.yaml").write_text(json.dumps(written))
        self.environment = Environment(load_settings(self.folder / "retention.yaml"))
        self.properties = warehouse.properties
        self.table = warehouse.table()
        self.written: dict[str, int] = {}
        self.deleted = 0

    def writes(self) -> None:
        value = len(self.written)
        self.written[str(replace(self.table, value))] = value

    def retains(self) -> None:
        settings = self.environment.settings
        stores = self.environment.stores()
        with open_ledger(settings.ledger) as ledger:
            rulebook, now = load_rulebook(ledger, settings, "test"), clock.now()
            log = sound_log(stores[STORE].read([DATASET]))
            rules = rulebook.rules([DATASET], now)
            verdicts = candidate_marks(log.transactions, log.datasets, rules.policies, rules.holds, now)
            marks: pa.Table = new_marks(verdicts, log.transactions, rules.policies, rules.versions)
            ledger.marks.mark(marks.cast(CANDIDATES), now, "test")
            for result in Sweeper(ledger, stores, rulebook, None, "test").run(ledger.marks.datasets_to_sweep(now)):
                assert result.refused is None, result
                self.deleted += sum(result.outcomes.values())
        for store in stores.values():
            store.close()

    def lives(self, stop: Event) -> None:
        while not stop.is_set():
            self.writes()
            self.retains()

    def asks(self, at: datetime, lasting: Duration = READING) -> Readable:
        return readable(self.environment, DATASET, at, lasting=lasting)

    def reads(self, catalog: SqlCatalog, snapshot: str) -> list[int]:
        found: list[int] = catalog.load_table("db.t").scan(snapshot_id=int(snapshot)).to_arrow()["id"].to_pylist()
        return found

    def reads_in_time(self, catalog: SqlCatalog, snapshot: str, asked: datetime) -> list[int] | None:
        """The same; none if it took longer than the promise holds, and something was gone by then."""
        try:
            return self.reads(catalog, snapshot)
        except (OSError, ValueError):
            if clock.now() <= READING.after(asked):
                raise
            return None


@pytest.fixture
def busy(warehouse: Warehouse) -> BusyTable:
    """With a state that no reader can miss."""
    table = BusyTable(warehouse)
    table.writes()
    return table


@pytest.fixture
def catalog(busy: BusyTable) -> Iterator[SqlCatalog]:
    opened = SqlCatalog(STORE, **busy.properties)
    yield opened
    opened.close()


def test_who_asks_and_then_reads_never_meets_a_missing_file(busy: BusyTable, catalog: SqlCatalog) -> None:
    seed, stop, began = random.Random(1), Event(), clock.now()
    answers = {"read": 0, "past": 0, "refused": 0}
    with ThreadPoolExecutor(1) as pool:
        living = pool.submit(busy.lives, stop)
        try:
            done = 0
            while done < ROUNDS or not (answers["past"] and answers["refused"] and busy.deleted):
                assert not living.done(), living.result()
                asked, back = clock.now(), seed.choice((1, 2, 4, 8, 16, 3600))
                told = busy.asks(max(began, asked - seed.random() * timedelta(seconds=back)))
                done += 1
                [branch] = told.branches
                if not told.readable:
                    answers["refused"] += 1
                    continue
                if not branch.transactions:
                    continue
                state = branch.transactions[-1].transaction
                if (found := busy.reads_in_time(catalog, state, asked)) is None:
                    # Whoever takes longer than was asked for is told so when asking again.
                    assert not busy.asks(told.at).readable
                    continue
                assert found == [busy.written[state]]
                answers["read"] += 1
                answers["past"] += not branch.current
        finally:
            stop.set()
        living.result()
    assert answers["read"] > 0


def test_a_state_that_is_due_is_not_readable_and_one_in_its_grace_is_until_then(busy: BusyTable) -> None:
    for _ in range(6):
        busy.writes()
    with open_ledger(busy.environment.settings.ledger):
        busy.retains()
    entries = [datetime.fromtimestamp(entry.timestamp_ms / 1000, UTC) for entry in busy.table.refresh().metadata.snapshot_log]
    # Of seven states the newest four stay; the grace of the oldest has just begun.
    told = busy.asks(entries[0], Duration(seconds=0))
    assert told.readable
    assert told.until is not None
    assert busy.asks(entries[0], Duration(seconds=3600)).why == f"Part of this view is due for deletion at {_text(told.until)}."
    assert busy.asks(entries[-1]).until is None


def _text(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def test_a_killed_sweeper_leaves_no_half_state(busy: BusyTable, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark rises before the first file goes, so whatever is told after a sweep that died is whole."""
    for _ in range(6):
        busy.writes()
    busy.retains()
    later = clock.now() + timedelta(seconds=5)
    monkeypatch.setattr(clock, "now", lambda: later)
    from retention_assets.sweep import dataset_sweep

    def dies(*_: object) -> object:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(dataset_sweep, "execute_order", dies)
        with pytest.raises(KeyboardInterrupt):
            busy.retains()
    entries = [datetime.fromtimestamp(entry.timestamp_ms / 1000, UTC) for entry in busy.table.refresh().metadata.snapshot_log]
    answers = [busy.asks(at) for at in entries]
    # The fourth is the oldest that stays.
    assert [one.readable for one in answers] == [False] * 3 + [True] * 4
    assert answers[0].visible_from == entries[3]
    assert [busy.reads(catalog, one.branches[0].transactions[-1].transaction) for one in answers[3:]] == [[3], [4], [5], [6]]
    assert Path(busy.folder).exists()

"""One dataset with marks that are due, in a store of any kind: sweeping it whole or in parts, and what must be true of it at any moment."""

import ctypes
import itertools
import os
import signal
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO

from retention_assets.environment import Environment as Opened
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.ledger import AskedBy, DatasetPart, Ledger, NameRange
from retention_assets.outcomes import Order
from retention_assets.people.replay import ReplayRequest, replay
from retention_assets.policy import Hold
from retention_assets.settings import Settings
from retention_assets.stores.protocol import Store
from retention_assets.sweep import Sweeper, SweepResult, hold_leases
from retention_assets_tests.clocks import open_simulated
from retention_assets_tests.ledger.states import count_changes, set_aside_in
from retention_assets_tests.stores.contract import Environment
from retention_assets_tests.stores.objects.environments import LocalObjects
from retention_assets_tests.stores.records.environments import Records
from retention_assets_tests.sweep.datasets import DUE, MARKED, SettingsFolder

BATCH = 2
RUN = "run 1"
_SWEEP = f"{{every: 0s, batch: {BATCH}, parallelism: 1}}"


@dataclass(frozen=True)
class Here(Opened):
    """Settings whose only store is that of a contract."""

    store: Store = field(kw_only=True)

    def stores(self, names: Iterable[str] | None = None) -> dict[str, Store]:  # noqa: ARG002 - it is the only one
        return {self.store.name: self.store}


@dataclass
class Cycle(SettingsFolder):
    """A store of the contract (`kept`) whose transactions are due, but for the newest of a history and referenced objects."""

    marked_at = MARKED
    due_at = DUE
    kept: Environment
    url: str
    folder: Path
    transactions: int = 12
    undo: str = ""
    # history of its dataset, and of a second one that no policy selects; by default `transactions` in one line
    drawing: str = ""
    # once it was swept, of one that is there again: places, and what somebody else's reader reads
    swept: set[str] = field(default_factory=set)
    reads_after: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.writes(ledger=self.url)
        select = "unreferenced: true, " * isinstance(self.kept, LocalObjects) + "older_than: 1d"
        self.dataset = self.kept.datasets[0]
        # these settings name no store, so any will do
        self.glob = f"*/{self.dataset.partition('/')[2]}"
        about = f"name: p, {self.kept.policy}datasets: {{include: ['{self.glob}']}}"
        self.policy = f"{{{about}, select: {{{select}}}, {self.undo}sweep: {_SWEEP}}}"
        self.says(self.policy)
        self.usual = (self.dataset,)
        names = self.write()
        if isinstance(self.kept, Records):
            # An empty table may be another one: a begun deletion waits there until it has a row again.
            self.kept.units.has("unfinished", closed=None)
        self.marks()
        self.due: list[str] = sorted(self.statuses())
        self.reached = {name: self.kept.reached(self.dataset, name) for name in names}
        self.before, self.read_before = self.data(), self.kept.reads()

    def write(self) -> list[str]:
        """Write transactions that are due, and the newest of a history, which is not; return their ids."""
        if self.drawing:
            first, *_ = [self.kept.write(dataset, self.drawing) for dataset in self.kept.datasets[:2]]
            return [*first.values()]
        amount = self.transactions + (not self.kept.independent)
        drawing = "main: " + " - ".join(f"T{number:02}:SNAPSHOT@{90 - number}d" for number in range(amount))
        return [*self.kept.write(self.dataset, drawing).values()]

    @property
    def stores(self) -> dict[str, Store]:
        store = self.kept.store()
        return {store.name: store}

    def data(self) -> dict[str, bytes]:
        """Everything but the file by which a root is known, and what was being written to replace it."""
        return {place: content for place, content in self.kept.data().items() if ".retention-store" not in place}

    @contextmanager
    def dealt(self, ledger: Ledger, parts: int | Sequence[NameRange]) -> Iterator[list[DatasetPart]]:
        """Cut the dataset into parts, with its lease as long as the context lasts."""
        together = self.kept.store().parts_at
        assert together is not None
        marks = len(self.due)
        ranges = ledger.parts.cut(self.dataset, DUE, marks, parts, together) if isinstance(parts, int) else parts
        with hold_leases(ledger, [self.dataset], RUN) as held:
            lease = held.leases[self.dataset]
            yield [DatasetPart(lease, number, names, marks // len(ranges)) for number, names in enumerate(ranges)]

    def sweep(self, part: DatasetPart | None = None, store: Store | None = None) -> SweepResult:
        """Sweep as a program or a task does: with a ledger and a store of its own."""
        with self.opened() as ledger:
            (result,) = sweep_store(ledger, store or self.kept.store(), self.settings, part)
            return result

    def sweeps_at_once(self, parts: Sequence[DatasetPart]) -> list[SweepResult]:
        results: list[SweepResult] = []
        threads = [threading.Thread(target=lambda part=part: results.append(self.sweep(part))) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    def orders(self, order: Order, *transactions: str, hold: Hold | None = None) -> None:
        """Record that a person asks for set aside transactions (all, or some) to be restored or deleted early."""
        with self.opened() as ledger:
            begin(ledger, self.dataset, order, AskedBy("ann", "we need them", hold), transactions or None)

    def replays(self, at: datetime | None = None, **asked: Any) -> tuple[list[str], dict[str, str]]:
        """A person has everything deleted again that is there again: what went, and why others stay. Nothing fails."""
        went, stays, refused = replays_in(Here(self.settings, store=self.kept.store()), as_of=at or DUE, **asked)
        assert refused == {}
        return went, stays

    def without_due(self) -> dict[str, bytes]:
        return {place: self.before[place] for place in self.before.keys() - self.alone(set(self.due))}

    def rows(self) -> dict[str, dict[str, Any]]:
        with self.opened() as ledger:
            return {row["transaction"]: row for row in ledger.marks.table([self.dataset]).to_pylist()}

    def needed(self) -> set[str]:
        """Return the transactions that were spared because retained ones need all of their data."""
        return {name for name, row in self.rows().items() if "Nothing would go with it" in (row["why"] or "")}

    def check(self, safe: Collection[str] = ()) -> None:
        """Check what holds at any moment: data of transactions that no sweep has begun is there, data of swept ones is gone, the
        record is sound, and untouched transactions, or `safe` ones, read as before.
        """
        assert self.verified() == ()
        rows, there = self.rows(), self.data()
        assert all(self.before[place] == content for place, content in there.items() if place in self.before)
        untouched = {name for name in self.reached if name not in rows or rows[name]["status"] == "MARKED"}
        untouched = {name for name in untouched if name not in rows or not rows[name]["attempts"]}
        assert self._places(untouched) <= there.keys()
        assert self.read_otherwise(untouched.union(safe)) == set()
        assert self.before.keys() - there.keys() <= self._places(set(self.reached))
        swept = {name for name, row in rows.items() if row["status"] == "SWEPT"}
        assert not self.alone(swept) & there.keys()

    def read_otherwise(self, names: Collection[str]) -> set[str]:
        """Return those `names` of which another reader does not read the same rows as before."""
        reads = self.kept.reads() if self.read_before else {}
        return {name for name in self.read_before.keys() & names if reads.get(name) != self.read_before[name]}

    def is_done(self) -> None:
        """Everything that was due went once and nothing else did, and the report says so."""
        self.check()
        report = self.report()
        kept = self.needed()
        assert report["to_delete"] == len(self.due) == report["deleted"] + report["already_gone"] + report["spared"]
        assert (report["failed"], report["spared"]) == (0, len(kept))
        assert report["finished_at"] is not None
        assert self.statuses() == dict.fromkeys(self.due, "SWEPT") | dict.fromkeys(kept, "SPARED")
        assert self.data() == self.without_due()
        assert self.read_otherwise(self.read_before.keys()) == self.read_before.keys() & set(self.due) - kept
        assert {name: self.kept.reached(self.dataset, name) for name in self.reached.keys() - set(self.due)} == {
            name: places for name, places in self.reached.items() if name not in self.due
        }
        assert report["bytes_freed"] <= self.freed()

    def freed(self) -> int:
        return sum(len(self.before[place]) for place in self.before.keys() - self.data().keys())

    def _places(self, names: Collection[str]) -> set[str]:
        return set().union(*(self.reached[name] for name in names))

    def alone(self, names: Collection[str]) -> set[str]:
        """Return the places that these transactions need, and no other does."""
        return self._places(names) - self._places(self.reached.keys() - names)


def begin(ledger: Ledger, dataset: str, order: Order, asked: AskedBy, transactions: Sequence[str] | None = None) -> None:
    with hold_leases(ledger, [dataset], "ann") as held:
        marks = set_aside_in(ledger, dataset, transactions)
        moved = ledger.trash.begin([*held.leases.values()], [*marks.values()], order, asked)
    assert set(moved.marks) == set(marks.values())
    assert transactions is None or len(marks) == len(transactions)


def sweep_store(
    ledger: Ledger, store: Store, settings: Settings, part: DatasetPart | None = None, as_of: datetime = DUE, **sweeper: Any
) -> list[SweepResult]:
    """Sweep what is due of a store, or a part of one dataset."""
    sweeps = Sweeper(ledger, {store.name: store}, load_rulebook(ledger, settings, "test"), as_of, RUN, **sweeper)
    return list(sweeps.run([part.lease.dataset] if part else ledger.marks.datasets_to_sweep(as_of), part))


def sweep_until(
    last: int,
    url: str,
    store: Store,
    settings: Settings,
    part: DatasetPart | None = None,
    acts: Any = None,
    as_of: datetime = DUE,
    only: Order | None = None,
) -> None:
    """Sweep in a program that kills itself before write or deletion number `last`; it counts those that it did in `acts`."""
    ledger = counting_until(last, url, acts)
    for result in sweep_store(ledger, store, settings, part, as_of, only=only):
        assert (result.refused, result.errors) == (None, [])


def replays_in(environment: Opened, **asked: Any) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """Replay; what went or would go, why others stay, and why datasets were refused."""
    result = replay(ReplayRequest(actor="ann", **asked), environment)
    assert bool(result.failures) == bool(result.data["refused"])
    stays = {row["transaction"]: row["why"] for row in result.data["stays"]}
    return sorted(row["transaction"] for row in result.data["transactions"]), stays, result.data["refused"]


def replay_until(last: int, url: str, store: Store, settings: Settings, acts: Any = None) -> None:
    """Replay in such a program."""
    ledger = counting_until(last, url, acts)
    assert replays_in(Here(settings, opened=ledger, store=store), as_of=DUE)[1:] == ({}, {})


def counting_until(last: int, url: str, acts: Any = None) -> Ledger:
    counted = itertools.count()

    def counts(*_: Any, **__: Any) -> None:
        if (act := next(counted)) >= last:
            os.kill(os.getpid(), signal.SIGKILL)
        if acts is not None:
            acts.value = act + 1

    ledger = open_simulated(url)
    count_changes(ledger, counts)
    count_deletions(counts)
    return ledger


def count_deletions(count: Callable[[str], object]) -> None:
    """Call `count`, with the kind of the act, before each move or deletion of a file and each commit of a catalog here."""

    def counting(kind: str, act: Any) -> Any:
        def counted_act(*arguments: Any, **named: Any) -> Any:
            count(kind)
            return act(*arguments, **named)

        return counted_act

    for name in ("unlink", "rmdir", "rename", "replace", "link"):
        setattr(os, name, counting(name, getattr(os, name)))
    if renameat2 := getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None):
        counted = counting("rename", renameat2)
        pytest.MonkeyPatch().setattr("retention_assets.stores.places.moves.system_call", lambda _: counted)
    PyArrowFileIO.delete = counting("unlink", PyArrowFileIO.delete)  # type: ignore[method-assign]
    SqlCatalog.commit_table = counting("catalog", SqlCatalog.commit_table)  # type: ignore[method-assign]

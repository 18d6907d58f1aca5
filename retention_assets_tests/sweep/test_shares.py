"""Several datasets go through a sweep together: whatever happens to one of them, the others go on, and nothing of it is lost.

Of each of these lakes, lake/b is the one to which something happens, between lake/a and lake/c.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.ledger.leases import Leases, TakenLeases
from retention_assets.outcomes import Outcome
from retention_assets.policy.model import Hold
from retention_assets.stores.dry_run import RecordingStore
from retention_assets.stores.protocol import LocatedStore, Permit, PreparedTarget, Store, SweptTarget, Target, always
from retention_assets.sweep import round as sweep_round
from retention_assets.sweep.dataset_sweep import SweepResult
from retention_assets.sweep.engine import Sweeper
from retention_assets_tests.ledger.states import change_leases
from retention_assets_tests.sweep.lakes import DUE, OLD, Lake

NAMES = ("lake/a", "lake/b", "lake/c")
TWO = "main: S1:SNAPSHOT@90d - S2:SNAPSHOT@80d - S3:SNAPSHOT@1d"
KEPT, LEFT = {"S1", "S2", "S3"}, {"S3"}


@pytest.fixture
def marked(tmp_path: Path) -> Lake:
    """Two marks that are due in each of three datasets, and batches that hold all of them."""
    lake = Lake(tmp_path / "lake", policies=OLD.replace("batch: 2", "batch: 9"))
    for name in NAMES:
        lake.has(TWO, name)
    assert lake.marks() == 6
    return lake


class Between(RecordingStore):
    """A store that really deletes, and before each answer about a dataset asks the test."""

    def __init__(self, store: Store, happens: Callable[[str, str], object]) -> None:
        super().__init__(store)
        self.happens = happens

    def place(self, dataset: str, claim: bool = False) -> str | None:
        assert isinstance(self.store, LocatedStore)
        self.happens("place", dataset)
        return self.store.place(dataset, claim)

    def prepare(self, dataset: str, transactions: Sequence[str]) -> list[PreparedTarget]:
        self.happens("prepare", dataset)
        return self.store.prepare(dataset, transactions)

    def sweep(self, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always) -> list[SweptTarget]:
        self.happens("sweep", dataset)
        return self.store.sweep(dataset, targets, parallelism, permit)


def sweeps(lake: Lake, happens: Callable[[str, str], object] = lambda *_: None) -> dict[str, SweepResult]:
    return lake.sweeps(stores={"lake": Between(lake.stores["lake"], happens)})


def there(lake: Lake) -> list[set[str]]:
    return [lake.there(name) for name in NAMES]


def finishes(lake: Lake) -> None:
    """The next sweep comes to the end of everything, and the record of all of it is sound."""
    with lake.opened() as ledger:
        change_leases(ledger, "UPDATE leases SET expires_at = taken_at")
    assert not any(one.refused or one.errors for one in sweeps(lake).values())
    assert there(lake) == [LEFT] * 3
    for name in NAMES:
        report = lake.report(dataset=name)
        assert (report["to_delete"], report["deleted"] + report["already_gone"]) == (2, 2)
        assert report["finished_at"] is not None
    assert lake.verified() == ()


def test_datasets_that_go_together_are_written_together(marked: Lake) -> None:
    """As many transactions for three as for one."""
    assert sorted(sweeps(marked)) == [*NAMES]
    with marked.opened() as ledger:
        deeds = [line.split('"deed": "')[1].split('"')[0] for line in ledger.audit_lines()]
    assert [deeds.count(deed) for deed in ("PLAN", "BEGIN", "SETTLE", "FINISH", "REPORT")] == [1, 1, 1, 1, 2]
    finishes(marked)


def test_a_lease_that_is_lost_in_the_middle_of_a_batch_ends_its_dataset_alone(marked: Lake) -> None:
    def loses(kind: str, dataset: str) -> None:
        if (kind, dataset) == ("sweep", "lake/a"):
            with marked.opened() as ledger:
                change_leases(ledger, "UPDATE leases SET token = token + 1, holder = 'bob' WHERE dataset = 'lake/b'")

    results = sweeps(marked, loses)
    assert [results[name].refused is None for name in NAMES] == [True, False, True]
    assert "has lost the lease of lake/b (number 1)" in str(results["lake/b"].refused)
    assert "bob has taken it since" in str(results["lake/b"].refused)
    assert [results[name].outcomes for name in NAMES] == [{Outcome.DELETED: 2}, {}, {Outcome.DELETED: 2}]
    assert (there(marked)[0], there(marked)[2]) == (LEFT, LEFT)
    assert marked.statuses("lake/b") == dict.fromkeys(["S1", "S2"], "SWEEPING")
    with marked.opened() as ledger:
        held = ledger.leases.holder_of("lake/b")
    # It is bob's, and nobody gave it up for him.
    assert held is not None
    assert held.holder == "bob"
    finishes(marked)


def test_a_heart_that_loses_one_lease_keeps_the_others(marked: Lake) -> None:
    with marked.opened() as ledger:
        leases = ledger.leases.take(NAMES, "ann").leases
        change_leases(ledger, "UPDATE leases SET expires_at = taken_at WHERE dataset = 'lake/b'")
        kept = ledger.leases.beat(leases.values())
        assert (sorted(kept.leases), sorted(kept.others)) == (["lake/a", "lake/c"], ["lake/b"])
        again = ledger.leases.take(NAMES, "bob")
        assert (sorted(again.leases), sorted(again.others)) == (["lake/b"], ["lake/a", "lake/c"])
        assert "is being swept by ann" in again.others["lake/a"]
        ledger.leases.give_up(leases.values())
        assert [one.dataset for one in ledger.leases.held()] == ["lake/b"]


@pytest.mark.parametrize("kind", ["place", "prepare", "sweep"])
def test_a_store_that_fails_at_one_dataset_stops_no_other(marked: Lake, kind: str) -> None:
    def fails(asked: str, dataset: str) -> None:
        if (asked, dataset) == (kind, "lake/b"):
            raise ConnectionResetError("the other end is gone")

    results = sweeps(marked, fails)
    words = "the store lake failed: ConnectionResetError: the other end is gone"
    assert [results[name].outcomes for name in ("lake/a", "lake/c")] == [{Outcome.DELETED: 2}] * 2
    if kind == "sweep":
        assert (results["lake/b"].errors, results["lake/b"].outcomes) == ([words] * 2, {Outcome.FAILED: 2})
    else:
        assert (results["lake/b"].refused, results["lake/b"].store_failed) == (words, True)
    assert there(marked) == [LEFT, KEPT, LEFT]
    finishes(marked)


def test_a_dataset_that_another_sweeps_is_skipped_and_the_others_go(marked: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    take = Leases.take

    def second(self: Leases, datasets: Any, holder: str, seconds: float) -> TakenLeases:
        monkeypatch.setattr(Leases, "take", take)
        self.take(["lake/b"], "bob")
        return take(self, datasets, holder, seconds)

    monkeypatch.setattr(Leases, "take", second)
    results = sweeps(marked)
    assert "lake/b is being swept by bob" in str(results["lake/b"].skipped)
    assert [(one.refused, one.errors) for one in results.values()] == [(None, [])] * 3
    assert there(marked) == [LEFT, KEPT, LEFT]
    finishes(marked)


@pytest.mark.parametrize("held", ["lake/c", "lake/b"])
def test_a_hold_between_slices_keeps_what_comes_after(marked: Lake, monkeypatch: pytest.MonkeyPatch, held: str) -> None:
    """Slices of one mark. It comes when the second slice is prepared, which has a mark of lake/a."""
    monkeypatch.setattr(sweep_round, "SLICE", 1)
    prepared: list[str] = []

    def holds(kind: str, dataset: str) -> None:
        if kind == "prepare":
            prepared.append(dataset)
            if len(prepared) == 2:
                with marked.opened() as ledger:
                    ledger.holds.place(Hold.model_validate({"name": "legal", "datasets": held, "reason": "case 7"}), "ann")

    results = sweeps(marked, holds)
    assert [one.refused for one in results.values()] == [None] * 3
    assert results[held].outcomes == {Outcome.SPARED: 2}
    assert there(marked) == [KEPT if name == held else LEFT for name in NAMES]
    assert marked.why("S1", held) == "Hold 'legal' keeps it."
    assert marked.verified() == ()


def test_a_stop_is_heard_before_the_first_batch_and_between_slices(marked: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_round, "SLICE", 1)
    stop = threading.Event()
    prepared: list[str] = []

    def stops(kind: str, dataset: str) -> None:
        if kind == "prepare":
            prepared.append(dataset)
            if len(prepared) == 2:
                stop.set()

    results = marked.sweeps(stores={"lake": Between(marked.stores["lake"], stops)}, stop=stop)
    # What was not come to has nothing to say.
    assert [*results] == ["lake/a"]
    assert there(marked) == [{"S2", "S3"}, KEPT, KEPT]
    finishes(marked)


class Killed(BaseException):
    """The program ends here: nothing after this is done."""


@pytest.mark.parametrize("kind", ["INSERT INTO planned", "UPDATE marks", "INSERT INTO steps", "UPDATE reports", "UPDATE plans"])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_share_whose_sweeper_ends_at_a_write_is_finished_by_the_next(marked: Lake, kind: str, after: int) -> None:
    """Also by a plan, a batch or an outcome that is written for some datasets only: there is no such thing."""
    left = after

    def ends(_: Any, __: Any, statement: str, *___: Any) -> None:
        nonlocal left
        if statement.startswith(kind):
            left -= 1
            if left < 0:
                raise Killed

    with marked.opened() as ledger:
        rulebook = load_rulebook(ledger, marked.settings, "test")
        event.listen(ledger.database.engine, "before_cursor_execute", ends)
        with suppress(Killed):
            list(Sweeper(ledger, marked.stores, rulebook, DUE, "test").run([*NAMES]))
        event.remove(ledger.database.engine, "before_cursor_execute", ends)
    first, *others = (marked.statuses(name) for name in NAMES)
    assert others == [first] * 2
    assert marked.verified() == ()
    finishes(marked)

"""Several datasets, or a large one slice by slice, in one sweep: what happens to one stops no other, and what changes counts.

Of each lake of shares, lake/b is the one to which something happens, between lake/a and lake/c. Slices and batches are of two.
"""

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import event

from retention_assets.evaluation.rules_in_force import RulesInForce, load_rulebook
from retention_assets.frames import candidate_marks
from retention_assets.ledger.leases import Leases, TakenLeases
from retention_assets.outcomes import Outcome
from retention_assets.policy import Duration, Hold, Policy
from retention_assets.sweep import Sweeper, SweepResult, independent_check, read_fresh, verdicts
from retention_assets.sweep import round as sweep_round
from retention_assets.sweep.dataset_sweep import ActiveDatasets
from retention_assets.sweep.verdicts import JudgedRows
from retention_assets_tests.ledger.states import change_leases
from retention_assets_tests.rounds import deaths
from retention_assets_tests.sweep.lakes import DAY, DUE, FIVE, OLD, Lake, Told
from retention_assets_tests.sweep.test_between_batches import Happens, holds_one
from retention_assets_tests.sweep.test_killed import killed

NAMES = ("lake/a", "lake/b", "lake/c")
TWO = "main: S1:SNAPSHOT@90d - S2:SNAPSHOT@80d - S3:SNAPSHOT@1d"
KEPT, LEFT = {"S1", "S2", "S3"}, {"S3"}


@pytest.fixture
def marked(tmp_path: Path) -> Lake:
    """Two marks that are due in each of three datasets, and batches that hold all of them."""
    lake = Lake(tmp_path / "lake", policies=OLD.replace("batch: 2", "batch: 9")).has(TWO, *NAMES)
    assert lake.marks() == 6
    return lake


def sweeps(lake: Lake, happens: Callable[[str, str], object] = lambda *_: None) -> dict[str, SweepResult]:
    return lake.sweeps(store=Told(lake.stores["lake"], happens))


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


def hold_of_a_file(lake: Lake, dataset: str) -> None:
    (lake.folder / "policies" / "more.yaml").write_text(f"holds: [{{name: legal, datasets: ['{dataset}'], reason: case 7}}]\n")


def hold_of_another_folder(lake: Lake, dataset: str) -> None:
    with lake.opened() as ledger:
        hold = Hold.model_validate({"name": "legal", "datasets": dataset, "reason": "case 7"})
        ledger.holds.note_files([hold], "run elsewhere", ["/elsewhere/policies"])


@pytest.mark.parametrize("held", ["lake/c", "lake/b"])
@pytest.mark.parametrize("hold", [Lake.hold, hold_of_a_file, hold_of_another_folder])
def test_a_hold_between_slices_keeps_what_comes_after(
    marked: Lake, monkeypatch: pytest.MonkeyPatch, hold: Callable[[Lake, str], None], held: str
) -> None:
    """Slices of one mark. It comes when the second slice is prepared, which has a mark of lake/a."""
    monkeypatch.setattr(sweep_round, "SLICE", 1)
    results = marked.sweeps(store=marked.elsewhere(lambda: hold(marked, held), "prepare", 2))
    assert [one.refused for one in results.values()] == [None] * 3
    assert results[held].outcomes == {Outcome.SPARED: 2}
    assert there(marked) == [KEPT if name == held else LEFT for name in NAMES]
    assert marked.why("S1", held) == "Hold 'legal' keeps it."
    assert marked.verified() == ()


def test_a_stop_is_heard_before_the_first_batch_and_between_slices(marked: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_round, "SLICE", 1)
    stop = threading.Event()
    results = marked.sweeps(store=marked.elsewhere(stop.set, "prepare", 2), stop=stop)
    # What was not come to has nothing to say.
    assert [*results] == ["lake/a"]
    assert there(marked) == [{"S2", "S3"}, KEPT, KEPT]
    finishes(marked)


class Killed(BaseException):
    """The program ends here: nothing after this is done."""


@pytest.mark.parametrize(
    "kind", ["INSERT INTO planned", "INSERT INTO batches", "UPDATE marks", "UPDATE reports", "UPDATE plans"]
)
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


@pytest.mark.parametrize("last", deaths([3, 37, 43, 48, 60, 71, 79, 92], [43, 71]))
def test_a_share_that_is_killed_loses_nothing_and_is_finished_by_the_next(tmp_path: Path, sweepers: Any, last: int) -> None:
    """By SIGKILL, before one of its acts. A batch has three of the six marks."""
    lake = Lake(tmp_path / "lake", policies=OLD.replace("batch: 2", "batch: 3")).has(TWO, *NAMES)
    assert lake.marks() == 6
    assert killed(sweepers, last, lake.ledger_url, lake.stores["lake"], lake.settings, None, None, DUE) in (-signal.SIGKILL, 0)
    assert lake.verified() == ()
    for name in NAMES:
        begun = {one for one, status in lake.statuses(name).items() if status != "MARKED"}
        assert KEPT - lake.there(name) <= begun
        assert not lake.there(name) & {one for one, status in lake.statuses(name).items() if status == "SWEPT"}
    finishes(lake)


@pytest.fixture
def sliced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setattr(sweep_round, "SLICE", 2)
    lake = Lake(tmp_path / "lake").has(FIVE)
    assert lake.marks() == 5
    return lake


def sweeps_slices(lake: Lake, guards: bool, happens: Happens) -> Any:
    store = lake.elsewhere(lambda: happens(lake), guards=guards)
    (result,) = lake.sweeps(store=store, wait=lambda *_: None).values()
    assert (result.refused, result.errors) == (None, [])
    return result


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[str]:
    calls: list[str] = []
    real = getattr(module, name)

    def call(*given: Any) -> Any:
        calls.append(name)
        return real(*given)

    monkeypatch.setattr(module, name, call)
    return calls


def test_a_log_that_does_not_change_is_judged_once_for_all_slices(
    sliced: Lake, monkeypatch: pytest.MonkeyPatch, guards: bool
) -> None:
    judged = counted(monkeypatch, verdicts, "candidate_marks")
    walked = counted(monkeypatch, independent_check, "rows_in_views")
    result = sweeps_slices(sliced, guards, lambda _: None)
    assert (result.planned, result.outcomes[Outcome.DELETED]) == (5, 5)
    assert (len(judged), len(walked)) == (1, 1)
    assert sliced.verified() == ()


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(holds_one, id="a hold"),
        pytest.param(lambda lake: lake.branches("rescue", "S4"), id="a branch"),
        pytest.param(lambda lake: lake.comes_again("S4", closed_at="2026-01-30T12:00:00.000001Z"), id="another life"),
    ],
)
def test_what_changes_between_slices_counts_in_the_next(sliced: Lake, guards: bool, happens: Happens) -> None:
    result = sweeps_slices(sliced, guards, happens)
    assert {outcome: times for outcome, times in result.outcomes.items() if times} == {Outcome.DELETED: 4, Outcome.SPARED: 1}
    assert sliced.there() == {"S4", "S6"}
    assert sliced.verified() == ()


def test_a_branch_that_the_re_check_overlooks_is_seen_by_the_independent_check_in_the_next_slice(
    sliced: Lake, guards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The re-check goes on by what it judged of the first slice."""
    first: list[pa.Table] = []

    def stale(*given: Any) -> pa.Table:
        first.append(candidate_marks(*given))
        return first[0]

    monkeypatch.setattr(verdicts, "candidate_marks", stale)
    store = sliced.elsewhere(lambda: sliced.branches("rescue", "S4"), guards=guards)
    (result,) = sliced.sweeps(store=store, wait=lambda *_: None).values()
    assert "S4 is in the latest view of branch rescue" in str(result.refused)
    assert "S4" in sliced.there()


def test_a_realm_that_is_not_purged_any_more_is_not_swept_in_the_next_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guards: bool
) -> None:
    monkeypatch.setattr(sweep_round, "SLICE", 2)
    lake = Lake(tmp_path / "lake")
    lake.says(OLD.replace("30d", "999d"))
    lake.has(FIVE)._log("lake/d", ['{"dataset": "lake/d", "realm": "acme"}'])
    lake.change_realm("acme", "PURGING", Duration(days=3))
    assert lake.marks() == 6

    before = lake.there()
    result = sweeps_slices(lake, guards, lambda lake: lake.change_realm("acme", "ACTIVE"))
    gone = before - lake.there()
    assert 0 < len(gone) == result.outcomes[Outcome.DELETED] < 6
    assert result.outcomes[Outcome.SPARED] == 6 - len(gone)


def test_another_round_counts_what_earlier_slices_planned(sliced: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hold comes right before the second slice begins: its marks are withheld, and checked again in another round."""
    places: list[object] = []

    def check(*given: Any) -> None:
        places.append(given)
        if len(places) == 2:
            sliced.hold("lake/none")

    rounds = counted(monkeypatch, ActiveDatasets, "once_more")
    monkeypatch.setattr("retention_assets.sweep.dataset_sweep.DatasetSweep.check_places", check)
    result = sweeps_slices(sliced, True, lambda _: None)
    assert (len(rounds), result.planned, result.outcomes[Outcome.DELETED]) == (1, 5, 5)
    assert sliced.verified() == ()


def test_verdicts_are_known_again_only_by_everything_that_they_depend_on(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake").has(FIVE)
    log = read_fresh(lake.stores["lake"], ["lake/d"]).log
    judged = JudgedRows(log.transactions, log.datasets)
    policy = Policy.model_validate({"name": "old", "datasets": {"include": ["lake/*"]}, "select": {"older_than": "75d"}})
    other = policy.model_copy(update={"select": policy.select.model_copy(update={"older_than": None, "superseded": True})})
    hold = Hold.model_validate({"name": "legal", "datasets": "lake/*", "until": DUE + DAY, "reason": "case 7"})
    rules = RulesInForce((policy,), ())
    cases = [
        (rules, DUE),
        (rules, DUE + timedelta(days=30)),
        (replace(rules, holds=(hold,)), DUE),
        (replace(rules, holds=(hold,)), DUE + 2 * DAY),
        (replace(rules, holds=(hold.model_copy(update={"until": None}),)), DUE + 2 * DAY),
        (RulesInForce((other,), ()), DUE),
    ]
    for one, at in [*cases, *cases]:
        said = candidate_marks(log.transactions, log.datasets, one.policies, one.holds, at)
        assert judged.verdicts(one, at).to_pylist() == said.select(["verdict", "reasons", "policy"]).to_pylist()
    assert judged.verdicts(rules, DUE) is judged.verdicts(RulesInForce((policy.model_copy(),), ()), DUE)

"""Invariants on both databases: none is violated by what the ledger does, each by something done past it."""

from collections.abc import Iterable
from datetime import date, timedelta
from functools import partial

import pyarrow as pa
import pytest

from retention_assets.errors import Refused
from retention_assets.frames import Reason
from retention_assets.ledger import AskedBy, Invariant, Ledger, OpenedReport, Settlement, Violation
from retention_assets.ledger import invariants as hold
from retention_assets.ledger.audit import verify
from retention_assets.ledger.audit.verify import last_verified
from retention_assets.outcomes import Order, Outcome
from retention_assets.policy import Policy
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.ledger.states import (
    LATER,
    T0,
    WEEK,
    candidates,
    planned,
    raise_visibility,
    swept,
    write_past_ledger,
)

DAY = date(2026, 1, 8)
POLICY = {"name": "p", "datasets": {"include": ("lake/*",)}, "select": "all", "limits": {"transactions": 4, "bytes": 40}}
INVARIANTS: dict[str, Invariant] = {
    "times": hold.mark_times,
    "policies": partial(hold.policies_and_reasons, reasons=frozenset(Reason.__members__)),
    "early": hold.swept_before_due,
    "unmarked": hold.swept_without_mark,
    "reports": hold.reports_add_up,
}


@pytest.fixture
def lived(ledger: Ledger) -> Ledger:
    """A ledger with every kind of end: deleted, gone, failed, spared, taken back, left half done; and marks that wait."""
    ledger.policy_book.write(Policy.model_validate(POLICY), "ann")
    ledger.marks.mark(candidates(["T1", "T2", "T3", "T4"]), T0, "run one")
    ledger.marks.mark(candidates(["T1"], "lake/e"), T0, "run one")
    ledger.reports.open(DAY, {"lake/d": OpenedReport(classes={"due": 4})}, LATER, "sweeper")
    ledger.unmark.transactions("lake/d", ["T4"], "ann", "still needed")
    swept(ledger, outcomes={"T2": Outcome.ALREADY_GONE, "T3": Outcome.FAILED}, day=DAY)
    lease, plan, batch = planned(ledger, "lake/e")
    ledger.sweeps.begin([lease], [plan], batch)
    ledger.marks.mark(candidates(["T5"]), LATER, "run two")
    raise_visibility(ledger, "lake/d", T0)
    raise_visibility(ledger, "lake/d", T0 + timedelta(days=1))
    raise_visibility(ledger, "lake/d", T0)
    return ledger


def ask(ledger: Ledger, invariant: Invariant, datasets: list[str] | None = None) -> list[Violation]:
    with ledger.database.reading() as connection:
        return list(invariant(connection, datasets))


def broken(ledger: Ledger, datasets: list[str] | None = None) -> dict[str, list[tuple[str, int]]]:
    found = {name: ask(ledger, invariant, datasets) for name, invariant in INVARIANTS.items()}
    return {name: [(one.dataset, one.times) for one in violations] for name, violations in found.items() if violations}


def test_a_life_in_order_violates_nothing(lived: Ledger) -> None:
    assert broken(lived) == {}
    assert broken(lived, ["lake/d", "lake/e", "lake/none"]) == {}
    assert broken(lived, []) == {}


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        # Times.
        ("UPDATE marks SET due_at = marked_at WHERE \"transaction\" IN ('T3', 'T5')", {"times": [("lake/d", 1), ("lake/d", 1)]}),
        ("UPDATE marks SET grace = 'soon' WHERE dataset = 'lake/e'", {"times": [("lake/e", 1)]}),
        ("UPDATE clock SET newest_mark_at = NULL", {"times": [("", 1)]}),
        ("UPDATE visibility SET visible_from = (SELECT min(marked_at) FROM marks)", {"times": [("lake/d", 1)]}),
        # Policies and reasons.
        ("UPDATE marks SET policy_version = 2 WHERE status = 'MARKED'", {"policies": [("lake/d", 2), ("lake/e", 1)]}),
        ("UPDATE marks SET policy = '::realm/acme' WHERE dataset = 'lake/e'", {"policies": [("lake/e", 1)]}),
        ("UPDATE marks SET reason = 'BECAUSE' WHERE \"transaction\" = 'T5'", {"policies": [("lake/d", 1)]}),
        # Nobody has to vouch for what is over.
        ("UPDATE marks SET reason = 'BECAUSE' WHERE status IN ('UNMARKED', 'SWEPT')", {}),
        # Sweeps.
        ("UPDATE plans SET as_of = (SELECT min(marked_at) FROM marks) WHERE dataset = 'lake/d'", {"early": [("lake/d", 2)]}),
        ("UPDATE marks SET status = 'SWEPT' WHERE \"transaction\" = 'T5'", {"early": [("lake/d", 1)], "unmarked": [("lake/d", 1)]}),
        ("DELETE FROM batches", {"unmarked": [("lake/d", 2)]}),
        ("UPDATE marks SET changed_act = act WHERE status = 'SWEPT'", {"unmarked": [("lake/d", 2)]}),
        # Reports.
        ("UPDATE reports SET to_delete = 5", {"reports": [("lake/d", 1)]}),
        ("UPDATE reports SET bytes_freed = -1", {"reports": [("lake/d", 1)]}),
        ("UPDATE reports SET classes = '{\"due\": 5, \"kept\": -1}'", {"reports": [("lake/d", 1)]}),
    ],
)  # fmt: skip
def test_what_is_done_past_the_ledger_is_found(lived: Ledger, sql: str, expected: dict[str, list[tuple[str, int]]]) -> None:
    assert write_past_ledger(lived, sql)
    assert broken(lived) == expected
    others = {name: found for name, found in expected.items() if found != [("", 1)]}
    assert broken(lived, ["lake/none"]) == {}
    assert broken(lived, ["lake/d", "lake/e"]).items() >= others.items()


SWEPT_CHECKS = {"early": hold.swept_before_due, "unmarked": hold.swept_without_mark}
TAMPERED = {
    "early": "UPDATE plans SET as_of = (SELECT min(marked_at) FROM marks) WHERE dataset = '{}'",
    "unmarked": "UPDATE marks SET changed_act = act WHERE status = 'SWEPT' AND dataset = '{}'",
}


def check_swept(ledger: Ledger, datasets: list[str] | None = None) -> set[tuple[str, str]]:
    return {
        (name, one.dataset) for name, check in SWEPT_CHECKS.items() for one in ledger.check_swept(name, check, "run", datasets)
    }


def test_runs_look_at_what_was_swept_since_and_daily_at_all(lived: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_swept(lived) == check_swept(lived) == set()
    # Each whole look is an act, once a day; an act of a look at what is swept verifies no chain.
    assert len([line for line in lived.audit_lines() if '"VERIFY"' in line]) == 2
    with lived.database.reading() as connection:
        assert last_verified(connection) is None
    lived.marks.mark(candidates(["T9"], "lake/f"), LATER, "run")
    swept(lived, "lake/f", as_of=LATER + WEEK)
    for name, statement in TAMPERED.items():
        assert write_past_ledger(lived, statement.format("lake/d")), name
    assert check_swept(lived) == set(), "what is before the head waits for the look at everything"
    for name, statement in TAMPERED.items():
        assert write_past_ledger(lived, statement.format("lake/f")), name
    new = {(name, "lake/f") for name in SWEPT_CHECKS}
    assert check_swept(lived) == check_swept(lived) == check_swept(lived, ["lake/f"]) == new
    assert check_swept(lived, ["lake/d"]) == set()
    monkeypatch.setattr(verify, "WHOLE_EVERY", timedelta(0))
    everything = new | {(name, "lake/d") for name in SWEPT_CHECKS}
    assert check_swept(lived) == check_swept(lived) == everything


@pytest.mark.parametrize("order", [Order.RESTORE, Order.DELETE_ASIDE])
@pytest.mark.parametrize("outcome", [None, Outcome.FAILED])
def test_an_order_about_what_was_set_aside_before_is_no_alarm(ledger: Ledger, order: Order, outcome: Outcome | None) -> None:
    """It is open, or has failed; what it did then began before it was done."""
    ledger.marks.mark(candidates(["T1", "T2"]), T0, "run")
    lease, plan, marks = planned(ledger)
    ledger.sweeps.begin([lease], [plan], marks, LATER + WEEK)
    ledger.sweeps.settle([lease], [Settlement(mark, Outcome.SET_ASIDE, 10) for mark in marks])
    assert check_swept(ledger) == set()
    ledger.trash.begin([lease], marks[:1], order, AskedBy("ann", "needed"))
    if outcome:
        ledger.sweeps.settle([lease], [Settlement(marks[0], outcome, error="no")])
        ledger.trash.begin([lease], marks[:1], order, AskedBy("ann", "needed"))
    assert check_swept(ledger) == set()
    ledger.sweeps.settle([lease], [Settlement(marks[0], order.done, 10)])
    assert check_swept(ledger) == set()
    if order is Order.DELETE_ASIDE:
        assert write_past_ledger(ledger, "UPDATE marks SET changed_act = 7 WHERE outcome = 'DELETED'")
        assert check_swept(ledger) == {("unmarked", "lake/d")}


def test_an_act_that_cannot_be_read_is_refused(lived: Ledger) -> None:
    assert write_past_ledger(lived, "UPDATE audit SET detail = '{}' WHERE deed = 'MARK'")
    with pytest.raises(Refused, match="Act "):
        ask(lived, lambda connection, _: hold.over_limits(connection, ["run"], {"lake/d": 9}))


def test_a_visibility_mark_that_fell_is_found(lived: Ledger) -> None:
    assert write_past_ledger(
        lived,
        "UPDATE audit SET detail = '{\"to\": \"2027-01-01T00:00:00Z\"}' WHERE deed = 'ADVANCE' AND position = (SELECT min(position) FROM audit WHERE deed = 'ADVANCE')",
    )
    (fallen,) = ask(lived, hold.mark_times)
    assert fallen == Violation("lake/d", "its visibility mark went from 2027-01-01T00:00:00Z to 2026-01-02T00:00:00Z")


def test_the_purge_of_a_realm_is_nobodys_policy(lived: Ledger) -> None:
    lived.realms.change("acme", "PURGING", "ann", "gone")
    assert write_past_ledger(
        lived, "UPDATE marks SET policy = '::realm/acme', reason = 'LATEST_VIEW_ALLOWED' WHERE dataset = 'lake/e'"
    )
    assert broken(lived) == {}


def over(ledger: Ledger, actors: Iterable[str], sizes: dict[str, int]) -> list[tuple[str, int]]:
    with ledger.database.reading() as connection:
        return [(one.dataset, one.times) for one in hold.over_limits(connection, list(actors), sizes)]


@pytest.mark.parametrize(
    ("limits", "times"),
    [
        ({"transactions": 4}, 0),
        ({"transactions": 3}, 4),
        ({"bytes": 40}, 0),
        ({"bytes": 39}, 4),
        ({"fraction": 0.29}, 0),
        ({"fraction": 0.28}, 4),
    ],
)
def test_limits_are_of_an_evaluation_and_a_dataset(ledger: Ledger, limits: dict[str, float], times: int) -> None:
    """4 of 14 transactions, or 29 of 100; what another run marked, and another dataset, do not count."""
    ledger.policy_book.write(Policy.model_validate({**POLICY, "limits": limits}), "ann")
    ledger.marks.mark(candidates(["T0"]), T0, "run zero")
    both = pa.concat_tables([candidates(["T1", "T2", "T3", "T4"]), candidates(["T1"], "lake/e")])
    ledger.marks.mark(both, T0, "run one")
    size = 14 if limits != {"fraction": 0.29} else 100
    assert over(ledger, ["run one"], {"lake/d": size, "lake/e": size}) == [("lake/d", times)] * bool(times)
    assert over(ledger, ["run one"], {"lake/e": size}) == []
    assert over(ledger, ["run two"], {"lake/d": 1}) == []


HOUR_LATER = AS_OF + timedelta(hours=1)
CHECK = "log_is_sound"


def found(*names: str, what: str = "unknown parent") -> dict[str, Violation]:
    return {name: Violation(name, what) for name in names}


def standing(ledger: Ledger) -> dict[str, str]:
    return {one.dataset: one.what for one in ledger.violations.standing(CHECK)}


def test_what_was_not_looked_at_stays_and_what_was_is_over(ledger: Ledger) -> None:
    ledger.violations.update(CHECK, found("lake/a", "lake/b", "lake/c"), None, AS_OF, "run 1")
    left = ledger.violations.update(CHECK, found("lake/d"), {"lake/a", "lake/d"}, HOUR_LATER, "run 2")
    assert {one.dataset: one.since for one in left} == {"lake/b": AS_OF, "lake/c": AS_OF, "lake/d": HOUR_LATER}
    assert ledger.violations.update(CHECK, {}, None, HOUR_LATER, "run 3") == []
    assert ledger.violations.standing() == []


def test_one_that_stands_keeps_since_when_and_one_that_comes_back_does_not(ledger: Ledger) -> None:
    ledger.violations.update(CHECK, found("lake/a"), None, AS_OF, "run 1")
    (same,) = ledger.violations.update(CHECK, found("lake/a", what="two branches of one name"), None, HOUR_LATER, "run 2")
    assert (same.what, same.since) == ("two branches of one name", AS_OF)
    ledger.violations.update(CHECK, {}, {"lake/a"}, HOUR_LATER, "run 3")
    (again,) = ledger.violations.update(CHECK, found("lake/a"), {"lake/a"}, HOUR_LATER, "run 4")
    assert again.since == HOUR_LATER


def test_what_is_about_no_dataset_is_looked_at_each_time(ledger: Ledger) -> None:
    ledger.violations.update(CHECK, {"": Violation("", "the clock went back")}, set(), AS_OF, "run 1")
    assert standing(ledger) == {"": "the clock went back"}
    ledger.violations.update(CHECK, {}, set(), HOUR_LATER, "run 2")
    assert standing(ledger) == {}


def test_checks_do_not_end_what_others_found_and_gone_datasets_end(ledger: Ledger) -> None:
    ledger.violations.update(CHECK, found("lake/a", "lake/b"), None, AS_OF, "run 1")
    ledger.violations.update("limits_are_respected", {}, None, AS_OF, "run 1")
    ledger.violations.end(CHECK, ["lake/a"], HOUR_LATER)
    assert standing(ledger) == {"lake/b": "unknown parent"}


def test_when_everything_was_last_looked_at(ledger: Ledger) -> None:
    assert ledger.violations.whole_looks() == {}
    for at in (AS_OF, HOUR_LATER):
        ledger.violations.note_whole_look(CHECK, at)
    assert ledger.violations.whole_looks() == {CHECK: HOUR_LATER}


def test_nothing_is_written_where_nothing_changed(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.violations.update(CHECK, found("lake/a"), None, AS_OF, "run 1")

    def refuse(*_: object) -> None:
        raise AssertionError("a write")

    monkeypatch.setattr(type(ledger.database), "write", refuse)
    ledger.violations.update(CHECK, found("lake/a"), {"lake/a", "lake/b"}, HOUR_LATER, "run 2")
    ledger.violations.update(CHECK, {}, {"lake/b"}, HOUR_LATER, "run 3")
    assert standing(ledger) == {"lake/a": "unknown parent"}

"""Evaluations: written with the marks or not at all, the newest of each dataset alone, alike on both databases."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.errors import Refused
from retention_assets.ledger import EVALUATION_ROWS, Ledger, Settlement
from retention_assets.outcomes import Outcome
from retention_assets_tests.ledger.states import LATER, T0, candidates, ids, planned, take_lease

NOW = T0 + timedelta(microseconds=1)


def row(
    dataset: str, token: str | None = "1", rules: str = "r", at: datetime = NOW, then: datetime | None = None
) -> dict[str, Any]:
    return {"dataset": dataset, "token": token, "rules": rules, "looked_at": at, "next_look": then}


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=EVALUATION_ROWS)


def test_evaluations_are_read_as_they_were_written(ledger: Ledger) -> None:
    noted = [row("lake/a", then=LATER), row("lake/b", token=None), row("lake/ü 'x'", rules="")]
    ledger.marks.mark(candidates([]), T0, "evaluation", evaluations=table(*noted))
    assert ledger.evaluations.all().to_pylist() == noted
    assert ledger.evaluations.all().schema == EVALUATION_ROWS


def test_the_newest_evaluation_of_a_dataset_takes_the_place_of_the_one_before(ledger: Ledger) -> None:
    ledger.marks.mark(candidates([]), T0, "evaluation", evaluations=table(row("lake/a", then=LATER), row("lake/b")))
    ledger.marks.mark(candidates([]), T0, "evaluation", evaluations=table(row("lake/a", token="2", rules="s", at=LATER)))
    assert ledger.evaluations.all().to_pylist() == [row("lake/a", token="2", rules="s", at=LATER), row("lake/b")]


def test_an_evaluation_is_there_only_with_the_marks_that_came_of_it(ledger: Ledger) -> None:
    """Were it noted alone, nobody would come back for marks that are lost."""
    with pytest.raises(ValueError, match="null"):
        ledger.marks.mark(
            candidates(["T1"]), T0, "evaluation", evaluations=pa.table({name: [None] for name in EVALUATION_ROWS.names})
        )
    assert ledger.marks.table().num_rows == 0
    assert ledger.evaluations.all().num_rows == 0


def test_an_evaluation_leaves_nothing_in_the_audit(ledger: Ledger) -> None:
    before = ledger.verify().head
    ledger.marks.mark(candidates([]), T0, "evaluation", evaluations=table(row("lake/a")))
    assert ledger.verify().head == before
    assert ledger.verify().faults == ()


def test_ten_thousand_evaluations_are_one_transaction(ledger: Ledger) -> None:
    names = [f"lake/{number:05}" for number in range(10_000)]
    ledger.marks.mark(candidates([]), T0, "evaluation", evaluations=table(*(row(name) for name in names)))
    assert ledger.evaluations.all()["dataset"].to_pylist() == names


# --- what takes a mark away has its dataset evaluated again ---


@pytest.fixture
def evaluated(ledger: Ledger) -> Ledger:
    """Marks in two datasets, each with its evaluation."""
    for name in ("lake/d", "lake/e"):
        ledger.marks.mark(candidates(["T1", "T2"], name), T0, "evaluation", evaluations=table(row(name)))
    return ledger


def standing(ledger: Ledger) -> list[str]:
    """The datasets with an evaluation for which it is not time again."""
    rows = ledger.evaluations.all().to_pylist()
    assert all(row["next_look"] in (None, row["looked_at"]) for row in rows)
    return [row["dataset"] for row in rows if row["next_look"] is None]


def test_a_mark_that_is_taken_back_has_its_dataset_evaluated_again(evaluated: Ledger) -> None:
    """What is still selected is to be marked by the next evaluation, so there has to be one."""
    evaluated.unmark.transactions("lake/d", ["T1"], "ann", "still needed")
    assert standing(evaluated) == ["lake/e"]
    evaluated.unmark.all_of("ann", "still needed", policy="p")
    assert standing(evaluated) == []
    assert evaluated.verify().faults == ()


def test_what_cannot_be_taken_back_leaves_the_evaluation(evaluated: Ledger) -> None:
    with pytest.raises(Refused):
        evaluated.unmark.transactions("lake/d", ["T1", "T9"], "ann", "still needed")
    assert standing(evaluated) == ["lake/d", "lake/e"]


def test_a_mark_that_a_sweep_spares_has_its_dataset_evaluated_again(evaluated: Ledger) -> None:
    lease = take_lease(evaluated)
    assert not evaluated.sweeps.spare([lease], {}).marks
    assert standing(evaluated) == ["lake/d", "lake/e"]
    assert sorted(evaluated.sweeps.spare([lease], dict.fromkeys(ids(evaluated, "T1"), "a hold")).marks)
    assert standing(evaluated) == ["lake/e"]


@pytest.mark.parametrize("outcome", sorted(set(Outcome) - {Outcome.EXPIRING, Outcome.WITHHELD}))
def test_of_the_outcomes_of_a_sweep_only_the_spared_one_has_its_dataset_evaluated_again(
    evaluated: Ledger, outcome: Outcome
) -> None:
    """What is deleted or failed is judged no other way for it."""
    lease, plan, marks = planned(evaluated)
    evaluated.sweeps.begin([lease], [plan], marks)
    evaluated.sweeps.settle([lease], [Settlement(marks[0], outcome, error="why")])
    assert standing(evaluated) == (["lake/e"] if outcome is Outcome.SPARED else ["lake/d", "lake/e"])


def test_who_marks_meanwhile_either_sees_that_a_mark_was_taken_back_or_leaves_no_evaluation_that_stands(
    evaluated: Ledger,
) -> None:
    """An evaluation that stood beside a mark that is no more would keep it from being made for days."""

    def evaluates_again(number: int) -> None:
        for _ in range(20):
            evaluated.marks.mark(candidates(["T1"]), T0, f"evaluation {number}", evaluations=table(row("lake/d")))

    def takes_back() -> None:
        for _ in range(20):
            with suppress(Refused):
                evaluated.unmark.transactions("lake/d", ["T1"], "ann", "race")

    with ThreadPoolExecutor(3) as pool:
        for done in [*(pool.submit(evaluates_again, number) for number in range(2)), pool.submit(takes_back)]:
            done.result()
    marked = evaluated.marks.table(["lake/d"], ["MARKED"])["transaction"].to_pylist()
    assert "T1" in marked or "lake/d" not in standing(evaluated)

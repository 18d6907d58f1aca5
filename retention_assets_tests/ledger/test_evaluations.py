"""Looks: noted with the marks or not at all, the newest of each dataset alone, alike on both databases."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.errors import Refused
from retention_assets.ledger import Ledger
from retention_assets.ledger.evaluations import EVALUATION_ROWS
from retention_assets.ledger.sweeps import Settlement
from retention_assets.outcomes import Outcome
from retention_assets_tests.ledger.acts import LATER, T0, candidates, ids, planned

NOW = T0 + timedelta(microseconds=1)


def row(
    dataset: str, token: str | None = "1", rules: str = "r", at: datetime = NOW, then: datetime | None = None
) -> dict[str, Any]:
    return {"dataset": dataset, "token": token, "rules": rules, "looked_at": at, "next_look": then}


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=EVALUATION_ROWS)


def test_a_ledger_begins_without_looks(ledger: Ledger) -> None:
    assert ledger.evaluations.all().to_pylist() == []


def test_looks_are_read_as_they_were_noted(ledger: Ledger) -> None:
    noted = [row("lake/a", then=LATER), row("lake/b", token=None), row("lake/ü 'x'", rules="")]
    ledger.marks.mark(candidates([]), T0, "evaluation", evaluations=table(*noted))
    assert ledger.evaluations.all().to_pylist() == noted
    assert ledger.evaluations.all().schema == EVALUATION_ROWS


def test_the_newest_look_of_a_dataset_takes_the_place_of_the_one_before(ledger: Ledger) -> None:
    ledger.marks.mark(candidates([]), T0, "evaluation", evaluations=table(row("lake/a", then=LATER), row("lake/b")))
    ledger.marks.mark(candidates([]), T0, "evaluation", evaluations=table(row("lake/a", token="2", rules="s", at=LATER)))
    assert ledger.evaluations.all().to_pylist() == [row("lake/a", token="2", rules="s", at=LATER), row("lake/b")]


def test_a_look_is_there_only_with_the_marks_that_came_of_it(ledger: Ledger) -> None:
    """Were it noted alone, nobody would come back for marks that are lost."""
    with pytest.raises(ValueError, match="null"):
        ledger.marks.mark(
            candidates(["T1"]), T0, "evaluation", evaluations=pa.table({name: [None] for name in EVALUATION_ROWS.names})
        )
    assert ledger.marks.table().num_rows == 0
    assert ledger.evaluations.all().num_rows == 0


def test_a_look_leaves_nothing_in_the_audit(ledger: Ledger) -> None:
    before = ledger.verify().head
    ledger.marks.mark(candidates([]), T0, "evaluation", evaluations=table(row("lake/a")))
    assert ledger.verify().head == before
    assert ledger.verify().faults == ()


def test_ten_thousand_looks_are_one_transaction(ledger: Ledger) -> None:
    names = [f"lake/{number:05}" for number in range(10_000)]
    ledger.marks.mark(candidates([]), T0, "evaluation", evaluations=table(*(row(name) for name in names)))
    assert ledger.evaluations.all()["dataset"].to_pylist() == names


# --- what takes a mark away has its dataset looked at again ---


@pytest.fixture
def looked_at(ledger: Ledger) -> Ledger:
    """Marks in two datasets, each with its look."""
    for name in ("lake/d", "lake/e"):
        ledger.marks.mark(candidates(["T1", "T2"], name), T0, "evaluation", evaluations=table(row(name)))
    return ledger


def standing(ledger: Ledger) -> list[str]:
    """The datasets with a look for which it is not time again."""
    rows = ledger.evaluations.all().to_pylist()
    assert all(row["next_look"] in (None, row["looked_at"]) for row in rows)
    return [row["dataset"] for row in rows if row["next_look"] is None]


def test_a_mark_that_is_taken_back_has_its_dataset_looked_at_again(looked_at: Ledger) -> None:
    """What is still selected is to be marked by the next evaluation, so there has to be one."""
    looked_at.unmark.transactions("lake/d", ["T1"], "ann", "still needed")
    assert standing(looked_at) == ["lake/e"]
    looked_at.unmark.all_of("ann", "still needed", policy="p")
    assert standing(looked_at) == []
    assert looked_at.verify().faults == ()


def test_what_cannot_be_taken_back_leaves_the_look(looked_at: Ledger) -> None:
    with pytest.raises(Refused):
        looked_at.unmark.transactions("lake/d", ["T1", "T9"], "ann", "still needed")
    assert standing(looked_at) == ["lake/d", "lake/e"]


def test_a_mark_that_a_sweep_spares_has_its_dataset_looked_at_again(looked_at: Ledger) -> None:
    lease = looked_at.leases.take("lake/d", "sweeper")
    assert looked_at.sweeps.spare(lease, {}) == []
    assert standing(looked_at) == ["lake/d", "lake/e"]
    assert looked_at.sweeps.spare(lease, dict.fromkeys(ids(looked_at, "T1"), "a hold"))
    assert standing(looked_at) == ["lake/e"]


@pytest.mark.parametrize("outcome", sorted(set(Outcome) - {Outcome.EXPIRING}))
def test_of_the_outcomes_of_a_sweep_only_the_spared_one_has_its_dataset_looked_at_again(
    looked_at: Ledger, outcome: Outcome
) -> None:
    """What is deleted or failed is judged no other way for it."""
    lease, plan, marks = planned(looked_at)
    looked_at.sweeps.begin(lease, plan, marks)
    looked_at.sweeps.settle(lease, [Settlement(marks[0], outcome, error="why")])
    assert standing(looked_at) == (["lake/e"] if outcome is Outcome.SPARED else ["lake/d", "lake/e"])


def test_who_marks_meanwhile_either_sees_that_a_mark_was_taken_back_or_leaves_no_look_that_stands(looked_at: Ledger) -> None:
    """A look that stood beside a mark that is no more would keep it from being made for days."""

    def looks_again(number: int) -> None:
        for _ in range(20):
            looked_at.marks.mark(candidates(["T1"]), T0, f"evaluation {number}", evaluations=table(row("lake/d")))

    def takes_back() -> None:
        for _ in range(20):
            with suppress(Refused):
                looked_at.unmark.transactions("lake/d", ["T1"], "ann", "race")

    with ThreadPoolExecutor(3) as pool:
        for done in [*(pool.submit(looks_again, number) for number in range(2)), pool.submit(takes_back)]:
            done.result()
    marked = looked_at.marks.table(["lake/d"], ["MARKED"])["transaction"].to_pylist()
    assert "T1" in marked or "lake/d" not in standing(looked_at)

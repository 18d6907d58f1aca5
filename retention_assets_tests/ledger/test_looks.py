"""Looks: noted with the marks or not at all, the newest of each dataset alone, alike on both databases."""

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.ledger import Ledger
from retention_assets.ledger.looks import LOOK_ROWS
from retention_assets_tests.ledger.acts import LATER, T0, candidates

NOW = T0 + timedelta(microseconds=1)


def row(
    dataset: str, token: str | None = "1", rules: str = "r", at: datetime = NOW, then: datetime | None = None
) -> dict[str, Any]:
    return {"dataset": dataset, "token": token, "rules": rules, "looked_at": at, "next_look": then}


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=LOOK_ROWS)


def test_a_ledger_begins_without_looks(ledger: Ledger) -> None:
    assert ledger.looks.all().to_pylist() == []


def test_looks_are_read_as_they_were_noted(ledger: Ledger) -> None:
    noted = [row("lake/a", then=LATER), row("lake/b", token=None), row("lake/ü 'x'", rules="")]
    ledger.marks.mark(candidates([]), T0, "evaluation", looks=table(*noted))
    assert ledger.looks.all().to_pylist() == noted
    assert ledger.looks.all().schema == LOOK_ROWS


def test_the_newest_look_of_a_dataset_takes_the_place_of_the_one_before(ledger: Ledger) -> None:
    ledger.marks.mark(candidates([]), T0, "evaluation", looks=table(row("lake/a", then=LATER), row("lake/b")))
    ledger.marks.mark(candidates([]), T0, "evaluation", looks=table(row("lake/a", token="2", rules="s", at=LATER)))
    assert ledger.looks.all().to_pylist() == [row("lake/a", token="2", rules="s", at=LATER), row("lake/b")]


def test_a_look_is_there_only_with_the_marks_that_came_of_it(ledger: Ledger) -> None:
    """Were it noted alone, nobody would come back for marks that are lost."""
    with pytest.raises(ValueError, match="null"):
        ledger.marks.mark(candidates(["T1"]), T0, "evaluation", looks=pa.table({name: [None] for name in LOOK_ROWS.names}))
    assert ledger.marks.table().num_rows == 0
    assert ledger.looks.all().num_rows == 0


def test_a_look_leaves_nothing_in_the_audit(ledger: Ledger) -> None:
    before = ledger.verify().head
    ledger.marks.mark(candidates([]), T0, "evaluation", looks=table(row("lake/a")))
    assert ledger.verify().head == before
    assert ledger.verify().faults == ()


def test_ten_thousand_looks_are_one_transaction(ledger: Ledger) -> None:
    names = [f"lake/{number:05}" for number in range(10_000)]
    ledger.marks.mark(candidates([]), T0, "evaluation", looks=table(*(row(name) for name in names)))
    assert ledger.looks.all()["dataset"].to_pylist() == names

"""The report of a day: what adds up to what. A sum that does not is a number that an auditor can't follow."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_assets.ledger import COUNTERS
from retention_assets.render import (
    CLASSES,
    DayReport,
    ReportLine,
    as_json,
    iso_of,
    sum_lines,
)
from retention_assets.sweep import opening

BEGAN = datetime(2023, 5, 17, 0, 0, 2, 170_000, UTC)
ENDED = datetime(2023, 5, 17, 0, 32, 3, 180_000, UTC)
DAY = timedelta(days=1)
ZERO = dict.fromkeys(COUNTERS, 0)

INSTANTS = st.integers(0, 10**6).map(lambda seconds: BEGAN + timedelta(seconds=seconds))
BY_POLICY = st.sampled_from(["p", "q"])
LINES = st.builds(
    ReportLine,
    dataset=st.sampled_from(["lake/a", "lake/b", "ods/c"]),
    counters=st.fixed_dictionaries({name: st.integers(0, 9) for name in COUNTERS}),
    policies=st.dictionaries(BY_POLICY, st.tuples(st.integers(1, 3))),
    bounds=st.dictionaries(BY_POLICY, st.tuples(st.sampled_from(["2021-05-16T00:00:00Z", "2021-05-17T00:00:00Z"]))),
    periods=st.dictionaries(BY_POLICY, st.tuples(st.sampled_from(["P2Y", "P30D"]))),
    terminal_only=st.none() | st.booleans(),
    archived_types=st.sampled_from([(), ("PAYMENT",), ("PAYMENT", "RECALL")]),
    classes=st.dictionaries(st.sampled_from([*CLASSES]), st.integers(0, 9)),
    started_at=INSTANTS,
    finished_at=st.none() | INSTANTS,
)


def line(
    dataset: str = "lake/d", began: datetime | None = BEGAN, ended: datetime | None = ENDED, **counters: int
) -> ReportLine:
    return ReportLine(dataset, {**ZERO, **counters}, started_at=began, finished_at=ended)


@given(st.lists(st.lists(LINES, max_size=3), max_size=4))
def test_the_sum_of_sums_is_the_sum_of_all(groups: Sequence[Sequence[ReportLine]]) -> None:
    """Groups are days, or datasets, or nothing at all: whoever adds reports up in another order gets the same."""
    whole = sum_lines("all", [one for group in groups for one in group])
    assert sum_lines("all", [sum_lines("group", group) for group in groups]) == whole


@given(st.lists(LINES, min_size=1, max_size=5))
def test_counters_and_classes_are_sums_and_nothing_else_is_lost(lines: Sequence[ReportLine]) -> None:
    total = sum_lines("all", lines)
    assert total.counters == {name: sum(one.counters[name] for one in lines) for name in COUNTERS}
    names = {name for one in lines for name in one.classes}
    assert total.classes == {name: sum(one.classes.get(name, 0) for one in lines) for name in names}
    for kept in ("policies", "bounds", "periods"):
        each, whole = (
            {(name, value) for one in some for name, own in getattr(one, kept).items() for value in own}
            for some in (lines, [total])
        )
        assert each == whole, kept


def test_a_sum_is_finished_only_if_all_of_it_is() -> None:
    late = ENDED + timedelta(hours=1)
    assert sum_lines("all", [line(), line(ended=late)]).finished_at == late
    going = sum_lines("all", [line(), line(ended=None)])
    assert (going.finished_at, going.duration, going.started_at) == (None, None, BEGAN)


def test_a_sum_lasts_from_the_first_beginning_to_the_last_end() -> None:
    early = BEGAN - timedelta(minutes=1)
    assert sum_lines("all", [line(), line(began=early, ended=BEGAN)]).duration == ENDED - early


@pytest.mark.parametrize(
    ("parts", "told"), [((True, None), True), ((True, False), False), ((None, None), None), ((False, False), False)]
)
def test_a_sum_says_that_unfinished_records_stay_if_each_part_does(parts: tuple[bool | None, ...], told: bool | None) -> None:
    assert sum_lines("all", [ReportLine("lake/d", ZERO, terminal_only=part) for part in parts]).terminal_only is told


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (ENDED - BEGAN, "PT32M1.01S"),
        (timedelta(), "PT0S"),
        (timedelta(seconds=10), "PT10S"),
        (timedelta(minutes=20), "PT20M"),
        (timedelta(days=2, hours=3, seconds=7), "PT51H7S"),
        (timedelta(microseconds=1), "PT0.000001S"),
        (-(ENDED - BEGAN), "-PT32M1.01S"),
    ],
)
def test_a_duration_is_written_as_iso_8601_has_it(length: timedelta, text: str) -> None:
    assert iso_of(length) == text
    assert as_json("today", [line(ended=BEGAN + length)])["duration"] == text


def test_json_has_every_field_of_a_report_summed_and_by_dataset() -> None:
    fields = {
        "policies", "periods", "bounds", "terminal_only", "archived_types", *COUNTERS, "started_at", "finished_at", "duration", "classes",
        "ordered_by",
    }  # fmt: skip
    told = DayReport(BEGAN.date(), (line(deleted=2), line("lake/e", deleted=3))).as_dict()
    assert told.keys() == {"execution_date", *fields, "looked", "realms", "datasets"}
    assert [one.keys() for one in told["datasets"]] == [{"dataset", *fields}] * 2
    assert (told["execution_date"], told["deleted"], told["started_at"]) == ("2023-05-17", 5, "2023-05-17T00:00:02.170000Z")
    assert as_json(None, ()).keys() == told.keys()


def test_what_is_unsettled_is_what_the_report_did_not_settle() -> None:
    assert line(to_delete=9, deleted=3, already_gone=2, spared=1, unmarked=1, failed=4, left=7).unsettled == 2


def test_the_classes_have_words_in_the_order_in_which_the_sweep_counts_them() -> None:
    assert tuple(CLASSES) == opening.CLASSES


# A byte costs one a month.

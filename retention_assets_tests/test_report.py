"""The report of a day: what adds up to what. A sum that does not is a number that an auditor can't follow."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_assets.ledger import COUNTERS
from retention_assets.render.html import page_of
from retention_assets.render.tables import report_tables
from retention_assets.report import (
    CLASSES,
    DayReport,
    ReportLine,
    ReportMoney,
    as_json,
    day_report,
    days_report,
    iso_of,
    sum_lines,
)
from retention_assets.settings.sections import GIB, Prices
from retention_assets.sweep import opening
from retention_assets_tests.sweep.lakes import DUE, OLD, Lake

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
    assert line(ended=BEGAN + length).as_dict()["duration"] == text


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
PRICE = {"gib_month": GIB, "thousand_deletes": 500}


@pytest.fixture
def lake(tmp_path: Path, url: str) -> Lake:
    """Swept on the day DUE: of lake/d what was 57 days old, of lake/e what was 47 and 37 days old."""
    found = Lake(tmp_path / "lake", url).has("main: A:SNAPSHOT@50d - X:SNAPSHOT@5d - B:SNAPSHOT@1d")
    found.has("main: A:SNAPSHOT@40d - B:SNAPSHOT@31d - C:SNAPSHOT@1d", "lake/e")
    found.marks()
    found.sweeps()
    return found


def money(lake: Lake, at: datetime = DUE, **price: float) -> list[ReportMoney]:
    """Of each dataset, and of all of them."""
    prices = Prices.model_validate({"currency": "EUR", "stores": {"lake": {**PRICE, **price}}})
    with lake.opened() as ledger:
        report = day_report(ledger, at.date(), prices=prices)
    return [line.money for line in (*report.lines, report.total) if line.money]


def test_what_was_deleted_saves_its_price_and_costs_its_requests(lake: Lake) -> None:
    with lake.opened() as ledger:
        freed = [one.counters["bytes_freed"] for one in day_report(ledger, DUE.date()).lines]
    d, e, both = money(lake)
    assert d == ReportMoney("EUR", freed[0], 0.5, 0)
    assert e == ReportMoney("EUR", freed[1], 1, 0)
    assert both == ReportMoney("EUR", sum(freed), 1.5, 0)


def test_what_was_deleted_early_is_billed_for_the_rest(lake: Lake) -> None:
    d, e, both = money(lake, minimum_days=47)
    # A of lake/e is 47 days old, as it has to be; B is 38.
    assert d.early == 0
    assert e.early == pytest.approx(e.saved / 2 * 9 / 30)
    assert both.early == e.early
    d, e, _ = money(lake, minimum_days=60)
    assert d.early == pytest.approx(d.saved * 3 / 30)
    assert e.early == pytest.approx(e.saved / 2 * (13 + 22) / 30)


def test_each_day_is_billed_for_what_it_deleted(lake: Lake) -> None:
    before = money(lake, minimum_days=60)
    lake.says(OLD.replace("30d", "10d"))
    lake.marks(DUE)
    lake.sweeps(DUE + 7 * DAY)
    assert money(lake, minimum_days=60) == before
    # X is 19 days old.
    d, _ = money(lake, DUE + 7 * DAY, minimum_days=60)
    assert d.early == pytest.approx(d.saved * 41 / 30)


def test_where_nothing_has_a_price_nothing_is_said_of_money(lake: Lake) -> None:
    with lake.opened() as ledger:
        for prices in (None, Prices(), Prices.model_validate({"classes": {"COLD": PRICE}})):
            report = day_report(ledger, DUE.date(), prices=prices)
            assert [one.money for one in (*report.lines, report.total)] == [None] * 3
            assert "money" not in report.as_dict()


def test_money_of_days_adds_up_and_is_in_the_json(lake: Lake) -> None:
    lake.marks(DUE)
    lake.says(OLD.replace("30d", "20d"))
    prices = Prices.model_validate({"currency": "EUR", "default": PRICE})
    with lake.opened() as ledger:
        day = DUE.date()
        one = day_report(ledger, day, prices=prices).total.money
        both = days_report(ledger, [day], day, day + DAY, prices=prices)
    assert one == both.total.money
    assert both.as_dict()["money"] == {"currency": "EUR", "saved": one.saved if one else None, "requests": 1.5, "early": 0}
    assert [told["money"]["requests"] for told in both.as_dict()["datasets"]] == [0.5, 1]


def test_money_is_shown_in_the_table_and_on_the_page(lake: Lake) -> None:
    prices = Prices.model_validate({"currency": "EUR", "default": {**PRICE, "minimum_days": 60}})
    with lake.opened() as ledger:
        report, plain = (day_report(ledger, DUE.date(), prices=one) for one in (prices, None))
    text = page_of(report)
    for words in ("Saved", "EUR a month", "Requests", "1.50 EUR", "Billed although deleted early"):
        assert words in text
        assert words not in page_of(plain)
    shown = "".join(cell for made in report_tables(report, 5) for column in made.columns for cell in map(str, column.cells))
    assert "1.50 EUR" in shown

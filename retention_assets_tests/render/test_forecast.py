"""How a forecast looks: sentences, blocks, the plot, and what of it a report's page has."""

from datetime import UTC, date, datetime, timedelta

import pytest

from retention_assets.evaluation.days import Forecast, ForecastDay, ForecastDays
from retention_assets.render.forecast import blocks, forecast_plot, periods_of, summary
from retention_assets.render.html import page_of
from retention_assets.render.svg import data_uri, draw
from retention_assets.report import DayReport
from retention_assets_tests.render.test_html import DAY, WHOLE, Page

BEGIN = datetime(2026, 11, 22, 10, tzinfo=UTC)
GIB = 2**30


def days_of(count: int, policies: str = "today", each: int = GIB, **values: float) -> ForecastDays:
    """Days on which one more of `each` is stored than on the day before."""
    found = ForecastDays.starting(policies, BEGIN, count)
    found.datasets, found.start.bytes = 3, each
    for number, day in enumerate(found.days, 2):
        day.bytes, day.bytes_waiting = number * each, each
        for name, value in values.items():
            setattr(day, name, value)
    return found


def test_a_sentence_says_what_the_days_come_to() -> None:
    one = days_of(90, deleted=2, bytes_deleted=GIB)
    assert summary(one, None) == (
        "With the policies in force, 1.0 GiB become 91.0 GiB in 90 days: 90.0 GiB in 180 transactions are deleted."
    )
    assert summary(days_of(1, "draft"), None).startswith("With draft, 1.0 GiB become 2.0 GiB in 1 day:")


def test_money_is_in_the_sentence_where_there_is_any() -> None:
    words = summary(days_of(4, month=1.5, saved=0.25, requests=0.001, early=0.5), "EUR")
    assert "A month of storage costs 0.00 EUR now and 1.50 EUR then." in words
    assert "The requests that delete it cost under 0.01 EUR. Billed although deleted early: 2.00 EUR." in words
    assert "requests" not in summary(days_of(4, month=1.5), "EUR")


def test_periods_add_up_to_the_days_and_end_with_the_last() -> None:
    for count in (1, 14, 15, 90, 126, 127, 1_000):
        one = days_of(count, marked=1)
        found = periods_of(one)
        assert sum(part.marked for part in found) == count
        assert found[-1].last is one.days[-1]
        assert len(found) <= 36


def test_blocks_are_as_high_as_their_values() -> None:
    found = list(blocks([0, 1, 24, 48], 48, date(2026, 11, 23), date(2026, 11, 26)))
    columns = [line[12:].ljust(24) for line in found[:6]]
    heights = [sum(" ▁▂▃▄▅▆▇█".index(line[6 * number]) for line in columns) for number in range(4)]
    # What is there at all can be seen.
    assert heights == [0, 1, 24, 48]
    assert found[0].startswith("      48 B ┤")
    assert found[6].startswith("         0 └─")
    assert found[7].split() == ["2026-11-23", "2026-11-26"]


@pytest.mark.parametrize("count", [1, 2, 12, 66, 67, 90, 365, 1_000])
def test_blocks_fit_a_terminal_of_80_columns(count: int) -> None:
    found = list(blocks(list(range(1, count + 1)), count, date(2026, 11, 23), date(2028, 11, 23)))
    assert max(map(len, found)) <= 80
    # The newest value is the highest, and the last column.
    assert found[0].endswith("█")


def test_the_plot_has_what_is_marked_apart_and_a_line_for_each_other() -> None:
    found = Forecast(BEGIN, days_of(90), (days_of(90, "drafts/eager.yaml", GIB // 2),))
    plot = forecast_plot(found)
    assert plot.title == "1.0 GiB become 91.0 GiB in 90 days"
    assert (len(plot.labels), plot.labels[0], plot.labels[-1]) == (90, "22 Nov", "19 Feb")
    assert [one.values[-1] for one in plot.series] == [90 * GIB, GIB]
    assert [(one.name, one.values[-1]) for one in plot.trends] == [("drafts/eager.yaml", 91 * GIB // 2)]
    picture = draw(plot)
    # Amounts are those of the last day: what is there on each of 90 days does not add up to anything.
    legend = ["".join(text.itertext()) for text in picture.iter("text") if text.find("tspan") is not None]
    assert legend == ["not marked 90 GiB", "marked 1 GiB", "drafts/eager.yaml 45.5 GiB"]
    (line,) = [path for path in picture.iter("path") if "trend" in path.attrib["class"]]
    assert (line.attrib["class"], line.attrib["d"].count("L")) == ("trend l2", 89)


def test_a_line_is_not_cut_where_it_is_higher_than_all_bars() -> None:
    plot = forecast_plot(Forecast(BEGIN, days_of(5), (days_of(5, "lazy", 8 * GIB),)))
    assert plot.highest == 48 * GIB
    (line,) = [path for path in draw(plot).iter("path") if "trend" in path.attrib["class"]]
    heights = [float(point.split()[1]) for point in line.attrib["d"][1:].split("L")]
    assert 60 < min(heights) < max(heights) < 300


def test_of_many_days_as_many_are_drawn_as_can_be_told_apart() -> None:
    plot = forecast_plot(Forecast(BEGIN, days_of(1_000), (days_of(1_000, "other"),)))
    assert len(plot.labels) == len(plot.trends[0].values) <= 120
    assert plot.series[0].values[-1] == 1_000 * GIB
    assert len(data_uri(plot)) < 30_000


def test_a_page_has_what_is_to_come_only_where_it_is_asked_for() -> None:
    report = DayReport(DAY, (WHOLE,))
    assert "What is to come" not in page_of(report)
    found = Forecast(BEGIN, days_of(90, month=2.5), (days_of(90, "<b>drafts</b>"),), currency="EUR")
    text = page_of(report, (), found)
    assert "<h2>What is to come</h2>" in text
    assert len([one for one in Page(text).tags("svg") if one.get("class") == "plot"]) == 1
    assert "&lt;b&gt;drafts&lt;/b&gt;" in text
    assert "<b>drafts" not in text
    assert "EUR a month" in text
    assert text.count('<time datetime="2027-02-19">') == 2
    assert page_of(report, (), found) == text


def test_a_forecast_of_nothing_is_a_page_all_the_same() -> None:
    nothing = ForecastDays.starting("today", BEGIN, 3)
    text = page_of(DayReport(DAY, ()), (), Forecast(BEGIN, nothing, ()))
    assert "0 B become 0 B in 3 days" in text


def test_days_are_added_up_by_their_fields() -> None:
    day = ForecastDay(date(2026, 11, 23), bytes=1, month=0.5)
    day.add(ForecastDay(date(2026, 11, 23), bytes=2, marked=3, month=0.25))
    assert (day.bytes, day.marked, day.month) == (3, 3, 0.75)
    assert ForecastDays.starting("x", BEGIN, 2).days[-1].date == (BEGIN + timedelta(days=1)).date()

"""Plots: the title says the answer, bars are as high as their values, names do no harm, and pictures stay small.

They are read back as SVG by an XML parser. How they look is seen in docs/pictures.
"""

import base64
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from urllib.parse import unquote
from xml.etree.ElementTree import Element, fromstring, tostring

import pytest

from retention_assets.ledger import FreedGroup, PendingGroup
from retention_assets.render import DayReport
from retention_assets.render.dagster import draw_plot
from retention_assets.render.report_page import page_of
from retention_assets.render.svg import (
    COLOURS,
    DAYS,
    NARROW,
    STRIP_LIMIT,
    Plot,
    Series,
    ages_plot,
    binary_ticks,
    data_uri,
    decimal_ticks,
    draw,
    freed_days,
    freed_plot,
    freed_words,
    largest,
    since,
    strip,
)
from retention_assets_tests.render.test_html import ACTIVE, FETCHING, WHOLE, Page

TODAY = date(2026, 6, 9)
NOW = datetime(2026, 6, 9, tzinfo=UTC)
DAY = timedelta(days=1)
HOSTILE = "</style><script>alert(1)</script>&\"'\x00\u202e"


def plot(*values: Sequence[int], names: Sequence[str] = "abcdefgh") -> Plot:
    labels = tuple(str(number) for number in range(len(values[0])))
    series = tuple(Series(name, tuple(mine)) for name, mine in zip(names, values, strict=False))
    return Plot("title", "note", labels, series, in_bytes=False)


def heights(picture: Element) -> list[list[float]]:
    paths = [one.get("d", "") for one in picture.iter("path")]
    return [[float(height) for height in re.findall(r"v-(\d+\.\d)", path)] for path in paths]


def texts(picture: Element) -> str:
    return " ".join("".join(one.itertext()) for one in picture.iter("text"))


# --- drawing ----------------------------------------------------------------------------------------------------------


def test_bars_are_as_high_as_their_values_and_stand_on_those_below() -> None:
    first, second = heights(draw(plot([10, 0, 40], [0, 20, 10])))
    assert first[1] == pytest.approx(4 * first[0], abs=0.2)
    assert second[0] == pytest.approx(2 * first[0], abs=0.2)
    assert second[1] == pytest.approx(first[0], abs=0.2)
    below, above = (re.findall(r"M[\d.]+ ([\d.]+)v-([\d.]+)", one.get("d", "")) for one in draw(plot([10], [30])).iter("path"))
    assert float(above[0][0]) == pytest.approx(float(below[0][0]) - float(below[0][1]), abs=0.2)


@pytest.mark.parametrize("width", [760, NARROW])
def test_nothing_is_drawn_outside_the_picture(width: int) -> None:
    picture = draw(plot([10**12] * 90, [1] * 90, names=["a long name of a policy " * 3] * 2), width)
    paths = [one.get("d", "") for one in picture.iter("path")]
    bars = [re.findall(r"M([\d.]+) ([\d.]+)v-([\d.]+)h([\d.]+)", path) for path in paths]
    # Whatever way a bar is written in, each is looked at.
    assert [len(mine) for mine in bars] == [path.count("M") for path in paths] == [90, 90]
    for x, y, high, wide in (map(float, bar) for mine in bars for bar in mine):
        assert 0 <= x < x + wide <= width
        assert 0 <= y - high < y <= 300
    others = [*picture.iter("text"), *picture.iter("rect")]
    assert len(others) > 4
    assert all(0 <= float(one.get("x", "0")) <= width for one in others)


def test_what_is_there_at_all_can_be_seen() -> None:
    (found,) = heights(draw(plot([1, 10**9])))
    assert found[0] == 1


def test_labels_are_thinned_out_and_the_last_one_stays() -> None:
    shown = [one.text for one in draw(plot([1] * 90)).iter("text") if one.get("text-anchor") == "middle"]
    assert 2 < len(shown) < 40
    assert shown[-1] == "89"


def test_without_values_there_is_only_the_answer() -> None:
    picture = draw(plot([0, 0, 0]))
    assert texts(picture) == "title note"
    assert list(picture.iter("path")) == []


@pytest.mark.parametrize("highest", [1, 2, 3, 4, 5, 7, 9, 10, 99, 1_000, 123_456_789, 2**40, 2**50 + 1])
@pytest.mark.parametrize("step", [decimal_ticks, binary_ticks])
def test_an_axis_has_few_lines_and_round_ones(highest: int, step: object) -> None:
    found = step(highest)  # type: ignore[operator]
    assert 1 <= -(-highest // found) <= 4
    if step is binary_ticks:
        assert found & (found - 1) == 0
    else:
        assert str(found).strip("0") in ("1", "2", "5")


def test_more_series_than_colours_are_added_up() -> None:
    shown = largest([Series(f"p{number}", (number, 1)) for number in range(9)])
    assert [one.name for one in shown] == ["p8", "p7", "p6", "p5", "p4", "4 others"]
    assert shown[-1].values == (0 + 1 + 2 + 3, 4)
    assert len(shown) == len(COLOURS)
    as_many = largest([Series(f"p{number}", (1,)) for number in range(len(COLOURS))])
    assert sorted(one.name for one in as_many) == [f"p{number}" for number in range(len(COLOURS))]


def test_names_are_shown_and_do_no_harm() -> None:
    found = data_uri(plot([3], [4], names=[HOSTILE, "good"]))
    picture = fromstring(base64.b64decode(found.partition(",")[2]))
    tags = {one.tag.rpartition("}")[2] for one in picture.iter()}
    assert tags <= {"svg", "title", "style", "rect", "text", "tspan", "line", "path"}
    assert "<script>" in "".join(picture.itertext())


# --- which plots ------------------------------------------------------------------------------------------------------


def freed(days_ago: int, policy: str, size: int) -> FreedGroup:
    return FreedGroup(NOW - days_ago * DAY, policy, "ann", 1, size)


def test_the_title_says_how_much_was_freed_and_by_whom() -> None:
    found = freed_days([freed(9, "raw", 3 * 2**20), freed(0, "raw", 0), freed(2, "trash", 2**20)], TODAY)
    shown = freed_plot(found)
    assert shown.title == "4.0 MiB freed in 10 days, 75 % by raw"
    assert shown.note == "Bytes freed by day and policy, 31 May to 9 Jun 2026 (UTC)"
    assert (shown.labels[0], shown.labels[-1]) == ("31 May", "9 Jun")
    assert {one.name: sum(one.values) for one in shown.series} == {"raw": 3 * 2**20, "trash": 2**20}
    assert found.totals[7] == 2**20
    assert "2 MiB" in texts(draw(shown))


@pytest.mark.parametrize(
    ("parts", "title"),
    [
        ([], "Nothing was freed in 7 days"),
        ([("raw", 10)], "10 B freed in 7 days, all by raw"),
        ([("raw", 10_000), ("trash", 1)], "9.8 KiB freed in 7 days, nearly all by raw"),
    ],
)
def test_the_title_fits_what_there_is(parts: list[tuple[str, int]], title: str) -> None:
    assert freed_plot(freed_days([freed(0, name, size) for name, size in parts], TODAY)).title == title


def test_a_plot_looks_back_a_month_at_most_and_at_no_day_after_its_last() -> None:
    found = freed_days([freed(-1, "p", 5), freed(DAYS - 1, "p", 7), freed(DAYS, "p", 9)], TODAY)
    assert len(found.days) == DAYS
    assert (found.days[-1], sum(found.totals)) == (TODAY, 7)
    assert since(TODAY).date() == found.days[0]


def waiting(days_ago: float, due_in: int, marks: int, sweeping: bool = False) -> PendingGroup:
    return PendingGroup("p", NOW - days_ago * DAY, NOW + due_in * DAY, sweeping, marks, 10 * marks)


def test_marks_are_shown_by_age_and_what_is_due_apart() -> None:
    shown = ages_plot([waiting(0, 7, 3), waiting(8, -1, 2), waiting(40, 0, 1), waiting(5, 2, 4, sweeping=True)], NOW)
    assert shown.title == "10 marks wait, the oldest for 40 days; 7 are due"
    values = {one.name: dict(zip(shown.labels, one.values, strict=True)) for one in shown.series}
    assert {label: value for label, value in values["in their grace"].items() if value} == {"under 1": 3}
    assert {label: value for label, value in values["due"].items() if value} == {"4–7": 4, "8–14": 2, "31–90": 1}


@pytest.mark.parametrize(
    ("marks", "title"),
    [
        ([], "No mark waits"),
        ([(0, 7, 1)], "1 mark waits, the oldest for less than a day; none is due"),
        ([(1, 0, 1), (0, 7, 1_000)], "1,001 marks wait, the oldest for 1 day; 1 is due"),
        ([(-3, 7, 1)], "1 mark waits, the oldest for less than a day; none is due"),
    ],
)
def test_the_title_of_ages_fits_what_there_is(marks: list[tuple[int, int, int]], title: str) -> None:
    assert ages_plot([waiting(*one) for one in marks], NOW).title == title


def test_an_age_is_of_whole_days() -> None:
    labels = {0: "under 1", 23.9: "under 1", 24: "1", 48: "2–3", 95.9: "2–3", 96: "4–7", 24 * 91: "over 90"}
    plots = {hours: ages_plot([waiting(hours / 24, 7, 1)], NOW) for hours in labels}
    assert {hours: shown.labels[shown.series[0].values.index(1)] for hours, shown in plots.items()} == labels


# --- where they are shown ---------------------------------------------------------------------------------------------


def busiest() -> list[FreedGroup]:
    """A month in which every policy has freed something every day."""
    return [
        freed(day, f"a-policy-with-a-long-name-{policy}", 2**40 + day * policy) for day in range(DAYS) for policy in range(9)
    ]


def test_the_largest_picture_stays_below_thirty_thousand_characters() -> None:
    found = data_uri(freed_plot(freed_days(busiest(), TODAY)))
    assert found.startswith("data:image/svg+xml;base64,")
    assert 5_000 < len(found) < 30_000


def test_a_plot_is_an_image_in_markdown_with_its_answer_in_words() -> None:
    words = draw_plot(freed_plot(freed_days([freed(0, "raw[1]", 10)], TODAY))).value
    assert re.fullmatch(r"!\[10 B freed in 7 days, all by raw\(1\)\]\(data:image/svg\+xml;base64,[A-Za-z0-9+/=]+\)", str(words))


@pytest.mark.parametrize("found", [busiest(), [freed(3, "p", 5)], []], ids=["busy", "little", "nothing"])
def test_a_strip_is_short_enough_to_be_shown_at_once(found: list[FreedGroup]) -> None:
    """Dagster's page hides Markdown of a thousand characters or more behind a click."""
    days = freed_days(found, TODAY)
    words = strip(freed_words(days), days.totals)
    assert len(words) <= STRIP_LIMIT < 1000
    shown = re.fullmatch(r"!\[(.*)\]\(data:image/svg\+xml,([^\s()]+)\)", words)
    assert shown is not None
    assert shown[1] == freed_words(days)
    picture = fromstring(unquote(shown[2]))
    assert "".join(picture.itertext()) == shown[1]


def test_a_strip_keeps_the_newest_days_where_not_all_fit() -> None:
    assert re.findall(r"v-(\d+)h", unquote(strip("little", [50, 0, 100]))) == ["15", "30"]
    shown = strip("much", [*range(1, 500), 1000])
    assert len(shown) <= STRIP_LIMIT
    assert re.findall(r"v-(\d+)h", unquote(shown))[-1] == "30"


def test_words_of_a_strip_are_only_words() -> None:
    assert strip("](x) <b> & 5", [1]).startswith("![  x   b    5](data:")


def test_the_page_of_a_report_has_the_plots_and_still_refers_to_nothing_else() -> None:
    plots = (freed_plot(freed_days(busiest(), TODAY)), ages_plot([waiting(3, 4, 5)], NOW))
    text = page_of(DayReport(TODAY, (WHOLE,)), plots)
    found = Page(text)
    assert "5 marks wait, the oldest for 3 days; none is due" in found.text
    assert {tag for tag, _ in found.found} & ACTIVE == set()
    assert {name for _, attributes in found.found for name in attributes} & FETCHING == set()
    assert re.findall(r"url\(|@import|https?:", text) == []
    assert len(found.tags("figure")) == 2


def test_hostile_names_of_policies_stay_words_on_the_page() -> None:
    plots = [freed_plot(freed_days([freed(0, HOSTILE, 3), freed(0, "other", 2)], TODAY))]
    found = Page(page_of(DayReport(TODAY, (WHOLE,)), plots))
    assert {tag for tag, _ in found.found} & ACTIVE == set()
    assert "script" not in tostring(draw(plots[0])).decode().replace("&lt;script&gt;", "").replace("&lt;/script&gt;", "")

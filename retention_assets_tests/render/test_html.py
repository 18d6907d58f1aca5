"""The page of a report: well formed, complete, and harmless whatever names it shows."""

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import pytest

from retention_assets.ledger import COUNTERS
from retention_assets.render import CLASSES, MOST_SHOWN, DayReport, ReportLine
from retention_assets.render.report_page import page_of

DAY = date(2023, 5, 17)
BEGAN = datetime(2023, 5, 17, 0, 0, 2, 170_000, UTC)
ENDED = datetime(2023, 5, 17, 0, 32, 3, 180_000, UTC)
VOID = {"meta", "br", "hr", "img", "input", "link"}
# Elements and attributes by which a page could run something or fetch something.
ACTIVE = {"script", "link", "iframe", "object", "embed", "img", "form", "a", "base", "use", "image", "foreignobject"}
FETCHING = {"src", "href", "xlink:href", "srcset", "action", "data", "background"}


class Page(HTMLParser):
    """A page as a browser would read it; a tag that closes what is not open is a fault."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.found: list[tuple[str, Mapping[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute of {tag} stands there twice"
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def inside(self, tag: str) -> list[str]:
        """The texts that stand directly in elements of a tag."""
        return [text for where, text in self.texts if where == tag]

    def tags(self, tag: str) -> list[Mapping[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]

    @property
    def text(self) -> str:
        return " ".join("".join(text for where, text in self.texts if where != "style").split())


def line(dataset: str = "lake/d", finished: bool = True, **fields: Any) -> ReportLine:
    counters = {**dict.fromkeys(COUNTERS, 0), **{name: fields.pop(name) for name in COUNTERS if name in fields}}
    return ReportLine(dataset, counters, started_at=BEGAN, finished_at=ENDED if finished else None, **fields)


def page(*lines: ReportLine, last: date | None = None) -> Page:
    return Page(page_of(DayReport(DAY, lines, last)))


def rows(found: Page) -> list[str]:
    return found.inside("bdi")


WHOLE = line(
    to_delete=1_234, deleted=1_000, already_gone=200, failed=5, spared=20, unmarked=10, left=7, bytes_to_free=4_096, bytes_freed=2_048,
    policies={"two-years": (1, 3)}, bounds={"two-years": ("2021-05-17T00:00:00Z",)}, terminal_only=True,
    periods={"two-years": ("P2Y",)}, archived_types=("PAYMENT", "RECALL"), classes={"kept": 6_000, "due": 1_234, "swept": 0, "open": 1},
)  # fmt: skip


def test_a_page_tells_the_whole_report() -> None:
    text = page(WHOLE).text
    for said in (
        "Retention report 2023-05-17", "finished", "Began 2023-05-17 00:00:02 UTC, ended 2023-05-17 00:32:03 UTC, took 32 minutes.",
        "To delete1,2344 left for a later day's report", "Deleted1,000", "Already gone200", "Failed5", "Spared20", "Unmarked10",
        "Files left7of what was swept: not ours to delete, or still needed", "To free4.0 KiB4,096 bytes", "Freed2.0 KiB2,048 bytes", "two-years1, 3P2Y2021-05-17T00:00:00Z",
        "only finished ones may go in 1 of 1 datasets", "Archived before they may go: PAYMENT, RECALL.", "Datasets: 1",
    ):  # fmt: skip
        assert said in text


HEADINGS = ["dataset", "to delete", "deleted", "already gone", "failed", "spared", "unmarked", "to free", "freed", "finished"]


@pytest.mark.parametrize(("counter", "heading", "at"), [("hidden", "hidden", 4), ("left", "files left", 7)])
def test_what_is_rare_has_a_column_where_there_is_some_of_it(counter: str, heading: str, at: int) -> None:
    assert page(line()).inside("th") == [*HEADINGS, "all"]
    some: dict[str, Any] = {counter: 987}
    found = page(line(), line("lake/e", **some))
    headings = [*HEADINGS[:at], heading, *HEADINGS[at:]]
    assert found.inside("th") == [*headings, "all"]
    cells = found.inside("td")
    # Each row has the columns of the sum.
    assert cells[-3 * len(headings[1:]) :][at - 1 :: len(headings[1:])] == ["0", "987", "987"]


def test_a_page_is_valid_and_refers_to_nothing_else() -> None:
    text = page_of(DayReport(DAY, (WHOLE,)))
    found = Page(text)
    assert text.startswith('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">')
    assert {tag for tag, _ in found.found} & ACTIVE == set()
    assert {name for _, attributes in found.found for name in attributes} & FETCHING == set()
    assert not [name for _, attributes in found.found for name in attributes if name.startswith("on")]
    assert re.findall(r"url\(|@import|https?:", text) == []
    assert page_of(DayReport(DAY, (WHOLE,))) == text


def named(part: str, name: str) -> DayReport:
    """A report in which somebody has given a name to something."""
    made = {
        "dataset": line(name),
        "policy": line(policies={name: (1,)}),
        "bound": line(policies={"p": (1,)}, bounds={"p": (name,)}),
        "period": line(policies={"p": (1,)}, periods={"p": (name,)}),
        "type": line(policies={"p": (1,)}, archived_types=(name,)),
        "class": line(classes={name: 3, "kept": 2}),
    }[part]
    return DayReport(DAY, (made,))


@pytest.mark.parametrize("part", ["dataset", "policy", "bound", "period", "type", "class"])
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
        ("</style></bdi><img src=x onerror=alert(1)>", "</style></bdi><img src=x onerror=alert(1)>"),
        ('" onload="alert(1)" x=\'', '" onload="alert(1)" x=\''),
        ("&lt;b&gt; & &amp; <!-- ]]>", "&lt;b&gt; & &amp; <!-- ]]>"),
        ("naïve/データ/🗄", "naïve/データ/🗄"),
        ("evil\u202egpj.exe", "evil\\u202egpj.exe"),
        ("nul\x00 esc\x1b half\ud800", "nul\\x00 esc\\x1b half\\ud800"),
        ("{{ 6 * 7 }} {% raw %} {# x #}", "{{ 6 * 7 }} {% raw %} {# x #}"),
    ],
)
def test_a_hostile_name_is_shown_and_does_nothing(part: str, name: str, shown: str) -> None:
    text = page_of(named(part, name))
    text.encode("utf-8")
    found, plain = Page(text), Page(page_of(named(part, "plain")))
    assert shown in "".join(text for _, text in found.texts)
    assert [(tag, attributes.keys()) for tag, attributes in found.found] == [
        (tag, attributes.keys()) for tag, attributes in plain.found
    ]


def test_the_classes_are_one_bar_whose_legend_sums_to_the_log() -> None:
    found = page(
        line("lake/a", classes={"kept": 6_000, "due": 1_234, "swept": 0}), line("lake/b", classes={"kept": 1, "new": 2})
    )
    bar = [one for one in found.tags("rect") if "x" in one]
    assert [one["class"] for one in bar] == ["due", "kept", "other"]
    assert sum(float(one["width"] or 0) for one in bar) == pytest.approx(1_000, abs=0.1)
    ends = [float(one["x"] or 0) + float(one["width"] or 0) for one in bar]
    assert [float(one["x"] or 0) for one in bar] == pytest.approx([0, *ends[:-1]], abs=0.02)
    assert all(float(one["width"] or 0) > 3 for one in bar), "what is there is wide enough to be seen"
    counts = [int(text.replace(",", "")) for text in found.inside("span") if re.fullmatch(r"[\d,]+ ", text)]
    assert (counts, sum(counts)) == ([1_234, 6_001, 2], 7_237)
    assert "The log: 7,237 transactions" in found.text


def test_every_class_has_its_colour_in_both_schemes() -> None:
    style = page_of(DayReport(DAY, ()))
    for name in (*CLASSES, "other"):
        assert len(re.findall(rf"--{name}: #", style)) == 2
        assert f".{name} {{ fill: var(--{name}); }}" in style


@pytest.mark.parametrize(("last", "words"), [(None, "of this day"), (date(2023, 5, 19), "of these days")])
def test_a_day_without_work_says_so(last: date | None, words: str) -> None:
    text = page(last=last).text
    assert f"Nothing was to be deleted: no dataset has a report {words}." in text
    assert "finished" not in text


def test_a_page_of_something_unfinished_says_how_much_of_it() -> None:
    text = page(line("lake/a"), line("lake/b", finished=False), line("lake/c", finished=False)).text
    assert "2023-05-17not finishedBegan 2023-05-17 00:00:02 UTC. Datasets that are not finished: 2 of 3." in text
    assert "took" not in text


def test_several_days_are_an_interval_and_have_the_first_and_the_last_bound() -> None:
    bounds = tuple(f"2021-05-{day}T00:00:00Z" for day in (17, 18, 19))
    text = page(line(policies={"p": (1,)}, bounds={"p": bounds}), last=date(2023, 5, 19)).text
    assert "Retention report 2023-05-17/2023-05-19" in text
    assert "2021-05-17T00:00:00Z to 2021-05-19T00:00:00Z" in text


def test_a_thousand_datasets_are_listed_and_the_rest_is_one_row() -> None:
    """Failures first, then by what was to be deleted: what is folded away is what matters least."""
    lines = [line(f"lake/d{number:04}", to_delete=number) for number in range(MOST_SHOWN + 234)]
    lines[0] = line("lake/d0000", failed=1, deleted=7)
    found = page(*lines)
    listed = rows(found)
    assert (len(listed), listed[0], listed[1]) == (MOST_SHOWN, "lake/d0000", "lake/d0235")
    assert "1,000 of 1,234 datasets are listed" in found.text
    rest = sum(range(1, 235))
    assert f"234 more datasets{rest:,}0" in found.text
    assert f"all{sum(range(1, 1_234)):,}7" in found.text
    whole = page(*lines[:MOST_SHOWN])
    assert len(rows(whole)) == MOST_SHOWN
    assert "more datasets" not in whole.text


def test_sizes_are_rounded_for_people_and_exact_on_asking() -> None:
    assert {"4,096 bytes", "2,048 bytes"} <= {one.get("title") for one in page(WHOLE).tags("td")}


def test_only_the_style_and_the_plots_are_put_on_the_page_as_they_are() -> None:
    """Both are written here: everything else is escaped, whatever it is."""
    template = files("retention_assets.render").joinpath("report.html").read_text("utf-8")
    assert re.findall(r"(\w+)\s*\|\s*safe", template) == ["style", "plot"]
    assert "autoescape" not in template

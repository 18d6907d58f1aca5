"""A table is declared once: each printer shows the columns that are meant for it, in the looks of their kinds."""

import re
from datetime import UTC, date, datetime
from typing import Any

import dagster as dg
import pytest

from retention_assets.render import ALL, Column, Count, Day, Medium, Minute, Name, Number, Prose, Size, Table, markdown_table
from retention_assets.render.dagster import draw_table as draw_for_dagster
from retention_assets.render.html import draw_table as draw_html
from retention_assets_tests.render.test_terminal import printed as printed_text

AT = datetime(2026, 6, 9, 7, 5, tzinfo=UTC)
ROW: dict[str, Any] = {
    "id": "T|1", "kind": "<b>", "n": 1_234, "bytes": 2_048, "at": AT, "day": date(2026, 6, 9), "version": 1_234, "why": "no need",
}  # fmt: skip
COLUMNS = (
    Name("id"), "kind", Count("n"), Size("size", "bytes"), Minute("at"), Day("day"), Number("version"), Prose("why"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


def printed(table: Table) -> dict[str, list[list[str]]]:
    """Cells of each printer, with the headings."""
    boxed = [re.split("[│┃]", row)[1:-1] for row in printed_text(table).splitlines() if re.search("[│┃]", row)]
    html = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall("<tr>.*?</tr>", str(draw_html(table)))]
    run = draw_for_dagster(table)
    assert isinstance(run, dg.TableMetadataValue)
    markdown = [line[2:-2].split(" | ") for line in markdown_table(table).splitlines() if "---" not in line]
    return {
        "terminal": [[cell.strip() for cell in row] for row in boxed],
        "markdown": markdown,
        "html": html,
        "run": [
            [column.name for column in run.schema.columns],
            *([str(each) for each in row.data.values()] for row in run.records),
        ],
        "json": [list(table.records()[0]), *([str(each) for each in row.values()] for row in table.records())],
    }


def test_a_value_looks_in_each_medium_as_its_kind_does_there() -> None:
    seen = {name: rows[1] for name, rows in printed(Table("t", COLUMNS, [ROW])).items()}
    assert seen == {
        "terminal": ["T|1", "<b>", "1,234", "2.0 KiB", "2026-06-09 07:05", "9 June 2026", "1234", "no need"],
        "markdown": [
            r"T\|1", r"\<b\>", "1,234", "2.0\u00a0KiB", "2026-06-09\u00a007:05", "9\u00a0June\u00a02026", "1234", "no need",
        ],
        "html": ["<bdi>T|1</bdi>", "&lt;b&gt;", "1,234", "2.0 KiB", "2026-06-09 07:05", "9 June 2026", "1234", "no need"],
        "run": ["T|1", "<b>", "1234", "2048", "2026-06-09 07:05", "9 June 2026", "1234", "no need"],
        "json": ["T|1", "<b>", "1234", "2048", str(AT), "2026-06-09", "1234", "no need"],
    }  # fmt: skip


def test_one_more_column_is_shown_by_every_printer() -> None:
    before = printed(Table("t", COLUMNS, [ROW]))
    after = printed(
        Table("t", (*COLUMNS[:-1], Count("twice", lambda row: 2 * row["n"], meaning="as much again"), COLUMNS[-1]), [ROW])
    )
    for name, (headings, cells, *_) in after.items():
        assert (headings[-2], cells[-2].replace(",", "")) == ("twice", "2468"), name
        assert [headings[:-2] + headings[-1:], cells[:-2] + cells[-1:]] == before[name], name


@pytest.mark.parametrize(
    ("medium", "name"),
    [
        (Medium.TERMINAL, "terminal"),
        (Medium.MARKDOWN, "markdown"),
        (Medium.HTML, "html"),
        (Medium.RUN, "run"),
        (Medium.JSON, "json"),
    ],
)
def test_a_column_for_one_medium_is_in_no_other(medium: Medium, name: str) -> None:
    table = Table("t", ("id", Column("only", lambda _: "here", medium)), [ROW])
    assert {each for each, rows in printed(table).items() if "only" in rows[0]} == {name}


def test_the_table_beside_a_sentence_has_the_columns_that_are_meant_for_it() -> None:
    table = Table("t", (Column("kind", media=ALL), "why", Count("n", media=Medium.SHORT)), [ROW])
    assert [column.name for column in table.shown(Medium.SHORT)] == ["kind", "n"]


@pytest.mark.parametrize(("rows", "sums", "is_there"), [([0, 0], [], False), ([0, 1], [], True), ([0], [1], True)])
def test_what_is_rare_is_left_out_for_people_where_there_is_none(rows: list[int], sums: list[int], is_there: bool) -> None:
    made = Table(
        "t", ("id", Count("n", rare=True)), [{"id": "a", "n": n} for n in rows], sums=[{"id": "all", "n": n} for n in sums]
    )
    assert {name: "n" in cells[0] for name, cells in printed(made).items()} == {
        "terminal": is_there, "markdown": is_there, "html": is_there, "run": True, "json": True,
    }  # fmt: skip


def test_an_unknown_size_is_asked_for_and_other_values_that_are_missing_are_empty() -> None:
    nothing = dict.fromkeys(ROW)
    assert printed(Table("t", ("id", *COLUMNS[1:]), [{**nothing, "id": "x"}]))["html"][1] == [
        "<bdi>x</bdi>",
        "–",
        "–",
        "?",
        *4 * "–",
    ]


def test_colours_are_those_of_the_value_or_of_anything_that_is_not_none() -> None:
    column = Column("state", tones={"yes": "green", True: "red"})
    assert [column.tone(value) for value in ("yes", "no", "", 0, 7)] == ["green", "red", "", "", "red"]

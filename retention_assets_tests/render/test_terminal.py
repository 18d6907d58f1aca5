"""Tables of results: what they add up is what they are given, and names are shown as they are.

Belongs here: tables as a pipe gets them, read back cell by cell. How they fit a terminal is in test_width.py, what the commands
print around them in commands/.
"""

import io
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from operator import itemgetter
from pathlib import Path

import pytest

from retention_assets.evaluation.explain import BranchView, ExplainedLine, Explanation, PolicyAnswer
from retention_assets.evaluation.preview import Change, Preview, preview
from retention_assets.evaluation.rules_in_force import rules_for
from retention_assets.exchange import read_log
from retention_assets.ledger import COUNTERS
from retention_assets.policy import load_policies
from retention_assets.render import Column, DayReport, ReportLine, Table
from retention_assets.render.tables import HOLDS, compare_tables, explanation, preview_tables, report_tables
from retention_assets.render.terminal import ResultConsole, console, draw, status_text
from retention_assets.settings import Settings
from retention_assets_tests.histories import AS_OF, history, to_lines

POLICIES = """policies:
  - {name: old, datasets: {include: ['lake/*']}, select: {older_than: 30d}}
  - {name: very-old, datasets: {include: ['lake/*']}, select: {older_than: 60d}}
"""
MANY = " - ".join(f"S{number}:SNAPSHOT@{number}d=1024" for number in (90, 80, 45, 40, 35, 20, 1))


@pytest.fixture(autouse=True)
def a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody has said how wide it may be, as the programs that run tests side by side do."""
    monkeypatch.delenv("COLUMNS", raising=False)


def cells(found: Table) -> list[list[str]]:
    out = io.StringIO()
    console(out).print(draw(found))
    return [[cell.strip() for cell in row.split("│")[1:-1]] for row in out.getvalue().splitlines() if "│" in row]


def table(title: str, columns: Sequence[Column | str], rows: Sequence[Sequence[str]], grouped: bool = False) -> Table:
    """A table whose rows are texts in the order of the columns."""
    kinds = [Column(each) if isinstance(each, str) else each for each in columns]
    placed = [replace(each, value=itemgetter(number)) for number, each in enumerate(kinds)]
    return Table(title, placed, rows, grouped=grouped)


def titles(found: Sequence[Table]) -> list[str]:
    return [one.title if one.rows else one.empty for one in found if one.rows or one.empty]


@pytest.fixture
def result(tmp_path: Path) -> Preview:
    """A history with five snapshots that are old enough, and a dataset whose log is not sound."""
    (tmp_path / "log.jsonl").write_text(
        "".join(f"{line}\n" for line in to_lines([history(f"main: {MANY}", dataset="lake/d")]))
        + '{"dataset": "lake/c", "branch": "main", "head": "nowhere"}\n'
    )
    (tmp_path / "p.yaml").write_text(POLICIES)
    log = read_log(tmp_path / "log.jsonl")
    policies = load_policies([tmp_path / "p.yaml"])
    return preview(log, rules_for(policies, log.datasets["dataset"].to_pylist(), Settings()), AS_OF)


def test_a_preview_adds_up_verdicts_policies_and_reasons(result: Preview) -> None:
    refused, verdicts, policies, reasons, first, kept = preview_tables(result, 2)
    assert [row[0] for row in cells(refused)] == ["lake/c"]
    assert cells(verdicts) == [["mark", "5", "5.0 KiB"], ["spare", "0", "0 B"], ["keep", "2", "2.0 KiB"], ["open", "0", "0 B"]]
    assert cells(policies) == [["old", "5", "5.0 KiB"]]
    assert [row[:2] for row in cells(reasons)] == [["SELECTED", "5"], ["TOO_YOUNG", "4"]]  # of each policy
    assert (first.title, cells(first)) == (
        "To be marked: 2 of 5", [["lake/d", "S90", "old", "very-old"], ["lake/d", "S80", "old", "very-old"]],
    )  # fmt: skip
    assert (kept.title, [(row[1], row[2]) for row in cells(kept)]) == (
        "To be kept: 2 of 2",
        [("S20", "keep"), ("S1", "keep")],
    )
    assert cells(kept)[0][3] == "It is younger than policy 'old' requires. It is younger than policy 'very-old' requires."
    assert titles(preview_tables(result, 99))[4:] == ["To be marked: 5 of 5", "To be kept: 2 of 2"]
    assert titles(preview_tables(result, 0))[4:] == []


def test_that_nothing_would_change_is_said() -> None:
    assert titles(compare_tables([])) == ["Nothing would change."]
    (changed,) = compare_tables([Change("lake/d", "p", "newly marked", 3_000, 2_048)])
    assert cells(changed) == [["lake/d", "p", "newly marked", "3,000", "2.0 KiB"]]


ODD = "urn:li:a:b:warning:[red]x[/red]\\ \x1b[2J\u202e\n\ty"
SHOWN = "urn:li:a:b:warning:[red]x[/red]\\ \\x1b[2J\\u202e\\n\\ty"


def printed(*renderables: object, width: int | None = None) -> str:
    """What a console prints; with a width, one of a terminal that is so wide."""
    out = io.StringIO()
    to = (
        console(out)
        if width is None
        else ResultConsole(file=out, width=width, force_terminal=True, color_system=None, emoji=False)
    )
    to.print(*map(draw, renderables))
    return out.getvalue()


def test_an_id_is_printed_as_it_is_and_orders_nothing() -> None:
    assert cells(table(ODD, ("name",), [(ODD,)])) == [[SHOWN]]
    assert printed(table(ODD, ("x",), ())).splitlines()[0] == SHOWN
    assert "a:warning:[b]c[/b]" in printed(table("x", ("a:warning:[b]c[/b]",), ()))
    assert printed("a :warning: [red]x[/] \x1b[2J") == "a :warning: [red]x[/] \\x1b[2J\n"
    assert status_text(ODD).plain == SHOWN


def test_a_long_id_is_whole_in_its_line_where_nobody_folds() -> None:
    name = "urn:li:schemaField:" + "x" * 4_000
    assert cells(table("t", ("a", "b"), [(name, name)])) == [[name, name]]


def explained(name: str, sentence: str) -> Explanation:
    """An explanation in which everything has one name."""
    return Explanation(
        dataset=name, transaction=name, as_of="2026-01-31T07:05:59.999Z", type="APPEND", status="OPEN", closed_at=None, bytes=1, verdict="keep", policy=name,
        also=(name,), summary=sentence, reasons=({"code": "HOLD", "witness": name, "text": name},), more_branches=0, tags=(name,),
        branches=(BranchView(name, 0, 0, None, name),),
        policies=(PolicyAnswer(name, sentence, False, (ExplainedLine(name, False, name, name, name),)),),
    )  # fmt: skip


def test_an_explanation_is_text_without_markup() -> None:
    said = printed(explanation(explained(ODD, ODD)))
    assert said.count(SHOWN) == 15
    assert "at 2026-01-31 07:05 UTC" in said
    assert "\x1b" not in said
    assert "\u202e" not in said


def test_a_hold_says_where_it_is_and_of_what() -> None:
    hold = {
        "name": "audit", "source": "file", "reason": "checked", "owner": "ann", "until": None,
        "scope": {
            "datasets": {"include": ["lake/*", "ods/a"], "exclude": ["lake/x"], "with": {"realm": "r"}}, "transactions": None,
        },
    }  # fmt: skip
    about = {"transactions": ["T1"], "datasets": {"include": ["ods/a"]}}
    ended = {**hold, "source": "ledger", "scope": about, "until": AS_OF}
    assert cells(Table("Holds", HOLDS, [hold, ended])) == [
        ["audit", "policy file", "lake/*, ods/a except lake/x where realm is r", "all", "ann", "it is released", "checked"],
        ["audit", "ledger", "ods/a", "T1", "ann", "2026-03-31 12:00", "checked"],
    ]


def test_the_classes_of_a_report_stand_in_the_order_of_a_life_and_unknown_ones_last() -> None:
    counters = dict.fromkeys(COUNTERS, 0)
    began = datetime(2026, 1, 8, tzinfo=UTC)
    classes = {"new": 1, "kept": 7_999, "due": 2_000, "swept": 0}
    shown = report_tables(DayReport(date(2026, 1, 8), (ReportLine("lake/d", counters, classes=classes, started_at=began),)), 0)
    assert cells(shown[3]) == [
        ["due", "2,000", "20.0 %", "marked, and its grace is over"],
        ["kept", "7,999", "80.0 %", "selected by no policy"],
        ["new", "1", "under 0.1 %", ""],
    ]


def test_what_went_otherwise_is_said_in_words_where_there_is_some_of_it() -> None:
    def of(ended: datetime | None = AS_OF, **counts: int) -> tuple[list[str], list[str]]:
        line = ReportLine("lake/d", {**dict.fromkeys(COUNTERS, 0), **counts}, finished_at=ended)
        found = report_tables(DayReport(date(2026, 1, 8), (line,)), 5)[-1]
        return [column.name for column in draw(found).columns], cells(found)[0]

    usual = ["dataset", "to delete", "deleted", "to free", "freed"]
    assert of(deleted=1)[0] == usual
    headings, row = of(hidden=987, left=3, spared=1)
    assert (headings, row[-1]) == ([*usual, "otherwise"], "987 hidden, 1 spared, 3 files left")
    assert of(None)[1][-1] == "not finished"

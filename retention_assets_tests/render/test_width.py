"""Tables and explanations on terminals: at any width each line fits, and of no name anything is lost.

Belongs here: every table that a command prints, with names that are too long for it. An id that was cut or folded into its
neighbour would be copied into `unmark` and hold nothing.
"""

import io
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace

import pytest
from rich.cells import cell_len

from retention_assets.evaluation.preview import Change
from retention_assets.ledger import COUNTERS, Realm
from retention_assets.ledger.book import Orphaned
from retention_assets.policy import Duration
from retention_assets.render import DayReport, Number, ReportLine, Table, tables
from retention_assets.render.tables import explanation, report_tables
from retention_assets.render.terminal import console, draw, fit
from retention_assets_tests.render.test_terminal import explained, table
from retention_assets_tests.render.test_terminal import printed as printed_text

NOW = datetime(2026, 3, 1, 7, 5, 59, tzinfo=UTC)
WIDTHS = pytest.mark.parametrize("width", [200, 80, 50])


def name_of(letter: str, length: int = 70) -> str:
    """A long name without a space, as ids of tables and urns are."""
    return f"{letter}:{letter * (length - 4)}:{letter}"


DATASET, TRANSACTION, POLICY, BRANCH, HOLD = (name_of(letter) for letter in "dtpbh")


def mark(**said: object) -> Mapping[str, object]:
    return {
        "dataset": DATASET, "transaction": TRANSACTION, "policy": POLICY, "policy_version": 12, "reason": "LATEST_VIEW",
        "marked_at": NOW, "due_at": NOW + timedelta(days=6, hours=5), "status": "MARKED", "bytes": 10**9, "attempts": 3, "held_by": None, "spared": None,
        "until": None,
        "last_error": "the disk is on fire, and has been so since this morning", **said,
    }  # fmt: skip


def printed(renderables: Iterable[object], width: int) -> list[str]:
    return printed_text(*renderables, width=width).splitlines()


def whole(lines: list[str], name: str) -> bool:
    """Whether a name stands in the lines: in one of them, or folded in one column."""
    text = "\n".join(lines)
    if name in text or name in re.sub(r"\s+", "", text):
        return True
    starts = {match.start() for line in lines if "──" in line for match in re.finditer("─+", line)}
    return any(name in "".join(part_at(line, start) for line in lines) for start in starts)


def part_at(line: str, start: int) -> str:
    return re.split(r"\s{2,}|$", line[start:], maxsplit=1)[0].strip()


SCOPE = {"datasets": {"include": [DATASET]}, "transactions": [TRANSACTION]}
LINE = ReportLine(
    DATASET, dict.fromkeys(COUNTERS, 123_456), classes={"due": 2, "kept": 7}, policies={POLICY: (1, 2)}, started_at=NOW
)
TABLES = {
    "marks": (tables.mark_tables({"MARKED": (1, 10**9), "SWEPT": (1, 1)}, [mark(), mark(status="SWEPT")], NOW), (DATASET, TRANSACTION, POLICY)),
    "history": (
        [Table(DATASET, tables.HISTORY, [{"transaction": TRANSACTION, "in_log": False, "type": "SNAPSHOT", "status": "ABORTED", "closed_at": NOW, "bytes": 10**9, "mark": "MARKED", "message": "This transaction has been scheduled for deletion.", "words": f"marked by {POLICY}, and held by {HOLD}"}])],
        (DATASET, TRANSACTION, POLICY, HOLD),
    ),
    "as-of": (
        tables.as_of_tables(DATASET, NOW, [{"branch": BRANCH, "current": True, "transactions": [{"transaction": TRANSACTION, "type": "SNAPSHOT", "closed_at": NOW, "bytes": 9, "swept": True}]}]),
        (DATASET, BRANCH, TRANSACTION),
    ),
    "holds": (
        [Table("Holds", tables.HOLDS, [{"name": HOLD, "source": "ledger", "scope": SCOPE, "reason": "because of the audit", "owner": "the legal department", "until": NOW}])],
        (HOLD, DATASET, TRANSACTION),
    ),
    "realms": ([Table("Realms", tables.REALMS, [SimpleNamespace(realm=Realm(HOLD, "INACTIVE", Duration(days=7)), words="")])], (HOLD,)),
    "clock": ([Table("Clock", tables.CLOCK, [("newest_mark_at", NOW), ("newest_seen_at", None)])], ()),
    "policies": (
        tables.book_tables(
            [{"name": POLICY, "version": 12, "written_by": BRANCH, "written_at": NOW, "system": True, "revoked": True, "files": "DRIFTED", "orphaned_marks": 7, "why": f"the files differ: {HOLD}"}],
            [Orphaned(POLICY, 1, 1_000)],
        ),
        (POLICY, BRANCH, HOLD),
    ),
    "versions": (
        [Table(POLICY, tables.VERSIONS, [{"version": 1, "written_by": BRANCH, "written_at": NOW, "system": False, "revoked": False, "sentence": f"Marks transactions of {DATASET}."}])],
        (POLICY, BRANCH, DATASET),
    ),
    "report": (report_tables(DayReport(date(2026, 3, 1), (LINE,)), 5), (DATASET, POLICY)),
    "compare": (tables.compare_tables([Change(DATASET, POLICY, "newly marked", 3_000, 2_048)]), (DATASET, POLICY)),
}  # fmt: skip


@WIDTHS
@pytest.mark.parametrize("what", TABLES)
def test_every_line_of_a_table_fits_and_every_name_is_whole(what: str, width: int) -> None:
    tables, names = TABLES[what]
    lines = printed(tables, width)
    assert [line for line in lines if cell_len(line) > width] == []
    assert [name for name in names if not whole(lines, name)] == []
    assert [line for line in lines if line != line.rstrip()] == []


@WIDTHS
def test_many_long_names_in_one_row_are_all_whole(width: int) -> None:
    # wide letters count twice
    names = [*(name_of(letter, 50) for letter in "abcdefghi"), "数据" * 40]
    lines = printed([table("t", "0123456789", [names])], width)
    assert [line for line in lines if cell_len(line) > width] == []
    assert [name for name in names if not whole(lines, name)] == []


@WIDTHS
def test_an_explanation_fits_and_goes_on_where_a_line_began(width: int) -> None:
    sentence = "Marks transactions of the datasets " + ", ".join(["lake/raw.*"] * 30)
    lines = printed([explanation(explained(DATASET, sentence))], width)
    assert [line for line in lines if cell_len(line) > width or line != line.rstrip()] == []
    assert whole(lines, DATASET)
    last = max(number for number, line in enumerate(lines) if "Marks transactions" in line)
    assert all(line.startswith("    ") for line in lines[last : last + 3])


def test_rows_of_one_dataset_stand_together_below_its_name() -> None:
    rows = [("lake/a", "T1", "1"), ("lake/b", "T2", "2"), ("lake/a", "T3", "3")]
    assert printed([table("Marks", ("dataset", "transaction", Number("bytes")), rows, grouped=True)], 80) == [
        "Marks", "  transaction  bytes", "  ───────────  ─────", "lake/a", "  T1               1", "  T3               3",
        "lake/b", "  T2               2", "",
    ]  # fmt: skip


def test_in_a_pipe_each_row_is_one_line_with_its_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    out = io.StringIO()
    console(out).print(draw(table("Marks", ("dataset", "transaction"), [(DATASET, TRANSACTION)], grouped=True)))
    assert f"│ {DATASET} │ {TRANSACTION} │" in out.getvalue()


def test_a_pipe_whose_width_is_said_gets_lines_of_that_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = io.StringIO()
    console(out).print(draw(table("Marks", ("dataset", "transaction"), [(DATASET, TRANSACTION)])))
    assert max(map(cell_len, out.getvalue().splitlines())) <= 80


def test_a_column_in_which_nothing_stands_is_left_out() -> None:
    found = draw(table("t", ("a", "b", "c"), [("1", "", ""), ("2", "", "x")]))
    assert [column.name for column in found.columns] == ["a", "c"]


@pytest.mark.parametrize(
    ("natural", "least", "room", "widths"),
    [
        ((5, 5), (1, 1), 20, [5, 5]),
        ((5, 50), (1, 1), 20, [5, 15]),
        ((30, 50, 9), (1, 1, 9), 29, [10, 10, 9]),
        ((30, 50, 9), (12, 12, 9), 20, [6, 6, 6]),
        ((9, 9), (9, 9), 1, [1, 1]),
        ((), (), 80, []),
    ],
)
def test_the_widest_give_way_first_and_numbers_last(
    natural: tuple[int, ...], least: tuple[int, ...], room: int, widths: list[int]
) -> None:
    assert fit(natural, least, room) == widths

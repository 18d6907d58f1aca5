"""Results as people and programs read them: the declaration of tables, its printers, sentences, answers and plots."""

from typing import TYPE_CHECKING, Any

from retention_assets.render.markdown import MOST_INLINE, Answer, code, markdown_table, plain, with_table
from retention_assets.render.page import (
    ALL,
    MOST_SHOWN,
    Column,
    Count,
    Day,
    Medium,
    Minute,
    Name,
    Number,
    Page,
    Prose,
    Size,
    Table,
)
from retention_assets.render.text import duration_of, iso_of, plain_json, share_of, visible, visible_json, visible_line

if TYPE_CHECKING:
    from retention_assets.render.report import CLASSES, DayReport, ReportLine, as_json, day_report, days_report, sum_lines

__all__ = [
    "ALL", "CLASSES", "MOST_INLINE", "MOST_SHOWN", "Answer", "Column", "Count", "Day", "DayReport", "Medium", "Minute",
    "Name", "Number", "Page", "Prose", "ReportLine", "Size", "Table", "as_json", "code", "day_report", "days_report",
    "duration_of", "iso_of", "markdown_table", "plain", "plain_json", "share_of", "sum_lines", "visible", "visible_json",
    "visible_line", "with_table",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Reports on demand: they load the ledger, and the command line starts without it."""
    if name not in __all__:
        raise AttributeError(name)
    from retention_assets.render import report

    return getattr(report, name)

"""The report of a day, or of several, as one file of HTML that refers to nothing else, to be kept, sent or printed."""

from collections.abc import Iterable, Iterator
from typing import Any

from retention_assets.policy.sizes import size_of
from retention_assets.render.html import draw_plot, fill, read
from retention_assets.render.page import MOST_SHOWN, Medium, Table
from retention_assets.render.report import (
    CLASSES,
    COLUMNS,
    COUNTS,
    REALMS,
    SIZES,
    DayReport,
    ReportLine,
    policy_table,
    sum_lines,
)
from retention_assets.render.summaries import looks_words
from retention_assets.render.svg import Plot

# width of the bar of classes, in units of its picture
_WIDTH = 1_000


def page_of(report: DayReport, plots: Iterable[Plot] = ()) -> str:
    """Render the page, which refers to nothing else. The same arguments always give the same text."""
    ordered = sorted(report.lines, key=lambda line: (not line.counters["failed"], -line.counters["to_delete"], line.dataset))
    total, unlisted = report.total, ordered[MOST_SHOWN:]
    listed = sorted(ordered[:MOST_SHOWN], key=lambda line: line.dataset)
    others = [sum_lines(f"{len(unlisted):,} more datasets", unlisted)] if unlisted else []
    datasets = Table("", COLUMNS, listed, sums=[*others, total])
    later = " for a later day's report" if total.unsettled and total.finished_at else ""
    hidden, aside = size_of(total.counters["bytes_hidden"]), size_of(total.counters["bytes_set_aside"])
    notes = {
        "to_delete": f"{total.unsettled:,} left{later}" if total.unsettled else "nothing left",
        "hidden": f"nothing became free: versions of {hidden} can still be read",
        "set_aside": f"{aside} to be freed later",
        **{column.field: f"{column.read(total):,} bytes" for column in SIZES},
    }
    return fill(
        "report.html",
        report=report,
        looks=looks_words(report),
        total=total,
        style=read("report.css"),
        classes=CLASSES,
        bars=list(_class_bars(total)),
        plots=[draw_plot(plot) for plot in plots],
        terminal_only=[line.terminal_only for line in report.lines if line.terminal_only is not None],
        realms=Table("", REALMS, report.realms),
        policies=policy_table(total),
        datasets=datasets,
        tiles=Table("", (*COUNTS, *SIZES), [total]).shown(Medium.HTML),
        notes=notes,
    )


def _class_bars(total: ReportLine) -> Iterator[dict[str, Any]]:
    # Parts fill the bar in proportion; each is at least wide enough to be seen.
    counts = total.class_counts
    least, size = _WIDTH / 250, sum(counts.values())
    wide = {name: max(_WIDTH * count / size, least) for name, count in counts.items()}
    x = 0.0
    for name, count in counts.items():
        width = wide[name] * _WIDTH / sum(wide.values())
        yield {"name": name, "count": count, "x": x, "width": width}
        x += width

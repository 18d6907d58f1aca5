"""The report of a day as a person reads it on a terminal.

Belongs here: layout. What the numbers are is day_report.py's, the page for others report_page.py's.
"""

from collections.abc import Sequence

from rich.table import Table

from retention_assets.policy.durations import text_of
from retention_assets.render.terminal import size_of, table
from retention_assets.report import CLASSES, DayReport, ReportLine, iso_of

_ENDS = ("deleted", "already_gone", "failed", "spared", "unmarked")


def report_tables(report: DayReport, most: int) -> list[Table]:
    """A report: its numbers, its rules, the classes of the log, and the first of its datasets."""
    total = report.total
    tables = [_facts(report, total), _numbers(total), _policies(total)]
    if size := sum(total.classes.values()):
        rows = [
            (name, f"{count:,}", f"{100 * count / size:.1f} %", CLASSES.get(name, ""))
            for name, count in sorted(total.classes.items(), key=lambda item: _order(item[0]))
            if count
        ]
        title = f"The log when the report opened: {size:,} transactions"
        tables.append(table(title, ("class", "transactions", "share", "meaning"), rows, ("transactions", "share")))
    return [*tables, _datasets(report.lines, most)] if most else tables


def _order(name: str) -> tuple[int, str]:
    known = tuple(CLASSES)
    return known.index(name) if name in known else len(known), name


def _facts(report: DayReport, total: ReportLine) -> Table:
    rows = [("began", text_of(total.started_at) if total.started_at else "")]
    if total.finished_at is not None and total.duration is not None:
        rows += [("finished", text_of(total.finished_at)), ("duration", iso_of(total.duration))]
    else:
        going = sum(line.finished_at is None for line in report.lines)
        rows.append(("not finished", f"{going:,} of {len(report.lines):,} datasets"))
    if total.terminal_only is not None:
        rows.append(("records", "only finished ones may go" if total.terminal_only else "unfinished ones may go as well"))
    if total.archived_types:
        rows.append(("archived first", ", ".join(total.archived_types)))
    return table(f"Report of {report.when}", ("", ""), rows)


def _numbers(total: ReportLine) -> Table:
    counts = total.counters
    rows = [("to delete", f"{counts['to_delete']:,}", size_of(counts["bytes_to_free"]))]
    rows += [(_words(name), f"{counts[name]:,}", size_of(counts["bytes_freed"]) if name == "deleted" else "") for name in _ENDS]
    rows.append(("left", f"{total.left:,}", ""))
    return table("What became of it", ("", "transactions", "bytes"), rows, ("transactions", "bytes"))


def _words(counter: str) -> str:
    return "failed attempts" if counter == "failed" else counter.replace("_", " ")


def _policies(total: ReportLine) -> Table:
    rows = [
        (
            name,
            ", ".join(str(version) for version in versions if version),
            ", ".join(total.periods.get(name, ())),
            " to ".join(_ends(total.bounds.get(name, ()))),
        )
        for name, versions in total.policies.items()
    ]
    title = "Policies" if rows else "No policy is about these datasets"
    return table(title, ("policy", "versions", "period", "takes what is older than"), rows)


def _ends(bounds: Sequence[str]) -> Sequence[str]:
    return (bounds[0], bounds[-1]) if len(bounds) > 1 else bounds


def _datasets(lines: Sequence[ReportLine], most: int) -> Table:
    columns = ("dataset", "to delete", *map(_words, _ENDS), "to free", "freed", "finished")
    rows = [
        (
            line.dataset, *(f"{line.counters[name]:,}" for name in ("to_delete", *_ENDS)),
            size_of(line.counters["bytes_to_free"]), size_of(line.counters["bytes_freed"]), "yes" if line.finished_at else "no",
        )
        for line in lines[:most]
    ]  # fmt: skip
    return table(f"Datasets: {len(rows):,} of {len(lines):,}", columns, rows, columns[1:-1])

"""Tables of the report of a day, or of several. Each function imports what only it needs."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from retention_assets.policy.durations import parse_instant
from retention_assets.render.terminal import Count, Number, Size, table
from retention_assets.render.text import minute_of, share_of

if TYPE_CHECKING:
    from retention_assets.report import DayReport, ReportLine

# outcomes of marks, and the names of their counters
_OUTCOMES = {
    "deleted": "deleted", "already_gone": "already gone", "hidden": "hidden", "failed": "failed attempts", "spared": "spared",
    "unmarked": "unmarked",
}  # fmt: skip


def report_tables(report: "DayReport", most: int) -> list[Table]:
    """Numbers of a report, its rules, the classes of the log, and the first of its datasets."""
    from retention_assets.report import CLASSES

    total = report.total
    tables = [_report_table(report, total), _outcome_table(total), _rules_table(total)]
    if counts := total.class_counts:
        size = sum(counts.values())
        rows = [(name, count, share_of(count, size), CLASSES.get(name)) for name, count in counts.items()]
        title = f"The log when the report opened: {size:,} transactions"
        tables.append(table(title, ("class", Count("transactions"), Number("share"), "meaning"), rows, prose=True))
    if report.realms:
        realms = [(one.name, one.status, one.words) for one in report.realms]
        tables.append(table("Realms of which something is left", ("realm", "status", "left"), realms, prose=True))
    return [*tables, _dataset_table(report.lines, most)] if most else tables


def _report_table(report: "DayReport", total: "ReportLine") -> Table:
    from retention_assets.render.summaries import money_rows
    from retention_assets.report import iso_of

    rows = [("ordered by", total.orderers)] if total.ordered_by else []
    rows.append(("began", minute_of(total.started_at)))
    if total.finished_at is not None and total.duration is not None:
        rows += [("finished", minute_of(total.finished_at)), ("duration", iso_of(total.duration))]
    else:
        rows.append(("not finished", f"{report.unfinished:,} of {len(report.lines):,} datasets"))
    if total.terminal_only is not None:
        rows.append(("records", "only finished ones may go" if total.terminal_only else "unfinished ones may go as well"))
    rows += money_rows(total.money)
    if total.archived_types:
        rows.append(("archived first", ", ".join(total.archived_types)))
    return table(f"Report of {report.when}", ("", ""), rows)


def _outcome_table(total: "ReportLine") -> Table:
    counts = total.counters
    sizes = {"deleted": counts["bytes_freed"], "hidden": counts["bytes_hidden"]}
    # Without hidden data nobody has to ask what that is.
    outcomes = {name: words for name, words in _OUTCOMES.items() if name != "hidden" or counts["hidden"]}
    rows: list[tuple[object, ...]] = [("to delete", counts["to_delete"], counts["bytes_to_free"])]
    rows += [(words, counts[name], sizes.get(name, "")) for name, words in outcomes.items()]
    rows.append(("still to delete", total.unsettled, ""))
    rows += [(f"files left behind: {counts['left']:,}", None, "")] if counts["left"] else []
    return table("What became of it", ("", Count("transactions"), Size("bytes")), rows)


def _rules_table(total: "ReportLine") -> Table:
    rows = [
        (
            name,
            ", ".join(str(version) for version in versions if version),
            ", ".join(total.periods.get(name, ())),
            " to ".join(minute_of(parse_instant(bound)) for bound in total.bound_range(name)),
        )
        for name, versions in total.policies.items()
    ]
    title = "Policies" if rows else "No policy is about these datasets"
    return table(title, ("policy", "versions", "period", "takes what is older than"), rows, prose=True)


def _dataset_table(lines: "Sequence[ReportLine]", most: int) -> Table:
    columns = ("dataset", Count("to delete"), Count("deleted"), Size("to free"), Size("freed"), "otherwise")
    amounts = ("to_delete", "deleted", "bytes_to_free", "bytes_freed")
    rows = [(line.dataset, *(line.counters[name] for name in amounts), ", ".join(_otherwise(line))) for line in lines[:most]]
    return table(f"Datasets: {len(rows):,} of {len(lines):,}", columns, rows, prose=True)


def _otherwise(line: "ReportLine") -> Iterator[str]:
    for name, words in {**_OUTCOMES, "left": "files left"}.items():
        if name != "deleted" and line.counters[name]:
            yield f"{line.counters[name]:,} {words}"
    if not line.finished_at:
        yield "not finished"

"""Tables of the report of a day, or of several. Each function imports what only it needs."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from retention_assets.policy.durations import parse_instant
from retention_assets.render.terminal import table
from retention_assets.render.text import minute_of, share_of, size_of

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
        rows = [(name, f"{count:,}", share_of(count, size), CLASSES.get(name, "")) for name, count in counts.items()]
        title = f"The log when the report opened: {size:,} transactions"
        tables.append(table(title, ("class", "transactions", "share", "meaning"), rows, ("transactions", "share"), prose=True))
    if report.realms:
        realms = [(one.name, one.status, one.words) for one in report.realms]
        tables.append(table("Realms of which something is left", ("realm", "status", "left"), realms, prose=True))
    return [*tables, _dataset_table(report.lines, most)] if most else tables


def _report_table(report: "DayReport", total: "ReportLine") -> Table:
    from retention_assets.render.money import money_rows
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


def _outcomes_of(total: "ReportLine") -> Mapping[str, str]:
    """Without hidden data nobody has to ask what that is."""
    return {name: words for name, words in _OUTCOMES.items() if name != "hidden" or total.counters["hidden"]}


def _outcome_table(total: "ReportLine") -> Table:
    counts = total.counters
    rows = [("to delete", f"{counts['to_delete']:,}", size_of(counts["bytes_to_free"]))]
    sizes = {"deleted": size_of(counts["bytes_freed"]), "hidden": size_of(counts["bytes_hidden"])}
    rows += [(words, f"{counts[name]:,}", sizes.get(name, "")) for name, words in _outcomes_of(total).items()]
    rows.append(("still to delete", f"{total.unsettled:,}", ""))
    if counts["left"]:
        rows.append((f"files left behind: {counts['left']:,}", "", ""))
    return table("What became of it", ("", "transactions", "bytes"), rows, ("transactions", "bytes"))


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
    """Planned and actual deletions by dataset; exceptions are in words."""
    columns = ("dataset", "to delete", "deleted", "to free", "freed", "otherwise")
    rows = [
        (
            line.dataset, f"{line.counters['to_delete']:,}", f"{line.counters['deleted']:,}",
            size_of(line.counters["bytes_to_free"]), size_of(line.counters["bytes_freed"]), ", ".join(_otherwise(line)),
        )
        for line in lines[:most]
    ]  # fmt: skip
    return table(f"Datasets: {len(rows):,} of {len(lines):,}", columns, rows, columns[1:-1], prose=True)


def _otherwise(line: "ReportLine") -> Iterator[str]:
    for name, words in {**_OUTCOMES, "left": "files left"}.items():
        if name != "deleted" and line.counters[name]:
            yield f"{line.counters[name]:,} {words}"
    if not line.finished_at:
        yield "not finished"

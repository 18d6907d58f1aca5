"""Results as a person reads them on a terminal: what policies decide, what the ledger knows, and the report of a day.

Belongs here: layout, and the words for values. JSON for programs does not pass through here; rows come with the names that they
have in JSON. Each function imports what only it needs, so that no command loads what another one prints. No text of others is
markup, an emoji or an order to the terminal: what is printed can be copied.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from datetime import datetime
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from retention_assets.policy.durations import text_of
from retention_assets.render.text import share_of, size_of, visible, visible_line

if TYPE_CHECKING:
    from retention_assets.evaluation.preview import Change, Preview
    from retention_assets.ledger.policy_book import Orphaned
    from retention_assets.ledger.realms import Realm
    from retention_assets.policy.book import BookDecision
    from retention_assets.report import DayReport, ReportLine

Row = Mapping[str, Any]

# Wider than any line: whoever reads from a pipe folds for himself.
_WIDEST = 100_000

VERDICT_COLOURS = {"mark": "red", "spare": "yellow", "keep": "green", "open": "cyan"}
# What became of the marks of a report, and how the counters are called.
_OUTCOMES = {
    "deleted": "deleted", "already_gone": "already gone", "hidden": "hidden", "failed": "failed attempts", "spared": "spared",
    "unmarked": "unmarked",
}  # fmt: skip
# What loading the files would do with an entry, and whether the book has none of it yet.
_FILES = {
    (None, False): "", ("SKIPPED", False): "the same", ("WRITTEN", False): "newer: load them", ("DRIFTED", False): "drift",
    ("ABSENT", False): "in no file", ("WRITTEN", True): "not loaded yet",
}  # fmt: skip
_WRITERS = {None: "", True: "system", False: "user"}
_STATES = {None: "", True: "revoked", False: "in force"}


class ResultConsole(Console):
    """A console that takes every text as it is."""

    def render_str(self, text: str, **options: Any) -> Text:
        """A text without markup, emoji and highlights; in it, what nobody would see can be seen."""
        kept = {name: options[name] for name in ("style", "justify", "overflow", "tab_size") if options.get(name) is not None}
        return Text(visible(text), **kept)


class ResultTable(Table):
    """A table whose title has the whole line: a name in it is not folded because the columns are narrow."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The title, then the table as it is without one."""
        if self.title:
            yield self.title
        untitled = copy(self)
        untitled.title = None
        yield from Table.__rich_console__(untitled, console, options)


def console(stream: TextIO | None = None, *, markup: bool = False) -> Console:
    """A console for results; without a terminal no line is folded. `markup` is for those who print only their own words."""
    kind = Console if markup else ResultConsole
    found = kind(file=stream, highlight=False, emoji=False)
    return found if found.is_terminal else kind(file=stream, highlight=False, emoji=False, width=_WIDEST)


def status_text(words: str) -> Text:
    """What stands beside a spinner or a bar."""
    return Text(visible_line(words))


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()) -> Table:
    """A plain table; columns in `right` are numbers. What has no room is folded, never cut."""
    made = ResultTable(title=Text(visible_line(title), "bold"))
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(visible_line(str(cell))) for cell in row))
    return made


def _instant(instant: datetime | None) -> str:
    return text_of(instant) if instant else ""


# --- what policies decide ---------------------------------------------------------------------------------------------


def preview_tables(result: "Preview", most: int) -> list[Table]:
    """What a preview found: refused datasets, verdicts, policies, reasons, and the first marks."""
    tables = [_refused_table(result)] if result.refused else []
    tables += [_verdict_table(result), _policy_table(result), _reason_table(result, 10)]
    marked = result.marked
    first = marked.slice(0, most).to_pylist()
    if first:
        rows = [(row["dataset"], row["transaction"], row["policy"], ", ".join(row["also"])) for row in first]
        title = f"To be marked: {len(first):,} of {len(marked):,}"
        tables.append(table(title, ("dataset", "transaction", "policy", "also selected by"), rows))
    return tables


def _refused_table(result: "Preview") -> Table:
    rows = [(name, said["fault"], said["transaction"] or "") for name, said in result.refused.items()]
    title = f"Refused, because the log is not sound: {len(rows):,}. Nothing of these datasets is marked."
    return table(title, ("dataset", "fault", "transaction"), rows[:100])


def _verdict_table(result: "Preview") -> Table:
    from retention_assets.frames.verdicts.decisions import VERDICTS

    sums = {row["verdict"]: row for row in result.sums_by("verdict")}
    found = [(verdict, sums.get(verdict, {"transactions": 0, "bytes": 0})) for verdict in VERDICTS]
    rows = [
        (Text(verdict, VERDICT_COLOURS[verdict]), f"{row['transactions']:,}", size_of(row["bytes"])) for verdict, row in found
    ]
    columns = ("verdict", "transactions", "bytes")
    return table(f"Verdicts at {text_of(result.as_of)}", columns, rows, columns[1:])


def _policy_table(result: "Preview") -> Table:
    marks = [row for row in result.sums_by("verdict", "policy") if row["verdict"] == "mark"]
    marks.sort(key=lambda row: -row["bytes"])
    rows = [(row["policy"], f"{row['transactions']:,}", size_of(row["bytes"])) for row in marks]
    title = "Marks by policy" if rows else "No policy marks anything"
    return table(title, ("policy", "transactions", "bytes"), rows, ("transactions", "bytes"))


def _reason_table(result: "Preview", most: int) -> Table:
    from retention_assets.frames.verdicts.reasons import Reason

    counts = list(result.count_reasons().items())[:most]
    rows = [(code, f"{count:,}", Reason[code].text("…")) for code, count in counts]
    return table("Reasons", ("code", "transactions", "meaning"), rows, ("transactions",))


def compare_tables(changes: "Sequence[Change]") -> list[Table]:
    """What another set of policies would change."""
    rows = [(one.dataset, one.policy, one.change, f"{one.transactions:,}", size_of(one.bytes)) for one in changes]
    title = "What would change" if rows else "Nothing would change."
    return [table(title, ("dataset", "policy", "change", "transactions", "bytes"), rows, ("transactions", "bytes"))]


# --- what the ledger knows --------------------------------------------------------------------------------------------


def mark_tables(sums: Mapping[str, tuple[int, int]], first: Sequence[Row]) -> list[Table]:
    """Marks: how many there are in each state, and the first of them."""
    total = sum(count for count, _ in sums.values())
    if not total:
        return [table("No marks", ("status", "marks", "bytes"), ())]
    counted = [(status, f"{count:,}", size_of(size)) for status, (count, size) in sorted(sums.items())]
    tables = [table("Marks by status", ("status", "marks", "bytes"), counted, ("marks", "bytes"))]
    if first:
        columns = ("dataset", "transaction", "policy", "reason", "marked", "due", "status", "bytes", "attempts", "last error")
        rows = [
            (
                row["dataset"], row["transaction"], f"{row['policy']}@{row['policy_version']}", row["reason"],
                text_of(row["marked_at"]), text_of(row["due_at"]), row["status"], size_of(row["bytes"]), row["attempts"],
                row["last_error"] or "",
            )
            for row in first
        ]  # fmt: skip
        tables.append(table(f"Marks: {len(first):,} of {total:,}", columns, rows, ("bytes", "attempts")))
    return tables


def history_table(dataset: str, transactions: Sequence[Row], total: int) -> Table:
    """What became of each transaction, in words."""
    rows = [
        (
            row["transaction"] if row["in_log"] else f"{row['transaction']} (in no log)",
            " ".join(part for part in (row["type"], row["status"]) if part),
            _instant(row["closed_at"]), size_of(row["bytes"]), row["mark"] or "",
            f"{row['message']} {row['words']}" if row["message"] else row["words"],
        )
        for row in transactions
    ]  # fmt: skip
    columns = ("transaction", "type and status", "closed", "bytes", "mark", "what became of it")
    return table(f"{dataset}: {len(rows):,} of {total:,} transactions", columns, rows, ("bytes",))


def as_of_tables(dataset: str, at: datetime, views: Sequence[Row]) -> list[Table]:
    """The views of branches at an instant."""
    columns = ("transaction", "type", "closed", "bytes", "")
    tables = []
    for view in views:
        rows = [
            (
                row["transaction"], row["type"], _instant(row["closed_at"]), size_of(row["bytes"]),
                "swept since" if row["swept"] else "",
            )
            for row in view["transactions"]
        ]  # fmt: skip
        what = "the current view" if view["current"] else "the view that was current" if rows else "nothing was committed yet"
        tables.append(table(f"{dataset} on {view['branch']} at {text_of(at)}: {what}", columns, rows, ("bytes",)))
    return tables or [table(f"{dataset} has no live branch, and so no view.", columns, ())]


def hold_table(holds: Sequence[Row]) -> Table:
    """The holds that are in force."""
    columns = ("name", "where", "datasets", "transactions", "reason", "owner", "until")
    rows = [
        (
            hold["name"], "policy file" if hold["source"] == "file" else "ledger", _scope(hold["scope"]["datasets"]),
            ", ".join(hold["scope"]["transactions"] or ("all",)), hold["reason"], hold["owner"],
            _instant(hold["until"]) or "released",
        )
        for hold in holds
    ]  # fmt: skip
    return table("Holds in force" if rows else "No hold is in force", columns, rows)


def _scope(datasets: Row) -> str:
    text = ", ".join(datasets["include"])
    text += f" except {', '.join(datasets['exclude'])}" if datasets.get("exclude") else ""
    wanted = ", ".join(f"{key} is {value}" for key, value in datasets.get("with", {}).items())
    return text + (f" where {wanted}" if wanted else "")


def realm_table(realms: "Sequence[Realm]") -> Table:
    """Realms, and the grace that purging each has."""
    rows = [(realm.name, realm.status, realm.grace.words()) for realm in realms]
    return table("Realms" if rows else "No realm was ever changed: all are ACTIVE", ("realm", "status", "grace"), rows)


def clock_table(times: Mapping[str, datetime | None]) -> Table:
    """The times that the clock guard compares with."""
    words = {"newest_mark_at": "newest mark", "newest_seen_at": "newest run", "accepted_until": "accepted at"}
    rows = [(words[name], _instant(at) or "none") for name, at in times.items()]
    return table("The clock of the ledger", ("time", "instant"), rows)


def book_tables(entries: Sequence[Row], orphaned: "Sequence[Orphaned]") -> list[Table]:
    """The policy book against the files, and the marks of versions that are in force no more."""
    columns = ("name", "version", "written by", "written at", "last writer", "state", "files", "orphaned marks")
    rows = [
        (
            entry["name"], entry["version"] or "", entry["written_by"] or "", _instant(entry["written_at"]),
            _WRITERS[entry["system"]], _STATES[entry["revoked"]], _FILES[entry["files"], entry["version"] is None],
            entry["orphaned_marks"] or "",
        )
        for entry in entries
    ]  # fmt: skip
    title = "The policy book" if rows else "The policy book is empty: `retention policies load` fills it"
    tables = [table(title, columns, rows, ("version", "orphaned marks"))]
    drifted = [(entry["why"],) for entry in entries if entry["files"] == "DRIFTED"]
    tables += [table("Drift", ("what differs, and what to do",), drifted)] if drifted else []
    counted = [(f"{one.policy}@{one.policy_version}", f"{one.marks:,}") for one in orphaned]
    tables += [table("Orphaned marks", ("policy", "marks"), counted, ("marks",))] if counted else []
    return tables


def version_table(name: str, versions: Sequence[Row]) -> Table:
    """Every version of an entry."""
    rows = [
        (
            row["version"], row["written_by"], text_of(row["written_at"]), _WRITERS[row["system"]], _STATES[row["revoked"]],
            row["sentence"] or "This release does not understand it.",
        )
        for row in versions
    ]  # fmt: skip
    columns = ("version", "written by", "written at", "as", "state", "what it says")
    return table(f"Versions of {name}", columns, rows, ("version",))


def load_table(decisions: "Sequence[BookDecision]") -> Table:
    """What loading did with each entry."""
    rows = [
        (one.name, one.outcome.value, one.reason, "; ".join(_scope(scope.model_dump(by_alias=True)) for scope in one.touched))
        for one in decisions
    ]
    return table("Loaded" if rows else "Nothing to load", ("name", "outcome", "why", "datasets to evaluate again"), rows)


# --- the report of a day ----------------------------------------------------------------------------------------------


def report_tables(report: "DayReport", most: int) -> list[Table]:
    """A report: its numbers, its rules, the classes of the log, and the first of its datasets."""
    from retention_assets.report import CLASSES

    total = report.total
    tables = [_report_table(report, total), _outcome_table(total), _rules_table(total)]
    if counts := total.class_counts:
        size = sum(counts.values())
        rows = [(name, f"{count:,}", share_of(count, size), CLASSES.get(name, "")) for name, count in counts.items()]
        title = f"The log when the report opened: {size:,} transactions"
        tables.append(table(title, ("class", "transactions", "share", "meaning"), rows, ("transactions", "share")))
    return [*tables, _dataset_table(report.lines, most)] if most else tables


def _report_table(report: "DayReport", total: "ReportLine") -> Table:
    from retention_assets.report import iso_of

    rows = [("began", _instant(total.started_at))]
    if total.finished_at is not None and total.duration is not None:
        rows += [("finished", text_of(total.finished_at)), ("duration", iso_of(total.duration))]
    else:
        rows.append(("not finished", f"{report.unfinished:,} of {len(report.lines):,} datasets"))
    if total.terminal_only is not None:
        rows.append(("records", "only finished ones may go" if total.terminal_only else "unfinished ones may go as well"))
    if total.archived_types:
        rows.append(("archived first", ", ".join(total.archived_types)))
    return table(f"Report of {report.when}", ("", ""), rows)


def _outcomes_of(total: "ReportLine") -> Mapping[str, str]:
    """The outcomes as they are called; where nothing is hidden nobody has to ask what that is."""
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
            " to ".join(total.bound_range(name)),
        )
        for name, versions in total.policies.items()
    ]
    title = "Policies" if rows else "No policy is about these datasets"
    return table(title, ("policy", "versions", "period", "takes what is older than"), rows)


def _dataset_table(lines: "Sequence[ReportLine]", most: int) -> Table:
    from retention_assets.report import sum_lines

    total = sum_lines("all", lines)
    counts = {"to_delete": "to delete", **_outcomes_of(total), **({"left": "files left"} if total.counters["left"] else {})}
    columns = ("dataset", *counts.values(), "to free", "freed", "finished")
    rows = [
        (
            line.dataset, *(f"{line.counters[name]:,}" for name in counts),
            size_of(line.counters["bytes_to_free"]), size_of(line.counters["bytes_freed"]), "yes" if line.finished_at else "no",
        )
        for line in lines[:most]
    ]  # fmt: skip
    return table(f"Datasets: {len(rows):,} of {len(lines):,}", columns, rows, columns[1:-1])

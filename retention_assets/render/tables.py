"""Tables for terminals: the ledger, the report, previews, and the explanation of one transaction.

Each function imports what only it needs, so that no command loads what another one prints.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from retention_assets.policy.durations import minute_in_utc, minute_of, parse_duration, parse_instant, text_of
from retention_assets.policy.sentences import first_of
from retention_assets.policy.sizes import size_of
from retention_assets.render.terminal import Count, Indented, Minute, Number, Row, Size, table
from retention_assets.render.text import duration_of, sentence_case, share_of, until_of, visible_line

if TYPE_CHECKING:
    from retention_assets.evaluation.explain import ExplainedTransaction, Explanation, PolicyAnswer
    from retention_assets.evaluation.preview import Change, Preview
    from retention_assets.ledger.book import Orphaned, Realm
    from retention_assets.ledger.stores import ScanRecord
    from retention_assets.policy.loading import BookDecision
    from retention_assets.report import DayReport, ReportLine

# effect of loading the files on an entry, and whether the book lacks it
_FILES = {
    (None, False): "", ("SKIPPED", False): "the same", ("WRITTEN", False): "newer: load them", ("DRIFTED", False): "drift",
    ("ABSENT", False): "in no file", ("WRITTEN", True): "not loaded yet",
}  # fmt: skip
_WRITERS = {None: "", True: "system", False: "user"}


def mark_tables(sums: Mapping[str, tuple[int, int]], first: Sequence[Row], now: datetime | None) -> list[Table]:
    """Number of marks in each state, and the first of them. Columns with only usual values are left out.

    Without `now`, where the clock is simulated, the time until something is due is left out.
    """
    total = sum(count for count, _ in sums.values())
    counted = [(status, *sums[status]) for status in sorted(sums)] if total else ()
    tables = [table("Marks by status" if total else "No marks", ("status", Count("marks"), Size("bytes")), counted)]
    if total and first:
        columns = (
            "dataset", "transaction", "policy", "reason", Minute("marked"), "due", "status", Size("bytes"), Number("attempts"),
            "last error",
        )  # fmt: skip
        rows = [
            (
                row["dataset"], row["transaction"], f"{row['policy']}@{row['policy_version']}",
                "" if row["reason"] == "SELECTED" else row["reason"], row["marked_at"], _due(row, now),
                "" if sums.keys() == {"MARKED"} else row["status"], row["bytes"], row["attempts"] or "", row["last_error"],
            )
            for row in first
        ]  # fmt: skip
        tables.append(table(f"Marks: {len(first):,} of {total:,}", columns, rows, grouped=True, prose=True))
    return tables


def _due(mark: Row, now: datetime | None) -> str:
    if mark["held_by"] is not None or mark["spared"]:
        return "to be spared" if mark["spared"] else f"held by {mark['held_by']}"
    at = mark["until"] or mark["due_at"]
    return until_of(at, now) if now and (mark["until"] or mark["status"] == "MARKED") else minute_of(at)


def history_table(dataset: str, transactions: Sequence[Row], total: int) -> Table:
    rows = [
        (
            row["transaction"] if row["in_log"] else f"{row['transaction']} (in no log)", row["type"],
            "" if row["status"] == "COMMITTED" else row["status"], row["closed_at"], row["bytes"], row["mark"],
            f"{row['message']} {sentence_case(row['words'])}" if row["message"] else row["words"],
        )
        for row in transactions
    ]  # fmt: skip
    columns = ("transaction", "type", "status", Minute("closed"), Size("bytes"), "mark", "outcome")
    return table(f"{dataset}: {len(rows):,} of {total:,} transactions", columns, rows, prose=True)


def as_of_tables(dataset: str, at: datetime, views: Sequence[Row]) -> list[Table]:
    columns = ("transaction", "type", Minute("closed"), Size("bytes"), "")
    tables = []
    for view in views:
        rows = [
            (row["transaction"], row["type"], row["closed_at"], row["bytes"], "swept since" if row["swept"] else "")
            for row in view["transactions"]
        ]
        what = "the current view" if view["current"] else "the view of that time" if rows else "nothing was committed yet"
        tables.append(table(f"{dataset} on {view['branch']} at {text_of(at)}: {what}", columns, rows))
    return tables or [table(f"{dataset} has no live branch, and so no view.", columns, ())]


def readable_tables(readable: Row) -> list[Table]:
    """Start of the readable history; each branch at the instant; transactions that can be read by name."""
    since = f"from {text_of(readable['visible_from'])} on" if readable["visible_from"] else "as far back as it goes"
    title = f"The history of {readable['dataset']} may be read {since}. At {text_of(readable['at'])}:"
    rows = [
        (
            row["branch"], first_of([each["transaction"] for each in row["transactions"]]) or "nothing yet",
            "no" if not row["readable"] else "yes: current" if row["current"] else "yes", _text(row["until"]),
        )
        for row in readable["branches"]
    ]  # fmt: skip
    tables = [table(title, ("branch", "transactions", "readable", "until"), rows)]
    if named := [(row["transaction"], row["kept_by"]) for row in readable["by_name"]]:
        tables.append(table("Readable by name at any age", ("transaction", "kept by"), named))
    return tables


def advance_table(datasets: Sequence[Row]) -> Table:
    rows = [
        (
            row["dataset"], _text(row["visible_from"]), _text(row["before"]),
            f"waits until {text_of(row['waits_until'])}" if row["waits_until"] else "raised" if row["raised"] else "as before",
        )
        for row in datasets
    ]  # fmt: skip
    title = "Visibility marks" if rows else "No entry under `visibility` of the policy files matches a dataset"
    return table(title, ("dataset", "readable from", "before", ""), rows)


def _text(instant: datetime | None) -> str:
    return text_of(instant) if instant else ""


def hold_table(holds: Sequence[Row]) -> Table:
    columns = ("name", "where", "datasets", "transactions", "owner", "in force until", "reason")
    rows = [
        (
            hold["name"], "policy file" if hold["source"] == "file" else "ledger", _scope(hold["scope"]["datasets"]),
            first_of(hold["scope"].get("transactions", ("by its lines",)) or ("all",)), hold["owner"],
            minute_of(hold["until"]) or "it is released", hold["reason"],
        )
        for hold in holds
    ]  # fmt: skip
    return table("Holds in force" if rows else "No hold is in force", columns, rows, prose=True)


def _scope(datasets: Row) -> str:
    text = ", ".join(datasets["include"])
    text += f" except {', '.join(datasets['exclude'])}" if datasets.get("exclude") else ""
    wanted = ", ".join(f"{key} is {value}" for key, value in datasets.get("with", {}).items())
    return text + (f" where {wanted}" if wanted else "")


def realm_table(realms: "Sequence[tuple[Realm, str]]") -> Table:
    rows = [(realm.name, realm.status, realm.grace.words(), left) for realm, left in realms]
    title = "Realms" if rows else "No realm was changed: all are ACTIVE"
    return table(title, ("realm", "status", "grace", "left"), rows)


def scan_table(scans: "Sequence[ScanRecord]") -> Table:
    """Scans with outcome and classes, which add up to what was scanned."""
    named = ("scanned", "referenced", "unreferenced", "young")
    classes = {**{name: [name] for name in named}, "others": ["realm_purge", "unknown_kind", "unhandled"]}
    rows = [
        (
            scan.store, scan.id, scan.started_at, scan.status.value,
            *(_sum(scan, names) for names in classes.values()),
            "" if (size := _sum(scan, ["scanned_bytes"])) is None else size, _why(scan),
        )
        for scan in sorted(scans, key=lambda scan: (scan.store, -scan.id))
    ]  # fmt: skip
    columns = ("store", Number("id"), Minute("when"), "status", *map(Count, classes), Size("bytes"), "reason")
    title = "Scans" if rows else "No scan yet: `retention run` scans"
    return table(title, columns, rows, grouped=True, prose=True)


def _sum(scan: "ScanRecord", classes: Sequence[str]) -> int | None:
    return int(sum(scan.totals[name] for name in classes)) if scan.totals.keys() >= {*classes} else None


def _why(scan: "ScanRecord") -> str:
    reason = scan.reason or ""
    if scan.accepted_by is None:
        return reason
    then = "and judged" if scan.used_at else "and not judged yet"
    return f"{reason} (accepted by {scan.accepted_by} {then}: {scan.accept_reason})"


def clock_table(times: Mapping[str, datetime | None]) -> Table:
    words = {"newest_mark_at": "newest mark", "newest_seen_at": "newest run", "accepted_until": "accepted at"}
    rows = [(words[name], _text(at) or "none") for name, at in times.items()]
    return table("The clock of the ledger", ("time", "instant"), rows)


def book_tables(entries: Sequence[Row], orphaned: "Sequence[Orphaned]") -> list[Table]:
    """Policy book against the files, and the marks of versions that are no longer in force."""
    columns = (
        "name", Number("version"), "written by", Minute("written at"), "last writer", "state", "files", Number("orphaned marks")
    )  # fmt: skip
    rows = [
        (
            entry["name"], entry["version"], entry["written_by"], entry["written_at"], _WRITERS[entry["system"]],
            "revoked" if entry["revoked"] else "", _FILES[entry["files"], entry["version"] is None],
            entry["orphaned_marks"] or "",
        )
        for entry in entries
    ]  # fmt: skip
    title = "The policy book" if rows else "The policy book is empty: `retention policies load` fills it"
    tables = [table(title, columns, rows)]
    if drifted := [(entry["why"],) for entry in entries if entry["files"] == "DRIFTED"]:
        tables.append(table("Drift", ("difference and remedy",), drifted))
    if counted := [(f"{each.policy}@{each.policy_version}", each.marks) for each in orphaned]:
        tables.append(table("Orphaned marks", ("policy", Count("marks")), counted))
    return tables


def version_table(name: str, versions: Sequence[Row]) -> Table:
    rows = [
        (
            row["version"], row["written_by"], row["written_at"], _WRITERS[row["system"]],
            "revoked" if row["revoked"] else "", row["sentence"] or "This release can't read it.",
        )
        for row in versions
    ]  # fmt: skip
    columns = (Number("version"), "written by", Minute("written at"), "as", "state", "rule")
    return table(f"Versions of {name}", columns, rows, prose=True)


def load_table(decisions: "Sequence[BookDecision]") -> Table:
    rows = [
        (
            each.name,
            each.outcome.value,
            "; ".join(_scope(scope.model_dump(by_alias=True)) for scope in each.touched),
            each.reason,
        )
        for each in decisions
    ]
    columns = ("name", "outcome", "datasets to evaluate again", "why")
    return table("Loaded" if rows else "Nothing to load", columns, rows, prose=True)


# outcomes of marks, and the names of their counters
_OUTCOMES = {
    "deleted": "deleted", "already_gone": "already gone", "hidden": "hidden", "set_aside": "set aside",
    "restored": "restored", "failed": "failed attempts", "spared": "spared", "unmarked": "unmarked",
}  # fmt: skip
# shown only where there are some: nobody else has to ask what they are
_RARE = ("hidden", "set_aside", "restored")


def report_tables(report: "DayReport", most: int) -> list[Table]:
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
        tables.append(table("Realms with data left", ("realm", "status", "left"), realms, prose=True))
    return [*tables, _dataset_table(report.lines, most)] if most else tables


def _report_table(report: "DayReport", total: "ReportLine") -> Table:

    rows = [("ordered by", total.orderers)] if total.ordered_by else []
    rows.append(("began", minute_in_utc(total.started_at)))
    if total.finished_at is not None and total.duration is not None:
        rows += [("finished", minute_in_utc(total.finished_at)), ("duration", duration_of(total.duration))]
    else:
        rows.append(("not finished", f"{report.unfinished:,} of {len(report.lines):,} datasets"))
    if total.terminal_only is not None:
        rows.append(("records", "only finished ones may go" if total.terminal_only else "unfinished ones may go as well"))
    if total.archived_types:
        rows.append(("archived first", ", ".join(total.archived_types)))
    return table(f"Report of {report.when}", ("", ""), rows)


def _outcome_table(total: "ReportLine") -> Table:
    counts = total.counters
    freed, in_trash = counts["bytes_freed"], counts["bytes_freed"] and not counts["deleted"]
    sizes = {"deleted": 0 if in_trash else freed, "hidden": counts["bytes_hidden"], "set_aside": counts["bytes_set_aside"]}
    outcomes = {name: words for name, words in _OUTCOMES.items() if name not in _RARE or counts[name]}
    rows: list[tuple[object, ...]] = [("to delete, sizes by the log", counts["to_delete"], counts["bytes_to_free"])]
    rows += [(words, counts[name], sizes.get(name, "")) for name, words in outcomes.items()]
    rows.append(("still to delete", total.unsettled, ""))
    rows += [("set aside before, and deleted for good", None, freed)] if in_trash else []
    rows += [(f"files left behind: {counts['left']:,}", None, "")] if counts["left"] else []
    return table("What became of it", ("", Count("transactions"), Size("bytes")), rows)


def _rules_table(total: "ReportLine") -> Table:
    rows = [
        (
            name,
            ", ".join(str(version) for version in versions if version),
            ", ".join(parse_duration(period).words() for period in total.periods.get(name, ())),
            " to ".join(minute_of(parse_instant(bound)) for bound in total.bound_range(name)),
        )
        for name, versions in total.policies.items()
    ]
    title = "Policies" if rows else "No policy matches these datasets"
    return table(title, ("policy", "versions", "period", "takes what is older than (UTC)"), rows)


def _dataset_table(lines: "Sequence[ReportLine]", most: int) -> Table:
    columns = ("dataset", Count("to delete"), Count("deleted"), Size("by the log"), Size("freed"), "otherwise")
    amounts = ("to_delete", "deleted", "bytes_to_free", "bytes_freed")
    rows = [(line.dataset, *(line.counters[name] for name in amounts), ", ".join(_otherwise(line))) for line in lines[:most]]
    title = f"Datasets: {len(rows):,} of {len(lines):,}"
    if any(line.counters["bytes_freed"] > line.counters["bytes_to_free"] for line in lines):
        # a snapshot of Iceberg
        title += ". The log counts data of a transaction alone; the freed size has metadata and files that others shared, too."
    return table(title, columns, rows, prose=True)


def _otherwise(line: "ReportLine") -> Iterator[str]:
    for name, words in {**_OUTCOMES, "left": "files left"}.items():
        if name != "deleted" and line.counters[name]:
            yield f"{line.counters[name]:,} {words}"
    if not line.finished_at:
        yield "not finished"


# a length of time as policies write it: everywhere else it is in words
_AGE = re.compile(r"\b(\d+(s|m|h|d|w|mo|y)|P(\d+[YMWD])*(T(\d+[HMS])+)?)(?= of:|$)")
_VERDICT_COLOURS = {"mark": "red", "spare": "yellow", "keep": "green", "open": "cyan"}
_MOST_REASONS = 10


def preview_tables(result: "Preview", most: int) -> list[Table]:
    from retention_assets.frames.verdicts.decisions import VERDICTS
    from retention_assets.frames.verdicts.reasons import Reason

    tables, amounts = list[Table](), (Count("transactions"), Size("bytes"))
    if refused := [(name, fault["fault"], fault["transaction"]) for name, fault in result.refused.items()]:
        title = f"Refused, because the log is not sound: {len(refused):,}. These datasets are not marked."
        tables.append(table(title, ("dataset", "fault", "transaction"), refused[:100], grouped=True))
    sums = {row["verdict"]: (row["transactions"], row["bytes"]) for row in result.sums_by("verdict")}
    verdicts = [(Text(verdict, _VERDICT_COLOURS[verdict]), *sums.get(verdict, (0, 0))) for verdict in VERDICTS]
    tables.append(table(f"Verdicts at {minute_in_utc(result.as_of)}", ("verdict", *amounts), verdicts))
    sums_by_policy = sorted(result.sums_by("verdict", "policy"), key=lambda row: -row["bytes"])
    policies = [(row["policy"], row["transactions"], row["bytes"]) for row in sums_by_policy if row["verdict"] == "mark"]
    tables.append(table("Marks by policy" if policies else "No policy marks anything", ("policy", *amounts), policies))
    reasons = [(code, count, Reason[code].text("…")) for code, count in [*result.count_reasons().items()][:_MOST_REASONS]]
    tables.append(table("Reasons", ("code", Count("transactions"), "meaning"), reasons, prose=True))
    marked = result.marked
    if first := marked.slice(0, most).to_pylist():
        rows = [(row["dataset"], row["transaction"], row["policy"], ", ".join(row["also"])) for row in first]
        title = f"To be marked: {len(first):,} of {len(marked):,}"
        tables.append(table(title, ("dataset", "transaction", "policy", "also selected by"), rows, grouped=True))
    others = result.not_marked
    if first := others.slice(0, most).to_pylist():
        kept = [
            (
                row["dataset"], row["transaction"], Text(row["verdict"], _VERDICT_COLOURS[row["verdict"]]),
                " ".join(Reason[reason["code"]].text(reason["witness"]) for reason in row["reasons"]),
            )
            for row in first
        ]  # fmt: skip
        title = f"To be kept: {len(first):,} of {len(others):,}"
        tables.append(table(title, ("dataset", "transaction", "verdict", "why"), kept, grouped=True, prose=True))
    return tables


def compare_tables(changes: "Sequence[Change]") -> list[Table]:
    rows = [(each.dataset, each.policy, each.change, each.transactions, each.bytes) for each in changes]
    columns = ("dataset", "policy", "change", Count("transactions"), Size("bytes"))
    return [table("What would change" if rows else "Nothing would change.", columns, rows, grouped=True)]


# --- one transaction --------------------------------------------------------------------------------------------------


def explained_transaction(explained: "ExplainedTransaction") -> Indented:
    life, ledger = explained.life, list[Text]()
    if life.said is not None:
        ledger += [_line((life.said.message, "bold")), _line(f"  {life.said.details}"), _line()]
    if life.marks:
        ledger += [_line("In the ledger"), _line(f"  {life.words}"), _line()]
    if explained.explanation is not None:
        return explanation(explained.explanation, ledger)
    where = f" of {explained.dataset} is in no log any more"
    return Indented([_line((life.transaction, "bold"), where), _line(), *ledger[:-1]])


def explanation(explained: "Explanation", ledger: Sequence[Text] = ()) -> Indented:
    return Indented(list(_lines(explained, ledger)))


def _lines(explained: "Explanation", ledger: Sequence[Text]) -> Iterator[Text]:
    verdict, as_of = explained.verdict, minute_in_utc(parse_instant(explained.as_of))
    closed = f"closed {minute_in_utc(parse_instant(explained.closed_at))}" if explained.closed_at else "not closed"
    yield _line((explained.transaction, "bold"), " of ", (explained.dataset, "bold"), f" at {as_of}")
    yield _line(f"{explained.type}, {explained.status}, {closed}, {size_of(explained.bytes)}")
    yield from (_line(), *ledger)
    by_policy = f", by policy {explained.policy}" if explained.policy else ""
    yield _line("Verdict: ", (verdict, f"bold {_VERDICT_COLOURS[verdict]}"), by_policy)
    yield _line(f"  {explained.summary}")
    reasons = [f"{reason['code']}: {reason['text'] or ''}" for reason in explained.reasons]
    reasons += [f"Selected as well by: {', '.join(explained.also)}"] if explained.also else []
    yield from _section("Reasons", reasons)
    if explained.witnesses:
        yield from _section("Referenced by", explained.witnesses)
    if explained.needs:
        yield from _section("Data", explained.needs)
    more = [f"… and {explained.more_branches:,} more"] if explained.more_branches else []
    branches = [f"{branch.branch}: {branch.words}" for branch in explained.branches] or ["It is on no live branch."]
    yield from _section("Branches", [*branches, *more, *(f"Pinned by tag {tag}" for tag in explained.tags)])
    yield from _section("Policies", [] if explained.policies else ["No policy matches this dataset."])
    for answer in explained.policies:
        yield from _answer(answer)


def _section(title: str, lines: Sequence[str]) -> Iterator[Text]:
    yield from (_line(), _line(title), *(_line(f"  {line}") for line in lines))


def _answer(answer: "PolicyAnswer") -> Iterator[Text]:
    yield _line(f"  {answer.policy}: ", ("selects it", "bold") if answer.selects else "does not select it")
    yield _line(f"    {answer.sentence}")
    for line in answer.lines:
        where = f" on branches {line.branches}" if line.branches else ""
        value = f": {_AGE.sub(lambda age: parse_duration(age[0]).words(), line.value)}" if line.value else ""
        why = f". {line.words}" if line.words else ""
        holds = ("holds        ", "green") if line.holds else ("does not hold", "red")
        yield _line("    ", holds, f"  {line.key}{where}{value}{why}")


def _line(*parts: str | tuple[str, str]) -> Text:
    pairs = ((part, "") if isinstance(part, str) else part for part in parts)
    return Text.assemble(*((visible_line(words), style) for words, style in pairs))

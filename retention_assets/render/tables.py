"""Tables of what people ask the ledger and the policies, the report of a day, and the explanation of one transaction.

Each function imports what only it needs, so that no command loads what another one prints.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.text import Text

from retention_assets.policy.durations import minute_in_utc, minute_of, parse_duration, parse_instant, text_of
from retention_assets.policy.sentences import first_of
from retention_assets.policy.sizes import size_of
from retention_assets.render.page import LONG, Column, Columns, Count, Medium, Minute, Name, Number, Prose, Size, Table
from retention_assets.render.report import CLASSES, COLUMNS, COUNTS, DayReport, ReportLine, policy_table
from retention_assets.render.report import REALMS as REALMS_LEFT
from retention_assets.render.terminal import Indented
from retention_assets.render.text import duration_of, sentence_case, share_of, until_of, visible_line

if TYPE_CHECKING:
    from retention_assets.evaluation.explain import ExplainedTransaction, Explanation, PolicyAnswer
    from retention_assets.evaluation.preview import Change, Preview
    from retention_assets.ledger.book import Orphaned
    from retention_assets.ledger.stores import ScanRecord

Row = Mapping[str, Any]
# effect of loading the files on an entry, and whether the book lacks it
_FILES = {
    (None, False): "", ("SKIPPED", False): "the same", ("WRITTEN", False): "newer: load them", ("DRIFTED", False): "drift",
    ("ABSENT", False): "in no file", ("WRITTEN", True): "not loaded yet",
}  # fmt: skip
_WRITERS = {None: "", True: "system", False: "user"}


def _instant(name: str, field: str) -> Column:
    """Column of exact instants."""
    return Column(name, lambda row: text_of(row[field]) if row[field] else "")


def mark_tables(sums: Mapping[str, tuple[int, int]], first: Sequence[Row], now: datetime | None) -> list[Table]:
    """Number of marks in each state, and the first of them. Columns with only usual values are left out.

    Without `now`, where the clock is simulated, the time until something is due is left out.
    """
    total = sum(count for count, _ in sums.values())
    counted = (
        Column("status", lambda row: row[0]),
        Count("marks", lambda row: row[1][0]),
        Size("bytes", lambda row: row[1][1]),
    )
    columns = (
        "dataset",
        "transaction",
        Column("policy", lambda mark: f"{mark['policy']}@{mark['policy_version']}"),
        Column("reason", lambda mark: "" if mark["reason"] == "SELECTED" else mark["reason"]),
        Minute("marked", "marked_at"),
        Column("due", lambda mark: _due(mark, now)),
        Column("status", lambda mark: "" if sums.keys() == {"MARKED"} else mark["status"]),
        Size("bytes"),
        Number("attempts", lambda mark: mark["attempts"] or ""),
        Prose("last error"),
    )
    return [
        Table("Marks by status", counted, sorted(sums.items()), empty="No marks"),
        Table(f"Marks: {len(first):,} of {total:,}", columns, first, grouped=True),
    ]


def _due(mark: Row, now: datetime | None) -> str:
    if mark["held_by"] is not None or mark["spared"]:
        return "to be spared" if mark["spared"] else f"held by {mark['held_by']}"
    at = mark["until"] or mark["due_at"]
    return until_of(at, now) if now and (mark["until"] or mark["status"] == "MARKED") else minute_of(at)


_SCREEN, _ANSWER = Medium.TERMINAL, Medium.MARKDOWN | Medium.RUN
HISTORY = (
    Column("transaction", lambda row: row["transaction"] + _if_gone(row, " (in no log)"), _SCREEN),
    Name("transaction", media=_ANSWER),
    Column("type", media=_SCREEN),
    Column("status", lambda row: "" if row["status"] == "COMMITTED" else row["status"], _SCREEN),
    Minute("closed", "closed_at", _SCREEN),
    Size("bytes"),
    Column("mark", media=_SCREEN | Medium.RUN),
    Column("message", media=_ANSWER),
    Column("what happened", lambda row: row["words"] + _if_gone(row, "; in no log"), _ANSWER, key="what happened"),
    Prose("outcome", lambda row: " ".join(filter(None, (row["message"], _words(row)))), _SCREEN),
)


def _if_gone(row: Row, words: str) -> str:
    return "" if row["in_log"] else words


def _words(row: Row) -> str:
    return sentence_case(row["words"]) if row["message"] else str(row["words"])


_VIEW = (
    "transaction",
    "type",
    Minute("closed", "closed_at"),
    Size("bytes"),
    Column("", lambda row: "swept since" if row["swept"] else ""),
)


def as_of_tables(dataset: str, at: datetime, views: Sequence[Row]) -> list[Table]:
    tables = []
    for view in views:
        rows = view["transactions"]
        where, what = f"{dataset} on {view['branch']} at {text_of(at)}", "the view of that time"
        title = f"{where}: {'the current view' if view['current'] else what}"
        tables.append(Table(title, _VIEW, rows, empty=title if view["current"] else f"{where}: nothing was committed yet"))
    return tables or [Table("", _VIEW, (), empty=f"{dataset} has no live branch, and so no view.")]


_READABLE = (
    "branch",
    Column("transactions", lambda row: first_of([each["transaction"] for each in row["transactions"]]) or "nothing yet"),
    Column("readable", lambda row: "no" if not row["readable"] else "yes: current" if row["current"] else "yes"),
    _instant("until", "until"),
)


def readable_tables(readable: Row) -> list[Table]:
    """Start of the readable history; each branch at the instant; transactions that can be read by name."""
    since = f"from {text_of(readable['visible_from'])} on" if readable["visible_from"] else "as far back as it goes"
    title = f"The history of {readable['dataset']} may be read {since}. At {text_of(readable['at'])}:"
    return [
        Table(title, _READABLE, readable["branches"], empty=title),
        Table("Readable by name at any age", ("transaction", "kept by"), readable["by_name"]),
    ]


def _raised(row: Row) -> str:
    if row["waits_until"]:
        return f"waits until {text_of(row['waits_until'])}"
    return "raised" if row["raised"] else "as before"


ADVANCED = ("dataset", _instant("readable from", "visible_from"), _instant("before", "before"), Column("", _raised))


HOLDS = (
    "name",
    Column("where", lambda hold: "policy file" if hold["source"] == "file" else "ledger"),
    Column("datasets", lambda hold: _scope(hold["scope"]["datasets"])),
    Column("transactions", lambda hold: first_of(hold["scope"].get("transactions", ("by its lines",)) or ("all",))),
    "owner",
    Column("in force until", lambda hold: minute_of(hold["until"]) or "it is released"),
    Prose("reason"),
)


def _scope(datasets: Row) -> str:
    text = ", ".join(datasets["include"])
    text += f" except {', '.join(datasets['exclude'])}" if datasets.get("exclude") else ""
    wanted = ", ".join(f"{key} is {value}" for key, value in datasets.get("with", {}).items())
    return text + (f" where {wanted}" if wanted else "")


REALMS = (
    Column("realm", lambda state: state.realm.name),
    Column("status", lambda state: state.realm.status),
    Column("grace", lambda state: state.realm.grace.words()),
    Column("left", "words"),
)


def _classes(*names: str) -> "Callable[[ScanRecord], int | None]":
    return lambda scan: int(sum(scan.totals[name] for name in names)) if scan.totals.keys() >= {*names} else None


def _scanned_size(scan: "ScanRecord") -> int | str:
    size = _classes("scanned_bytes")(scan)
    return "" if size is None else size


# the classes add up to what was scanned
SCANS: Columns = (
    "store",
    Number("id"),
    Minute("when", "started_at"),
    Column("status", lambda scan: scan.status.value),
    *(Count(name, _classes(name)) for name in ("scanned", "referenced", "unreferenced", "young")),
    Count("others", _classes("realm_purge", "unknown_kind", "unhandled")),
    Size("bytes", _scanned_size),
    Prose("reason", lambda scan: _why(scan)),
)


def _why(scan: "ScanRecord") -> str:
    reason = scan.reason or ""
    if scan.accepted_by is None:
        return reason
    then = "and judged" if scan.used_at else "and not judged yet"
    return f"{reason} (accepted by {scan.accepted_by} {then}: {scan.accept_reason})"


_TIMES = {"newest_mark_at": "newest mark", "newest_seen_at": "newest run", "accepted_until": "accepted at"}
CLOCK = (Column("time", lambda row: _TIMES[row[0]]), Column("instant", lambda row: text_of(row[1]) if row[1] else "none"))


_BOOK = (
    "name",
    Number("version"),
    "written by",
    Minute("written at"),
    Column("last writer", lambda entry: _WRITERS[entry["system"]]),
    Column("state", lambda entry: "revoked" if entry["revoked"] else ""),
    Column("files", lambda entry: _FILES[entry["files"], entry["version"] is None]),
    Number("orphaned marks", lambda entry: entry["orphaned_marks"] or ""),
)
_ORPHANED = (Column("policy", lambda each: f"{each.policy}@{each.policy_version}"), Count("marks"))


def book_tables(entries: Sequence[Row], orphaned: "Sequence[Orphaned]") -> list[Table]:
    """Policy book against the files, and the marks of versions that are no longer in force."""
    drifted = [entry for entry in entries if entry["files"] == "DRIFTED"]
    return [
        Table("The policy book", _BOOK, entries, empty="The policy book is empty: `retention policies load` fills it"),
        Table("Drift", [Column("difference and remedy", "why")], drifted),
        Table("Orphaned marks", _ORPHANED, orphaned),
    ]


VERSIONS = (
    Number("version"),
    "written by",
    Minute("written at"),
    Column("as", lambda row: _WRITERS[row["system"]]),
    Column("state", lambda row: "revoked" if row["revoked"] else ""),
    Prose("rule", lambda row: row["sentence"] or "This release can't read it."),
)


LOADED = (
    "name",
    Column("outcome", lambda each: each.outcome.value),
    Column(
        "datasets to evaluate again",
        lambda each: "; ".join(_scope(scope.model_dump(by_alias=True)) for scope in each.touched),
        LONG & ~Medium.JSON,
    ),
    Column("touched", lambda each: [scope.as_written for scope in each.touched], Medium.JSON),
    Prose("why", "reason"),
)


# --- the report of a day ---


def report_tables(report: DayReport, most: int) -> list[Table]:
    total, lines = report.total, report.lines
    counts, size = total.class_counts, sum(total.class_counts.values())
    classes = (
        Column("class", lambda row: row[0]),
        Count("transactions", lambda row: row[1]),
        Number("share", lambda row: share_of(row[1], size)),
        Prose("meaning", lambda row: CLASSES.get(row[0])),
    )
    title = f"Datasets: {min(most, len(lines)):,} of {len(lines):,}"
    if any(line.counters["bytes_freed"] > line.counters["bytes_to_free"] for line in lines):
        # a snapshot of Iceberg
        title += ". The log counts data of a transaction alone; the freed size has metadata and files that others shared, too."
    about = (Column("", lambda row: row[0]), Column("", lambda row: row[1]))
    amounts = (about[0], Count("transactions", lambda row: row[1]), Size("bytes", lambda row: row[2]))
    return [
        Table(f"Report of {report.when}", about, list(_facts(report, total))),
        Table("What became of it", amounts, list(_outcomes(total))),
        policy_table(total),
        Table(f"The log when the report opened: {size:,} transactions", classes, [*counts.items()]),
        Table("Realms with data left", REALMS_LEFT, report.realms),
        Table(title, COLUMNS, lines[:most]),
    ]


def _facts(report: DayReport, total: ReportLine) -> Iterator[tuple[str, str]]:
    if total.ordered_by:
        yield "ordered by", total.orderers
    yield "began", minute_in_utc(total.started_at)
    if total.finished_at is not None and total.duration is not None:
        yield from (("finished", minute_in_utc(total.finished_at)), ("duration", duration_of(total.duration)))
    else:
        yield "not finished", f"{report.unfinished:,} of {len(report.lines):,} datasets"
    if total.terminal_only is not None:
        yield "records", "only finished ones may go" if total.terminal_only else "unfinished ones may go as well"
    if total.archived_types:
        yield "archived first", ", ".join(total.archived_types)


# words of a terminal, where a column's are not enough
_OUTCOMES = {"to_delete": "to delete, sizes by the log", "failed": "failed attempts"}


def _outcomes(total: ReportLine) -> Iterator[tuple[str, int | None, int | str]]:
    counts = total.counters
    freed, by = counts["bytes_freed"], "deleted" if counts["deleted"] or not counts["replayed"] else "replayed"
    in_trash = freed and not counts[by]
    sizes = {
        "to_delete": counts["bytes_to_free"], by: 0 if in_trash else freed, "hidden": counts["bytes_hidden"],
        "set_aside": counts["bytes_set_aside"],
    }  # fmt: skip
    for column in Table("", COUNTS[:-1], [total]).shown(Medium.HTML):
        yield _OUTCOMES.get(column.field, column.name), counts[column.field], sizes.get(column.field, "")
    yield "still to delete", total.unsettled, ""
    if in_trash:
        yield "set aside before, and deleted for good", None, freed
    if counts["left"]:
        yield f"files left behind: {counts['left']:,}", None, ""


# --- previews ---

_MOST_REASONS = 10
VERDICT_TONES = {"mark": "red", "spare": "yellow", "keep": "green", "open": "cyan"}
_NAMED: Columns = ("dataset", "transaction")
_AMOUNTS: Sequence[Column] = (Count("transactions"), Size("bytes"))
_REFUSED = (
    Column("dataset", lambda row: row[0]),
    Column("fault", lambda row: row[1]["fault"]),
    Column("transaction", lambda row: row[1]["transaction"]),
)
_TO_BE_MARKED = (*_NAMED, "policy", Column("also selected by", lambda row: ", ".join(row["also"])))
_VERDICT = Column("verdict", tones=VERDICT_TONES)
_CHANGES: Columns = ("dataset", "policy", "change", *_AMOUNTS)


def preview_tables(result: "Preview", most: int) -> list[Table]:
    from retention_assets.frames.verdicts.decisions import VERDICTS
    from retention_assets.frames.verdicts.reasons import Reason

    sums = {row["verdict"]: row for row in result.sums_by("verdict")}
    verdicts = [{"verdict": verdict, "transactions": 0, "bytes": 0, **sums.get(verdict, {})} for verdict in VERDICTS]
    by_policy = sorted(result.sums_by("verdict", "policy"), key=lambda row: -row["bytes"])
    policies = [row for row in by_policy if row["verdict"] == "mark"]
    reasons = (
        Column("code", lambda row: row[0]),
        Count("transactions", lambda row: row[1]),
        Prose("meaning", lambda row: Reason[row[0]].text("…")),
    )
    why = Prose("why", lambda row: " ".join(Reason[each["code"]].text(each["witness"]) for each in row["reasons"]))
    marked, others = result.marked, result.not_marked
    first, kept = marked.slice(0, most).to_pylist(), others.slice(0, most).to_pylist()
    refused = [*result.refused.items()]
    title = f"Refused, because the log is not sound: {len(refused):,}. These datasets are not marked."
    return [
        Table(title, _REFUSED, refused[:100], grouped=True),
        Table(f"Verdicts at {minute_in_utc(result.as_of)}", (_VERDICT, *_AMOUNTS), verdicts),
        Table("Marks by policy", ("policy", *_AMOUNTS), policies, empty="No policy marks anything"),
        Table("Reasons", reasons, [*result.count_reasons().items()][:_MOST_REASONS], empty="Reasons"),
        Table(f"To be marked: {len(first):,} of {len(marked):,}", _TO_BE_MARKED, first, grouped=True),
        Table(f"To be kept: {len(kept):,} of {len(others):,}", (*_NAMED, _VERDICT, why), kept, grouped=True),
    ]


def compare_tables(changes: "Sequence[Change]") -> list[Table]:
    return [Table("What would change", _CHANGES, changes, empty="Nothing would change.", grouped=True)]


# --- one transaction ---

# a length of time as policies write it: everywhere else it is in words
_AGE = re.compile(r"\b(\d+(s|m|h|d|w|mo|y)|P(\d+[YMWD])*(T(\d+[HMS])+)?)(?= of:|$)")


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
    yield _line("Verdict: ", (verdict, f"bold {VERDICT_TONES[verdict]}"), by_policy)
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

"""Tables of the ledger: marks, histories, readable histories, holds, realms, scans, the clock and the policy book.

Each function imports what only it needs, so that no command loads what another one prints.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.table import Table

from retention_assets.policy.durations import text_of
from retention_assets.policy.sentences import first_of
from retention_assets.render.terminal import Count, Minute, Number, Row, Size, table
from retention_assets.render.text import minute_of, sentence_case, until_of

if TYPE_CHECKING:
    from retention_assets.ledger.policy_book import Orphaned
    from retention_assets.ledger.protections import Realm
    from retention_assets.ledger.scans import ScanRecord
    from retention_assets.policy.book import BookDecision

# effect of loading the files on an entry, and whether the book lacks it
_FILES = {
    (None, False): "", ("SKIPPED", False): "the same", ("WRITTEN", False): "newer: load them", ("DRIFTED", False): "drift",
    ("ABSENT", False): "in no file", ("WRITTEN", True): "not loaded yet",
}  # fmt: skip
_WRITERS = {None: "", True: "system", False: "user"}
# an entry in force needs no word
_STATES = {None: "", True: "revoked", False: ""}


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
    return until_of(mark["due_at"], now) if now and mark["status"] == "MARKED" else minute_of(mark["due_at"])


def history_table(dataset: str, transactions: Sequence[Row], total: int) -> Table:
    rows = [
        (
            row["transaction"] if row["in_log"] else f"{row['transaction']} (in no log)", row["type"],
            "" if row["status"] == "COMMITTED" else row["status"], row["closed_at"], row["bytes"], row["mark"],
            f"{row['message']} {sentence_case(row['words'])}" if row["message"] else row["words"],
        )
        for row in transactions
    ]  # fmt: skip
    columns = ("transaction", "type", "status", Minute("closed"), Size("bytes"), "mark", "what became of it")
    return table(f"{dataset}: {len(rows):,} of {total:,} transactions", columns, rows, prose=True)


def as_of_tables(dataset: str, at: datetime, views: Sequence[Row]) -> list[Table]:
    columns = ("transaction", "type", Minute("closed"), Size("bytes"), "")
    tables = []
    for view in views:
        rows = [
            (row["transaction"], row["type"], row["closed_at"], row["bytes"], "swept since" if row["swept"] else "")
            for row in view["transactions"]
        ]
        what = "the current view" if view["current"] else "the view that was current" if rows else "nothing was committed yet"
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
        tables.append(table("May be read by name, however old", ("transaction", "kept by"), named))
    return tables


def advance_table(datasets: Sequence[Row]) -> Table:
    """Outcome for each dataset that the policy files name."""
    rows = [
        (
            row["dataset"], _text(row["visible_from"]), _text(row["before"]),
            f"waits until {text_of(row['waits_until'])}" if row["waits_until"] else "raised" if row["raised"] else "as before",
        )
        for row in datasets
    ]  # fmt: skip
    title = "Visibility marks" if rows else "No entry under `visibility` of the policy files is about any dataset"
    return table(title, ("dataset", "readable from", "before", ""), rows)


def _text(instant: datetime | None) -> str:
    return text_of(instant) if instant else ""


def hold_table(holds: Sequence[Row]) -> Table:
    columns = ("name", "where", "datasets", "transactions", "owner", "in force until", "reason")
    rows = [
        (
            hold["name"], "policy file" if hold["source"] == "file" else "ledger", _scope(hold["scope"]["datasets"]),
            ", ".join(hold["scope"]["transactions"] or ("all",)), hold["owner"],
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
    """Realms, the grace of purging each, and a note on what is left of it."""
    rows = [(realm.name, realm.status, realm.grace.words(), left) for realm, left in realms]
    title = "Realms" if rows else "No realm was ever changed: all are ACTIVE"
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
    title = "Scans" if rows else "Nothing was ever scanned: `retention run` does it"
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
    """Times that the clock guard compares with."""
    words = {"newest_mark_at": "newest mark", "newest_seen_at": "newest run", "accepted_until": "accepted at"}
    return table(
        "The clock of the ledger", ("time", "instant"), [(words[name], _text(at) or "none") for name, at in times.items()]
    )


def book_tables(entries: Sequence[Row], orphaned: "Sequence[Orphaned]") -> list[Table]:
    """Policy book against the files, and the marks of versions that are no longer in force."""
    columns = (
        "name", Number("version"), "written by", Minute("written at"), "last writer", "state", "files", Number("orphaned marks")
    )  # fmt: skip
    rows = [
        (
            entry["name"], entry["version"], entry["written_by"], entry["written_at"], _WRITERS[entry["system"]],
            _STATES[entry["revoked"]], _FILES[entry["files"], entry["version"] is None], entry["orphaned_marks"] or "",
        )
        for entry in entries
    ]  # fmt: skip
    tables = [
        table("The policy book" if rows else "The policy book is empty: `retention policies load` fills it", columns, rows)
    ]
    if drifted := [(entry["why"],) for entry in entries if entry["files"] == "DRIFTED"]:
        tables.append(table("Drift", ("what differs, and what to do",), drifted))
    if counted := [(f"{each.policy}@{each.policy_version}", each.marks) for each in orphaned]:
        tables.append(table("Orphaned marks", ("policy", Count("marks")), counted))
    return tables


def version_table(name: str, versions: Sequence[Row]) -> Table:
    rows = [
        (
            row["version"], row["written_by"], row["written_at"], _WRITERS[row["system"]], _STATES[row["revoked"]],
            row["sentence"] or "This release does not understand it.",
        )
        for row in versions
    ]  # fmt: skip
    columns = (Number("version"), "written by", Minute("written at"), "as", "state", "what it says")
    return table(f"Versions of {name}", columns, rows, prose=True)


def load_table(decisions: "Sequence[BookDecision]") -> Table:
    """Effect of loading on each entry."""
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

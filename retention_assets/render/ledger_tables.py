"""Tables of the ledger: marks, histories, holds, realms, the clock and the policy book.

Each function imports what only it needs, so that no command loads what another one prints.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.table import Table

from retention_assets.policy.durations import text_of
from retention_assets.render.terminal import Row, table
from retention_assets.render.text import minute_of, sentence_case, size_of, until_of

if TYPE_CHECKING:
    from retention_assets.ledger.policy_book import Orphaned
    from retention_assets.ledger.realms import Realm
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
    if not total:
        return [table("No marks", ("status", "marks", "bytes"), ())]
    counted = [(status, f"{count:,}", size_of(size)) for status, (count, size) in sorted(sums.items())]
    tables = [table("Marks by status", ("status", "marks", "bytes"), counted, ("marks", "bytes"))]
    if first:
        columns = ("dataset", "transaction", "policy", "reason", "marked", "due", "status", "bytes", "attempts", "last error")
        rows = [
            (
                row["dataset"], row["transaction"], f"{row['policy']}@{row['policy_version']}",
                "" if row["reason"] == "SELECTED" else row["reason"], minute_of(row["marked_at"]), _due(row, now),
                "" if sums.keys() == {"MARKED"} else row["status"], size_of(row["bytes"]), row["attempts"] or "",
                row["last_error"] or "",
            )
            for row in first
        ]  # fmt: skip
        title = f"Marks: {len(first):,} of {total:,}"
        tables.append(table(title, columns, rows, ("bytes", "attempts"), grouped=True, prose=True))
    return tables


def _due(mark: Row, now: datetime | None) -> str:
    if mark["held_by"] is not None or mark["spared"]:
        return "to be spared" if mark["spared"] else f"held by {mark['held_by']}"
    return until_of(mark["due_at"], now) if now and mark["status"] == "MARKED" else minute_of(mark["due_at"])


def history_table(dataset: str, transactions: Sequence[Row], total: int) -> Table:
    rows = [
        (
            row["transaction"] if row["in_log"] else f"{row['transaction']} (in no log)",
            row["type"] or "", "" if row["status"] == "COMMITTED" else row["status"] or "",
            minute_of(row["closed_at"]), size_of(row["bytes"]), row["mark"] or "",
            f"{row['message']} {sentence_case(row['words'])}" if row["message"] else row["words"],
        )
        for row in transactions
    ]  # fmt: skip
    columns = ("transaction", "type", "status", "closed", "bytes", "mark", "what became of it")
    return table(f"{dataset}: {len(rows):,} of {total:,} transactions", columns, rows, ("bytes",), prose=True)


def as_of_tables(dataset: str, at: datetime, views: Sequence[Row]) -> list[Table]:
    columns = ("transaction", "type", "closed", "bytes", "")
    tables = []
    for view in views:
        rows = [
            (
                row["transaction"], row["type"], minute_of(row["closed_at"]), size_of(row["bytes"]),
                "swept since" if row["swept"] else "",
            )
            for row in view["transactions"]
        ]  # fmt: skip
        what = "the current view" if view["current"] else "the view that was current" if rows else "nothing was committed yet"
        tables.append(table(f"{dataset} on {view['branch']} at {text_of(at)}: {what}", columns, rows, ("bytes",)))
    return tables or [table(f"{dataset} has no live branch, and so no view.", columns, ())]


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
    named, others = ("referenced", "unreferenced", "young"), ("realm_purge", "unknown_kind", "unhandled")
    rows = [
        (
            scan.store, scan.id, minute_of(scan.started_at), scan.status.value, _count(scan, "scanned"),
            *(_count(scan, name) for name in named), _count(scan, *others),
            size_of(int(scan.totals["scanned_bytes"])) if "scanned_bytes" in scan.totals else "", _why(scan),
        )
        for scan in sorted(scans, key=lambda scan: (scan.store, -scan.id))
    ]  # fmt: skip
    columns = ("store", "id", "when", "status", "scanned", *named, "others", "bytes", "reason")
    title = "Scans" if rows else "Nothing was ever scanned: `retention run` does it"
    return table(title, columns, rows, ("id", *columns[4:10]), grouped=True, prose=True)


def _count(scan: "ScanRecord", *names: str) -> str:
    """Empty where it was not counted."""
    return f"{sum(scan.totals[name] for name in names):,}" if scan.totals.keys() >= {*names} else ""


def _why(scan: "ScanRecord") -> str:
    said = scan.reason or ""
    if scan.accepted_by is None:
        return said
    then = "and judged" if scan.used_at else "and not judged yet"
    return f"{said} (accepted by {scan.accepted_by} {then}: {scan.accept_reason})"


def clock_table(times: Mapping[str, datetime | None]) -> Table:
    """Times that the clock guard compares with."""
    words = {"newest_mark_at": "newest mark", "newest_seen_at": "newest run", "accepted_until": "accepted at"}
    rows = [(words[name], text_of(at) if at else "none") for name, at in times.items()]
    return table("The clock of the ledger", ("time", "instant"), rows)


def book_tables(entries: Sequence[Row], orphaned: "Sequence[Orphaned]") -> list[Table]:
    """Policy book against the files, and the marks of versions that are no longer in force."""
    columns = ("name", "version", "written by", "written at", "last writer", "state", "files", "orphaned marks")
    rows = [
        (
            entry["name"], entry["version"] or "", entry["written_by"] or "", minute_of(entry["written_at"]),
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
    rows = [
        (
            row["version"], row["written_by"], minute_of(row["written_at"]), _WRITERS[row["system"]], _STATES[row["revoked"]],
            row["sentence"] or "This release does not understand it.",
        )
        for row in versions
    ]  # fmt: skip
    columns = ("version", "written by", "written at", "as", "state", "what it says")
    return table(f"Versions of {name}", columns, rows, ("version",), prose=True)


def load_table(decisions: "Sequence[BookDecision]") -> Table:
    """Effect of loading on each entry."""
    rows = [
        (one.name, one.outcome.value, "; ".join(_scope(scope.model_dump(by_alias=True)) for scope in one.touched), one.reason)
        for one in decisions
    ]
    columns = ("name", "outcome", "datasets to evaluate again", "why")
    return table("Loaded" if rows else "Nothing to load", columns, rows, prose=True)

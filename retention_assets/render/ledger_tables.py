"""What the ledger tells, as a person reads it on a terminal.

Belongs here: layout of what the commands over the ledger found. Rows come with the names that they have in JSON. What a log or
a verdict looks like is tables.py's.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.table import Table

from retention_assets.ledger.policy_book import Orphaned
from retention_assets.ledger.realms import Realm
from retention_assets.policy.book import BookDecision
from retention_assets.policy.durations import text_of
from retention_assets.render.terminal import size_of, table

Row = Mapping[str, Any]


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


def life_table(dataset: str, lives: Sequence[Row], total: int) -> Table:
    """The lives of transactions, each in words."""
    rows = [
        (
            life["transaction"] if life["in_log"] else f"{life['transaction']} (in no log)",
            " ".join(part for part in (life["type"], life["status"]) if part),
            _at(life["closed_at"]), size_of(life["bytes"]), life["mark"] or "", life["words"],
        )
        for life in lives
    ]  # fmt: skip
    columns = ("transaction", "type and status", "closed", "bytes", "mark", "what became of it")
    return table(f"{dataset}: {len(lives):,} of {total:,} transactions", columns, rows, ("bytes",))


def as_of_tables(dataset: str, at: datetime, views: Sequence[Row]) -> list[Table]:
    """The views of branches at an instant."""
    columns = ("transaction", "type", "closed", "bytes", "")
    tables = []
    for view in views:
        rows = [
            (
                row["transaction"],
                row["type"],
                _at(row["closed_at"]),
                size_of(row["bytes"]),
                "swept since" if row["swept"] else "",
            )
            for row in view["transactions"]
        ]
        what = "the current view" if view["current"] else "the view that was current" if rows else "nothing was committed yet"
        tables.append(table(f"{dataset} on {view['branch']} at {text_of(at)}: {what}", columns, rows, ("bytes",)))
    return tables or [table(f"{dataset} has no live branch, and so no view.", columns, ())]


def hold_table(rows: Sequence[Row]) -> Table:
    """The holds that are in force."""
    columns = ("name", "where", "datasets", "transactions", "reason", "owner", "until")
    cells = [
        (
            row["name"], "policy file" if row["source"] == "file" else "ledger", _scope(row["datasets"]),
            ", ".join(row["transactions"] or ("all",)), row["reason"], row["owner"], _at(row["until"]) or "released",
        )
        for row in rows
    ]  # fmt: skip
    return table("Holds in force" if rows else "No hold is in force", columns, cells)


def _scope(datasets: Row) -> str:
    text = ", ".join(datasets["include"])
    text += f" except {', '.join(datasets['exclude'])}" if datasets.get("exclude") else ""
    wanted = ", ".join(f"{key} is {value}" for key, value in datasets.get("with", {}).items())
    return text + (f" where {wanted}" if wanted else "")


def realm_table(realms: Sequence[Realm]) -> Table:
    """Realms, and the grace that purging each has."""
    rows = [(realm.name, realm.status, realm.grace.words()) for realm in realms]
    return table("Realms" if rows else "Nothing was said of any realm: all are ACTIVE", ("realm", "status", "grace"), rows)


def clock_table(times: Mapping[str, datetime | None]) -> Table:
    """What the clock guard goes by."""
    words = {"newest_mark_at": "newest mark", "newest_seen_at": "newest as_of", "accepted_until": "accepted until"}
    return table(
        "The clock of the ledger", ("time", "instant"), [(words[name], _at(at) or "none") for name, at in times.items()]
    )


def book_tables(entries: Sequence[Row], orphaned: Sequence[Orphaned]) -> list[Table]:
    """The policy book against the files, and the marks of versions that are in force no more."""
    columns = ("name", "version", "written by", "written at", "last writer", "state", "files", "orphaned marks")
    rows = [
        (
            entry["name"], entry["version"] or "", entry["written_by"] or "", _at(entry["written_at"]),
            _writer(entry["system"]), _state(entry), _FILES[entry["files"], entry["version"] is None],
            entry["orphaned_marks"] or "",
        )
        for entry in entries
    ]  # fmt: skip
    title = "The policy book" if rows else "The policy book is empty: `retention policies load` fills it"
    tables = [table(title, columns, rows, ("version", "orphaned marks"))]
    drifted = [(entry["why"],) for entry in entries if entry["files"] == "DRIFTED"]
    tables += [table("Drift", ("what differs, and what to do",), drifted)] if drifted else []
    if orphaned:
        counted = [(f"{one.policy}@{one.policy_version}", f"{one.marks:,}") for one in orphaned]
        tables.append(table("Orphaned marks", ("policy", "marks"), counted, ("marks",)))
    return tables


# What loading the files would do with an entry, and whether the book has none of it yet.
_FILES = {
    (None, False): "", ("SKIPPED", False): "the same", ("WRITTEN", False): "newer: load them", ("DRIFTED", False): "drift",
    ("ABSENT", False): "in none", ("WRITTEN", True): "not loaded yet",
}  # fmt: skip


def _writer(system: bool | None) -> str:
    return {None: "", True: "system", False: "user"}[system]


def _state(entry: Row) -> str:
    return {None: "", True: "revoked", False: "in force"}[entry["revoked"]]


def version_table(name: str, versions: Sequence[Row]) -> Table:
    """Every version of an entry."""
    rows = [
        (
            row["version"], row["written_by"], text_of(row["written_at"]), _writer(row["system"]), _state(row),
            row["sentence"] or "This release does not understand it.",
        )
        for row in versions
    ]  # fmt: skip
    columns = ("version", "written by", "written at", "as", "state", "what it says")
    return table(f"Versions of {name}", columns, rows, ("version",))


def load_table(decisions: Sequence[BookDecision]) -> Table:
    """What loading did with each entry."""
    rows = [
        (one.name, one.outcome.value, one.reason, "; ".join(_scope(scope.model_dump(by_alias=True)) for scope in one.touched))
        for one in decisions
    ]
    return table("Loaded" if rows else "Nothing to load", ("name", "outcome", "why", "datasets to evaluate again"), rows)


def _at(instant: datetime | None) -> str:
    return text_of(instant) if instant else ""

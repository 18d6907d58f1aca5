"""Answers to people's questions as Markdown: what goes next, why it is kept or marked, what happened."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime

from retention_assets.evaluation.dataset_summary import STAYS, Counts, DatasetSummary, SummaryRow
from retention_assets.evaluation.explain import ExplainedTransaction, Explanation
from retention_assets.evaluation.upcoming import Upcoming
from retention_assets.ledger.marks.history import TransactionLife
from retention_assets.policy.deletion_message import DELETED, SCHEDULED
from retention_assets.policy.sentences import count
from retention_assets.render.markdown import Answer, bullets, code, markdown_table, plain, with_code
from retention_assets.render.text import minute_in_utc, size_of, until_of

# rows of a Markdown table; the table after it has more
_MOST = 20
# in the order of the answer
_STATES = {
    "MARKED": "scheduled for deletion", STAYS: "marked and to be spared",
    "SWEEPING": "being deleted", "mark": "to be marked", "spare": "spared", "keep": "kept",
    "open": "still being written", "SWEPT": "deleted", "UNMARKED": "taken back", "SPARED": "spared by a sweep",
    "": "never marked",
}  # fmt: skip
_MEANINGS = {
    "mark": "a policy selects them and nothing protects them, so the next evaluation marks them",
    "spare": "a policy selects them, but something protects them",
    "keep": "no policy selects them",
}
_KEEP = "To keep something of it for good, launch `keep` with its dataset and, if not all of it is meant, its transactions."


# --- what goes next ---------------------------------------------------------------------------------------------------


def upcoming_answer(found: Upcoming) -> Answer:
    """Upcoming deletions, by name and size."""
    if found.note:
        return Answer(f"Nothing goes: {found.note}.")
    when = f"until {minute_in_utc(found.until)}"
    held = [f"{amount:,} that fall due as well are kept by the hold {code(name)}." for name, amount in found.held.items()]
    held += [
        f"The hold {code(name)} asks for attributes of datasets: what it keeps is counted here, and the sweep spares it."
        for name in found.unclear
    ]
    if not found.transactions:
        return Answer(f"Nothing goes {when}.", (bullets(held),))
    many = count(found.transactions, "transaction")
    datasets = count(len(found.datasets), "dataset")
    size = "" if found.bytes is None else f" ({size_of(found.bytes)})"
    goes = "goes" if found.transactions == 1 else "go"
    days = ((_day(day, found.as_of), f"{amount:,}", _size(total)) for day, amount, total in found.days[:_MOST])
    rows = [
        (
            code(one.dataset), f"{one.transactions:,}", _size(one.bytes), minute_in_utc(one.first_due),
            ", ".join(map(code, sorted(one.policies))),
        )
        for one in found.datasets[:_MOST]
    ]  # fmt: skip
    return Answer(
        f"{many}{size} of {datasets} {goes} {when}.",
        (
            markdown_table(("dataset", "transactions", "size", "first due", "policies"), rows),
            _more(len(found.datasets) - _MOST, "dataset"),
            markdown_table(("due", "transactions", "size"), days),
            bullets(held),
            "That is what is marked now; what is marked from now on waits out a grace of its own. Each is looked at once more"
            f" before it is deleted, and spared if it is needed again by then. {_KEEP}",
        ),
    )


# --- why it is kept or marked -----------------------------------------------------------------------------------------


def transaction_answer(found: ExplainedTransaction) -> Answer:
    """Reason why a transaction is kept or marked."""
    life, explained = found.life, found.explanation
    name = f"{life.transaction} of {found.dataset}"
    ledger = f"In the ledger: {plain(life.words)}." if life.marks else ""
    if life.said is not None:
        headline, details = f"{name}: {life.said.message}", with_code(life.said.details)
    elif explained is not None:
        headline, details = f"{name}: {explained.summary}", ""
    else:
        return Answer(f"{name} is in no log any more.", (ledger,))
    # For a deleted transaction it does not matter any more which branch would have protected it.
    is_over = life.said is not None and life.said.message == DELETED
    return Answer(headline, (details, ledger, *(_explained(explained, life) if explained and not is_over else ())))


def _explained(found: Explanation, life: TransactionLife) -> Iterable[str]:
    closed = f"closed {found.closed_at}" if found.closed_at else "not closed"
    by = f" by policy {code(found.policy)}" if found.policy else ""
    judged = f"Judged at {found.as_of}: **{found.verdict}**{by}. "
    if life.said is not None:
        yield judged + plain(found.summary)
    else:
        yield judged + (plain(found.summary) if life.marks else "")
    yield bullets(plain(one["text"]) for one in found.reasons if one["text"])
    yield f"{found.type}, {found.status}, {closed}, {size_of(found.bytes)}."
    branches = [f"Branch {code(one.branch)}: {plain(one.words)}." for one in found.branches[:_MOST]]
    yield bullets([*branches, *(f"Pinned by the tag {code(tag)}." for tag in found.tags)])
    yield bullets(
        f"Policy {code(one.policy)} {'selects it' if one.selects else 'does not select it'}: {plain(one.sentence)}"
        for one in found.policies[:_MOST]
    )


def dataset_answer(found: DatasetSummary) -> Answer:
    """Summary of a dataset: what is kept or marked, and why."""
    due = [
        (
            code(row["transaction"]), _size(row["bytes"]),
            f"{minute_in_utc(row['due_at'])} ({until_of(row['due_at'], found.as_of)})", code(row["policy"]),
        )
        for row in found.next_due
    ]  # fmt: skip
    next_due = (
        f"{SCHEDULED} That is said of these, which fall due next:" if due else "",
        markdown_table(("transaction", "size", "due", "policy"), due),
    )
    if not found.in_log:
        return Answer(f"{found.dataset} is in no store any more: {_states(found.states)}.", next_due)
    many = count(found.transactions, "transaction")
    return Answer(
        f"{found.dataset} has {many} ({size_of(found.bytes)}): {_states(found.states)}.",
        (
            f"As of {minute_in_utc(found.as_of)}.",
            bullets(f"**{_STATES[name]}**: {words}." for name, words in _MEANINGS.items() if name in found.states),
            *next_due,
            *_titled("The newest", found.newest),
            *_titled("The oldest that are there", found.oldest),
            bullets(f"Policy {code(name)}: {plain(words)}" for name, words in found.policies[:_MOST])
            or "No policy is about this dataset: nothing of it is marked.",
            bullets(f"Held by {code(name)}." for name in found.holds[:_MOST]),
            "For the complete answer about one transaction, launch this job again with its id.",
        ),
    )


def _states(states: Counts) -> str:
    parts = (f"{states[name][0]:,} {words} ({size_of(states[name][1])})" for name, words in _STATES.items() if name in states)
    return ", ".join(parts) or "nothing is known of it"


def _titled(title: str, rows: Sequence[SummaryRow]) -> Iterable[str]:
    cells = (
        (code(row.transaction), row.type, minute_in_utc(row.closed_at), _size(row.bytes), _STATES[row.state], plain(row.why))
        for row in rows
    )
    table = markdown_table(("transaction", "type", "closed", "size", "state", "why"), cells)
    return (f"{title}:", table) if table else ()


# --- what happened ----------------------------------------------------------------------------------------------------


def history_answer(
    dataset: str, lives: Sequence[TransactionLife], counts: Mapping[str, int], hidden: int, note: str | None
) -> Answer:
    """History of a dataset's transactions: the first of `lives`; `counts` are of all, by status."""
    total = sum(counts.values())
    known = [f"{counts[status]:,} {words}" for status, words in _STATES.items() if counts.get(status)]
    headline = f"{dataset}: {', '.join(known)}." if total else f"{dataset}: nothing is known of it."
    rows = ((code(one.transaction), _size(one.bytes), _life(one)) for one in lives[:_MOST])
    said = {one.said.message for one in lives[:_MOST] if one.said}
    return Answer(
        headline,
        (
            f"Nothing was ever marked: {plain(note)}." if note else "",
            "What changed last stands first." if total > 1 else "",
            markdown_table(("transaction", "size", "what happened"), rows),
            _more(total - _MOST, "transaction"),
            f"{hidden:,} more are older than the visibility mark: name them to see them." if hidden else "",
            _KEEP if SCHEDULED in said else "What is deleted can't be recovered." if DELETED in said else "",
        ),
    )


def _life(life: TransactionLife) -> str:
    message = f"**{life.said.message}** " if life.said else ""
    return message + plain(life.words) + ("" if life.in_log else "; it is in no log any more")


def _day(day: date | None, as_of: datetime) -> str:
    if day is None:
        return "due already"
    days = (day - as_of.astimezone(UTC).date()).days
    near = {0: "today", 1: "tomorrow"}.get(days, f"in {days} days")
    return f"{day.isoformat()} ({near})"


def _size(count: int | None) -> str:
    # No spaces: a cell is broken at them.
    return size_of(count).replace(" ", "\u00a0")


def _more(number: int, word: str) -> str:
    return f"… and {count(number, f'more {word}')}." if number > 0 else ""

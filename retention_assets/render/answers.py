"""Answers to people's questions as Markdown: what goes next, why it is kept or marked, what happened."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime

from retention_assets.evaluation.dataset_summary import STAYS, Counts, DatasetSummary, SummaryRow
from retention_assets.evaluation.explain import ExplainedTransaction, Explanation
from retention_assets.evaluation.upcoming import Upcoming
from retention_assets.ledger.histories import TransactionLife
from retention_assets.policy.sentences import DELETED, SCHEDULED, count
from retention_assets.render.markdown import Answer, bullets, code, markdown_table, plain, with_code
from retention_assets.render.text import cell_size, minute_in_utc, size_of, until_of

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


def upcoming_answer(upcoming: Upcoming) -> Answer:
    """Upcoming deletions, by name and size."""
    if upcoming.note:
        return Answer(f"Nothing goes: {upcoming.note}.")
    when = f"until {minute_in_utc(upcoming.until)}"
    held = [f"{amount:,} that fall due as well are kept by the hold {code(name)}." for name, amount in upcoming.held.items()]
    held += [
        f"The hold {code(name)} asks for attributes of datasets: what it keeps is counted here, and the sweep spares it."
        for name in upcoming.unclear
    ]
    if not upcoming.transactions:
        return Answer(f"Nothing goes {when}.", (bullets(held),))
    many = count(upcoming.transactions, "transaction")
    datasets = count(len(upcoming.datasets), "dataset")
    size = "" if upcoming.bytes is None else f" ({size_of(upcoming.bytes)})"
    goes = "goes" if upcoming.transactions == 1 else "go"
    days = ((_day(day, upcoming.as_of), f"{amount:,}", cell_size(total)) for day, amount, total in upcoming.days[:_MOST])
    rows = [
        (
            code(each.dataset), f"{each.transactions:,}", cell_size(each.bytes), minute_in_utc(each.first_due),
            ", ".join(map(code, sorted(each.policies))),
        )
        for each in upcoming.datasets[:_MOST]
    ]  # fmt: skip
    return Answer(
        f"{many}{size} of {datasets} {goes} {when}.",
        (
            markdown_table(("dataset", "transactions", "size", "first due", "policies"), rows),
            _more(len(upcoming.datasets) - _MOST, "dataset"),
            markdown_table(("due", "transactions", "size"), days),
            bullets(held),
            "That is what is marked now; what is marked from now on waits out a grace of its own. Each is looked at once more"
            f" before it is deleted, and spared if it is needed again by then. {_KEEP}",
        ),
    )


# --- why it is kept or marked -----------------------------------------------------------------------------------------


def transaction_answer(explained: ExplainedTransaction) -> Answer:
    """Reason why a transaction is kept or marked."""
    life, explanation = explained.life, explained.explanation
    name = f"{life.transaction} of {explained.dataset}"
    ledger = f"In the ledger: {plain(life.words)}." if life.marks else ""
    if life.said is not None:
        headline, details = f"{name}: {life.said.message}", with_code(life.said.details)
    elif explanation is not None:
        headline, details = f"{name}: {explanation.summary}", ""
    else:
        return Answer(f"{name} is in no log any more.", (ledger,))
    # For a deleted transaction it does not matter any more which branch would have protected it.
    is_over = life.said is not None and life.said.message == DELETED
    return Answer(headline, (details, ledger, *(_explained(explanation, life) if explanation and not is_over else ())))


def _explained(explanation: Explanation, life: TransactionLife) -> Iterable[str]:
    closed = f"closed {explanation.closed_at}" if explanation.closed_at else "not closed"
    by = f" by policy {code(explanation.policy)}" if explanation.policy else ""
    judged = f"Judged at {explanation.as_of}: **{explanation.verdict}**{by}. "
    if life.said is not None:
        yield judged + plain(explanation.summary)
    else:
        yield judged + (plain(explanation.summary) if life.marks else "")
    yield bullets(plain(each["text"]) for each in explanation.reasons if each["text"])
    yield f"{explanation.type}, {explanation.status}, {closed}, {size_of(explanation.bytes)}."
    branches = [f"Branch {code(each.branch)}: {plain(each.words)}." for each in explanation.branches[:_MOST]]
    yield bullets([*branches, *(f"Pinned by the tag {code(tag)}." for tag in explanation.tags)])
    yield bullets(
        f"Policy {code(each.policy)} {'selects it' if each.selects else 'does not select it'}: {plain(each.sentence)}"
        for each in explanation.policies[:_MOST]
    )


def dataset_answer(summary: DatasetSummary) -> Answer:
    """Summary of a dataset: what is kept or marked, and why."""
    due = [
        (
            code(row["transaction"]), cell_size(row["bytes"]),
            f"{minute_in_utc(row['due_at'])} ({until_of(row['due_at'], summary.as_of)})", code(row["policy"]),
        )
        for row in summary.next_due
    ]  # fmt: skip
    next_due = (
        f"{SCHEDULED} That is said of these, which fall due next:" if due else "",
        markdown_table(("transaction", "size", "due", "policy"), due),
    )
    if not summary.in_log:
        return Answer(f"{summary.dataset} is in no store any more: {_states(summary.states)}.", next_due)
    many = count(summary.transactions, "transaction")
    return Answer(
        f"{summary.dataset} has {many} ({size_of(summary.bytes)}): {_states(summary.states)}.",
        (
            f"As of {minute_in_utc(summary.as_of)}.",
            bullets(f"**{_STATES[name]}**: {words}." for name, words in _MEANINGS.items() if name in summary.states),
            *next_due,
            *_titled("The newest", summary.newest),
            *_titled("The oldest that are there", summary.oldest),
            bullets(f"Policy {code(name)}: {plain(words)}" for name, words in summary.policies[:_MOST])
            or "No policy is about this dataset: nothing of it is marked.",
            bullets(f"Held by {code(name)}." for name in summary.holds[:_MOST]),
            "For the complete answer about one transaction, launch this job again with its id.",
        ),
    )


def _states(states: Counts) -> str:
    parts = (f"{states[name][0]:,} {words} ({size_of(states[name][1])})" for name, words in _STATES.items() if name in states)
    return ", ".join(parts) or "nothing is known of it"


def _titled(title: str, rows: Sequence[SummaryRow]) -> Iterable[str]:
    cells = (
        (
            code(row.transaction), row.type, minute_in_utc(row.closed_at), cell_size(row.bytes), _STATES[row.state],
            plain(row.why),
        )
        for row in rows
    )  # fmt: skip
    table = markdown_table(("transaction", "type", "closed", "size", "state", "why"), cells)
    return (f"{title}:", table) if table else ()


# --- what happened ----------------------------------------------------------------------------------------------------


def history_answer(dataset: str, lives: Sequence[TransactionLife], counts: Mapping[str, int], hidden: int) -> Answer:
    """History of a dataset's transactions: the first of `lives`; `counts` are of all, by status."""
    total = sum(counts.values())
    counted = [f"{counts[status]:,} {words}" for status, words in _STATES.items() if counts.get(status)]
    headline = f"{dataset}: {', '.join(counted)}." if total else f"{dataset}: nothing is known of it."
    rows = ((code(each.transaction), cell_size(each.bytes), _life(each)) for each in lives[:_MOST])
    messages = {each.said.message for each in lives[:_MOST] if each.said}
    return Answer(
        headline,
        (
            "What changed last stands first." if total > 1 else "",
            markdown_table(("transaction", "size", "what happened"), rows),
            _more(total - _MOST, "transaction"),
            f"{hidden:,} more are older than the visibility mark: name them to see them." if hidden else "",
            _KEEP if SCHEDULED in messages else "What is deleted can't be recovered." if DELETED in messages else "",
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


def _more(number: int, word: str) -> str:
    return f"… and {count(number, f'more {word}')}." if number > 0 else ""

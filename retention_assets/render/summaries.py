"""Sentences about the ledger and runs, which stand before any number, and answers to people's questions, as Markdown."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, timedelta
from typing import Any

from retention_assets.evaluation.explain import STAYS, Counts, DatasetSummary, ExplainedTransaction, Explanation, SummaryRow
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.ledger.evaluations import SWEPT_BEFORE
from retention_assets.ledger.histories import TransactionLife
from retention_assets.ledger.reports import DayLook
from retention_assets.ledger.states import DatasetState, LastSweep, Totals, Waiting
from retention_assets.ledger.trash import AsideSum
from retention_assets.policy.durations import minute_in_utc, parse_instant
from retention_assets.policy.sentences import DELETED, SCHEDULED, count, first_of, short_actor
from retention_assets.policy.sizes import size_of
from retention_assets.render.markdown import Answer, bullets, code, markdown_table, paragraph, plain, with_code
from retention_assets.render.page import Column, Name, Size, Table
from retention_assets.render.report import DayReport
from retention_assets.render.text import date_of, kib, sentence_case, until_of

Rows = Sequence[Mapping[str, Any]]
# most names in a sentence
_NAMED = 3
# characters of a fault in a cell
_MOST_WORDS = 200
# a run behind the name of who ordered it
_ITS_RUN = re.compile(r" \(run \w{8}\)|, run \w{8}(?=\))")
_OUTCOMES = ("deleted", "already_gone", "hidden", "set_aside", "restored", "replayed", "failed", "spared")
# classes of a log in the words of a page
_CLASSES = {"to go": "mark", "spared": "spare", "kept": "keep", "open": "open", "swept": SWEPT_BEFORE}
# outcomes of loading in the words of a page
LOADED = {"skipped": "unchanged", "drifted": "changed by a person", "absent": "in no file"}
# A look noted later than this after its moment did not happen at that moment.
_LATE = timedelta(hours=1)


def named(names: Sequence[str]) -> str:
    return first_of(list(map(code, names)))


def _outcomes(counters: Mapping[str, int]) -> str:
    return ", ".join(f"{counters[name]:,} {name.replace('_', ' ')}" for name in _OUTCOMES if counters.get(name))


def _freed(counters: Mapping[str, int]) -> str:
    aside = f", {size_of(counters['bytes_set_aside'])} to be freed later" if counters.get("bytes_set_aside") else ""
    return (f", {size_of(counters['bytes_freed'])} freed" if counters["bytes_freed"] else "") + aside


def _sized(words: str, size: int) -> str:
    # Records have none, and no size is not 0 bytes.
    return f"{words} ({size_of(size)})" if size else words


def _waiting_words(waiting: Waiting, nothing: str = "**Nothing is marked.**") -> str:
    if not waiting.marks:
        return nothing
    marked = f"**{count(waiting.marks, 'transaction is', 'transactions are')} marked**"
    parts = [_sized(f"{waiting.due:,} due now", waiting.due_bytes)] if waiting.due else []
    if waiting.next_due:
        amount = "all" if 1 < waiting.marks == waiting.next_marks else f"{waiting.next_marks:,}"
        parts.append(f"{amount} due on {date_of(waiting.next_due.astimezone(UTC).date())}")
    parts += [f"{waiting.held:,} held"] if waiting.held else []
    parts += [f"{waiting.spared:,} to be spared"] if waiting.spared else []
    return f"{_sized(marked, waiting.bytes)}{': ' if parts else ''}{', '.join(parts)}."


def _sweep_words(last: LastSweep | None) -> str:
    if last is None:
        return "Nothing has been swept yet."
    return f"Last sweep on {date_of(last.day)}: {_outcomes(last.counters) or '0 deleted'}{_freed(last.counters)}."


def _refused_words(refused: Mapping[str, str]) -> str:
    if not refused:
        return ""
    words = f"**{count(len(refused), 'dataset is', 'datasets are')} refused**: {named(sorted(refused))}."
    faults = (plain(sentence_case(fault[:_MOST_WORDS].rstrip("."))) for fault in refused.values())
    return f"{words} {next(faults)}." if len(refused) == 1 else words


def _sentences(*parts: str) -> str:
    return " ".join(filter(None, parts))


# day of what is due already, in rows by day
NOW = "now"


# --- the environment, and each step -----------------------------------------------------------------------------------


def state_summary(
    totals: Totals, waiting: Waiting, last: LastSweep | None, failing: Sequence[str], aside: Sequence[AsideSum] = ()
) -> str:
    in_trash = f"**{count(sum(row.marks for row in aside), 'transaction')} set aside**" if aside else ""
    in_trash += f", {size_of(sum(row.bytes for row in aside))} not yet freed." if aside else ""
    checked = f"**{count(len(failing), 'check fails', 'checks fail')}**: {named(failing)}." if failing else "No check fails."
    return _sentences(_waiting_words(waiting), _refused_words(totals.refused), checked, _sweep_words(last), in_trash)


def logs_summary(numbers: Mapping[str, int], refused: int, away: int) -> str:
    """Datasets that a run read, and how many it could not read."""
    size = _sized(count(numbers["transactions"], "transaction"), numbers["bytes"])
    return _sentences(
        f"**{count(numbers['datasets'], 'dataset was', 'datasets were')} read**: {size}.",
        f"**{count(refused, 'dataset is', 'datasets are')} refused.**" if refused else "",
        f"**{count(away, 'store is', 'stores are')} away**." if away else "Every store answered.",
    )


def views_summary(datasets: int, number: int, numbers: Mapping[str, int]) -> str:
    latest = count(numbers["in_latest_views"], "transaction")
    return (
        f"**{count(number, 'branch', 'branches')} of {count(datasets, 'dataset')}**: {latest} in latest views,"
        f" {numbers['protected']:,} protected by a branch or tag."
    )


def policies_summary(in_force: int, counts: Mapping[str, int], orphaned: int) -> str:
    amounts = ", ".join(f"{amount:,} {LOADED.get(outcome, outcome)}" for outcome, amount in counts.items() if amount)
    marks = f"{count(orphaned, 'open mark')} of policies that no file has any more." if orphaned else ""
    head = f"**{count(in_force, 'policy is', 'policies are')} in force.**"
    return _sentences(head, f"In the files: {amounts or 'none'}.", marks)


def marks_summary(new: int, known: int, numbers: Mapping[str, int]) -> str:
    marked = f"**{count(new, 'transaction is', 'transactions are')} newly marked.**"
    before = f"{count(known, 'was', 'were')} marked before." if known else ""
    # a run may be about some datasets alone
    in_all = f"{numbers['marked']:,} are marked in all." if numbers["marked"] > new + known else ""
    return _sentences(marked, before, in_all, f"{numbers['spare']:,} are spared, {numbers['keep']:,} kept.")


def sweep_summary(
    swept: int,
    refused: Sequence[str],
    numbers: Mapping[str, int],
    skipped: int,
    objections: Collection[str],
    ordered_by: str,
    last: LastSweep | None,
) -> str:
    did = _outcomes(numbers)
    held = sorted(set(objections).difference(refused))
    quiet = "**This sweep changed nothing.**" if swept else "**Nothing was due for this sweep.**"
    return _sentences(
        f"**{sentence_case(did)}{_freed(numbers)}** in {count(swept, 'dataset')}." if did else quiet,
        f"Ordered by {plain(who_of(ordered_by))}." if did else _sweep_words(last),
        f"**{count(len(refused), 'dataset')} not swept**: {named(refused)}." if refused else "",
        f"{count(skipped, 'dataset')} left to another running sweep." if skipped else "",
        f"{count(len(held), 'dataset')} not swept because of a failed check: {named(held)}." if held else "",
    )


def day_summary(report: DayReport) -> str:
    total, looks = report.total, " ".join(plain(short_actor(words)) for words in looks_words(report))
    if not report.lines:
        return f"**{report.when}: nothing was due.** {looks}"
    done = total.counters
    state = "finished" if total.finished_at else f"{report.unfinished:,} of {count(len(report.lines), 'dataset')} not finished"
    amount = f"{done['deleted']:,} of {done['to_delete']:,} deleted"
    amount += f", {done['set_aside']:,} set aside" if done["set_aside"] else ""
    return f"**{report.when}: {amount}, {size_of(done['bytes_freed'])} freed, {state}.** {looks}"


def week_summary(days: Rows) -> str:
    total, size = sum(row["deleted"] for row in days), sum(row["bytes"] for row in days)
    by = f", ordered by {plain(first_of(sorted({row['ordered_by'] for row in days})))}" if days else ""
    deleted = f"**{count(total, 'transaction was', 'transactions were')} deleted in 7 days**"
    return f"{deleted}{f', {size_of(size)} freed' if size else ''}{by}."


def who_of(actor: str) -> str:
    """Name without its run; the run where nobody gave a name."""
    return _ITS_RUN.sub("", short_actor(actor))


# --- one dataset ------------------------------------------------------------------------------------------------------


def log_summary(transactions: int, size: int) -> str:
    return paragraph((_sized(f"**{count(transactions, 'transaction')}**", size), "the log is sound"))


def branches_summary(branches: Sequence[Mapping[str, Any]]) -> str:
    if not branches:
        return "- On no branch"
    more = f"{len(branches) - _NAMED:,} more branches" if len(branches) > _NAMED else ""
    words = (
        f"branch {code(row['branch'])}: {count(row['transactions'], 'transaction')} in its latest view"
        for row in branches[:_NAMED]
    )
    return paragraph((*words, more))


def judged_summary(state: DatasetState, examples: Iterable[Mapping[str, Any]], marked: str = "") -> str:
    """Verdicts on a dataset, with an example of what is `marked`, else of what is spared and kept."""
    amounts = (f"{amount:,} {word}" for word, verdict in _CLASSES.items() if (amount := state.transactions(verdict)))
    log = f"{_sized(count(state.transactions(), 'transaction'), state.bytes())}: {', '.join(amounts)}" if state.counts else ""
    first: dict[str, Mapping[str, Any]] = {}
    for row in examples:
        if row["code"]:
            first.setdefault(row["verdict"], row)
    words = (("spare", "It is spared."), ("keep", "It is kept."))
    shown = [marked, *(example_of(first[verdict], word) for verdict, word in words if verdict in first)]
    waiting, sweep = _waiting_words(state.waiting, "**Nothing of it is marked.**"), _sweep_words(state.last_sweep)
    return paragraph((waiting, log, *list(filter(None, shown))[:2], *_objections(state), sweep))


def example_of(row: Mapping[str, Any], words: str) -> str:
    return f"for example {code(row['transaction'])}: {words} {plain(Reason[row['code']].text(row['witness']))}"


def swept_summary(state: DatasetState) -> str:
    """Deletions of a dataset so far. The text stays the same until something changes."""
    return paragraph((_sweep_words(state.last_sweep), *_objections(state)))


def waiting_numbers(waiting: Waiting) -> dict[str, Any]:
    numbers = {"marked": waiting.marks, "marked_bytes": waiting.bytes, "due": waiting.due, "due_bytes": waiting.due_bytes}
    return {**numbers, "held": waiting.held, "to_be_spared": waiting.spared}


def dataset_numbers(state: DatasetState) -> dict[str, Any]:
    classes = {word: state.transactions(verdict) for word, verdict in _CLASSES.items() if verdict != "mark"}
    waiting = {"marked": state.waiting.marks, "marked (KiB)": kib(state.waiting.bytes), "due": state.waiting.due}
    kept = {"held": state.waiting.held, "to be spared": state.waiting.spared}
    return {**waiting, **kept, "transactions": state.transactions(), "size (KiB)": kib(state.bytes()), **classes}


def _objections(state: DatasetState) -> Iterable[str]:
    return (f"**Not swept**: {plain(objection)}" for objection in state.objections[:_NAMED])


# --- a day ------------------------------------------------------------------------------------------------------------


def look_words(look: DayLook | None, was_swept: bool = False) -> str:
    """Tell what a run found due on a day, and how recent the verdicts were."""
    if look is None:
        return "No run looked on this day."
    late = f" (recorded {minute_in_utc(look.looked_at)})" if look.looked_at - look.as_of > _LATE else ""
    marks = f"{count(look.due, 'mark')}{' still' if was_swept else ''}" if look.due else "nothing"
    judged = f", the last at {minute_in_utc(look.judged_at)}" if look.judged_at else ""
    datasets = f"Judged by then: {count(look.datasets, 'dataset')}{judged}."
    return f"The run of {minute_in_utc(look.as_of)}{late} found {marks} due. {datasets}"


def looks_words(report: DayReport) -> list[str]:
    """Name who started the sweeps, and the last run that looked; for several days, the number of days with a run."""
    by = [f"Deletions were ordered by {report.total.orderers}."] if report.total.ordered_by else []
    if report.lines and not report.looks:
        # The day is not over.
        return by
    if report.last is None:
        return [*by, look_words(report.looks.get(report.execution_date), bool(report.lines))]
    quiet = sum(not look.due for look in report.looks.values())
    return [*by, f"Runs looked on {count(len(report.looks), 'day')} of the period. On {quiet:,} nothing was due."]


# rows of a Markdown table; the table after it has more
_MOST_ROWS = 20
# in the order of the answer
_STATE_WORDS = {
    "MARKED": "scheduled for deletion", STAYS: "marked and to be spared",
    "SWEEPING": "being deleted", "mark": "to be marked", "spare": "spared", "keep": "kept",
    "open": "still being written", "SWEPT": "deleted", "SET_ASIDE": "set aside", "UNMARKED": "taken back",
    "HIDDEN": "hidden", "RESTORED": "restored", "SPARED": "spared by a sweep", "": "never marked",
}  # fmt: skip
_MEANINGS = {
    "mark": "a policy selects them and nothing protects them, so the next evaluation marks them",
    "spare": "a policy selects them, but something protects them",
    "keep": "no policy selects them",
}
_KEEP = "To keep data, launch `act_keep` with its dataset, or with some of its transactions."


# --- why it is kept or marked -----------------------------------------------------------------------------------------


def transaction_answer(explained: ExplainedTransaction) -> Answer:
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
    closed = f"closed {minute_in_utc(parse_instant(explanation.closed_at))}" if explanation.closed_at else "not closed"
    by = f" by policy {code(explanation.policy)}" if explanation.policy else ""
    summary = plain(explanation.summary) if life.said is not None or life.marks else ""
    yield f"Judged at {minute_in_utc(parse_instant(explanation.as_of))}: **{explanation.verdict}**{by}. {summary}"
    yield bullets(plain(each["text"]) for each in explanation.reasons if each["text"])
    yield f"{explanation.type}, {explanation.status}, {closed}, {size_of(explanation.bytes)}."
    yield bullets(map(plain, explanation.needs))
    branches = [f"Branch {code(each.branch)}: {plain(each.words)}." for each in explanation.branches[:_MOST_ROWS]]
    yield bullets([*branches, *(f"Pinned by the tag {code(tag)}." for tag in explanation.tags)])
    yield bullets(
        f"Policy {code(each.policy)} {'selects it' if each.selects else 'does not select it'}: {plain(each.sentence)}"
        for each in explanation.policies[:_MOST_ROWS]
    )


_NEXT_DUE = (
    Name("transaction"),
    Size("size", "bytes"),
    Column("due", lambda row: f"{minute_in_utc(row['due_at'])} ({until_of(row['due_at'], row['as_of'])})"),
    Name("policy"),
)


def dataset_answer(summary: DatasetSummary) -> Answer:
    due = [{**row, "as_of": summary.as_of} for row in summary.next_due]
    next_due = (f"{SCHEDULED} These fall due next:" if due else "", markdown_table(Table("", _NEXT_DUE, due)))
    if not summary.in_log:
        return Answer(f"{summary.dataset} is in no store any more: {_states(summary.states)}.", next_due)
    many = count(summary.transactions, "transaction")
    return Answer(
        f"{summary.dataset} has {many} ({size_of(summary.bytes)}): {_states(summary.states)}.",
        (
            f"As of {minute_in_utc(summary.as_of)}.",
            bullets(f"**{_STATE_WORDS[name]}**: {words}." for name, words in _MEANINGS.items() if name in summary.states),
            *next_due,
            *_titled("The newest", summary.newest),
            *_titled("The oldest", summary.oldest),
            bullets(f"Policy {code(name)}: {plain(words)}" for name, words in summary.policies[:_MOST_ROWS])
            or "No policy matches this dataset: nothing of it is marked.",
            bullets(f"Held by {code(name)}." for name in summary.holds[:_MOST_ROWS]),
            "For details of one transaction, launch this job again with its id.",
        ),
    )


def _states(states: Counts) -> str:
    shown = ((words, *states[name]) for name, words in _STATE_WORDS.items() if name in states)
    return ", ".join(f"{number:,} {words} ({size_of(size)})" for words, number, size in shown) or "no transaction is known"


_SHOWN = (
    Name("transaction"),
    "type",
    Column("closed", lambda row: minute_in_utc(row.closed_at)),
    Size("size", "bytes"),
    Column("state", lambda row: _STATE_WORDS[row.state]),
    "why",
)


def _titled(title: str, rows: Sequence[SummaryRow]) -> Iterable[str]:
    return (f"{title}:", markdown_table(Table("", _SHOWN, rows))) if rows else ()


# --- what happened ----------------------------------------------------------------------------------------------------


def history_answer(lives: Table, counts: Mapping[str, int], hidden: int) -> Answer:
    """History of a dataset's transactions: the first of `lives`; `counts` are of all, by status."""
    dataset, total, first = lives.title, sum(counts.values()), lives.rows[:_MOST_ROWS]
    counted = [f"{counts[status]:,} {words}" for status, words in _STATE_WORDS.items() if counts.get(status)]
    headline = f"{dataset}: {', '.join(counted)}." if total else f"{dataset}: no transaction is known."
    messages = {row["message"] for row in first}
    return Answer(
        headline,
        (
            "The last change comes first." if total > 1 else "",
            markdown_table(lives, most=_MOST_ROWS),
            _more(total - _MOST_ROWS, "transaction"),
            f"{hidden:,} more are older than the visibility mark. Name them to see them." if hidden else "",
            _KEEP if SCHEDULED in messages else "Deleted data can't be recovered." if DELETED in messages else "",
        ),
    )


def _more(number: int, word: str) -> str:
    return f"… and {count(number, f'more {word}')}." if number > 0 else ""

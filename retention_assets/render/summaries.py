"""Sentences about the ledger and runs, which stand before any number, and answers to people's questions, as Markdown."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from retention_assets.evaluation.explain import STAYS, Counts, DatasetSummary, ExplainedTransaction, Explanation, SummaryRow
from retention_assets.evaluation.fates import Upcoming
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.ledger.evaluations import SWEPT_BEFORE
from retention_assets.ledger.histories import TransactionLife
from retention_assets.ledger.reports import DayLook
from retention_assets.ledger.states import DatasetState, LastSweep, PendingGroup, Totals, Waiting
from retention_assets.policy.durations import minute_in_utc
from retention_assets.policy.sentences import DELETED, SCHEDULED, count, first_of
from retention_assets.render.markdown import MOST_INLINE, Answer, bullets, code, markdown_table, paragraph, plain, with_code
from retention_assets.render.text import cell_size, money_of, sentence_case, size_of, until_of
from retention_assets.report import DayReport, ReportMoney

# most names in a sentence
_NAMED = 3
# Days until (or since) nearer dates are counted.
_NEAR = 61
_OUTCOMES = ("deleted", "already_gone", "hidden", "failed", "spared")
# classes of a log in the words of a page
_CLASSES = {"to go": "mark", "spared": "spare", "kept": "keep", "open": "open", "swept": SWEPT_BEFORE}
# outcomes of loading in the words of a page
_LOADED = {"skipped": "unchanged", "drifted": "changed by a person", "absent": "in no file"}
# A look noted later than this after its moment did not happen at that moment.
_LATE = timedelta(hours=1)


def named(names: Sequence[str]) -> str:
    return first_of(list(map(code, names)))


def day_of(at: datetime, as_of: datetime) -> str:
    """A day as people say it: today, tomorrow, on Sunday, on 3 July (in 9 days), on 3 July 2027."""
    day, today = at.astimezone(UTC).date(), as_of.astimezone(UTC).date()
    if (near := {-1: "yesterday", 0: "today", 1: "tomorrow"}.get((day - today).days)) is not None:
        return near
    days = (day - today).days
    if 1 < days < 7:
        return f"on {day:%A}"
    near = f" (in {days} days)" if 0 < days < _NEAR else f" ({-days} days ago)" if -_NEAR < days < 0 else ""
    return f"on {day.day} {day:%B}{'' if day.year == today.year else f' {day.year}'}{near}"


def _outcomes(counters: Mapping[str, int]) -> str:
    return ", ".join(f"{counters[name]:,} {name.replace('_', ' ')}" for name in _OUTCOMES if counters.get(name))


def _freed(counters: Mapping[str, int]) -> str:
    return f", {size_of(counters['bytes_freed'])} freed" if counters["bytes_freed"] else ""


def _sized(words: str, size: int) -> str:
    # Records have none, and no size is not 0 bytes.
    return f"{words} ({size_of(size)})" if size else words


def _waiting_words(waiting: Waiting, as_of: datetime) -> str:
    if not waiting.marks:
        return "nothing is marked"
    words = [_sized(f"**{waiting.marks:,} marked**", waiting.bytes)]
    if waiting.due:
        words.append(_sized(f"**{waiting.due:,} due now**", waiting.due_bytes))
    if waiting.next_due:
        amount = f"{waiting.next_marks:,}" if waiting.next_marks else "the next"
        amount = "all" if 1 < waiting.marks == waiting.next_marks else amount
        words.append(f"{amount} due {day_of(waiting.next_due, as_of)}")
    return ", ".join([*words, *_kept_words(waiting)])


def _kept_words(waiting: Waiting) -> list[str]:
    held = f"{waiting.held:,} held" if waiting.held else ""
    return [words for words in (held, f"{waiting.spared:,} to be spared" if waiting.spared else "") if words]


def _sweep_words(last: LastSweep | None, as_of: datetime) -> str:
    if last is None:
        return "nothing was swept yet"
    at = datetime(last.day.year, last.day.month, last.day.day, tzinfo=UTC)
    return f"last sweep {day_of(at, as_of)}: {_outcomes(last.counters) or '0 deleted'}{_freed(last.counters)}"


def _refused_words(refused: Mapping[str, str]) -> str:
    if not refused:
        return "no dataset is refused"
    names = sorted(refused)
    words = f"**{count(len(names), 'dataset')} refused**: {named(names)}"
    return f"{words}. {plain(sentence_case(refused[names[0]]))}" if len(names) == 1 else words


# --- the environment, and each step -----------------------------------------------------------------------------------


def environment_summary(totals: Totals, groups: Sequence[PendingGroup], last: LastSweep | None, as_of: datetime) -> str:
    logs = _sized(f"{count(totals.datasets, 'dataset')} with {count(totals.transactions, 'transaction')}", totals.bytes)
    waiting = _waiting_words(Waiting.of(groups, as_of), as_of)
    return paragraph((waiting, _refused_words(totals.refused), _sweep_words(last, as_of), logs))


def logs_summary(state: Mapping[str, int], refused: Mapping[str, str], away: Mapping[str, str]) -> str:
    logs = f"**{count(state['datasets'], 'dataset')}** with {count(state['transactions'], 'transaction')}"
    logs = _sized(logs, state["bytes"])
    stores = [f"**The store {code(name)} is away**: {plain(fault)}" for name, fault in sorted(away.items())[:_NAMED]]
    return paragraph((logs, _refused_words(refused), *(stores or ["every store answered"])))


def views_summary(datasets: int, refused: Mapping[str, str], branches: int, numbers: Mapping[str, int]) -> str:
    read = count(datasets - len(refused), "dataset")
    views = f"{count(branches, 'branch', 'branches')} of {read} in this run" if branches else f"{read} in this run, no branch"
    latest = count(numbers["in_latest_views"], "transaction")
    held = f"{latest} in latest views, {numbers['protected']:,} protected by a branch or tag"
    # Only of this run: elsewhere other datasets may be refused.
    return paragraph((views, held if branches or numbers["protected"] else "", _refused_words(refused) if refused else ""))


def policies_summary(in_force: int, counts: Mapping[str, int], orphaned: int, warnings: Sequence[str]) -> str:
    amounts = (f"{amount:,} {_LOADED.get(outcome, outcome)}" for outcome, amount in counts.items() if amount)
    loaded = ", ".join(amounts) or "no policy is in any file"
    marks = f"{count(orphaned, 'open mark')} of policies that are in no file any more" if orphaned else ""
    return paragraph(
        (
            f"**{count(in_force, 'policy', 'policies')} in force**; loading: {loaded}",
            marks,
            *map(plain, warnings[:_NAMED]),
        )
    )


def sweep_summary(
    datasets: int,
    numbers: Mapping[str, int],
    refused: Mapping[str, str],
    skipped: int,
    objections: Mapping[str, str],
    groups: Sequence[PendingGroup],
    last: LastSweep | None,
    as_of: datetime,
) -> str:
    did = _outcomes(numbers)
    words = f"this sweep: {did}{_freed(numbers)}, on {count(datasets, 'dataset')}" if did else _sweep_words(last, as_of)
    quiet = "" if did else "nothing was due for this sweep" if not datasets else "this sweep changed nothing"
    held = [name for name in sorted(objections) if name not in refused]
    checks = f"{count(len(held), 'dataset')} not swept while a check objects: {named(held)}" if held else ""
    elsewhere = f"{count(skipped, 'dataset')} left to another sweep that is at work" if skipped else ""
    refusals = _refused_words(refused) if refused else ""
    return paragraph((_waiting_words(Waiting.of(groups, as_of), as_of), quiet, words, refusals, elsewhere, checks))


def report_summary(report: DayReport) -> str:
    """The day's report, as short as a page shows without a click."""
    total = report.total
    if not report.lines:
        return "\n\n".join([f"**{report.when}: nothing was due.**", *looks_words(report)])
    done = total.counters
    state = "finished" if total.finished_at else f"{report.unfinished:,} of {count(len(report.lines), 'dataset')} not finished"
    amount = f"{done['deleted']:,} of {done['to_delete']:,} deleted"
    lines = [f"**{report.when}: {amount}, {size_of(done['bytes_freed'])} freed, {state}.**", ""]
    rows = sorted(report.lines, key=lambda line: (-line.counters["failed"], -line.counters["to_delete"], line.dataset))
    for number, line in enumerate(rows):
        otherwise = [f"{line.counters[name]:,} {name}" for name in ("spared", "failed") if line.counters[name]]
        amount = f"{line.counters['deleted']:,} of {line.counters['to_delete']:,} deleted"
        freed = [f"{size_of(line.counters['bytes_freed'])} freed"] if line.counters["bytes_freed"] else []
        row = f"- {plain(line.dataset)}: {', '.join([amount, *otherwise, *freed])}"
        if len("\n".join([*lines, row])) > MOST_INLINE - 300:
            lines.append(f"- … and {len(rows) - number:,} more, in the page of the report")
            break
        lines.append(row)
    return "\n".join([*lines, "", *map(plain, looks_words(report))])


# --- one dataset ------------------------------------------------------------------------------------------------------


def log_summary(transactions: int, size: int) -> str:
    return paragraph((_sized(f"**{count(transactions, 'transaction')}**", size), "the log is sound"))


def branches_summary(branches: Sequence[Mapping[str, Any]]) -> str:
    if not branches:
        return "- No branch reaches any of it"
    more = f"{len(branches) - _NAMED:,} more branches" if len(branches) > _NAMED else ""
    words = (
        f"branch {code(row['branch'])}: {count(row['transactions'], 'transaction')} in its latest view"
        for row in branches[:_NAMED]
    )
    return paragraph((*words, more))


def judged_summary(state: DatasetState, examples: Iterable[Mapping[str, Any]], as_of: datetime, marked: str = "") -> str:
    """Verdicts on a dataset, with an example of what is `marked`, else of what is spared and kept."""
    amounts = (f"{amount:,} {word}" for word, verdict in _CLASSES.items() if (amount := state.transactions(verdict)))
    log = f"{_sized(count(state.transactions(), 'transaction'), state.bytes())}: {', '.join(amounts)}" if state.counts else ""
    first: dict[str, Mapping[str, Any]] = {}
    for row in examples:
        if row["code"]:
            first.setdefault(row["verdict"], row)
    words = (("spare", "It is spared."), ("keep", "It is kept."))
    shown = [marked, *(example_of(first[verdict], word) for verdict, word in words if verdict in first)]
    sweep = _sweep_words(state.last_sweep, as_of)
    return paragraph((_waiting_words(state.waiting, as_of), log, *list(filter(None, shown))[:2], *_objections(state), sweep))


def example_of(row: Mapping[str, Any], words: str) -> str:
    return f"for example {code(row['transaction'])}: {words} {plain(Reason[row['code']].text(row['witness']))}"


def swept_summary(state: DatasetState) -> str:
    """Deletions of a dataset so far, and what is next. The text stays the same until something changes."""
    next_due = state.waiting.next_due
    due = f"{state.waiting.due:,} due now" if state.waiting.due else "nothing is due"
    then = f", the next of {count(state.waiting.marks, 'mark')} on {next_due.astimezone(UTC):%Y-%m-%d}" if next_due else ""
    kept = "".join(f", {words}" for words in _kept_words(state.waiting))
    last = state.last_sweep
    swept = f"last sweep on {last.day}: {_outcomes(last.counters)}" if last else "nothing was swept yet"
    return paragraph((f"{due}{then}{kept}", swept, *_objections(state)))


def waiting_numbers(waiting: Waiting) -> dict[str, Any]:
    numbers = {"marked": waiting.marks, "marked_bytes": waiting.bytes, "due": waiting.due, "due_bytes": waiting.due_bytes}
    return {**numbers, "held": waiting.held, "to_be_spared": waiting.spared}


def state_numbers(state: DatasetState) -> dict[str, Any]:
    classes = {word: state.transactions(verdict) for word, verdict in _CLASSES.items() if verdict != "mark"}
    return {**waiting_numbers(state.waiting), "transactions": state.transactions(), "bytes": state.bytes(), **classes}


def _objections(state: DatasetState) -> Iterable[str]:
    return (f"**Not swept**: {plain(objection)}" for objection in state.objections[:_NAMED])


# --- a day ------------------------------------------------------------------------------------------------------------


def look_words(look: DayLook | None, was_swept: bool = False) -> str:
    """Tell that somebody looked on a day, and what there was to do, or is left after a sweep; or that nobody did."""
    if look is None:
        return "Nobody looked on this day: no run came to its report."
    late = f", noted {minute_in_utc(look.looked_at)}" if look.looked_at - look.as_of > _LATE else ""
    is_due = f"{'was' if look.due == 1 else 'were'}{' still' if was_swept else ''} due"
    due = f"{count(look.due, 'mark')} {is_due}" if look.due else "nothing else was due" if was_swept else "nothing was due"
    judged = f", the last one as of {minute_in_utc(look.judged_at)}" if look.judged_at else ""
    return f"Looked as of {minute_in_utc(look.as_of)}{late}: {due}. {count(look.datasets, 'dataset')} had been judged{judged}."


def money_rows(money: ReportMoney | None) -> Iterator[tuple[str, str]]:
    """Savings and costs of deleting, with their labels; empty where nothing has a price."""
    if money is None:
        return
    yield "saved", f"{money_of(money.saved, money.currency)} a month"
    for words, amount in (("requests", money.requests), ("billed although deleted early", money.early)):
        if amount:
            yield words, money_of(amount, money.currency)


def looks_words(report: DayReport) -> list[str]:
    """Name who started the sweeps, and when somebody looked; for several days, on how many."""
    by = [f"Deletions were ordered by {report.total.orderers}."] if report.total.ordered_by else []
    if report.lines and not report.looks:
        # The day is not over.
        return by
    if report.last is None:
        return [*by, look_words(report.looks.get(report.execution_date), bool(report.lines))]
    quiet = sum(not look.due for look in report.looks.values())
    return [*by, f"Somebody looked on {count(len(report.looks), 'day')} of them; on {quiet:,} nothing was due."]


# rows of a Markdown table; the table after it has more
_MOST_ROWS = 20
# in the order of the answer
_STATE_WORDS = {
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
_KEEP = "To keep something of it for good, launch `act_keep` with its dataset and, if not all of it is meant, its transactions."


# --- what goes next ---------------------------------------------------------------------------------------------------


def upcoming_answer(upcoming: Upcoming) -> Answer:
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
    days = ((_day(day, upcoming.as_of), f"{amount:,}", cell_size(total)) for day, amount, total in upcoming.days[:_MOST_ROWS])
    rows = [
        (
            code(each.dataset), f"{each.transactions:,}", cell_size(each.bytes), minute_in_utc(each.first_due),
            ", ".join(map(code, sorted(each.policies))),
        )
        for each in upcoming.datasets[:_MOST_ROWS]
    ]  # fmt: skip
    return Answer(
        f"{many}{size} of {datasets} {goes} {when}.",
        (
            markdown_table(("dataset", "transactions", "size", "first due", "policies"), rows),
            _more(len(upcoming.datasets) - _MOST_ROWS, "dataset"),
            markdown_table(("due", "transactions", "size"), days),
            bullets(held),
            "That is what is marked now; what is marked from now on waits out a grace of its own. Each is looked at once more"
            f" before it is deleted, and spared if it is needed again by then. {_KEEP}",
        ),
    )


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
    closed = f"closed {explanation.closed_at}" if explanation.closed_at else "not closed"
    by = f" by policy {code(explanation.policy)}" if explanation.policy else ""
    judged = f"Judged at {explanation.as_of}: **{explanation.verdict}**{by}. "
    if life.said is not None:
        yield judged + plain(explanation.summary)
    else:
        yield judged + (plain(explanation.summary) if life.marks else "")
    yield bullets(plain(each["text"]) for each in explanation.reasons if each["text"])
    yield f"{explanation.type}, {explanation.status}, {closed}, {size_of(explanation.bytes)}."
    branches = [f"Branch {code(each.branch)}: {plain(each.words)}." for each in explanation.branches[:_MOST_ROWS]]
    yield bullets([*branches, *(f"Pinned by the tag {code(tag)}." for tag in explanation.tags)])
    yield bullets(
        f"Policy {code(each.policy)} {'selects it' if each.selects else 'does not select it'}: {plain(each.sentence)}"
        for each in explanation.policies[:_MOST_ROWS]
    )


def dataset_answer(summary: DatasetSummary) -> Answer:
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
            bullets(f"**{_STATE_WORDS[name]}**: {words}." for name, words in _MEANINGS.items() if name in summary.states),
            *next_due,
            *_titled("The newest", summary.newest),
            *_titled("The oldest that are there", summary.oldest),
            bullets(f"Policy {code(name)}: {plain(words)}" for name, words in summary.policies[:_MOST_ROWS])
            or "No policy is about this dataset: nothing of it is marked.",
            bullets(f"Held by {code(name)}." for name in summary.holds[:_MOST_ROWS]),
            "For the complete answer about one transaction, launch this job again with its id.",
        ),
    )


def _states(states: Counts) -> str:
    parts = (
        f"{states[name][0]:,} {words} ({size_of(states[name][1])})" for name, words in _STATE_WORDS.items() if name in states
    )
    return ", ".join(parts) or "nothing is known of it"


def _titled(title: str, rows: Sequence[SummaryRow]) -> Iterable[str]:
    cells = (
        (
            code(row.transaction), row.type, minute_in_utc(row.closed_at), cell_size(row.bytes), _STATE_WORDS[row.state],
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
    counted = [f"{counts[status]:,} {words}" for status, words in _STATE_WORDS.items() if counts.get(status)]
    headline = f"{dataset}: {', '.join(counted)}." if total else f"{dataset}: nothing is known of it."
    rows = ((code(each.transaction), cell_size(each.bytes), _life(each)) for each in lives[:_MOST_ROWS])
    messages = {each.said.message for each in lives[:_MOST_ROWS] if each.said}
    return Answer(
        headline,
        (
            "What changed last stands first." if total > 1 else "",
            markdown_table(("transaction", "size", "what happened"), rows),
            _more(total - _MOST_ROWS, "transaction"),
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

"""Sentences about how things stand, in Markdown or plain: what a person reads before any number.

Belongs here: from values of the ledger and of a run to one or two sentences. Names of others are written so that Markdown shows
them as they are. No import of Dagster: the command line says some of it as well.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from retention_assets.ledger.marks.states import LastSweep, Waiting
from retention_assets.ledger.reports import DayLook
from retention_assets.render.text import size_of, visible_line
from retention_assets.report import DayReport

# So many names stand in a sentence.
_NAMED = 3
# What is noted later than this after the moment that it is about was not seen at that moment.
_LATE = timedelta(hours=1)


def count(number: int, noun: str) -> str:
    """An amount with its noun: `1 mark`, `2,000 marks`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def code(text: str) -> str:
    """A name of somebody else's, as Markdown shows it unchanged."""
    name = visible_line(text)
    # More ticks than there are in the name: no run of its own ends it.
    fence, pad = "`" * (name.count("`") + 1), " " if "`" in name else ""
    return f"{fence}{pad}{name}{pad}{fence}"


def plain(text: str) -> str:
    """A sentence with words of others in it, none of which Markdown takes for an order."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>#|!~&$" else letter for letter in visible_line(text))


def named(names: Sequence[str]) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(map(code, names[:_NAMED])) + more


def day_of(at: datetime, as_of: datetime) -> str:
    """A day as people say it: today, tomorrow, on Sunday, on 3 July."""
    day, today = at.astimezone(UTC).date(), as_of.astimezone(UTC).date()
    if (near := {-1: "yesterday", 0: "today", 1: "tomorrow"}.get((day - today).days)) is not None:
        return near
    if 1 < (day - today).days < 7:
        return f"on {day:%A}"
    return f"on {day.day} {day:%B}" if day.year == today.year else f"on {day.day} {day:%B} {day.year}"


def waiting_words(waiting: Waiting, as_of: datetime) -> str:
    """What is marked, what of it is due, and when the next falls due."""
    if not waiting.marks:
        return "nothing is marked"
    words = [f"**{waiting.marks:,} marked** ({size_of(waiting.bytes)})"]
    if waiting.due:
        words.append(f"**{waiting.due:,} due now** ({size_of(waiting.due_bytes)})")
    if waiting.next_due:
        words.append(f"{'the next' if waiting.due else 'the first'} due {day_of(waiting.next_due, as_of)}")
    return ", ".join(words)


def sweep_words(last: LastSweep | None, as_of: datetime) -> str:
    """What the last sweep did, that had something to do."""
    if last is None:
        return "nothing was swept yet"
    done = last.counters
    at = datetime(last.day.year, last.day.month, last.day.day, tzinfo=UTC)
    words = [f"{done['deleted']:,} deleted"]
    words += [
        f"{done[name]:,} {name.replace('_', ' ')}" for name in ("already_gone", "hidden", "spared", "failed") if done.get(name)
    ]
    freed = f", {size_of(done['bytes_freed'])} freed" if done["bytes_freed"] else ""
    return f"last sweep {day_of(at, as_of)}: {', '.join(words)}{freed}"


def refused_words(refused: Mapping[str, str]) -> str:
    """Which datasets are refused, and why the first of them is."""
    if not refused:
        return "no dataset is refused"
    names = sorted(refused)
    words = f"**{count(len(names), 'dataset')} refused**: {named(names)}"
    return f"{words} ({plain(refused[names[0]])})" if len(names) == 1 else words


def paragraph(parts: Iterable[str]) -> str:
    """Parts of a sentence as one line each: the page shows a list."""
    return "\n".join(f"- {part[:1].upper()}{part[1:]}" for part in parts if part)


def look_words(look: DayLook | None) -> str:
    """That somebody looked on a day, and what there was to do; or that nobody did."""
    if look is None:
        return "Nobody looked on this day: no run came to its report."
    late = f", noted {_minute(look.looked_at)}" if look.looked_at - look.as_of > _LATE else ""
    due = f"{count(look.due, 'mark')} {'was' if look.due == 1 else 'were'} due" if look.due else "nothing was due"
    judged = f", the last one as of {_minute(look.judged_at)}" if look.judged_at else ""
    return f"Looked as of {_minute(look.as_of)}{late}: {due}. {count(look.datasets, 'dataset')} had been judged{judged}."


def looks_words(report: DayReport) -> list[str]:
    """The same of a report: of one day its look, of several how many were looked at."""
    if report.lines and not report.looks:
        # It is of a release that did not note looks, or the day goes on.
        return []
    if report.last is None:
        return [look_words(report.looks.get(report.execution_date))]
    quiet = sum(not look.due for look in report.looks.values())
    return [f"Somebody looked on {count(len(report.looks), 'day')} of them; on {quiet:,} nothing was due."]


def _minute(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"

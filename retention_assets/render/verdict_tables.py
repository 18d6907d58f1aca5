"""Tables of what policies decide: a preview, a comparison, and one transaction explained.

Belongs here: which columns there are, and the words for values; rows come with the names that they have in JSON. Each function
imports what only it needs, so that no command loads what another one prints.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from retention_assets.policy.durations import parse_instant
from retention_assets.render.terminal import Indented, table
from retention_assets.render.text import minute_of, size_of, visible_line

if TYPE_CHECKING:
    from retention_assets.evaluation.explain import Explanation, PolicyAnswer
    from retention_assets.evaluation.preview import Change, Preview

_COLOURS = {"mark": "red", "spare": "yellow", "keep": "green", "open": "cyan"}


def preview_tables(result: "Preview", most: int) -> list[Table]:
    """What a preview found: refused datasets, verdicts, policies, reasons, and the first marks."""
    tables = [_refused_table(result)] if result.refused else []
    tables += [_verdict_table(result), _policy_table(result), _reason_table(result, 10)]
    marked = result.marked
    first = marked.slice(0, most).to_pylist()
    if first:
        rows = [(row["dataset"], row["transaction"], row["policy"], ", ".join(row["also"])) for row in first]
        title = f"To be marked: {len(first):,} of {len(marked):,}"
        tables.append(table(title, ("dataset", "transaction", "policy", "also selected by"), rows, grouped=True))
    return tables


def _refused_table(result: "Preview") -> Table:
    rows = [(name, said["fault"], said["transaction"] or "") for name, said in result.refused.items()]
    title = f"Refused, because the log is not sound: {len(rows):,}. Nothing of these datasets is marked."
    return table(title, ("dataset", "fault", "transaction"), rows[:100], grouped=True)


def _verdict_table(result: "Preview") -> Table:
    from retention_assets.frames.verdicts.decisions import VERDICTS

    sums = {row["verdict"]: row for row in result.sums_by("verdict")}
    found = [(verdict, sums.get(verdict, {"transactions": 0, "bytes": 0})) for verdict in VERDICTS]
    rows = [(Text(verdict, _COLOURS[verdict]), f"{row['transactions']:,}", size_of(row["bytes"])) for verdict, row in found]
    columns = ("verdict", "transactions", "bytes")
    return table(f"Verdicts at {minute_of(result.as_of)} UTC", columns, rows, columns[1:])


def _policy_table(result: "Preview") -> Table:
    marks = [row for row in result.sums_by("verdict", "policy") if row["verdict"] == "mark"]
    marks.sort(key=lambda row: -row["bytes"])
    rows = [(row["policy"], f"{row['transactions']:,}", size_of(row["bytes"])) for row in marks]
    title = "Marks by policy" if rows else "No policy marks anything"
    return table(title, ("policy", "transactions", "bytes"), rows, ("transactions", "bytes"))


def _reason_table(result: "Preview", most: int) -> Table:
    from retention_assets.frames.verdicts.reasons import Reason

    counts = list(result.count_reasons().items())[:most]
    rows = [(code, f"{count:,}", Reason[code].text("…")) for code, count in counts]
    return table("Reasons", ("code", "transactions", "meaning"), rows, ("transactions",), prose=True)


def compare_tables(changes: "Sequence[Change]") -> list[Table]:
    """What another set of policies would change."""
    rows = [(one.dataset, one.policy, one.change, f"{one.transactions:,}", size_of(one.bytes)) for one in changes]
    title = "What would change" if rows else "Nothing would change."
    columns = ("dataset", "policy", "change", "transactions", "bytes")
    return [table(title, columns, rows, columns[3:], grouped=True)]


def explanation(found: "Explanation") -> RenderableType:
    """One transaction explained. A line that is folded goes on where it began."""
    return Indented(_lines(found))


def _lines(found: "Explanation") -> list[Text]:
    closed = f"closed {_minute(found.closed_at)}" if found.closed_at else "not closed"
    by_policy = f", by policy {found.policy}" if found.policy else ""
    lines = [
        _line((found.transaction, "bold"), " of ", (found.dataset, "bold"), f" at {_minute(found.as_of)}"),
        _line(f"{found.type}, {found.status}, {closed}, {size_of(found.bytes)}"),
        _line(),
        _line("Verdict: ", (found.verdict, f"bold {_COLOURS[found.verdict]}"), by_policy),
        _line(f"  {found.summary}"),
        _line(),
        _line("Reasons"),
    ]
    lines += [_line(f"  {reason['code']}: {reason['text'] or ''}") for reason in found.reasons]
    lines += [_line(f"  Selected as well by: {', '.join(found.also)}")] if found.also else []
    lines += [_line(), _line("Branches")]
    lines += [_line(f"  {branch.branch}: {branch.words}") for branch in found.branches] or [_line("  It is on no live branch.")]
    lines += [_line(f"  … and {found.more_branches:,} more")] if found.more_branches else []
    lines += [_line(f"  Pinned by tag {tag}") for tag in found.tags]
    lines += [_line(), _line("Policies")]
    for answer in found.policies:
        lines += _answer_lines(answer)
    lines += [_line("  No policy is about this dataset.")] if not found.policies else []
    return lines


def _minute(instant: str) -> str:
    return f"{minute_of(parse_instant(instant))} UTC"


def _line(*parts: str | tuple[str, str]) -> Text:
    """A line of texts, each with its style if it has one."""
    found = Text()
    for part in parts:
        words, style = part if isinstance(part, tuple) else (part, "")
        found.append(visible_line(words), style or None)
    return found


def _answer_lines(answer: "PolicyAnswer") -> Iterable[Text]:
    yield _line(f"  {answer.policy}: ", ("selects it", "bold") if answer.selects else "does not select it")
    yield _line(f"    {answer.sentence}")
    for line in answer.lines:
        where = f" on branches {line.branches}" if line.branches else ""
        value = f": {line.value}" if line.value else ""
        why = f". {line.words}" if line.words else ""
        holds = ("holds        ", "green") if line.holds else ("does not hold", "red")
        yield _line("    ", holds, f"  {line.key}{where}{value}{why}")

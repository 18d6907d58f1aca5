"""Tables of a preview and of a comparison of policies, and the explanation of one transaction, for terminals.

Each function imports what only it needs, so that no command loads what another one prints.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from retention_assets.policy.durations import parse_instant
from retention_assets.render.terminal import Count, Indented, Size, table
from retention_assets.render.text import minute_in_utc, size_of, visible_line

if TYPE_CHECKING:
    from retention_assets.evaluation.explain import ExplainedTransaction, Explanation, PolicyAnswer
    from retention_assets.evaluation.preview import Change, Preview

VERDICT_COLOURS = {"mark": "red", "spare": "yellow", "keep": "green", "open": "cyan"}
_MOST_REASONS = 10


def preview_tables(result: "Preview", most: int) -> list[Table]:
    """Result of a preview: refused datasets, verdicts, policies, reasons, and the first marks."""
    from retention_assets.frames.verdicts.decisions import VERDICTS
    from retention_assets.frames.verdicts.reasons import Reason

    tables, amounts = list[Table](), (Count("transactions"), Size("bytes"))
    if refused := [(name, fault["fault"], fault["transaction"]) for name, fault in result.refused.items()]:
        title = f"Refused, because the log is not sound: {len(refused):,}. Nothing of these datasets is marked."
        tables.append(table(title, ("dataset", "fault", "transaction"), refused[:100], grouped=True))
    sums = {row["verdict"]: (row["transactions"], row["bytes"]) for row in result.sums_by("verdict")}
    verdicts = [(Text(verdict, VERDICT_COLOURS[verdict]), *sums.get(verdict, (0, 0))) for verdict in VERDICTS]
    tables.append(table(f"Verdicts at {minute_in_utc(result.as_of)}", ("verdict", *amounts), verdicts))
    sums_by_policy = sorted(result.sums_by("verdict", "policy"), key=lambda row: -row["bytes"])
    policies = [(row["policy"], row["transactions"], row["bytes"]) for row in sums_by_policy if row["verdict"] == "mark"]
    tables.append(table("Marks by policy" if policies else "No policy marks anything", ("policy", *amounts), policies))
    reasons = [(code, count, Reason[code].text("…")) for code, count in [*result.count_reasons().items()][:_MOST_REASONS]]
    tables.append(table("Reasons", ("code", Count("transactions"), "meaning"), reasons, prose=True))
    marked = result.marked
    if first := marked.slice(0, most).to_pylist():
        rows = [(row["dataset"], row["transaction"], row["policy"], ", ".join(row["also"])) for row in first]
        title = f"To be marked: {len(first):,} of {len(marked):,}"
        tables.append(table(title, ("dataset", "transaction", "policy", "also selected by"), rows, grouped=True))
    return tables


def compare_tables(changes: "Sequence[Change]") -> list[Table]:
    """Effects of another set of policies."""
    rows = [(each.dataset, each.policy, each.change, each.transactions, each.bytes) for each in changes]
    columns = ("dataset", "policy", "change", Count("transactions"), Size("bytes"))
    return [table("What would change" if rows else "Nothing would change.", columns, rows, grouped=True)]


# --- one transaction --------------------------------------------------------------------------------------------------


def explained_transaction(explained: "ExplainedTransaction") -> Indented:
    """Explanation with what the ledger knows of the transaction."""
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
    """Explanation, with the lines about the ledger before the verdict."""
    return Indented(list(_lines(explained, ledger)))


def _lines(explained: "Explanation", ledger: Sequence[Text]) -> Iterator[Text]:
    verdict, as_of = explained.verdict, minute_in_utc(parse_instant(explained.as_of))
    closed = f"closed {minute_in_utc(parse_instant(explained.closed_at))}" if explained.closed_at else "not closed"
    yield _line((explained.transaction, "bold"), " of ", (explained.dataset, "bold"), f" at {as_of}")
    yield _line(f"{explained.type}, {explained.status}, {closed}, {size_of(explained.bytes)}")
    yield from (_line(), *ledger)
    by_policy = f", by policy {explained.policy}" if explained.policy else ""
    yield _line("Verdict: ", (verdict, f"bold {VERDICT_COLOURS[verdict]}"), by_policy)
    yield _line(f"  {explained.summary}")
    reasons = [f"{reason['code']}: {reason['text'] or ''}" for reason in explained.reasons]
    yield from _section(
        "Reasons", [*reasons, *([f"Selected as well by: {', '.join(explained.also)}"] if explained.also else [])]
    )
    if explained.witnesses:
        yield from _section("Referenced by", explained.witnesses)
    more = [f"… and {explained.more_branches:,} more"] if explained.more_branches else []
    branches = [f"{branch.branch}: {branch.words}" for branch in explained.branches] or ["It is on no live branch."]
    yield from _section("Branches", [*branches, *more, *(f"Pinned by tag {tag}" for tag in explained.tags)])
    yield from _section("Policies", [] if explained.policies else ["No policy is about this dataset."])
    for answer in explained.policies:
        yield from _answer(answer)


def _section(title: str, lines: Sequence[str]) -> Iterator[Text]:
    yield from (_line(), _line(title), *(_line(f"  {line}") for line in lines))


def _answer(answer: "PolicyAnswer") -> Iterator[Text]:
    yield _line(f"  {answer.policy}: ", ("selects it", "bold") if answer.selects else "does not select it")
    yield _line(f"    {answer.sentence}")
    for line in answer.lines:
        where = f" on branches {line.branches}" if line.branches else ""
        value = f": {line.value}" if line.value else ""
        why = f". {line.words}" if line.words else ""
        holds = ("holds        ", "green") if line.holds else ("does not hold", "red")
        yield _line("    ", holds, f"  {line.key}{where}{value}{why}")


def _line(*parts: str | tuple[str, str]) -> Text:
    return Text.assemble(
        *((visible_line(part), "") if isinstance(part, str) else (visible_line(part[0]), part[1]) for part in parts)
    )

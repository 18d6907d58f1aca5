"""Terminal page that explains one transaction."""

from collections.abc import Iterable, Sequence

from rich.console import RenderableType
from rich.text import Text

from retention_assets.evaluation.explain import ExplainedTransaction, Explanation, PolicyAnswer
from retention_assets.policy.durations import parse_instant
from retention_assets.render.terminal import Indented
from retention_assets.render.text import minute_in_utc, size_of, visible_line
from retention_assets.render.verdict_tables import VERDICT_COLOURS


def explained_transaction(found: ExplainedTransaction) -> RenderableType:
    life, known = found.life, list[Text]()
    if life.said is not None:
        known += [_line((life.said.message, "bold")), _line(f"  {life.said.details}"), _line()]
    if life.marks:
        known += [_line("In the ledger"), _line(f"  {life.words}"), _line()]
    if found.explanation is not None:
        return explanation(found.explanation, known)
    where = f" of {found.dataset} is in no log any more"
    return Indented([_line((life.transaction, "bold"), where), _line(), *known[:-1]])


def explanation(found: Explanation, known: Sequence[Text] = ()) -> RenderableType:
    """`known` are lines from the ledger. A folded line continues at its own indentation."""
    return Indented(_lines(found, known))


def _lines(found: Explanation, known: Sequence[Text]) -> list[Text]:
    closed = f"closed {minute_in_utc(parse_instant(found.closed_at))}" if found.closed_at else "not closed"
    by_policy = f", by policy {found.policy}" if found.policy else ""
    lines = [
        _line((found.transaction, "bold"), " of ", (found.dataset, "bold"), f" at {minute_in_utc(parse_instant(found.as_of))}"),
        _line(f"{found.type}, {found.status}, {closed}, {size_of(found.bytes)}"),
        _line(),
        *known,
        _line("Verdict: ", (found.verdict, f"bold {VERDICT_COLOURS[found.verdict]}"), by_policy),
        _line(f"  {found.summary}"),
        _line(),
        _line("Reasons"),
    ]
    lines += [_line(f"  {reason['code']}: {reason['text'] or ''}") for reason in found.reasons]
    lines += [_line(f"  Selected as well by: {', '.join(found.also)}")] if found.also else []
    lines += [_line(), _line("Referenced by"), *(_line(f"  {one}") for one in found.witnesses)] if found.witnesses else []
    lines += [_line(), _line("Branches")]
    lines += [_line(f"  {branch.branch}: {branch.words}") for branch in found.branches] or [_line("  It is on no live branch.")]
    lines += [_line(f"  … and {found.more_branches:,} more")] if found.more_branches else []
    lines += [_line(f"  Pinned by tag {tag}") for tag in found.tags]
    lines += [_line(), _line("Policies")]
    for answer in found.policies:
        lines += _answer_lines(answer)
    lines += [_line("  No policy is about this dataset.")] if not found.policies else []
    return lines


def _line(*parts: str | tuple[str, str]) -> Text:
    found = Text()
    for part in parts:
        words, style = part if isinstance(part, tuple) else (part, "")
        found.append(visible_line(words), style or None)
    return found


def _answer_lines(answer: PolicyAnswer) -> Iterable[Text]:
    yield _line(f"  {answer.policy}: ", ("selects it", "bold") if answer.selects else "does not select it")
    yield _line(f"    {answer.sentence}")
    for line in answer.lines:
        where = f" on branches {line.branches}" if line.branches else ""
        value = f": {line.value}" if line.value else ""
        why = f". {line.words}" if line.words else ""
        holds = ("holds        ", "green") if line.holds else ("does not hold", "red")
        yield _line("    ", holds, f"  {line.key}{where}{value}{why}")

"""Results as a person reads them on a terminal.

Belongs here: layout. What is shown was decided elsewhere; JSON for programs does not pass through here.
"""

from collections.abc import Iterable, Sequence
from typing import TextIO

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from retention_assets.evaluation.explain import Explanation
from retention_assets.evaluation.preview import Change, Preview
from retention_assets.frames.arrays import join_chunks
from retention_assets.frames.log import SUMMED
from retention_assets.frames.verdicts.decisions import VERDICTS
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.policy.durations import text_of

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_COLOURS = {"mark": "red", "spare": "yellow", "keep": "green", "open": "cyan"}


def console(stream: TextIO | None = None) -> Console:
    """A console for results; without a terminal, lines are not cut."""
    found = Console(file=stream, highlight=False, soft_wrap=False)
    return found if found.is_terminal else Console(file=stream, highlight=False, width=200)


def size_of(count: int | None) -> str:
    """Bytes for people."""
    if count is None:
        return "?"
    value = float(count)
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("a size always ends in some unit")


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()) -> Table:
    """A plain table; columns in `right` are numbers."""
    made = Table(title=escape(title), title_justify="left", title_style="bold")
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*(escape(cell) if isinstance(cell, str) else str(cell) for cell in row))
    return made


def preview_tables(result: Preview, most: int) -> list[Table]:
    """What a preview found: refused datasets, verdicts, policies, reasons, and the first marks."""
    tables = [_refused(result)] if result.refused else []
    tables += [_verdicts(result), _policies(result), _top_reasons(result)]
    marked = result.marks.filter(pc.equal(_plain(result.marks["verdict"]), "mark"))
    if len(marked) and most:
        shown = min(most, len(marked))
        first = marked.slice(0, shown).to_pylist()
        rows = [(row["dataset"], row["transaction"], row["policy"], ", ".join(row["also"])) for row in first]
        tables.append(table(f"To be marked: {shown:,} of {len(marked):,}", ("dataset", "transaction", "policy", "also"), rows))
    return tables


def _plain(column: pa.ChunkedArray) -> pa.Array:
    return join_chunks(column).cast(pa.string())


def _refused(result: Preview) -> Table:
    rows = [(name, said["fault"], said["transaction"] or "") for name, said in result.refused.items()]
    title = f"Refused, because the log is not sound: {len(rows):,}. Nothing of these datasets is marked."
    return table(title, ("dataset", "fault", "transaction"), rows[:100])


def _sums(result: Preview, key: str) -> dict[str | None, tuple[int, int]]:
    rows = pa.table(
        {
            "key": _plain(result.marks[key]),
            "verdict": _plain(result.marks["verdict"]),
            "bytes": result.log.transactions["bytes"].cast(SUMMED),
        }
    )
    rows = rows if key == "verdict" else rows.filter(pc.equal(rows["verdict"], "mark"))
    grouped = rows.group_by("key").aggregate([([], "count_all"), ("bytes", "sum")])
    return {row["key"]: (row["count_all"], int(row["bytes_sum"] or 0)) for row in grouped.to_pylist()}


def _verdicts(result: Preview) -> Table:
    found = _sums(result, "verdict")
    made = table(f"Verdicts at {text_of(result.as_of)}", ("verdict", "transactions", "bytes"), (), ("transactions", "bytes"))
    for verdict in VERDICTS:
        count, size = found.get(verdict, (0, 0))
        made.add_row(f"[{_COLOURS[verdict]}]{verdict}[/]", f"{count:,}", size_of(size))
    return made


def _policies(result: Preview) -> Table:
    found = sorted(_sums(result, "policy").items(), key=lambda item: -item[1][0])
    rows = [(name or "", f"{count:,}", size_of(size)) for name, (count, size) in found]
    title = "Marks by policy" if rows else "No policy marks anything"
    return table(title, ("policy", "transactions", "bytes"), rows, ("transactions", "bytes"))


def _top_reasons(result: Preview, most: int = 10) -> Table:
    entries = join_chunks(join_chunks(result.marks["reasons"]).flatten())
    counted = pc.value_counts(entries.field("code").cast(pa.string())).to_pylist() if len(entries) else []
    counted.sort(key=lambda item: -item["counts"])
    rows = [(item["values"], f"{item['counts']:,}", Reason[item["values"]].text("…")) for item in counted[:most]]
    return table("Reasons", ("code", "transactions", "meaning"), rows, ("transactions",))


def compare_tables(changes: Sequence[Change]) -> list[Table]:
    """What another set of policies would change."""
    if not changes:
        return [table("Nothing would change.", ("dataset", "policy", "change", "transactions", "bytes"), ())]
    rows = [(c.dataset, c.policy, c.change, f"{c.transactions:,}", size_of(c.bytes)) for c in changes]
    return [
        table("What would change", ("dataset", "policy", "change", "transactions", "bytes"), rows, ("transactions", "bytes"))
    ]


def explanation(told: Explanation) -> str:
    """One transaction explained, as text with markup."""
    out = [
        f"[bold]{escape(told.transaction)}[/] of [bold]{escape(told.dataset)}[/] at {told.as_of}",
        f"{told.type}, {told.status}, {'closed ' + told.closed_at if told.closed_at else 'not closed'}, {size_of(told.bytes)}",
        "",
        f"Verdict: [bold {_COLOURS[told.verdict]}]{told.verdict}[/]"
        + (f", by policy {escape(told.policy)}" if told.policy else ""),
    ]
    out += [f"  {escape(told.summary)}", "", "Reasons"]
    out += [f"  {reason['code']}: {escape(reason['text'] or '')}" for reason in told.reasons]
    out += [f"  Selected as well by: {escape(', '.join(told.also))}"] if told.also else []
    out += ["", "Branches"]
    out += [f"  {escape(branch.branch)}: {escape(branch.words)}" for branch in told.branches] or ["  It is on no live branch."]
    out += [f"  … and {told.more_branches:,} more"] if told.more_branches else []
    out += [f"  Pinned by tag {escape(tag)}" for tag in told.tags]
    out += ["", "Policies"]
    for answer in told.policies:
        out.append(f"  {escape(answer.policy)}: {'[bold]selects it[/]' if answer.selects else 'does not select it'}")
        out.append(f"    {escape(answer.sentence)}")
        for line in answer.lines:
            where = f" on branches {line.branches}" if line.branches else ""
            value = f": {line.value}" if line.value else ""
            answer_to = "[green]holds[/]        " if line.holds else "[red]does not hold[/]"
            out.append(
                f"    {answer_to}  {escape(line.key + where + value)}" + (f". {escape(line.words)}" if line.words else "")
            )
    out += ["  No policy is about this dataset."] if not told.policies else []
    return "\n".join(out)

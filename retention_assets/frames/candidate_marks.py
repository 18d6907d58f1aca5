"""Verdicts: for every transaction mark, spare, keep or open, with the policy that has the credit and every reason.

Belongs here: how selections, protection, holds and limits join into a verdict (design section 5). Datasets that the same
policies are about are judged together. Few combinations of facts occur, however many rows there are: rows are numbered by
their combination, each combination is decided once, in plain Python that reads like the rules, and the decision is spread.
"""

import math
from collections.abc import Sequence
from datetime import datetime
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from retention_assets.frames.arrays import Bools, Counts, Ints, Small, integers
from retention_assets.frames.decisions import VERDICTS, Decision, Facts, decide
from retention_assets.frames.grouping import back_in_order, bounds_of, chosen_by, in_one_piece, slices
from retention_assets.frames.history import OPEN, History
from retention_assets.frames.log import LOG, NAME
from retention_assets.frames.protection import protection
from retention_assets.frames.reasons import Reason
from retention_assets.frames.rules import unmet
from retention_assets.frames.scope import FAR, Scopes
from retention_assets.policy.globs import matching
from retention_assets.policy.instants import micros
from retention_assets.policy.model import Hold, Policy
from retention_assets.policy.where import columns_of

CANDIDATE_MARKS = pa.schema(
    [
        pa.field("dataset", NAME),
        pa.field("transaction", pa.string()),
        pa.field("ordinal", pa.int32()),
        pa.field("verdict", NAME),
        pa.field("policy", NAME),
        pa.field("also", pa.list_(NAME)),
        pa.field("reasons", pa.list_(pa.struct([pa.field("code", NAME), pa.field("witness", NAME)]))),
    ]
)

# Combinations are told apart by a table with a place for each that could occur; beyond this it is cut down to those that do.
_MOST_KEYS = 1 << 20
_ALWAYS = (
    "dataset",
    "transaction",
    "ordinal",
    "parent_ordinal",
    "type",
    "status",
    "closed_at",
    "heads",
    "tags",
    "tag_expiries",
)


def columns_for(policies: Sequence[Policy]) -> list[str]:
    """The columns of a log that the verdicts of some policies depend on: no others need to be read."""
    wanted = set(_ALWAYS)
    for policy in policies:
        select = policy.select
        lines = [select.older_than, *(window.older_than for window in policy.branches.windows)]
        for line in lines:
            if line is not None:
                wanted |= {"opened": {"opened_at"}, "closed_or_opened": {"opened_at"}, "archived": {"archived_at"}}.get(
                    line.of, set()
                )
        wanted |= {"opened_at"} if select.terminal_only is False else set()
        wanted |= {"file_names"} if select.superseded else set()
        wanted |= {"archived_at", "attributes"} if select.archived_before_purge else set()
        wanted |= {"attributes"} if select.unreferenced else set()
        wanted |= {"bytes"} if policy.limits and policy.limits.bytes else set()
        if select.where:
            wanted |= columns_of(select.where)
    return [name for name in LOG.names if name in wanted]


def candidate_marks(
    log: pa.Table, datasets: pa.Table, policies: Sequence[Policy], holds: Sequence[Hold], as_of: datetime
) -> pa.Table:
    """The verdict of every transaction of a sound log, in the order of the log."""
    if not len(log):
        return CANDIDATE_MARKS.empty_table()
    log = in_one_piece(log)
    bounds = bounds_of(log)
    chosen = chosen_by(log, bounds, datasets, [policy.datasets for policy in policies])
    groups, member = np.unique(chosen, axis=0, return_inverse=True)
    live = [hold for hold in holds if hold.until is None or as_of < hold.until]
    held = chosen_by(log, bounds, datasets, [hold.datasets for hold in live])
    parts: list[pa.Table] = []
    for number, group in enumerate(groups):
        mine = np.flatnonzero(member.reshape(-1) == number)
        part = log if len(groups) == 1 else slices(log, bounds, mine)
        about = [policy for policy, is_about in zip(policies, group, strict=True) if is_about]
        parts.append(_judged(part, about, live, held[mine], as_of))
    if len(parts) == 1:
        return parts[0]
    together = pa.concat_tables(parts).unify_dictionaries().combine_chunks()
    return together.take(pa.array(back_in_order(bounds, member.reshape(-1))))


def _judged(log: pa.Table, policies: Sequence[Policy], holds: Sequence[Hold], held: Bools, as_of: datetime) -> pa.Table:
    """Verdicts of datasets that the same policies are about."""
    history = History(log, micros(as_of))
    scopes = Scopes(history)
    lines = [unmet(policy, scopes, as_of) for policy in policies]
    found = protection(scopes)
    latest, pinned = found.branch, found.tag
    hold = _held(history, holds, held)
    free = (pinned == FAR) & (hold < 0)
    over = np.zeros((len(history.starts), len(policies)), dtype=bool)
    for number, (policy, line) in enumerate(zip(policies, lines, strict=True)):
        if policy.limits:
            may = (line == 0) & free if policy.latest_view else (line == 0) & free & (latest == FAR)
            over[:, number] = _over(policy, history, may)
    facts_of_rows = (latest < FAR, pinned < FAR, hold >= 0, (history.status == OPEN) & ~history.independent)
    flags = np.zeros(len(history), dtype=np.int8)
    for bit, fact in enumerate(facts_of_rows):
        flags |= fact.view(np.int8) << np.int8(bit)
    facts, combination = _combinations(history, lines, over, flags)
    decisions = [decide(fact, policies) for fact in facts]
    witnesses = (latest, pinned, hold)
    return _spread(history, policies, holds, decisions, combination, witnesses)


def _over(policy: Policy, history: History, may: Bools) -> Bools:
    """Datasets in which a policy would take more than its limits, counted over what it alone could mark."""
    limits = policy.limits
    over = np.zeros(len(history.starts), dtype=bool)
    if limits is None:
        return over
    count = np.add.reduceat(may.astype(np.int64), history.starts)
    if limits.transactions is not None:
        over |= count > limits.transactions
    if limits.fraction is not None:
        # As it was written: 0.29 of 100 is 29, which no float product of the two is.
        share = Fraction(str(limits.fraction)).limit_denominator(10**9)
        over |= count * share.denominator > share.numerator * history.sizes
    if limits.bytes is not None:
        size = np.where(may, history.column(integers(history.log["bytes"], 0)), 0)
        # In two halves: a sum that wrapped around would pass for a small one.
        high, low = (np.add.reduceat(part, history.starts).astype(object) for part in (size >> 32, size & 0xFFFFFFFF))
        over |= (high * 2**32 + low > limits.bytes).astype(bool)
    return over


def _held(history: History, holds: Sequence[Hold], held: Bools) -> npt.NDArray[np.int32]:
    """For each row the first hold that keeps it, -1 if none."""
    first = np.full(len(history), -1, dtype=np.int32)
    for number, hold in enumerate(holds):
        rows = history.per_dataset(held[:, number]) & (first < 0)
        if hold.transactions is not None and rows.any():
            at = np.flatnonzero(rows)
            ids = history.log["transaction"].take(pa.array(at if history.order is None else history.order[at])).to_pylist()
            rows[at] = matching(ids, hold.transactions)
        first[rows] = number
    return first


def _combinations(history: History, lines: Sequence[Small], over: Bools, flags: Small) -> tuple[list[Facts], Counts]:
    """The combinations of facts that occur, and which of them each row has."""
    kinds_over, over_of = np.unique(over, axis=0, return_inverse=True)
    columns: list[npt.NDArray[np.integer]] = [flags, *lines]
    if len(kinds_over) > 1:
        columns.append(history.per_dataset(over_of.reshape(-1)))
    combination = np.zeros(len(history), dtype=np.int32)
    members: list[tuple[int, ...]] = [()]
    waiting: list[int] = []
    for column in columns:
        width = int(column.max(initial=0)) + 1
        if waiting and len(members) * math.prod(waiting) * width > _MOST_KEYS:
            members, combination = _renumbered(members, waiting, combination)
            waiting = []
        combination = combination * np.int32(width) + column
        waiting.append(width)
    members, combination = _renumbered(members, waiting, combination)
    facts = []
    for flag, *rest in members:
        unmet_lines = tuple(rest[: len(lines)])
        over_here = kinds_over[rest[len(lines)] if len(kinds_over) > 1 else 0]
        facts.append(
            Facts(
                unmet_lines, tuple(bool(value) for value in over_here),
                latest=bool(flag & 1), pinned=bool(flag & 2), held=bool(flag & 4), open=bool(flag & 8),
            )
        )  # fmt: skip
    return facts, combination


def _renumbered(members: list[tuple[int, ...]], widths: list[int], key: Counts) -> tuple[list[tuple[int, ...]], Counts]:
    """The combinations that occur, each with the values that its key stands for; and for each row the place of its own."""
    there = np.zeros(len(members) * math.prod(widths), dtype=bool)
    there[key] = True
    present = np.flatnonzero(there)
    place = np.zeros(len(there), dtype=np.int32)
    place[present] = np.arange(len(present), dtype=np.int32)
    found = []
    for at in present.tolist():
        values: list[int] = []
        for width in reversed(widths):
            at, value = divmod(at, width)
            values.append(value)
        found.append((*members[at], *reversed(values)))
    return found, place[key]


def _spread(
    history: History,
    policies: Sequence[Policy],
    holds: Sequence[Hold],
    decisions: Sequence[Decision],
    combination: Counts,
    witnesses: tuple[npt.NDArray[np.integer], ...],
) -> pa.Table:
    """The decisions as columns, in the order of the log."""
    names = [policy.name for policy in policies]
    combination = history.in_log_order(combination)
    verdict = np.array([VERDICTS.index(decision.verdict) for decision in decisions], dtype=np.int32)[combination]
    policy = np.array([decision.policy for decision in decisions], dtype=np.int32)[combination]
    return pa.table(
        {
            "dataset": history.log["dataset"],
            "transaction": history.log["transaction"],
            "ordinal": history.log["ordinal"],
            "verdict": _words(verdict, VERDICTS),
            "policy": _words(policy, names),
            "also": _also(decisions, combination, names),
            "reasons": _reasons(history, decisions, combination, names, [hold.name or "" for hold in holds], witnesses),
        },
        schema=CANDIDATE_MARKS,
    )


def _words(index: npt.NDArray[np.int32], words: Sequence[str]) -> pa.DictionaryArray:
    """A dictionary column; a negative index is null."""
    return pa.DictionaryArray.from_arrays(pa.array(index, mask=index < 0), pa.array(words, pa.string()))


def _flattened(per_decision: Sequence[Sequence[object]], combination: Counts) -> tuple[Counts, Counts]:
    """List offsets of the rows, and for each entry its place in the entries of all decisions, put one after the other."""
    lengths = np.array([len(entries) for entries in per_decision], dtype=np.int32)
    begins = np.cumsum(lengths, dtype=np.int32) - lengths
    offsets = np.zeros(len(combination) + 1, dtype=np.int32)
    if not lengths.any():
        return offsets, offsets[:0]
    mine = lengths[combination]
    if int(mine.sum(dtype=np.int64)) > np.iinfo(np.int32).max:
        raise OverflowError("More than 2^31 reasons in one part. Judge it with fewer policies at a time, or in smaller parts.")
    np.cumsum(mine, out=offsets[1:])
    entry = np.repeat(begins[combination] - offsets[:-1], mine)
    entry += np.arange(len(entry), dtype=np.int32)
    return offsets, entry


def _also(decisions: Sequence[Decision], combination: Counts, names: Sequence[str]) -> pa.Array:
    offsets, entry = _flattened([decision.also for decision in decisions], combination)
    number = np.array([number for decision in decisions for number in decision.also] or [0], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), _words(number[entry], names))


def _reasons(
    history: History,
    decisions: Sequence[Decision],
    combination: Counts,
    policies: Sequence[str],
    holds: Sequence[str],
    witnesses: tuple[npt.NDArray[np.integer], ...],
) -> pa.Array:
    """Reasons with their witnesses: a policy that the decision names, or the branch, tag or hold that the row names."""
    offsets, entry = _flattened([decision.reasons for decision in decisions], combination)
    flat = [reason for decision in decisions for reason in decision.reasons]
    code = np.array([reason.number - 1 for reason, _ in flat], dtype=np.int32)[entry]
    witness = np.array([number for _, number in flat], dtype=np.int32)[entry]
    words: list[str] = list(policies)
    row: Ints | None = None
    for reasons, names, which in (
        ((Reason.LATEST_VIEW, Reason.LATEST_VIEW_ALLOWED), history.branches.names, witnesses[0]),
        ((Reason.TAG,), history.tags.names, witnesses[1]),
        ((Reason.HOLD,), holds, witnesses[2]),
    ):
        kinds = np.array([reason in reasons for reason, _ in flat], dtype=bool)
        if kinds.any():
            if row is None:
                row = np.repeat(np.arange(len(combination)), np.diff(offsets))
            at = np.flatnonzero(kinds[entry])
            witness[at] = history.in_log_order(which)[row[at]] + len(words)
            words.extend(names)
    reasons_of = pa.StructArray.from_arrays(
        [_words(code, [reason.name for reason in Reason]), _words(witness, words)], names=["code", "witness"]
    )
    return pa.ListArray.from_arrays(pa.array(offsets), reasons_of)

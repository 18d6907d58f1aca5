"""Table of verdicts: the decision of each combination of facts, spread to the rows that have it.

Reasons are lists of a code and a witness; a witness is a policy, which the decision names, or the branch, tag or hold,
which differs from row to row.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from retention_assets.frames.arrays import Bools, Counts
from retention_assets.frames.log import NAME
from retention_assets.frames.verdicts.decisions import VERDICTS, Decision
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.frames.views.history import History
from retention_assets.policy.model import Hold, Policy

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

# reasons whose witness differs from row to row, in the order in which `rows` takes those witnesses
_BY_ROW = (
    (Reason.LATEST_VIEW, Reason.LATEST_VIEW_ALLOWED),
    (Reason.TAG,),
    (Reason.HOLD,),
    (Reason.EXPIRED_REF,),
    (Reason.GC_DISABLED,),
    (Reason.FORMAT_V3,),
    (Reason.REFERRED_TO,),
)
# witness of a dataset that lets nobody delete its files
_FORBIDS = "gc.enabled=false"
_FORMAT = "format-version=3"


class _Lists:
    """The entries of all decisions, one after the other, and how to give each row those of its decision."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = np.array(lengths, dtype=np.int32)
        self._begins = np.cumsum(self.lengths, dtype=np.int32) - self.lengths

    def of(self, combination: Counts) -> tuple[Counts, Counts]:
        """List offsets of some rows, and for each entry of theirs its place among all entries."""
        offsets = np.zeros(len(combination) + 1, dtype=np.int32)
        if not self.lengths.any():
            return offsets, offsets[:0]
        mine = self.lengths[combination]
        np.cumsum(mine, out=offsets[1:])
        entry = np.repeat(self._begins[combination] - offsets[:-1], mine)
        entry += np.arange(len(entry), dtype=np.int32)
        return offsets, entry


class VerdictTable:
    """The decisions of one batch, prepared once, for slices of its rows in the order of the log."""

    def __init__(
        self,
        decisions: Sequence[Decision],
        policies: Sequence[Policy],
        holds: Sequence[Hold],
        history: History,
        referrers: Sequence[str],
    ) -> None:
        names = [policy.name for policy in policies]
        self._verdict = np.array([VERDICTS.index(decision.verdict) for decision in decisions], dtype=np.int32)
        self._policy = np.array([decision.policy for decision in decisions], dtype=np.int32)
        self._verdicts, self._names = pa.array(VERDICTS), pa.array(names, pa.string())
        self._codes = pa.array([reason.name for reason in Reason])
        self._also = _Lists([len(decision.also) for decision in decisions])
        self._also_number = np.array([number for decision in decisions for number in decision.also], dtype=np.int32)
        self._reasons = _Lists([len(decision.reasons) for decision in decisions])
        flat = [reason for decision in decisions for reason in decision.reasons]
        self._code = np.array([reason.number - 1 for reason, _ in flat], dtype=np.int32)
        self._witness = np.array([number for _, number in flat], dtype=np.int32)
        words = list(names)
        self._by_row: list[tuple[Bools, int] | None] = []
        branches, tags = history.branches.names, history.tags.names
        refs = [*(f"branch {name}" for name in branches), *(f"tag {name}" for name in tags)]
        per_row = (branches, tags, [hold.name or "" for hold in holds], refs, [_FORBIDS], [_FORMAT], referrers)
        for reasons, own in zip(_BY_ROW, per_row, strict=True):
            kinds = np.array([reason in reasons for reason, _ in flat], dtype=bool)
            self._by_row.append((kinds, len(words)) if kinds.any() else None)
            words.extend(own if kinds.any() else ())
        self._words = pa.array(words, pa.string())

    def rows(self, log: pa.Table, combination: Counts, *witnesses: npt.NDArray[np.integer]) -> pa.Table:
        """The verdicts of some rows, from their combinations and the ranks of the branch, tag and hold that protect them,
        of the ref that alone does and is over (branches first), 0 twice, and who says that something refers to them."""
        offsets, entry = self._also.of(combination)
        return pa.table(
            {
                "dataset": log["dataset"],
                "transaction": log["transaction"],
                "ordinal": log["ordinal"],
                "verdict": _words(self._verdict[combination], self._verdicts),
                "policy": _words(self._policy[combination], self._names),
                "also": pa.ListArray.from_arrays(pa.array(offsets), _words(self._also_number[entry], self._names)),
                "reasons": self._reasons_of(combination, witnesses),
            },
            schema=CANDIDATE_MARKS,
        )

    def _reasons_of(self, combination: Counts, witnesses: Sequence[npt.NDArray[np.integer]]) -> pa.Array:
        offsets, entry = self._reasons.of(combination)
        witness = self._witness[entry]
        row = np.repeat(np.arange(len(combination), dtype=np.int32), np.diff(offsets)) if any(self._by_row) else entry
        for by_row, rank in zip(self._by_row, witnesses, strict=True):
            if by_row is not None:
                kinds, first = by_row
                at = np.flatnonzero(kinds[entry])
                witness[at] = rank[row[at]] + first
        entries = [_words(self._code[entry], self._codes), _words(witness, self._words)]
        return pa.ListArray.from_arrays(pa.array(offsets), pa.StructArray.from_arrays(entries, names=["code", "witness"]))


def _words(index: Counts, words: pa.Array) -> pa.DictionaryArray:
    """A dictionary column; a negative index is null."""
    return pa.DictionaryArray.from_arrays(pa.array(index, mask=index < 0), words)

"""Decide one combination of facts at a time, in plain Python that reads like the rules of design section 5, and spread the
decisions to a table of verdicts and to new marks.

Few combinations occur in a log, however long it is, so nothing here has to be fast, and everything here has to be obvious.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import Bools, Counts, join_chunks
from retention_assets.frames.log import NAME, SUPERSEDED_WINDOW, TIMES
from retention_assets.frames.verdicts.reasons import REASONS, Reason
from retention_assets.frames.views.history import History
from retention_assets.policy.model import Keeper, Policy
from retention_assets.policy.realms import realm_of

VERDICTS = ("mark", "spare", "keep", "open")


@dataclass(frozen=True)
class Decision:
    """Verdict on one combination of facts. Policies are numbers; a reason with -1 has its witness per row, or none."""

    verdict: str
    policy: int
    also: tuple[int, ...]
    reasons: tuple[tuple[Reason, int], ...]


@dataclass(frozen=True)
class Facts:
    """One combination of facts: the first unmet line of each policy (0: it selects), its limit, and what protects."""

    unmet: tuple[int, ...]
    over: tuple[bool, ...]
    latest: bool
    pinned: bool
    held: bool
    open: bool
    # the same without ended branches and tags: for policies that drop them
    latest_then: bool
    pinned_then: bool
    # its dataset forbids deleting its files
    forbidden: bool
    # an OBJECT to which a scan found a reference
    referenced: bool
    # its store can't commit to its table
    uncommittable: bool
    # by a retain rule
    retained: bool
    # of a dataset that spares what is inside of its window
    in_window: bool
    # neither adds nor removes a file
    empty: bool
    # retained transactions need all of its data
    needed: bool

    def in_latest(self, policy: Policy) -> bool:
        return self.latest_then if policy.drops_refs else self.latest

    def is_pinned(self, policy: Policy) -> bool:
        return self.pinned_then if policy.drops_refs else self.pinned


def decide(facts: Facts, policies: Sequence[Policy]) -> Decision:
    """Apply the rules of design section 5 to one combination of facts, in their order."""
    if facts.open:
        return Decision("open", -1, (), ((Reason.OPEN, -1),))
    if facts.empty:
        return Decision("keep", -1, (), ((Reason.NO_FILES, -1),))
    selecting = [number for number, line in enumerate(facts.unmet) if line == 0]
    if not selecting:
        unmet_lines = [(REASONS[line] or Reason.NO_POLICY, number) for number, line in enumerate(facts.unmet)]
        return Decision("keep", -1, (), tuple(unmet_lines) or ((Reason.NO_POLICY, -1),))
    allowed = [number for number in selecting if policies[number].latest_view or not facts.in_latest(policies[number])]
    within = [number for number in allowed if not facts.over[number]]
    # A realm that is purged goes whole, whoever refers to it: only a hold, a retain rule and a table that forbids it keep any.
    purging = [number for number in within if realm_of(policies[number].name) is not None]
    free = purging or [number for number in within if not facts.is_pinned(policies[number])]
    credit = (free or within or selecting)[0]
    also = tuple(number for number in selecting if number != credit)
    kept_by = (
        (Reason.HOLD, facts.held),
        (Reason.RETAIN_RULE, facts.retained),
        (Reason.GC_DISABLED, facts.forbidden),
        (Reason.FORMAT_V3, facts.uncommittable),
        (Reason.TABLE_WINDOW, facts.in_window),
        (Reason.REFERRED_TO, facts.referenced and not purging),
        (Reason.NEEDED, facts.needed),
    )
    keeping = [(reason, -1) for reason, keeps in kept_by if keeps]
    if free and not keeping:
        return Decision("mark", credit, also, tuple(_why(facts, policies[credit], credit, bool(purging))))
    sparing: list[tuple[Reason, int]] = []
    if not allowed:
        sparing.append((Reason.LATEST_VIEW, -1))
    if not purging and any(facts.is_pinned(policies[number]) for number in selecting):
        sparing.append((Reason.TAG, -1))
    sparing += keeping
    if not within:
        sparing += [(Reason.LIMIT, number) for number in allowed]
    return Decision("spare", credit, also, tuple(sparing))


def _why(facts: Facts, policy: Policy, credit: int, purging: bool) -> Iterator[tuple[Reason, int]]:
    yield Reason.PURGING if purging else Reason.SELECTED, credit
    if policy.drops_refs and (facts.latest, facts.pinned) != (facts.latest_then, facts.pinned_then):
        yield Reason.EXPIRED_REF, -1
    if facts.in_latest(policy):
        yield Reason.LATEST_VIEW_ALLOWED, -1


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
    (Reason.RETAIN_RULE,),
    (Reason.EXPIRED_REF,),
    (Reason.GC_DISABLED,),
    (Reason.FORMAT_V3,),
    (Reason.TABLE_WINDOW,),
    (Reason.REFERRED_TO,),
    (Reason.NEEDED,),
)
# witnesses of a dataset that forbids deleting its files, and of a table that can't be committed to
_FORBIDS = "gc.enabled=false"
_FORMAT = "format-version=3"


class _Lists:
    """Lists of all decisions, one after the other, from which each row gets that of its own."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = np.array(lengths, dtype=np.int32)
        self._begins = np.cumsum(self.lengths, dtype=np.int32) - self.lengths

    def of(self, combination: Counts) -> tuple[Counts, Counts]:
        """Return the list offsets of rows, and the place of each of their entries among all entries."""
        offsets = np.zeros(len(combination) + 1, dtype=np.int32)
        if not self.lengths.any():
            return offsets, offsets[:0]
        lengths = self.lengths[combination]
        np.cumsum(lengths, out=offsets[1:])
        entry = np.repeat(self._begins[combination] - offsets[:-1], lengths)
        entry += np.arange(len(entry), dtype=np.int32)
        return offsets, entry


class VerdictTable:
    """Decisions of one batch, prepared once for all slices of its rows."""

    def __init__(
        self,
        decisions: Sequence[Decision],
        policies: Sequence[Policy],
        keepers: Sequence[Keeper],
        history: History,
        referrers: Sequence[str],
        needers: Sequence[str],
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
        keeper_names = [keeper.name or "" for keeper in keepers]
        per_row = (
            branches, tags, keeper_names, keeper_names, refs, [_FORBIDS], [_FORMAT], [SUPERSEDED_WINDOW], referrers, needers,
        )  # fmt: skip
        for reasons, own in zip(_BY_ROW, per_row, strict=True):
            kinds = np.array([reason in reasons for reason, _ in flat], dtype=bool)
            self._by_row.append((kinds, len(words)) if kinds.any() else None)
            words.extend(own if kinds.any() else ())
        self._words = pa.array(words, pa.string())

    def rows(self, log: pa.Table, combination: Counts, *witnesses: npt.NDArray[np.integer]) -> pa.Table:
        """Build the verdicts of rows from their combinations and, for each entry of `_BY_ROW`, their witnesses as ranks."""
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
    # A dictionary column; a negative index is null.
    return pa.DictionaryArray.from_arrays(pa.array(index, mask=index < 0), words)


def new_marks(verdicts: pa.Table, log: pa.Table, policies: Sequence[Policy], versions: Mapping[str, int]) -> pa.Table:
    """Build one row per transaction whose verdict is `mark`, with its times and its size in the log.

    Raises KeyError for a policy without a version, by which a mark names it.
    """
    is_mark = pc.equal(join_chunks(verdicts["verdict"]).cast(pa.string()), "mark")
    rows = verdicts.filter(is_mark)
    names = join_chunks(rows["policy"]).cast(pa.string())
    about = pa.array([policy.name for policy in policies], pa.string())
    place = pc.index_in(names, value_set=about)
    numbers = pa.array([versions[policy.name] for policy in policies], pa.int32())
    graces = pa.array([str(policy.grace) for policy in policies], pa.string())
    return pa.table(
        {
            "dataset": rows["dataset"].cast(pa.string()),
            "transaction": rows["transaction"],
            "policy": names,
            "policy_version": numbers.take(place),
            "reason": _code(rows),
            "grace": graces.take(place),
            **{name: log[name].filter(is_mark) for name in ("bytes", *TIMES)},
        }
    )


def _code(rows: pa.Table) -> pa.Array:
    # The last reason, where it says more than that a policy selects it.
    lists = join_chunks(rows["reasons"])
    ends = lists.offsets.to_numpy()[1:] - 1
    codes = join_chunks(lists.values.field("code")).cast(pa.string()).take(pa.array(ends.astype(np.int64)))
    telling = pa.array([Reason.LATEST_VIEW_ALLOWED.name, Reason.EXPIRED_REF.name])
    return pc.if_else(pc.is_in(codes, telling), codes, pa.scalar(Reason.SELECTED.name)).cast(pa.string())

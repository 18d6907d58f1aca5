"""Opens a day's report of a dataset: its rules, their bounds, and the class of every row.

Every transaction of the log is in exactly one class, and they sum to the log: swept · sweeping · due · waiting (marked, in its
grace) · selected (not marked yet) · spared · kept · open.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.evaluation.rules_in_force import RulesInForce
from retention_assets.frames.arrays import Ints, flags, integers, join_chunks
from retention_assets.frames.grouping import selects_dataset
from retention_assets.frames.lives import is_in_log
from retention_assets.frames.log import Log
from retention_assets.frames.verdicts.selectors import cut_off
from retention_assets.ledger.evaluations import VerdictCount
from retention_assets.ledger.sweeps.reports import OpenedReport
from retention_assets.policy.durations import Duration, from_micros, text_of
from retention_assets.policy.model import Policy

CLASSES = ("swept", "sweeping", "due", "waiting", "selected", "spared", "kept", "open")
# names hashed at a time, or a quarter of them
_HASHED = 100_000
_OF_VERDICT = {"mark": "selected", "spare": "spared", "keep": "kept", "open": "open"}


def opening_of(
    dataset: str, log: Log, verdicts: pa.Table, marks: pa.Table, rules: RulesInForce, as_of: datetime
) -> OpenedReport:
    """Return the report's fixed part. `marks` are the ledger's marks of the dataset that are open or swept."""
    attributes = dict(log.datasets.slice(0, 1)["attributes"].to_pylist()[0] or ())
    about = [policy for policy in rules.policies if selects_dataset(policy.datasets, dataset, attributes)]
    terminal = [policy.select.terminal_only for policy in about if policy.select.terminal_only is not None]
    return OpenedReport(
        policies={policy.name: rules.versions.get(policy.name, 0) for policy in about},
        bounds={policy.name: bound for policy in about if (bound := _bound(policy, as_of))},
        terminal_only=all(terminal) if terminal else None,
        archived_types=tuple(sorted({kind for policy in about for kind in policy.select.archived_before_purge or ()})),
        classes=classes_of(log.transactions, verdicts, marks),
        periods={policy.name: policy.select.older_than.age.iso() for policy in about if policy.select.older_than},
    )


def classes_of(rows: pa.Table, verdicts: pa.Table, marks: pa.Table) -> Mapping[str, int]:
    """Count transactions by class. A mark outranks today's verdict, unless it was swept and its id now belongs to another
    transaction.
    """
    was_swept = flags(pc.equal(marks["status"], "SWEPT"))
    if was_swept.any():
        swept = marks.filter(pa.array(was_swept))
        # if a transaction has both, the open mark decides
        parts = [marks.filter(pa.array(~was_swept)), swept.filter(pa.array(is_in_log(swept, rows)))]
        marks = pa.concat_tables(parts).unify_dictionaries()
    at = _places_of(verdicts["transaction"], marks["transaction"])
    unmarked = verdicts["verdict"].filter(pa.array(at < 0)).cast(pa.string())
    found = Counter({_OF_VERDICT[one["values"]]: one["counts"] for one in pc.value_counts(unmarked).to_pylist()})
    found.update(_classes_of_marks(marks, at[at >= 0]))
    return {name: found[name] for name in CLASSES}


def _places_of(names: pa.ChunkedArray, marked: pa.ChunkedArray) -> Ints:
    """First mark of each name, -1 without one. In pieces, because hashes take memory."""
    found = np.full(len(names), -1, dtype=np.int64)
    size = max(_HASHED, -(-len(marked) // 4))
    for first in range(0, len(marked), size):
        at = integers(pc.index_in(join_chunks(names), value_set=join_chunks(marked.slice(first, size))), -1)
        new = (at >= 0) & (found < 0)
        found[new] = at[new] + first
    return found


def classes_judged(counts: Sequence[VerdictCount], marks: pa.Table) -> Mapping[str, int]:
    """Count by class where only what is due was read: from the verdicts of the newest evaluation and the present marks."""
    opened = marks.filter(pc.not_equal(marks["status"], "SWEPT"))
    found = _classes_of_marks(opened, np.arange(len(opened)))
    for one in counts:
        found[_OF_VERDICT.get(one.verdict, "swept")] += one.transactions
    # what was selected then has its mark now
    found["selected"] = max(0, found["selected"] - len(opened))
    return {name: found[name] for name in CLASSES}


def _classes_of_marks(marks: pa.Table, at: Ints) -> Counter[str]:
    """A place may occur more than once."""
    swept, sweeping = (flags(pc.equal(marks["status"], status)) for status in ("SWEPT", "SWEEPING"))
    place = np.select([swept, sweeping, np.asarray(marks["is_due"]) == 1], range(3), 3).astype(np.int8)
    return Counter(dict(zip(CLASSES, np.bincount(place[at], minlength=4).tolist(), strict=False)))


def _bound(policy: Policy, as_of: datetime) -> str | None:
    """The instant before which a policy takes things, if it looks at an age."""
    older = policy.select.older_than
    if older is None:
        return None
    age: Duration = older.age
    return text_of(from_micros(cut_off(as_of, age, older.align)))

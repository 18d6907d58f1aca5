"""The fixed part of a dataset's report of a day: rules, their bounds, and the number of transactions by class.

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
from retention_assets.frames.log import Log, by_dataset, is_in_log, selects_dataset
from retention_assets.frames.verdicts.candidate_marks import candidate_marks
from retention_assets.frames.verdicts.selectors import cut_off
from retention_assets.ledger import Ledger
from retention_assets.ledger.evaluations import VerdictCount
from retention_assets.ledger.reports import OpenedReport
from retention_assets.policy.durations import from_micros, text_of
from retention_assets.sweep.read import DatasetReading

CLASSES = ("swept", "sweeping", "due", "waiting", "selected", "spared", "kept", "open")
# names hashed at a time, at least
_HASHED = 100_000
_OF_VERDICT = {"mark": "selected", "spare": "spared", "keep": "kept", "open": "open"}


def openings_of(
    ledger: Ledger, log: Log, readings: Sequence[DatasetReading], rules: RulesInForce, as_of: datetime
) -> tuple[dict[str, OpenedReport], dict[str, int]]:
    """Return the fixed part of the report of each dataset that was read, and the number of transactions in its log."""
    names = [reading.dataset for reading in readings]
    with ledger.database.one_moment():
        marks = ledger.sweeps.classed(names, as_of)
        counts = ledger.evaluations.counts(reading.dataset for reading in readings if reading.asked is not None)
    openings, sizes = dict[str, OpenedReport](), dict[str, int]()
    judged = candidate_marks(log.transactions, log.datasets, rules.policies, rules.holds, as_of)
    verdicts = by_dataset(judged)
    for reading in readings:
        marks_here = marks if len(names) == 1 else marks.filter(pc.equal(marks["dataset"], reading.dataset))
        rows, name = reading.log.transactions, reading.dataset
        if reading.asked is None:
            classes, size = classes_of(rows, verdicts.get(name, judged.slice(0, 0)), marks_here), len(rows)
        else:
            classes = classes_judged(counts.get(name, ()), marks_here)
            size = sum(classes.values())
        openings[name], sizes[name] = opening_of(name, reading.log, classes, rules, as_of), size
    return openings, sizes


def opening_of(dataset: str, log: Log, classes: Mapping[str, int], rules: RulesInForce, as_of: datetime) -> OpenedReport:
    # a dataset that is not there may still have something in the trash
    attributes = dict(next(iter(log.datasets["attributes"].to_pylist()), None) or ())
    about = [policy for policy in rules.policies if selects_dataset(policy.datasets, dataset, attributes)]
    terminal = [policy.select.terminal_only for policy in about if policy.select.terminal_only is not None]
    aged = {policy.name: policy.select.older_than for policy in about if policy.select.older_than}
    return OpenedReport(
        policies={policy.name: rules.versions.get(policy.name, 0) for policy in about},
        # the instant before which a policy takes things
        bounds={name: text_of(from_micros(cut_off(as_of, older.age, older.align))) for name, older in aged.items()},
        terminal_only=all(terminal) if terminal else None,
        archived_types=tuple(sorted({kind for policy in about for kind in policy.select.archived_before_purge or ()})),
        classes=classes,
        periods={name: older.age.iso() for name, older in aged.items()},
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
    counts = Counter({_OF_VERDICT[count["values"]]: count["counts"] for count in pc.value_counts(unmarked).to_pylist()})
    counts.update(_classes_of_marks(marks, at[at >= 0]))
    return {name: counts[name] for name in CLASSES}


def _places_of(names: pa.ChunkedArray, marked: pa.ChunkedArray) -> Ints:
    # the first mark of each name, -1 without one; in pieces, because hashes take memory
    places = np.full(len(names), -1, dtype=np.int64)
    size = max(_HASHED, -(-len(marked) // 4))
    for first in range(0, len(marked), size):
        at = integers(pc.index_in(join_chunks(names), value_set=join_chunks(marked.slice(first, size))), -1)
        new = (at >= 0) & (places < 0)
        places[new] = at[new] + first
    return places


def classes_judged(counts: Sequence[VerdictCount], marks: pa.Table) -> Mapping[str, int]:
    """Count by class where only what is due was read: from the verdicts of the newest evaluation and the present marks."""
    opened = marks.filter(pc.not_equal(marks["status"], "SWEPT"))
    classes = _classes_of_marks(opened, np.arange(len(opened)))
    for count in counts:
        classes[_OF_VERDICT.get(count.verdict, "swept")] += count.transactions
    # what was selected then has its mark now
    classes["selected"] = max(0, classes["selected"] - len(opened))
    return {name: classes[name] for name in CLASSES}


def _classes_of_marks(marks: pa.Table, at: Ints) -> Counter[str]:
    swept, sweeping = (flags(pc.equal(marks["status"], status)) for status in ("SWEPT", "SWEEPING"))
    place = np.select([swept, sweeping, np.asarray(marks["is_due"]) == 1], range(3), 3).astype(np.int8)
    return Counter(dict(zip(CLASSES, np.bincount(place[at], minlength=4).tolist(), strict=False)))

"""What a day's report says of a dataset when it opens: the rules that are about it, their bounds, and the class of every row.

Belongs here: the classes. Every transaction of the log is in exactly one, and they sum to the log:
swept · sweeping · due · waiting (marked, in its grace) · selected (not marked yet) · spared · kept · open.
Does not belong here: counting what becomes of them (ledger).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.evaluation.rules_in_force import RulesInForce
from retention_assets.frames.arrays import flags, join_chunks
from retention_assets.frames.grouping import may_select_of
from retention_assets.frames.lives import is_in_log
from retention_assets.frames.log import Log
from retention_assets.frames.verdicts.selectors import cut_off
from retention_assets.ledger.evaluations import VerdictCount
from retention_assets.ledger.sweeps.reports import OpenedReport
from retention_assets.policy.durations import Duration, from_micros, text_of
from retention_assets.policy.model import Policy

CLASSES = ("swept", "sweeping", "due", "waiting", "selected", "spared", "kept", "open")
_OF_VERDICT = {"mark": "selected", "spare": "spared", "keep": "kept", "open": "open"}


def opening_of(
    dataset: str, log: Log, verdicts: pa.Table, marks: pa.Table, rules: RulesInForce, as_of: datetime
) -> OpenedReport:
    """The report's fixed part. `marks` are the ledger's marks of the dataset that are open or swept."""
    attributes = dict(log.datasets.slice(0, 1)["attributes"].to_pylist()[0] or ())
    about = [policy for policy in rules.policies if may_select_of(policy.datasets, dataset, attributes)]
    terminal = [policy.select.terminal_only for policy in about if policy.select.terminal_only is not None]
    return OpenedReport(
        policies={policy.name: rules.versions.get(policy.name, 0) for policy in about},
        bounds={policy.name: bound for policy in about if (bound := _bound(policy, as_of))},
        terminal_only=all(terminal) if terminal else None,
        archived_types=tuple(sorted({kind for policy in about for kind in policy.select.archived_before_purge or ()})),
        classes=classes_of(log.transactions, verdicts, marks, as_of),
        periods={policy.name: policy.select.older_than.age.iso() for policy in about if policy.select.older_than},
    )


def classes_of(rows: pa.Table, verdicts: pa.Table, marks: pa.Table, as_of: datetime) -> Mapping[str, int]:
    """How many transactions are in each class. A mark says more than today's verdict, unless it was swept and is of another
    transaction than the one that the log has under its id now.
    """
    swept = flags(pc.equal(marks["status"], "SWEPT"))
    still = swept & is_in_log(marks, rows)
    # Should a transaction have both, it is the open one that says what becomes of it.
    marks = pa.concat_tables([marks.filter(pa.array(~swept)), marks.filter(pa.array(still))])
    at = pc.index_in(join_chunks(verdicts["transaction"]), value_set=join_chunks(marks["transaction"]))
    unmarked = verdicts.filter(pc.is_null(at))
    found = Counter(_OF_VERDICT[verdict] for verdict in unmarked["verdict"].cast(pa.string()).to_pylist())
    mine = marks.take(at.drop_null())
    due = np.asarray(pc.less_equal(mine["due_at"], pa.scalar(as_of, mine["due_at"].type)))
    for status, is_due in zip(mine["status"].to_pylist(), due.tolist(), strict=True):
        found[{"SWEPT": "swept", "SWEEPING": "sweeping"}.get(status, "due" if is_due else "waiting")] += 1
    return {name: found[name] for name in CLASSES}


def classes_judged(counts: Sequence[VerdictCount], marks: pa.Table, as_of: datetime) -> Mapping[str, int]:
    """The same where only what is due was read: by the verdicts of the newest evaluation, and the marks as they are now."""
    opened = marks.filter(pc.not_equal(marks["status"], "SWEPT"))
    sweeping = flags(pc.equal(opened["status"], "SWEEPING"))
    due = ~sweeping & flags(pc.less_equal(opened["due_at"], pa.scalar(as_of, opened["due_at"].type)))
    found = Counter({"sweeping": int(sweeping.sum()), "due": int(due.sum()), "waiting": int((~sweeping & ~due).sum())})
    for one in counts:
        found[_OF_VERDICT.get(one.verdict, "swept")] += one.transactions
    # What was selected then has its mark now.
    found["selected"] = max(0, found["selected"] - len(opened))
    return {name: found[name] for name in CLASSES}


def _bound(policy: Policy, as_of: datetime) -> str | None:
    """The instant before which a policy takes things, if it looks at an age."""
    older = policy.select.older_than
    if older is None:
        return None
    age: Duration = older.age
    return text_of(from_micros(cut_off(as_of, age, older.align)))

"""Independent check of marks against retain rules: plain Python that walks back from each head.

It shares no code with the counts of the verdicts, so that a fault there is not repeated here. Where times never go back and
nothing is counted apart, a walk ends as soon as it has what the rule keeps.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.log import Log, bounds_of, holds_dataset
from retention_assets.frames.verdicts.where_condition import evaluate
from retention_assets.policy.model import RetainRule
from retention_assets.policy.selection import Newest, names_times

_Flags = npt.NDArray[np.bool_]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LINES = ("RECORD", "OBJECT")
# classes of a scan whose OBJECTs are counted
_COUNTED = (None, "unreferenced", "realm_purge")


class RetainedMarks(NamedTuple):
    """Marks of one dataset that a rule retains: one of the transactions, the rule, and how many there are."""

    transaction: str
    rule: str
    marks: int


# rows that a rule keeps, by dataset and number of the rule
KeptRows = dict[tuple[str, int], _Flags]


def retained_marks(
    log: Log, marks: pa.Table, rules: Sequence[RetainRule], as_of: datetime, kept: KeptRows | None = None
) -> dict[str, RetainedMarks]:
    """Find, by dataset, marks of transactions that a rule retains. `kept` remembers the rows for more marks of the same log."""
    if not rules:
        return {}
    kept = {} if kept is None else kept
    retained: dict[str, RetainedMarks] = {}
    datasets = log.datasets.select(["dataset", "attributes"]).to_pylist()
    attributes = {row["dataset"]: dict(row["attributes"] or ()) for row in datasets}
    datasets_marked = set(pc.unique(marks["dataset"]).to_pylist())
    for begin, end in pairwise(bounds_of(log.transactions).tolist()):
        rows = log.transactions.slice(begin, end - begin)
        dataset = rows["dataset"][0].as_py()
        if dataset not in datasets_marked:
            continue
        marked = marks["transaction"].filter(pc.equal(marks["dataset"], dataset))
        is_marked = pc.is_in(rows["transaction"], value_set=marked.combine_chunks()).to_numpy()
        for number, rule in enumerate(rules):
            if not holds_dataset(rule, dataset, attributes.get(dataset, {})):
                continue
            if (dataset, number) not in kept:
                is_copied = attributes.get(dataset, {}).get("times") == "copied"
                kept[dataset, number] = _retained(rows, rule, as_of, is_copied)
            hits = np.flatnonzero(is_marked & kept[dataset, number])
            if len(hits):
                retained.setdefault(dataset, RetainedMarks(rows["transaction"][int(hits[0])].as_py(), rule.name, len(hits)))
    return retained


def _retained(rows: pa.Table, rule: RetainRule, as_of: datetime, is_copied: bool) -> _Flags:
    # A line that compares the times of a copy keeps everything.
    kept = np.ones(len(rows), dtype=bool)
    if rule.where and not (is_copied and names_times(rule.where)):
        kept &= evaluate(rule.where, rows)
    if rule.younger_than and not is_copied:
        bound = pa.scalar(rule.younger_than.before(as_of), rows["closed_at"].type)
        kept &= ~pc.fill_null(pc.less(rows["closed_at"], bound), False).to_numpy()
    if rule.newest and kept.any() and not (is_copied and rule.newest.compares_times):
        kept &= _Walk(rows, rule.newest).kept()
    return kept


class _Walk:
    """The rows of one dataset, walked back from each head and along each line."""

    def __init__(self, rows: pa.Table, newest: Newest) -> None:
        self._newest, self._zone = newest, ZoneInfo(newest.zone or "UTC")
        self._kind, status = (rows[name].cast(pa.string()) for name in ("type", "status"))
        is_committed = pc.equal(status, "COMMITTED").to_numpy()
        self._is_line = pc.is_in(self._kind, value_set=pa.array(_LINES)).to_numpy()
        self._in_views = is_committed & ~self._is_line
        self._starts_view = pc.equal(self._kind, "SNAPSHOT").to_numpy()
        is_counted = is_committed & pc.not_equal(self._kind, "DELETE").to_numpy()
        self._is_counted = is_counted & evaluate(newest.where, rows) if newest.where else is_counted
        ordinal, parent = (rows[name].to_numpy() for name in ("ordinal", "parent_ordinal"))
        # a root has the parent -1
        self._parent = np.where(parent < 0, -1, np.arange(len(rows)) + parent - ordinal)
        self._heads = np.flatnonzero(pc.fill_null(pc.list_value_length(rows["heads"]), 0).to_numpy()).tolist()
        self._closed = rows["closed_at"].cast(pa.int64())
        self._rows = rows
        times = self._closed.filter(pa.array(is_committed)).to_numpy()
        self._may_stop = newest.per is None and bool(np.all(times[1:] >= times[:-1]))

    def kept(self) -> _Flags:
        """Tell for each row if it is kept; on a branch with the whole state that it ends."""
        kept = np.zeros(len(self._rows), dtype=bool)
        for head in self._heads:
            for row in self._chosen(step for step in self._path(head) if self._in_views[step]):
                # The rows before a kept one in its view are kept already.
                for step in self._path(row):
                    if kept[step]:
                        break
                    kept[step] = self._in_views[step]
                    if self._in_views[step] and self._starts_view[step]:
                        break
        for kind in _LINES:
            rows = np.flatnonzero(self._is_counted & self._is_line & pc.equal(self._kind, kind).to_numpy()).tolist()
            line = [row for row in rows if kind == "RECORD" or self._attribute(row, "class") in _COUNTED]
            line.sort(
                key=lambda row: (self._closed[row].as_py(), self._rows["transaction"][row].as_py().encode()), reverse=True
            )
            kept[[*self._chosen(line)]] = True
        if not self._heads:
            kept[[*self._chosen(np.flatnonzero(self._in_views)[::-1].tolist())]] = True
        return kept

    def _path(self, row: int) -> Iterator[int]:
        while row >= 0:
            yield row
            row = int(self._parent[row])

    def _chosen(self, newest_first: Iterable[int]) -> set[int]:
        wanted = {"transactions": self._newest.transactions, **self._newest.periods}
        most = {key: number for key, number in wanted.items() if number is not None}
        # by key and group, the newest row of each period
        newest: dict[tuple[str, tuple[Any, ...]], dict[Any, int]] = {}
        for place, row in enumerate(newest_first):
            if not self._is_counted[row]:
                continue
            group = tuple(self._attribute(row, key) for key in self._newest.per or ())
            for key in most:
                newest.setdefault((key, group), {}).setdefault(-place if key == "transactions" else self._period(row, key), row)
            if self._may_stop and all(len(newest[key, group]) > number for key, number in most.items()):
                break
        return {rows[period] for (key, _), rows in newest.items() for period in sorted(rows, reverse=True)[: most[key]]}

    def _period(self, row: int, key: str) -> Any:
        shown = (_EPOCH + timedelta(microseconds=self._closed[row].as_py())).astimezone(self._zone)
        return {
            "hourly": (shown.date(), shown.hour),
            "daily": shown.date(),
            "weekly": shown.isocalendar()[:2],
            "monthly": (shown.year, shown.month),
            "yearly": shown.year,
        }[key]

    def _attribute(self, row: int, key: str) -> str | None:
        if "attributes" not in self._rows.column_names:
            return None
        value: str | None = dict(self._rows["attributes"][row].as_py() or ()).get(key)
        return value

"""A recording store for several days of a plan: each log is read once, and loses what was recorded on earlier days.

A store whose log is the data stops listing what is deleted. Others go on listing it, and the ledger knows what was swept.
"""

from collections.abc import Mapping, Sequence, Set
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import flags
from retention_assets.frames.log import LINES, by_dataset
from retention_assets.outcomes import Order
from retention_assets.stores.dry_run import RecordingStore
from retention_assets.stores.protocol import Only, Permit, Reads, Store, SweptTarget, Target, always

_PARENTS = ("transaction", "parent", "parent_given")


class RememberingStore(RecordingStore):
    """Wraps a store: answers from the first reading of each log, and records instead of deleting."""

    def __init__(self, store: Store, begins_anew: bool = False) -> None:
        super().__init__(store)
        # True: a child of a deleted transaction loses its parent. False: its nearest remaining ancestor becomes the parent.
        self.begins_anew = begins_anew
        self._lines: dict[str, pa.Table] = {}
        self._tokens: dict[str, str] = {}
        # transactions that the log does not list from the next day on
        self._leaving: dict[str, set[str]] = {}

    @property
    def reads(self) -> Reads:
        # reading from memory costs nothing
        return Reads.WHOLE

    def shares(self, datasets: Sequence[str]) -> list[tuple[str, ...]]:
        unread = [name for name in datasets if name not in self._lines]
        read = tuple(name for name in datasets if name in self._lines)
        return [*([read] if read else []), *(self.store.shares(unread) if unread else [])]

    def read(self, datasets: Sequence[str], only: Only | None = None) -> pa.Table:  # noqa: ARG002 - it is read whole
        self._remember(datasets)
        return pa.concat_tables([LINES.empty_table(), *(self._lines[name] for name in datasets)])

    def tokens(self, datasets: Sequence[str]) -> Mapping[str, str]:
        self._remember(datasets)
        return {name: self._tokens[name] for name in datasets if name in self._tokens}

    def end_day(self) -> None:
        """Forget what was recorded, and take it out of a log that is the data."""
        if self.log_is_complete:
            for dataset, deleted in self._leaving.items():
                self._lines[dataset] = _without_transactions(self._lines[dataset], dataset, deleted, self.begins_anew)
        self._leaving.clear()
        super().end_day()

    def carry_out(
        self, order: Order, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always
    ) -> list[SweptTarget]:
        answers = super().carry_out(order, dataset, targets, parallelism, permit)
        if not order.starts_in_trash:
            self._leaving.setdefault(dataset, set()).update(target.transaction for target in targets)
        return answers

    def expire(
        self, dataset: str, targets: Sequence[Target], at: datetime | None, parallelism: int, permit: Permit = always
    ) -> list[SweptTarget]:
        if at is not None:
            self._leaving.setdefault(dataset, set()).update(target.transaction for target in targets)
        return super().expire(dataset, targets, at, parallelism, permit)

    def _remember(self, datasets: Sequence[str]) -> None:
        unread = [name for name in datasets if name not in self._lines]
        if not unread:
            return
        tokens = self.store.tokens(unread)
        lines = self.store.read(unread)
        self._tokens |= tokens
        own = {name: _with_parents(rows) for name, rows in by_dataset(lines.combine_chunks()).items()}
        self._lines |= dict.fromkeys(unread, LINES.empty_table()) | own


def _with_parents(lines: pa.Table) -> pa.Table:
    """Write out each parent that only the order of the lines gives: the line before may be removed."""
    is_transaction = flags(pc.is_valid(lines["transaction"]))
    if flags(lines["parent_given"])[is_transaction].all():
        return lines
    parents, previous = list[str | None](), None
    for name, parent, is_given in zip(*(lines[name].to_pylist() for name in _PARENTS), strict=True):
        parents.append(parent if is_given or name is None else previous)
        previous = previous if name is None else name
    return _set(lines, parent=parents, parent_given=(is_transaction | flags(lines["parent_given"])).tolist())


def _without_transactions(lines: pa.Table, dataset: str, deleted: Set[str], begins_anew: bool) -> pa.Table:
    parent_of = dict(zip(lines["transaction"].to_pylist(), lines["parent"].to_pylist(), strict=True))

    def remaining(parent: str | None) -> str | None:
        while parent in deleted:
            parent = None if begins_anew else parent_of.get(parent)
        return parent

    names = pa.array(sorted(deleted), pa.string())
    lines = lines.filter(pc.invert(pc.or_(pc.is_in(lines["transaction"], names), pc.is_in(lines["head"], names))))
    if not len(lines):
        # the dataset is there, and has nothing
        return pa.Table.from_pylist([{"dataset": dataset}], LINES)
    return _set(lines, parent=list(map(remaining, lines["parent"].to_pylist())))


def _set(lines: pa.Table, **columns: Sequence[object]) -> pa.Table:
    for name, values in columns.items():
        field_ = LINES.field(name)
        lines = lines.set_column(LINES.names.index(name), field_, pa.array(values, field_.type))
    return lines

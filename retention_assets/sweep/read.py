"""Reads logs fresh from their stores, many datasets at once, with tokens that tell whether a reading is still current.

Reading one dataset costs as much as reading its file or its neighbours, so datasets are read in the shares that the store
proposes. A sweep may reach the last of them an hour later, and asks for its token again before it relies on the reading. A
store that need not be read whole is asked only for what is wanted; one that must look at a lot before it can answer for any
transaction looks once for the whole sweep.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.clock import moment
from retention_assets.evaluation.keepers import Keepers
from retention_assets.frames.arrays import join_chunks
from retention_assets.frames.log import DATASETS, LOG, Log, by_dataset, faults_of
from retention_assets.frames.soundness import sound_log
from retention_assets.ledger import Ledger, invariants
from retention_assets.ledger.leases import ALL_NAMES, NameRange
from retention_assets.policy.globs import matching
from retention_assets.policy.model import Keeper, Policy
from retention_assets.policy.selection import INDEPENDENT
from retention_assets.stores.concurrency import OpenPlace, Tasks, TasksHere, open_local
from retention_assets.stores.logs import read_lines, read_some_lines
from retention_assets.stores.protocol import DueTransactions, Only, Reads, Store, call_store, never


@dataclass(frozen=True)
class Wanted:
    """Transactions by dataset, the realms being purged, the size of each log when it was last judged, and holds."""

    transactions: Mapping[str, pa.Array]
    purging: frozenset[str]
    sizes: Mapping[str, int]
    # datasets to read whole, because a policy judges their transactions by others of the same line
    whole: frozenset[str] = frozenset()
    holds: tuple[Keeper, ...] = ()

    @classmethod
    def by(cls, ledger: Ledger, datasets: Sequence[str], as_of: datetime, among: NameRange = ALL_NAMES) -> "Wanted":
        """Find what is due of datasets, or of a part of one, and what an earlier sweep has begun."""
        columns = ("dataset", "transaction")
        marks = ledger.marks.table(datasets, to_sweep_by=as_of, names=among, columns=columns).group_by(columns).aggregate([])
        rows = by_dataset(marks.sort_by([(name, "ascending") for name in columns]))
        return cls.of(ledger, {name: join_chunks(rows.get(name, marks.slice(0, 0))["transaction"]) for name in datasets}, as_of)

    @classmethod
    def of(cls, ledger: Ledger, transactions: Mapping[str, pa.Array], as_of: datetime | None = None) -> "Wanted":
        counts = ledger.evaluations.counts(transactions)
        return cls(
            transactions,
            ledger.realms.purging(),
            {name: sum(count.transactions for count in verdicts) for name, verdicts in counts.items()},
            counted_along_lines(ledger, [name for name, asked in transactions.items() if len(asked)]),
            Keepers(ledger).in_force(ledger.clock.due_by(as_of)),
        )

    def with_sizes(self, datasets: pa.Table) -> pa.Table:
        """Give each dataset the size of its whole log instead of that of the part that was read."""
        rows = zip(datasets["dataset"].to_pylist(), datasets["transactions"].to_pylist(), strict=True)
        sizes = pa.array([max(self.sizes.get(name, 0), read) for name, read in rows], pa.int64())
        return datasets.set_column(datasets.column_names.index("transactions"), datasets.schema.field("transactions"), sizes)


def counted_along_lines(ledger: Ledger, datasets: Sequence[str]) -> frozenset[str]:
    """Return the datasets that a policy version or retain rule which judges transactions by others of their line may select."""
    with ledger.database.reading() as connection:
        policies = invariants.policies(connection).values()
    rules: list[Policy | Keeper] = [*policies, *(row.keeper for row in ledger.holds.recorded().files)]
    globs = [glob for rule in rules if rule.looks_along_lines for glob in rule.datasets.include]
    return frozenset(name for name, counts in zip(datasets, matching(datasets, globs), strict=True) if counts)


@dataclass(frozen=True)
class DatasetReading:
    """One dataset as a store had it. `token` is from before the reading; None if the store does not have the dataset."""

    dataset: str
    log: Log
    token: str | None
    # transactions that were asked for; None where the log was read whole
    asked: pa.Array | None = None
    # transactions whose chains alone were read, in the middle of a sweep; None where the log was read whole
    chains_of: pa.Array | None = None
    # monotonic seconds at which the store was asked for its token
    asked_at: float = 0.0

    @property
    def fault(self) -> str | None:
        if self.token is None or not len(self.log.datasets):
            return "its store does not have it"
        return next((f"its log is not sound: {fault}" for fault in faults_of(self.log.datasets).values()), None)


@dataclass(frozen=True)
class StoreReading:
    """Datasets that were read together."""

    log: Log
    datasets: tuple[DatasetReading, ...]

    def newest_closed_at(self, present: datetime) -> datetime | None:
        """Return the newest time in the logs. Times after `present` are writers' faults and don't count."""
        closed = self.log.transactions["closed_at"]
        newest: datetime | None = pc.max(closed.filter(pc.less_equal(closed, pa.scalar(present, closed.type)))).as_py()
        return newest


def read_fresh(store: Store, datasets: Sequence[str], wanted: Wanted | None = None) -> StoreReading:
    """Read datasets, or what is wanted of them. Later changes change their tokens."""
    asked_at, tokens = moment().running, call_store(store, partial(store.tokens, datasets))
    log = sound_log(call_store(store, partial(_lines, store, datasets, wanted)))
    if wanted is not None:
        log = replace(log, datasets=wanted.with_sizes(log.datasets))
    transactions = by_dataset(log.transactions)
    about = by_dataset(log.datasets)
    readings = []
    for name in datasets:
        log_of_dataset = Log(transactions.get(name, LOG.empty_table()), about.get(name, DATASETS.empty_table()))
        asked = wanted.transactions[name] if wanted else None
        readings.append(DatasetReading(name, log_of_dataset, tokens.get(name), asked, asked_at=asked_at))
    return StoreReading(log, tuple(readings))


def read_chains(
    store: Store, last: DatasetReading, transactions: pa.Array, deleted: int, counts: bool = False
) -> DatasetReading:
    """Read the chains of some transactions of a dataset. The rest comes from `last`, with the log's size less `deleted`.

    If nothing of them is left the dataset is read whole, as it may be another database by now. So it is where a policy counts
    along lines, and they are a part of one.
    """
    log = sound_log(call_store(store, lambda: store.read([last.dataset], Only({last.dataset: transactions.to_pylist()}))))
    if not len(log.datasets) or (counts and _has_line(log.transactions)):
        return read_fresh(store, [last.dataset]).datasets[0]
    is_sound = log.datasets["fault"].null_count == len(log.datasets)
    return DatasetReading(
        last.dataset,
        replace(log, datasets=_without(last.log.datasets, deleted)) if is_sound else log,
        last.token,
        chains_of=transactions,
    )


def _has_line(rows: pa.Table) -> bool:
    on_branch = pc.any(pc.greater(pc.list_value_length(rows["heads"]), 0), min_count=0).as_py()
    return not on_branch or bool(pc.any(pc.is_in(rows["type"].cast(pa.string()), pa.array(INDEPENDENT)), min_count=0).as_py())


def _without(datasets: pa.Table, deleted: int) -> pa.Table:
    sizes = pc.max_element_wise(pc.subtract(datasets["transactions"], deleted), 0)
    at = datasets.column_names.index("transactions")
    return datasets.set_column(at, datasets.schema.field(at), sizes)


def _lines(store: Store, datasets: Sequence[str], wanted: Wanted | None) -> pa.Table:
    if wanted is None:
        return read_lines(store, datasets)
    names = {name: asked.to_pylist() for name, asked in wanted.transactions.items()}
    return read_some_lines(store, Only(names, wanted.purging, wanted.holds), wanted.whole)


def current(store: Store, readings: Collection[DatasetReading]) -> set[str]:
    """Return the datasets whose token is unchanged since they were read."""
    if not readings:
        return set()
    whole = [last for last in readings if last.chains_of is None]
    present = call_store(store, partial(store.tokens, [last.dataset for last in whole])) if whole else {}
    # one that was not there, and is not there yet, is unchanged as well
    unchanged = {last.dataset for last in whole if present.get(last.dataset) == last.token}
    for last in readings:
        if last.chains_of is not None:
            log = read_chains(store, last, last.chains_of, 0).log
            unchanged |= {last.dataset} if log.transactions.equals(last.log.transactions) else set()
    return unchanged


def among_asked(rows: pa.Table, readings: Collection[DatasetReading]) -> pa.Table:
    """Keep the marks that their readings cover: what became due later is left to the next sweep."""
    for reading in readings:
        if reading.asked is not None:
            is_covered = pc.is_in(rows["transaction"], reading.asked)
            rows = rows.filter(pc.or_(pc.not_equal(rows["dataset"], reading.dataset), is_covered))
    return rows


def joined(readings: Sequence[DatasetReading]) -> Log:
    if len(readings) == 1:
        return readings[0].log
    transactions, datasets = ([getattr(reading.log, name) for reading in readings] for name in ("transactions", "datasets"))
    return Log(pa.concat_tables(transactions).unify_dictionaries(), pa.concat_tables(datasets))


@dataclass(frozen=True)
class DueHere:
    """Due transactions of datasets, in an open ledger."""

    ledger: Ledger
    datasets: Sequence[str]
    as_of: datetime
    parts: int = 1

    def read(self, part: int) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - there is one
        """Yield everything; there is one part."""
        return self.ledger.marks.read(self.datasets, to_sweep_by=self.as_of, columns=("transaction",))


@contextmanager
def looking(store: Store, due: DueHere, is_stopped: Callable[[], bool]) -> Iterator[None]:
    """Have a store look at all that is due, unless it has; remove the results of its look afterwards."""
    if store.reads is not Reads.SOME or store.has_looked:
        yield
        return
    # imported here: fsspec takes longer to import than all of the definitions
    from retention_assets.stores.places.own_files import temporary_folder

    with temporary_folder("look") as folder:
        store.answer_by(take_look(store, due, due.ledger, due.as_of, TasksHere(), folder, is_stopped=is_stopped))
        try:
            yield
        finally:
            store.answer_by(None)


def take_look(
    store: Store,
    due: DueTransactions,
    ledger: Ledger,
    as_of: datetime,
    tasks: Tasks,
    folder: str,
    opened: OpenPlace = open_local,
    is_stopped: Callable[[], bool] = never,
) -> object:
    """Have a store look at what is due, with the ledger's present realms and holds. Raises StoreFailed."""
    purging, last, holds = ledger.realms.purging(), ledger.scans.last_whole_result(store.name), Keepers(ledger).in_force(as_of)
    return call_store(store, lambda: store.look(due, purging, last, tasks, folder, opened, is_stopped, holds))


def answer_by(stores: Mapping[str, Store], looks: Mapping[str, object]) -> None:
    """Make stores answer from the looks that their run has taken."""
    for name, store in stores.items():
        if name in looks:
            store.answer_by(looks[name])


def among_looked_at(store: Store, wanted: Wanted) -> Wanted:
    """Restrict to what the look can answer for. What became due after it began is left to the next sweep."""
    if not store.has_looked:
        return wanted
    kept = {
        name: asked.filter(call_store(store, lambda asked=asked: store.was_looked_at(asked, wanted.purging)))  # type: ignore[misc]
        for name, asked in wanted.transactions.items()
    }
    return replace(wanted, transactions=kept)

"""Queries of the asset checks: each compares the folders of the run, the ledger and the naive latest views.

A check that is launched outside the run that made something looks at all that is published.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from itertools import starmap

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.dagster.step import Step
from retention_assets.datasets import by_store, store_of
from retention_assets.evaluation.changes import Listing, list_datasets
from retention_assets.evaluation.visibility import readable_but_swept
from retention_assets.frames.log import NAME, TIMES, by_dataset, faults_of, is_in_log
from retention_assets.frames.views.latest_views import COLUMNS, NEEDED
from retention_assets.ledger import Ledger, invariants
from retention_assets.ledger.book import kept_realms
from retention_assets.ledger.evaluations import SWEPT_BEFORE, Objection, Publication, StandingViolation
from retention_assets.ledger.histories import UNDELETED
from retention_assets.ledger.invariants import CheckResult, Invariant, Violation, check_result
from retention_assets.ledger.mark_rows import schema_of
from retention_assets.ledger.marking import CANDIDATES
from retention_assets.pipeline.file_systems import inside
from retention_assets.pipeline.part_frames import NEEDED as NEEDED_MARKS
from retention_assets.pipeline.part_frames import REALMS, VERDICTS, NeededMarks
from retention_assets.pipeline.read_tokens import read_begun
from retention_assets.pipeline.stage import Source, by_folder, parquet, read_datasets, read_output, read_transactions, run_stage
from retention_assets.policy.durations import text_of
from retention_assets.policy.sentences import count, there_again
from retention_assets.stores.protocol import Store, data_finder, rows_with_data
from retention_assets.sweep.admission import MARK_INVARIANTS, SWEPT_INVARIANTS

# Assets whose violations end when the dataset is gone. Violations of sweeps stay on record.
OF_PRESENT_DATASETS = frozenset({"transaction_log", "candidate_marks"})
_DATASETS_AT_ONCE = 500
_LISTINGS_AT_ONCE = 8


@dataclass(frozen=True)
class Check:
    """Check of an asset, and what a person is told of it."""

    name: str
    # what it would mean if it failed
    description: str
    # what is the case in a sound environment
    expected: str
    query: Callable[["CheckScope"], Iterable[Violation]]
    # a failed one stops whatever follows
    blocking: bool = True
    # its violations need a person, but do not fail the run
    warns: bool = False
    noun: str = "dataset"

    def key(self, asset: dg.AssetKey) -> dg.AssetCheckKey:
        return dg.AssetCheckKey(asset, self.name)

    def ask(self, scope: "CheckScope") -> CheckResult:
        return check_result(self.query(scope), self.expected, self.noun)


@dataclass(frozen=True)
class EarlierFindings:
    """The ledger before the checks of a step. `published`: of the step's asset, or of verdicts."""

    objections: Sequence[Objection]
    violations: Sequence[StandingViolation]
    whole_looks: Mapping[str, datetime]
    published: Sequence[Publication]


@dataclass(frozen=True)
class CheckScope:
    """Step whose checks are evaluated, with its ledger open; what several checks ask for is looked up once."""

    run: Step
    ledger: Ledger

    @property
    def is_of_present_datasets(self) -> bool:
        return self.run.key.path[-1] in OF_PRESENT_DATASETS

    @cached_property
    def before(self) -> EarlierFindings:
        ledger, asset = self.ledger, self.run.asset if self.is_of_present_datasets else self.asset("candidate_marks")
        with ledger.database.one_moment():
            violations = ledger.violations.standing(), ledger.violations.whole_looks()
            return EarlierFindings(ledger.objections.standing(), *violations, ledger.publications.of(asset))

    def asset(self, name: str) -> str:
        return self.run.sibling(name).to_user_string()

    @cached_property
    def present(self) -> Listing:
        return list_datasets(self.run.retention)

    @cached_property
    def looked_at(self) -> frozenset[str] | None:
        """Datasets that the step published, or is about; None for everything that is published."""
        published, runs = [entry.dataset for entry in self.before.published], self.run.runs
        own = [entry.dataset for entry in self.before.published if self.is_of_present_datasets and entry.run in runs]
        chosen = frozenset(self.run.datasets.select(own or published))
        return None if chosen.issuperset(published) else chosen

    @cached_property
    def judged(self) -> list[Publication]:
        """Verdicts of this run, or else the newest ones, without datasets whose log was read anew since."""
        log, verdicts = self.asset("transaction_log"), self.asset("candidate_marks")
        with self.ledger.database.one_moment(), self.ledger.database.reading() as connection:
            sources = {source.folder: source.datasets for source in self.run.sources(self.ledger, "candidate_marks")}
            newer = invariants.published_since(connection, log, verdicts)
            published = self.ledger.publications.of(verdicts)
        return [
            entry
            for entry in published
            if entry.folder in sources
            and entry.dataset in (sources[entry.folder] or (entry.dataset,))
            and entry.dataset not in newer
        ]

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(entry.dataset for entry in self.judged)

    @cached_property
    def verdict_sources(self) -> tuple[Source, ...]:
        folders = by_folder({entry.dataset: entry.folder for entry in self.judged})
        return tuple(Source(folder, frozenset(datasets)) for folder, datasets in sorted(folders.items()))

    @cached_property
    def log(self) -> list[Source]:
        """The log of which the verdicts were made. A folder that this run wrote is small enough to be read whole."""
        sources = self.run.sources(self.ledger, "transaction_log")
        chosen = (
            source if source.datasets is None else Source(source.folder, source.datasets & self.names) for source in sources
        )
        return [source for source in chosen if source.datasets is None or source.datasets]

    @cached_property
    def verdicts(self) -> dict[str, int]:
        """Verdicts per dataset, with no more than a batch in memory."""
        counts = dict.fromkeys(self.names, 0)
        for source in self.verdict_sources:
            rows = parquet(inside(source.folder, VERDICTS), pa.schema([("dataset", NAME)]))
            # Reading ahead would hold more than a batch.
            for batch in rows.to_batches(batch_readahead=1, fragment_readahead=1):
                for pair in pc.value_counts(batch["dataset"]).to_pylist():
                    if pair["values"] in (source.datasets or ()):
                        counts[pair["values"]] += pair["counts"]
        return counts


def unreachable(present: Listing) -> Iterator[Violation]:
    return starmap(Violation, sorted(present.away.items()))


def _unsound_logs(scope: CheckScope) -> Iterator[Violation]:
    datasets = read_datasets(scope.run.sources(scope.ledger, "transaction_log"))
    return starmap(Violation, faults_of(datasets).items())


def _marks_in_latest_views(scope: CheckScope) -> Iterator[Violation]:
    run = scope.run
    with scope.ledger.database.reading() as connection:
        policies = invariants.policies(connection)
    allowed = frozenset(version for version, policy in policies.items() if policy.latest_view)
    dropping = frozenset(version for version, policy in policies.items() if policy.drops_refs)
    target = inside(run.folder, "checks")
    needed_marks = NeededMarks(scope.verdict_sources, allowed, dropping, run.as_of, CANDIDATES)
    run_stage(run.spark, scope.log, target, (NEEDED_MARKS,), needed_marks, COLUMNS)
    for row in read_output(target, NEEDED_MARKS).cast(NEEDED).sort_by("dataset").to_pylist():
        sentence = f"{row['transaction']} is in the latest view of branch {row['branch']}, and policy {row['policy']} marked it"
        yield Violation(row["dataset"], sentence, row["marks"])


def _missing_verdicts(scope: CheckScope) -> Iterator[Violation]:
    log = {row["dataset"]: row["transactions"] for row in read_datasets(scope.log).to_pylist()}
    for name, verdicts in sorted(scope.verdicts.items()):
        if verdicts != log.get(name, 0):
            yield Violation(name, f"{verdicts} verdicts for {log.get(name, 0)} transactions")


def _marks_over_limits(scope: CheckScope) -> Iterator[Violation]:
    with scope.ledger.database.reading() as connection:
        yield from invariants.over_limits(connection, {f"run {entry.run}" for entry in scope.judged}, scope.verdicts)


def _in_purged_realms(scope: CheckScope) -> Iterator[Violation]:
    with scope.ledger.database.reading() as connection:
        purged = kept_realms(connection)
    transactions: Counter[tuple[str, str]] = Counter()
    for source in scope.verdict_sources if purged else ():
        for row in read_output(source.folder, REALMS, sorted(source.datasets or ())).to_pylist():
            if row["realm"] in purged:
                transactions[row["dataset"], row["realm"]] += row["transactions"]
    for (dataset, realm), times in sorted(transactions.items()):
        yield Violation(dataset, f"{count(times, 'transaction')} of realm {realm}, which is PURGED", times)


def _deleted_and_back(scope: CheckScope) -> Iterator[Violation]:
    counts = scope.ledger.evaluations.counts(scope.names)
    names = sorted(name for name, rows in counts.items() if any(row.verdict == SWEPT_BEFORE for row in rows))
    stores = scope.run.retention.stores(by_store(names))
    for at in range(0, len(names), _LISTINGS_AT_ONCE):
        rows = _deleted_and_there(scope.ledger, stores, scope.log, names[at : at + _LISTINGS_AT_ONCE])
        for name, own in sorted(by_dataset(rows).items()):
            yield Violation(name, there_again(name, own["transaction"].to_pylist()), len(own))


def _deleted_and_there(ledger: Ledger, stores: Mapping[str, Store], log: Sequence[Source], names: Sequence[str]) -> pa.Table:
    # few rows in memory, however many marks there are
    with ThreadPoolExecutor(_LISTINGS_AT_ONCE) as threads:
        listed = threads.map(lambda name: data_finder(stores.get(store_of(name)), name), names)
        finders = dict(zip(names, listed, strict=True))
    begun = read_begun(log)
    columns = ("dataset", "transaction", *TIMES, "outcome", "changed_at")
    there = [schema_of(columns).empty_table()]
    for batch in ledger.marks.read(names, ["SWEPT"], hidden_again=stores, columns=columns):
        marks = pa.Table.from_batches([batch])
        # Transactions that another run has swept since the log was read were still there then.
        marks = marks.filter(pc.less(marks["changed_at"], pa.scalar(begun, marks.schema.field("changed_at").type)))
        there.append(rows_with_data(marks, finders.__getitem__))
    marks = pa.concat_tables(there)
    # what is set aside was not deleted, so nothing is back
    marks = marks.filter(pc.invert(pc.is_in(marks["outcome"], pa.array(UNDELETED))))
    if not len(marks):
        return marks
    return marks.filter(pa.array(is_in_log(marks, read_transactions(log, names, ["dataset", "transaction", *TIMES]))))


def _ledger_violations(invariant: Invariant, scope: CheckScope) -> Iterator[Violation]:
    with scope.ledger.database.reading() as connection:
        yield from invariant(connection, _chosen(scope))


def _sweep_violations(name: str, scope: CheckScope) -> Iterable[Violation]:
    return scope.ledger.check_swept(name, SWEPT_INVARIANTS[name], scope.run.actor, _chosen(scope), scope.run.looks_at_record)


def _chosen(scope: CheckScope) -> Sequence[str] | None:
    choice = scope.run.datasets
    return None if choice.selects_all else choice.select(scope.ledger.publications.datasets(scope.asset("candidate_marks")))


def _readable_but_swept(scope: CheckScope) -> Iterator[Violation]:
    ledger = scope.ledger
    with ledger.database.one_moment():
        visible_from = ledger.visibility.of_all()
        logs = {entry.dataset: entry.folder for entry in ledger.publications.of(scope.asset("transaction_log"), visible_from)}
        views = ledger.publications.of(scope.asset("branch_views"), scope.run.datasets.select(logs))
    groups: dict[tuple[str, str], list[str]] = {}
    for entry in views:
        groups.setdefault((entry.folder, logs[entry.dataset]), []).append(entry.dataset)
    for (folder, of_log), names in sorted(groups.items()):
        for at in range(0, len(names), _DATASETS_AT_ONCE):
            batch = names[at : at + _DATASETS_AT_ONCE]
            if not len(swept := ledger.marks.table(batch, ["SWEPT"], columns=("dataset", "transaction", *TIMES))):
                continue
            rows = read_transactions([Source(of_log, frozenset(batch))], batch, ["dataset", "transaction", *TIMES])
            listed = swept.filter(pa.array(is_in_log(swept, rows)))
            columns = ["dataset", "transaction", "view", "superseded_at"]
            readable = readable_but_swept(read_output(folder, "branch_views", batch, columns), listed, visible_from)
            sums = readable.group_by("dataset").aggregate([("transaction", "count"), ("superseded_at", "max")])
            for row in sums.to_pylist():
                sentence = f"was readable until {text_of(row['superseded_at_max'])} and is swept"
                yield Violation(row["dataset"], sentence, row["transaction_count"])


def _changed_record(scope: CheckScope) -> Iterator[Violation]:
    verify = scope.ledger.verify_and_record if scope.run.looks_at_record else scope.ledger.verify_in_run
    return (Violation("", fault) for fault in verify(scope.run.actor).faults)


REACHABILITY = Check(
    "stores_are_reachable",
    "Every store of the settings answers. The datasets of a store that is away are neither judged nor swept until it answers.",
    "Every store answers.",
    lambda scope: unreachable(scope.present),
    blocking=False,
    noun="store",
)
CHECKS: Mapping[str, tuple[Check, ...]] = {
    "transaction_log": (
        REACHABILITY,
        Check(
            "log_is_sound",
            "Every log is sound. A dataset with an unsound log is refused as a whole: it is not judged, marked or swept.",
            "Every log is sound.",
            _unsound_logs,
            blocking=False,
        ),
    ),
    "candidate_marks": (
        Check(
            "latest_view_is_never_marked",
            "No mark is in the latest view of a live branch, by views that this check computes itself. Policies with "
            "`latest_view: allow` and purged realms are exceptions.",
            "No mark is in the latest view of a live branch, unless its policy allows that.",
            _marks_in_latest_views,
        ),
        Check(
            "mark_times_are_monotonic",
            "The times of the record are in order: mark times never go back, a mark is due when its grace is over, and "
            "visibility marks only rise. A changed time could cut a grace short.",
            "Mark times never go back, marks are due when their grace is over, and visibility marks only rise.",
            partial(_ledger_violations, MARK_INVARIANTS["mark_times_are_monotonic"]),
        ),
        Check(
            "marks_have_a_policy_and_a_reason",
            "Every open mark has a known policy version and a known reason.",
            "Every open mark was made by a known version of a policy, or by the system, for a known reason.",
            partial(_ledger_violations, MARK_INVARIANTS["marks_have_a_policy_and_a_reason"]),
        ),
        Check(
            "verdicts_sum_to_the_log",
            "Every transaction of a log has exactly one verdict. A transaction without one could be lost.",
            "Every dataset has as many verdicts as transactions.",
            _missing_verdicts,
        ),
        Check(
            "limits_are_respected",
            "No policy marked more of a dataset at a time than its limits allow.",
            "New marks are within the limits of their policies.",
            _marks_over_limits,
        ),
        Check(
            "visibility_marks_only_rise",
            "No visibility mark ever went back: history that was hidden stays hidden.",
            "No visibility mark was lowered or changed past the ledger.",
            partial(_ledger_violations, invariants.visibility_rises),
        ),
        Check(
            "nothing_appears_in_purged_realms",
            "A PURGED realm is empty. New data in it is kept until the realm is ACTIVE again. Either a writer still writes "
            "for a customer who left, or the realm is in use again.",
            "Every PURGED realm is empty.",
            _in_purged_realms,
            blocking=False,
        ),
        Check(
            "nothing_deleted_is_back",
            "No deleted transaction that a policy still selects is back. A backup may have restored it. Policies do not "
            "mark it again, because the record says that it is deleted. `retention replay` deletes it again. With other "
            "times in its log or table it is judged as a new one.",
            "No deleted transaction is back.",
            _deleted_and_back,
            blocking=False,
            warns=True,
        ),
    ),
    "swept_transactions": (
        Check(
            "nothing_is_swept_before_it_is_due",
            "Nothing was deleted in its grace.",
            "Every swept mark was planned after its grace was over.",
            partial(_sweep_violations, "nothing_is_swept_before_it_is_due"),
        ),
        Check(
            "nothing_is_swept_without_a_mark",
            "Every deletion was marked, planned and begun first.",
            "Every swept transaction was marked, and the record has the begin of its deletion.",
            partial(_sweep_violations, "nothing_is_swept_without_a_mark"),
        ),
        Check(
            "nothing_readable_is_swept",
            "No swept transaction belongs to a state that the visibility mark of its dataset lets readers read. `retention "
            "readable` warns readers who ask; readers who trust the mark alone would miss files.",
            "No swept transaction belongs to readable history.",
            _readable_but_swept,
            blocking=False,
        ),
    ),
    "purge_report": (
        Check(
            "the_record_is_intact",
            "The record is unchanged since it was written. `retention audit verify` checks the same in a terminal.",
            "Every row of the record is as it was written.",
            _changed_record,
        ),
        Check(
            "report_adds_up",
            "The numbers of every day's report add up, and none is below zero.",
            "To delete = deleted + already gone + spared + taken back + still open, in every report on its own day.",
            partial(_ledger_violations, invariants.reports_add_up),
        ),
    ),
}

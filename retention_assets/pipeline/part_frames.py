"""Frames of stages, sent to tasks with their rules and instant: views, verdicts and needed marks. Also the file of known marks
that verdicts read, and the sums of realms that they write.

Imports nothing of Dagster or the ledger, because each task's program pays for imports.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention_assets.frames.log import KNOWN_ROWS, LIVING, SUMMED, known_rows, selects_dataset
from retention_assets.frames.statistics import REALM_COUNTS, count_by_dataset, count_realms, count_reasons, newest_closes
from retention_assets.frames.verdicts.candidate_marks import verdicts_and_reevaluation
from retention_assets.frames.verdicts.decisions import new_marks
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.frames.verdicts.shared_data import datasets_sharing
from retention_assets.frames.views.branch_views import branch_views_and_ends
from retention_assets.frames.views.latest_views import needed_marks, rows_in_views, without_ended
from retention_assets.pipeline.file_systems import inside, place_of
from retention_assets.pipeline.stage import Source, by_folder, parquet, read_output
from retention_assets.policy.model import Keeper, Policy
from retention_assets.policy.realms import of_realm

if TYPE_CHECKING:
    from retention_assets.ledger import Ledger

_BATCH = 10_000
REALMS = "realms"
_GROUPS = ["realm", "verdict", "code", "witness"]
# names of output folders
VIEWS, ENDS, SUMS = "branch_views", "branch_ends", "sums"
VERDICTS, MARKS, WHY, LOOKS, NEWEST, COUNTS = "candidate_marks", "marks", "why", "looks", "newest", "counts"
NEEDED = "needed_marks"
OF_VIEWS = (VIEWS, ENDS, SUMS)
OF_VERDICTS = (VERDICTS, SUMS, MARKS, WHY, LOOKS, NEWEST, COUNTS, REALMS)


@dataclass(frozen=True)
class AlreadyMarked:
    """A file of transactions already marked or swept (KNOWN_ROWS); None where none is needed."""

    path: str | None = None

    def of(self, datasets: pa.Table) -> pa.Table | None:
        if self.path is None:
            return None
        files, path = place_of(self.path)
        # typed, because a part may have no datasets
        names = pa.array(datasets["dataset"].to_pylist(), pa.string())
        return pq.read_table(path, filesystem=files, filters=pc.field("dataset").isin(names))


def write_already_marked(
    ledger: "Ledger",
    policies: Sequence[Policy],
    datasets: pa.Table,
    folder: str,
    hidden_again: Collection[str] = (),
    realms: Sequence[str] = (),
) -> AlreadyMarked:
    """Write what is marked or swept of datasets with limits, in these realms, or with shared data, but not `hidden_again`."""
    limited = [policy.datasets for policy in policies if policy.limits] + [of_realm(realm) for realm in realms]
    sharing = datasets_sharing(datasets)
    about = [
        row["dataset"]
        for batch in (datasets.select(["dataset", "attributes"]).to_batches(_BATCH) if limited or sharing else ())
        for row in batch.to_pylist()
        if row["dataset"] in sharing
        or any(selects_dataset(scope, row["dataset"], dict(row["attributes"] or ())) for scope in limited)
    ]
    if not about:
        return AlreadyMarked()
    path = inside(folder, "known.parquet")
    files, place = place_of(path)
    files.create_dir(place.rpartition("/")[0], recursive=True)
    with pq.ParquetWriter(place, KNOWN_ROWS, filesystem=files) as writer:
        for batch in known_rows(ledger.marks.read(about, LIVING, hidden_again=hidden_again)):
            writer.write_batch(batch)
    return AlreadyMarked(path)


@dataclass(frozen=True)
class LeftOfRealm:
    """Transactions of a realm that are not swept, all for one reason."""

    verdict: str
    code: str
    witness: str | None
    transactions: int
    bytes: int

    @property
    def why(self) -> str:
        """Reason as words that follow a name; empty for marked transactions."""
        if self.verdict == "mark":
            return ""
        if self.verdict == "open" or self.code == Reason.UNFINISHED.name:
            return "still open"
        return f"held by {self.witness}" if self.code == Reason.HOLD.name else f"kept ({self.witness or self.code})"

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def add_up(parts: Iterable[pa.Table]) -> dict[str, list[LeftOfRealm]]:
    rows = pa.concat_tables([REALM_COUNTS.empty_table(), *(part.cast(REALM_COUNTS) for part in parts)])
    sums = rows.group_by(_GROUPS).aggregate([("transactions", "sum"), ("bytes", "sum")])
    realms: dict[str, list[LeftOfRealm]] = {}
    for row in sums.sort_by([("realm", "ascending"), ("transactions_sum", "descending"), ("witness", "ascending")]).to_pylist():
        left = LeftOfRealm(row["verdict"], row["code"], row["witness"], row["transactions_sum"], int(row["bytes_sum"] or 0))
        realms.setdefault(row["realm"], []).append(left)
    return realms


def published_counts(folders: Mapping[str, str]) -> dict[str, list[LeftOfRealm]]:
    """Add up the counts published by each dataset's newest evaluation, from its folder in `folders`."""
    parts = []
    for folder, datasets in by_folder(folders).items():
        # a lost folder of datasets that no store has any more is never written anew
        with suppress(FileNotFoundError):
            parts.append(read_output(folder, REALMS, datasets))
    return add_up(parts)


@dataclass(frozen=True)
class Views:
    as_of: datetime

    def __call__(self, transactions: pa.Table, _: pa.Table) -> dict[str, pa.Table]:
        views, ends = branch_views_and_ends(transactions, self.as_of)
        latest = pc.sum(pc.equal(views["view"], 0)).as_py() or 0
        protected = len(views) - views["protected_by"].null_count
        return {VIEWS: views, ENDS: ends, SUMS: pa.table({"in_latest_views": [latest], "protected": [protected]})}


@dataclass(frozen=True)
class Verdicts:
    policies: tuple[Policy, ...]
    keepers: tuple[Keeper, ...]
    versions: Mapping[str, int]
    as_of: datetime
    known: AlreadyMarked
    # realms whose remaining transactions are counted
    realms: tuple[str, ...] = ()

    def __call__(self, transactions: pa.Table, datasets: pa.Table) -> dict[str, pa.Table]:
        known = self.known.of(datasets)
        verdicts, looks = verdicts_and_reevaluation(transactions, datasets, self.policies, self.keepers, self.as_of, known)
        plain = pa.table({name: verdicts[name].cast(pa.string()) for name in ("verdict", "policy")})
        closed = transactions["closed_at"]
        # a time in the future says nothing about the present
        past = pc.if_else(pc.less_equal(closed, pa.scalar(self.as_of, closed.type)), closed, pa.scalar(None, closed.type))
        plain = plain.append_column("bytes", transactions["bytes"].cast(SUMMED)).append_column("closed_at", past)
        return {
            VERDICTS: verdicts,
            SUMS: plain.group_by(["verdict", "policy"]).aggregate([([], "count_all"), ("bytes", "sum"), ("closed_at", "max")]),
            MARKS: new_marks(verdicts, transactions, self.policies, self.versions),
            WHY: count_reasons(verdicts, transactions["bytes"]),
            LOOKS: looks,
            NEWEST: newest_closes(transactions),
            COUNTS: count_by_dataset(verdicts, transactions["bytes"]),
            REALMS: count_realms(
                transactions, datasets, verdicts, self.realms, None if known is None else known.filter(known["swept"])
            ),
        }


@dataclass(frozen=True)
class NeededMarks:
    """Compares the naive latest views of a part with its marks."""

    verdicts: tuple[Source, ...]
    allowed: frozenset[tuple[str, int]]
    dropping: frozenset[tuple[str, int]]
    as_of: datetime
    # of a mark; the ledger has them, which a task does not import
    columns: pa.Schema

    def __call__(self, transactions: pa.Table, datasets: pa.Table) -> dict[str, pa.Table]:
        names, tables = set(datasets["dataset"].to_pylist()), [self.columns.empty_table()]
        for source in self.verdicts:
            if chosen := sorted(names & (source.datasets or frozenset())):
                rows = parquet(inside(source.folder, MARKS), self.columns)
                tables.append(rows.to_table(filter=pc.field("dataset").isin(chosen)).cast(self.columns))
        marks = pa.concat_tables(tables)

        def remaining() -> pa.Table:
            return rows_in_views(without_ended(transactions, datasets, self.as_of))

        return {NEEDED: needed_marks(marks, self.allowed, self.dropping, lambda: rows_in_views(transactions), remaining)}

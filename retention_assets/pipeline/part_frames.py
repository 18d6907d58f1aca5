"""Frames as values that travel to tasks, each with its rules and instant, and the names of their outputs.

A task imports this and what it computes with, nothing of Dagster or the ledger: a program started for one run pays for imports
in each of its tasks' programs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.log import SUMMED
from retention_assets.frames.statistics import count_by_dataset, count_realms, count_reasons, newest_closes
from retention_assets.frames.verdicts.candidate_marks import verdicts_and_reevaluation
from retention_assets.frames.verdicts.decisions import new_marks
from retention_assets.frames.views.branch_views import branch_views_and_ends
from retention_assets.frames.views.latest_views import needed_marks, without_ended
from retention_assets.pipeline.already_marked import AlreadyMarked
from retention_assets.pipeline.file_systems import inside
from retention_assets.pipeline.realm_counts import REALMS
from retention_assets.pipeline.stage import Source, parquet
from retention_assets.policy.model import Hold, Policy

# names of output folders
VIEWS, ENDS, SUMS = "branch_views", "branch_ends", "sums"
VERDICTS, MARKS, WHY, LOOKS, NEWEST, COUNTS = "candidate_marks", "marks", "why", "looks", "newest", "counts"
NEEDED = "needed_marks"
OF_VIEWS = (VIEWS, ENDS, SUMS)
OF_VERDICTS = (VERDICTS, SUMS, MARKS, WHY, LOOKS, NEWEST, COUNTS, REALMS)


@dataclass(frozen=True)
class Views:
    """Views of branches at an instant."""

    as_of: datetime

    def __call__(self, transactions: pa.Table, _: pa.Table) -> dict[str, pa.Table]:
        """Branch views, branch ends, and sums of transactions in latest views and protected."""
        views, ends = branch_views_and_ends(transactions, self.as_of)
        latest = pc.sum(pc.equal(views["view"], 0)).as_py() or 0
        protected = len(views) - views["protected_by"].null_count
        return {VIEWS: views, ENDS: ends, SUMS: pa.table({"in_latest_views": [latest], "protected": [protected]})}


@dataclass(frozen=True)
class Verdicts:
    """Verdicts of rules at an instant."""

    policies: tuple[Policy, ...]
    holds: tuple[Hold, ...]
    versions: Mapping[str, int]
    as_of: datetime
    known: AlreadyMarked
    # realms of which the rest is counted
    realms: tuple[str, ...] = ()

    def __call__(self, transactions: pa.Table, datasets: pa.Table) -> dict[str, pa.Table]:
        """Verdicts, candidates to mark, and sums by policy and by reason."""
        known = self.known.of(datasets)
        verdicts, looks = verdicts_and_reevaluation(transactions, datasets, self.policies, self.holds, self.as_of, known)
        plain = pa.table({name: verdicts[name].cast(pa.string()) for name in ("verdict", "policy")})
        closed = transactions["closed_at"]
        # a time in the future says nothing about the present
        past = pc.if_else(pc.less_equal(closed, pa.scalar(self.as_of, closed.type)), closed, pa.scalar(None, closed.type))
        columns = {"bytes": transactions["bytes"].cast(SUMMED), "closed_at": past}
        for name, column in columns.items():
            plain = plain.append_column(name, column)
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
    # present columns of a mark; an earlier release lacks some
    columns: pa.Schema

    def __call__(self, transactions: pa.Table, datasets: pa.Table) -> dict[str, pa.Table]:
        names = set(datasets["dataset"].to_pylist())
        marks = pa.concat_tables([self.columns.empty_table(), *self._marks(names)])
        remaining = without_ended(transactions, datasets, self.as_of) if self.dropping else None
        return {NEEDED: needed_marks(transactions, marks, self.allowed, self.dropping, remaining)}

    def _marks(self, names: set[str]) -> Iterator[pa.Table]:
        for source in self.verdicts:
            if mine := sorted(names & (source.datasets or frozenset())):
                marks = parquet(inside(source.folder, MARKS), self.columns)
                yield marks.to_table(filter=pc.field("dataset").isin(mine)).cast(self.columns)

"""A file beside a run's output with the transactions already marked or swept, for tasks.

Limits count only what an evaluation would newly mark, and what is left of a purged realm excludes what is swept.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention_assets.frames.log import INSTANT, TIMES, selects_dataset
from retention_assets.pipeline.file_systems import inside, place_of
from retention_assets.policy.model import Policy
from retention_assets.policy.realms import of_realm

if TYPE_CHECKING:
    from retention_assets.ledger import Ledger

KNOWN_ROWS = pa.schema(
    [("dataset", pa.string()), ("transaction", pa.string()), *((name, INSTANT) for name in TIMES), ("swept", pa.bool_())]
)
_BATCH = 10_000
_STATUSES = ("MARKED", "SWEEPING", "SWEPT")


@dataclass(frozen=True)
class AlreadyMarked:
    """A file of known transactions, by dataset; None where no policy has limits and no realm is looked at."""

    path: str | None = None

    def of(self, datasets: pa.Table) -> pa.Table | None:
        """Read what is known of the datasets of a part."""
        if self.path is None:
            return None
        files, path = place_of(self.path)
        # a part may have no dataset of a run left
        mine = pa.array(datasets["dataset"].to_pylist(), pa.string())
        return pq.read_table(path, filesystem=files, filters=pc.field("dataset").isin(mine))


def write_already_marked(
    ledger: "Ledger",
    policies: Sequence[Policy],
    datasets: pa.Table,
    folder: str,
    hidden_again: Collection[str] = (),
    realms: Sequence[str] = (),
) -> AlreadyMarked:
    """Write what is known of datasets that a policy with limits is about, or that have something of these realms; what is to be
    marked again is left out.
    """
    limited = [policy.datasets for policy in policies if policy.limits] + [of_realm(realm) for realm in realms]
    about = [
        row["dataset"]
        for batch in (datasets.select(["dataset", "attributes"]).to_batches(_BATCH) if limited else ())
        for row in batch.to_pylist()
        if any(selects_dataset(scope, row["dataset"], dict(row["attributes"] or ())) for scope in limited)
    ]
    if not about:
        return AlreadyMarked()
    path = inside(folder, "known.parquet")
    files, place = place_of(path)
    files.create_dir(place.rpartition("/")[0], recursive=True)
    with pq.ParquetWriter(place, KNOWN_ROWS, filesystem=files) as writer:
        for batch in known_rows(ledger, about, hidden_again):
            writer.write_batch(batch)
    return AlreadyMarked(path)


def known_rows(ledger: "Ledger", datasets: Iterable[str], hidden_again: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
    """Read what is already marked or swept, with the columns of `KNOWN_ROWS`."""
    return (_known(batch) for batch in ledger.marks.read(datasets, _STATUSES, hidden_again=hidden_again))


def _known(marks: pa.RecordBatch) -> pa.RecordBatch:
    """Swept transactions come with their times, because another one may have their id since. An open mark keeps its id to
    itself.
    """
    swept = pc.equal(marks["status"], "SWEPT")
    times = (pc.if_else(swept, marks[name], pa.scalar(None, INSTANT)) for name in TIMES)
    return pa.record_batch([marks["dataset"], marks["transaction"], *times, swept], schema=KNOWN_ROWS)

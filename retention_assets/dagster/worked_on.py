"""Which partitions a step of a job worked on: those get an event of their own, so that the partitions' pages are right.

Belongs here: finding them, and how many are too many. An event costs about 10 ms, so only what something happened to has one: a
dataset that this run published, or of which it swept something.
Does not belong here: events (jobs.py).
"""

from collections.abc import Iterable

import dagster as dg

from retention_assets.dagster.partitions import BY_STORE, is_valid_key
from retention_assets.dagster.step import Metadata, Step
from retention_assets.datasets import by_store
from retention_assets.outcomes import Outcome

# With more, the events would take longer than the work; the tables of the materialization and of the ledger have them all.
MOST = 1_000
_OUTCOMES = [outcome.value.lower() for outcome in Outcome]


def partitions_worked_on(run: Step, metadata: Metadata) -> list[str]:
    """The partition keys, or none where there are too many."""
    if run.key == run.sibling("swept_transactions"):
        datasets = _swept(metadata["by_dataset"])
    else:
        with run.retention.ledger() as ledger:
            datasets = [one.dataset for one in ledger.publications.by(run.key.to_user_string(), [run.run.run_id])]
    if run.retention.settings.partition_by == BY_STORE:
        datasets = sorted(by_store(datasets))
    keys = [name for name in datasets if is_valid_key(name)]
    return keys if len(keys) <= MOST else []


def _swept(table: dg.TableMetadataValue) -> Iterable[str]:
    return [str(row.data["dataset"]) for row in table.records if any(row.data.get(name) for name in _OUTCOMES)]

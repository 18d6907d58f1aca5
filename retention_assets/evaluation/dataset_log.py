"""The log of one dataset: from a file, or as its store has it now.

Belongs here: finding it, and the refusal of a dataset that is not there or whose log is not sound. Everything that is about one
dataset reads it here; reading many at once is the pipeline's and the sweep's.
"""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.datasets import store_of
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused, nearest
from retention_assets.frames.log import Log
from retention_assets.frames.soundness import sound_log
from retention_assets.stores.protocol import Store, call_store

# Beyond so many names, the search for a similar one takes longer than a person waits.
_MOST_COMPARED = 100_000


def read_dataset(environment: Environment, dataset: str, path: Path | None = None) -> Log:
    """The log of a dataset alone, from a file or from its store."""
    if path is not None:
        # Only a file needs DuckDB, which takes longer to import than all definitions.
        from retention_assets.exchange import read_log

        return only_dataset(read_log(path), dataset)
    name, store = store_of(dataset), open_store_of(environment, dataset)
    if store is None:
        guess = nearest(name, [one.name for one in environment.settings.stores])
        remedy = f"Did you mean {guess}?" if guess else "Name a log with --log FILE."
        raise BadInput(Problem(f"the settings have no store named {name}", key="dataset", value=f"'{dataset}'", remedy=remedy))
    try:
        log = read_from(store, dataset)
        if log is None:
            raise _not_there(dataset, f"store {name}", call_store(store, store.datasets))
    finally:
        # Whoever asks again and again would be left with as many connections.
        if close := getattr(store, "close", None):
            close()
    return log


def open_store_of(environment: Environment, dataset: str) -> Store | None:
    """The store of a dataset, opened, if the settings have it."""
    name = store_of(dataset)
    return environment.stores([name]).get(name)


def read_from(store: Store, dataset: str) -> Log | None:
    """The log of a dataset as its store has it now; none if the store does not have it."""
    lines = call_store(store, lambda: store.read([dataset]))
    return only_dataset(sound_log(lines), dataset) if len(lines) else None


def only_dataset(log: Log, dataset: str) -> Log:
    """One dataset of a log; refused where it is not sound."""
    described = log.datasets.filter(pc.equal(log.datasets["dataset"], dataset))
    if not len(described):
        raise _not_there(dataset, "the log", log.datasets["dataset"].to_pylist()[:_MOST_COMPARED])
    row = described.to_pylist()[0]
    if row["fault"]:
        raise Refused(f"{dataset} is refused: {row['fault']} (transaction {row['fault_transaction']}). Mend its log first.")
    mine = pc.equal(log.transactions["dataset"].cast(pa.string()), dataset)
    return Log(log.transactions.filter(mine).combine_chunks(), described)


def _not_there(dataset: str, where: str, known: Sequence[str]) -> BadInput:
    guess = nearest(dataset, known)
    return BadInput(Problem(f"dataset '{dataset}' is not in {where}", remedy=f"Did you mean {guess}?" if guess else None))

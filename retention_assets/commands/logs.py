"""The logs that commands judge and read: those of a path, or of the stores of the settings as they have them now.

Belongs here: which log is meant by what was typed, and the refusal of what is not in it or not sound.
Does not belong here: reading lines (exchange, stores), and deciding what is sound (frames/soundness.py).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from retention_assets.commands.output import progress, say
from retention_assets.datasets import store_of
from retention_assets.errors import BadInput, Problem, Refused, nearest

if TYPE_CHECKING:
    from retention_assets.frames.log import Log
    from retention_assets.settings.model import Settings


def read_log_of(path: Path | None, settings: "Settings", dataset: str | None = None) -> "Log":
    """The log of a path, or of the stores of the settings: of all their datasets, or of one."""
    from retention_assets.exchange import read_log

    if path is not None:
        with progress(f"reading {path.name}"):
            return read_log(path)
    return _of_stores(settings) if dataset is None else _of_store(settings, dataset)


def log_if_any(path: Path | None, settings: "Settings", dataset: str) -> "Log | None":
    """The log of a dataset; none where no path was named, and no store that can be read has the dataset (any more)."""
    from retention_assets.frames.soundness import sound_log
    from retention_assets.stores.registry import open_store

    found = settings.store(store_of(dataset))
    if path is not None or found is None:
        return read_log_of(path, settings, dataset) if path is not None else None
    try:
        store = open_store(found)
    except Refused as fault:
        say(str(fault))
        return None
    with progress(f"reading {dataset}"):
        lines = store.read([dataset])
    return sound_log(lines) if len(lines) else None


def _of_store(settings: "Settings", dataset: str) -> "Log":
    """The log of a dataset as its store has it now."""
    from retention_assets.frames.soundness import sound_log
    from retention_assets.stores.registry import open_store

    found = settings.store(store_of(dataset))
    if found is None:
        raise _no_log(f"store '{store_of(dataset)}'")
    store = open_store(found)
    with progress(f"reading {dataset}"):
        lines = store.read([dataset])
        if not len(lines):
            raise _not_listed(dataset, f"store {store.name}", store.datasets())
    return sound_log(lines)


def _of_stores(settings: "Settings") -> "Log":
    """The log of all datasets of all stores that this version can read; the others are named."""
    import pyarrow as pa

    from retention_assets.frames.soundness import sound_log
    from retention_assets.stores.registry import open_store

    opened = []
    for found in settings.stores:
        try:
            opened.append(open_store(found))
        except Refused as fault:
            say(str(fault))
    if not opened:
        raise _no_log("a store")
    with progress(f"reading {', '.join(store.name for store in opened)}"):
        return sound_log(pa.concat_tables([store.read(store.datasets()) for store in opened]).combine_chunks())


def _no_log(about: str) -> BadInput:
    return BadInput(Problem(f"no log was named, and the settings have no log of {about}", remedy="Name one with --log FILE."))


def _not_listed(dataset: str, where: str, known: Sequence[str]) -> BadInput:
    guess = nearest(dataset, known)
    return BadInput(Problem(f"dataset '{dataset}' is not in {where}", remedy=f"Did you mean {guess}?" if guess else None))


def one_dataset(log: "Log", dataset: str) -> "Log":
    """One dataset of a log; refused where it is not sound."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from retention_assets.frames.log import Log

    described = log.datasets.filter(pc.equal(log.datasets["dataset"], dataset))
    if not len(described):
        raise _not_listed(dataset, "the log", log.datasets["dataset"].to_pylist()[:100_000])
    row = described.to_pylist()[0]
    if row["fault"]:
        raise Refused(f"{dataset} is refused: {row['fault']} (transaction {row['fault_transaction']}). Mend its log first.")
    mine = pc.equal(log.transactions["dataset"].cast(pa.string()), dataset)
    return Log(log.transactions.filter(mine).combine_chunks(), described)


def refuse_unsound(log: "Log") -> None:
    """Whoever judged a log ends with this: what was refused is no success."""
    refused = len(log.datasets) - log.datasets["fault"].null_count
    if refused:
        raise Refused(f"{refused} of {len(log.datasets)} datasets were refused: their logs are not sound.")

"""Read the log of one dataset, from a file or its store; refuse one that is missing or not sound."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.datasets import store_of
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused, did_you_mean, suggest
from retention_assets.evaluation.keepers import Keepers
from retention_assets.frames.log import Log, faults_of
from retention_assets.frames.soundness import sound_log
from retention_assets.frames.verdicts.kept_rows import kept_among
from retention_assets.ledger import Ledger
from retention_assets.ledger.mark_rows import OUTCOMES, STATUSES, schema_of
from retention_assets.stores.logs import read_lines, read_some_lines, tell_swept
from retention_assets.stores.protocol import FindData, Only, Reads, Store, StoreFailed, call_store, data_finder

# names compared for a suggestion; more take longer than a person waits
MOST_COMPARED = 100_000


class UnsoundLog(Refused):
    """A log that contradicts itself: its dataset is not judged, marked or swept until it is mended."""


def read_dataset(environment: Environment, dataset: str, path: Path | None = None) -> Log:
    if path is not None:
        # DuckDB takes longer to import than all definitions, and only a file needs it.
        from retention_assets.exchange import read_log

        return only_dataset(read_log(path), dataset)
    log = read_if_any(environment, dataset)
    if log is None:
        raise _no_dataset(environment, dataset)
    return log


def read_if_any(environment: Environment, dataset: str, only: Only | None = None, *, whole_lines: bool = False) -> Log | None:
    """Read the log of a dataset from its store; None where no store of the settings has it (any more).

    A store that `is_asked_alone` may be asked for `only` some transactions; with `whole_lines` for the others of their lines.
    """
    store = _open_store_of(environment, dataset)
    try:
        return read_from(store, dataset, only, whole_lines) if store else None
    finally:
        # Repeated calls would pile up open connections.
        if store:
            store.close()


def _open_store_of(environment: Environment, dataset: str) -> Store | None:
    name = store_of(dataset)
    return environment.stores([name]).get(name)


def find_data(environment: Environment, dataset: str) -> FindData:
    """Find out which transactions have data, by listing the dataset once at the first question; None where nobody can tell."""

    @cache
    def finder() -> FindData:
        return data_finder(_open_store_of(environment, dataset), dataset)

    return lambda names: finder()(names) if names else []


def needs_of(
    environment: Environment, log: Log, ledger: Ledger | None, dataset: str, transaction: str, as_of: datetime
) -> tuple[str, ...]:
    """Ask the store of a dataset which data goes with a transaction; its failure is a sentence, too."""
    store = _open_store_of(environment, dataset)
    if store is None:
        return ()
    keepers = Keepers.of_settings(ledger, environment.settings).in_force(as_of)
    try:
        tell_swept(
            store,
            dataset,
            log,
            lambda: ledger.marks.swept([dataset]) if ledger else schema_of(OUTCOMES).empty_table(),
            lambda log, names: kept_among(log, names, keepers, as_of),
        )
        return tuple(call_store(store, lambda: store.explain_needs(dataset, transaction)))
    except StoreFailed as fault:
        return (str(fault),)


def is_asked_alone(environment: Environment, dataset: str) -> bool:
    """Tell whether a transaction is read without the others of its dataset: limits can't be computed then."""
    store = _open_store_of(environment, dataset)
    return store is not None and call_store(store, lambda: store.reads) is Reads.SOME


def read_from(store: Store, dataset: str, only: Only | None = None, whole_lines: bool = False) -> Log | None:
    """Read the log of a dataset as its store has it now; None if the store does not have it."""
    if only is None:
        lines = call_store(store, lambda: read_lines(store, [dataset]))
    else:
        lines = call_store(store, lambda: read_some_lines(store, only, [dataset] if whole_lines else []))
    return only_dataset(sound_log(lines), dataset) if len(lines) else None


def only_dataset(log: Log, dataset: str) -> Log:
    """Cut one dataset out of a log; refuse it where it is not sound."""
    described = log.datasets.filter(pc.equal(log.datasets["dataset"], dataset))
    if not len(described):
        raise _not_there(dataset, "the log", log.datasets["dataset"].to_pylist()[:MOST_COMPARED])
    if fault := faults_of(described).get(dataset):
        raise UnsoundLog(f"{dataset} is refused: {fault}. Mend its log first.")
    own = pc.equal(log.transactions["dataset"].cast(pa.string()), dataset)
    return Log(log.transactions.filter(own).combine_chunks(), described)


def refuse_unknown(environment: Environment, dataset: str, log: Log | None, ledger: Ledger | None) -> None:
    """Refuse a dataset of which there is no log, and of which the ledger knows nothing."""
    if log is None and not (ledger and len(ledger.marks.table([dataset], STATUSES, columns=("transaction",)))):
        raise _no_dataset(environment, dataset)


def _no_dataset(environment: Environment, dataset: str) -> BadInput:
    # a name without its store may mean a dataset of any
    name = store_of(dataset)
    store = _open_store_of(environment, dataset)
    if store is not None:
        return _not_there(dataset, f"store {name}", call_store(store, store.datasets)[:MOST_COMPARED])
    remedy = suggest(name, [one.name for one in environment.settings.stores])
    remedy = remedy or did_you_mean(dataset, _all_datasets(environment))
    what = f"the settings have no store named {name}"
    return BadInput(Problem(what, key="dataset", value=f"'{dataset}'", remedy=remedy or "Name a log with --log FILE."))


def _all_datasets(environment: Environment) -> list[str]:
    datasets: list[str] = []
    for settings in environment.settings.stores:
        with suppress(Refused, BadInput):
            (store,) = environment.stores([settings.name]).values()
            datasets += call_store(store, store.datasets)
    return datasets[:MOST_COMPARED]


def _not_there(dataset: str, where: str, known: Sequence[str]) -> BadInput:
    return BadInput(Problem(f"dataset '{dataset}' is not in {where}", remedy=did_you_mean(dataset, known)))

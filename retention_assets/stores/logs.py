"""Reads logs of stores, share by share; datasets that can't be read are refused by name, and the others go on.

It needs no Spark, so that a command that only reads does not start one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from retention_assets.datasets import DatasetFilter
from retention_assets.frames.log import DATASETS, LOG, Log
from retention_assets.frames.soundness import sound_log
from retention_assets.silence import is_silence
from retention_assets.stores.protocol import Store, ask_store, error_text
from retention_assets.stores.realms import read_lines

# pieces into which a share that can't be read is split
_PIECES = 8


@dataclass(frozen=True)
class ChosenDatasets:
    """Datasets of a store to read, and the fault if the store could not list them."""

    store: Store
    datasets: tuple[str, ...]
    fault: str | None = None


def choose_datasets(stores: Iterable[Store], wanted: DatasetFilter) -> list[ChosenDatasets]:
    chosen = []
    for store in stores:
        try:
            names = ask_store(store, store.datasets)
        except Exception as fault:  # noqa: BLE001 - a store may be anybody's; one that is away must not keep others from being read
            chosen.append(ChosenDatasets(store, (), error_text(fault)))
        else:
            chosen.append(ChosenDatasets(store, tuple(wanted.select(names))))
    return chosen


def shares_of(one: ChosenDatasets) -> Sequence[tuple[str, ...]]:
    """Return the shares of a store; if it can't tell, one share of all, which is refused by name if it can't be read either."""
    try:
        return ask_store(one.store, lambda: one.store.shares(one.datasets))
    except Exception:  # noqa: BLE001 - see above: one store that fails must not keep others from being read
        return [one.datasets]


def read_share(store: Store, datasets: Sequence[str], silent: dict[str, Exception] | None = None) -> Log:
    """Read a share; datasets that can't be read are refused. A store in `silent` is not asked again."""
    logs = _logs(store, datasets, {} if silent is None else silent)
    if len(logs) == 1:
        return logs[0]
    rows = pa.concat_tables([log.transactions for log in logs]).unify_dictionaries()
    return Log(rows, pa.concat_tables([log.datasets for log in logs]))


def _logs(store: Store, datasets: Sequence[str], silent: dict[str, Exception]) -> list[Log]:
    if store.name in silent:
        return [_refused(datasets, silent[store.name])]
    try:
        return [_of_all(store, datasets)]
    except Exception as fault:  # noqa: BLE001 - see above: what can't be read is refused by name
        if is_silence(fault):
            silent[store.name] = fault
        if len(datasets) == 1 or store.name in silent:
            return [_refused(datasets, fault)]
        # One dataset may keep the others from being read. If no piece can be read, it isn't one dataset: stop splitting.
        step = -(-len(datasets) // _PIECES)
        pieces = [datasets[at : at + step] for at in range(0, len(datasets), step)]
        found = [_whole(store, piece) for piece in pieces]
        if all(one is None for one in found):
            return [_refused(datasets, fault)]
        return [
            log for piece, one in zip(pieces, found, strict=True) for log in ([one] if one else _logs(store, piece, silent))
        ]


def _whole(store: Store, datasets: Sequence[str]) -> Log | None:
    try:
        return _of_all(store, datasets)
    except Exception:  # noqa: BLE001 - see above: it is asked for in pieces
        return None


def _of_all(store: Store, datasets: Sequence[str]) -> Log:
    """Add datasets without a line to the log, without transactions.

    Left out, they would never be published or looked at, and so be asked for again and again.
    """
    log = sound_log(read_lines(store, datasets))
    empty = sorted(set(datasets).difference(log.datasets["dataset"].to_pylist()))
    if not empty:
        return log
    rows = [{"dataset": name, "transactions": 0} for name in empty]
    every = pa.concat_tables([log.datasets, pa.Table.from_pylist(rows, DATASETS)])
    # in the order of a sound log, where datasets without transactions may stand anywhere
    return Log(log.transactions, every.sort_by("dataset"))


def _refused(datasets: Sequence[str], fault: Exception) -> Log:
    text = f"cannot be read: {error_text(fault)}"
    rows = [
        {"dataset": name, "transactions": 0, "attributes": None, "fault": text, "fault_transaction": None} for name in datasets
    ]
    return Log(LOG.empty_table(), pa.Table.from_pylist(rows, DATASETS))

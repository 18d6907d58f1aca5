"""Reads logs and tokens of stores; datasets that can't be read are refused by name, and the others go on.

Realms from the settings are applied here. A log that names its own realm wins, if that is the one of the settings or below it;
any other realm is a fault of that dataset alone.

It needs no Spark, so that a command that only reads does not start one.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.datasets import DatasetFilter
from retention_assets.frames.arrays import join_chunks, keys_of
from retention_assets.frames.log import DATASETS, LINES, LOG, TIMES, Log, is_in_log, realms_of
from retention_assets.frames.soundness import sound_log
from retention_assets.outcomes import Outcome
from retention_assets.policy.realms import NAME_RULE, is_within, may_own_datasets
from retention_assets.silence import is_silence
from retention_assets.stores.protocol import Only, Store, ask_store, call_store, error_text

# pieces into which a share that can't be read is split
_PIECES = 8


def read_lines(store: Store, datasets: Sequence[str]) -> pa.Table:
    """Read the log and the refs of the datasets, with the realms from the settings."""
    lines = ask_store(store, lambda: store.read(datasets))
    if not len(lines) or store.settings.realm is None:
        return lines
    names = [name for name in pc.unique(join_chunks(lines["dataset"])).to_pylist() if name is not None]
    given = {name: realm for name in names if (realm := realm_of(store, name)) is not None}
    own = _own_realms(lines) if given else {}
    realm_lines = [_realm_line(name, realm, own.get(name)) for name, realm in given.items()]
    more = [line for line in realm_lines if line is not None]
    return pa.concat_tables([lines, pa.Table.from_pylist(more, LINES)]) if more else lines


def read_some_lines(store: Store, only: Only, whole: Collection[str]) -> pa.Table:
    """Read some transactions; for datasets in `whole`, in which selectors count along lines, all others as well."""
    lines = store.read(list(only.transactions), only)
    if not whole:
        return lines
    others = store.read(sorted(whole))
    asked = pa.array([f"{dataset}\0{name}" for dataset in whole for name in only.transactions[dataset]], pa.string())
    others = others.filter(pc.and_(pc.is_valid(others["transaction"]), pc.invert(pc.is_in(keys_of(others), asked))))
    return pa.concat_tables([lines, others])


def tell_swept(
    store: Store,
    dataset: str,
    log: Log,
    swept: Callable[[], pa.Table],
    keep: Callable[[Log, Collection[str]], Collection[str]],
) -> None:
    """Tell a store that shares data which transactions of a log were swept; ask for `swept` marks only then.

    An id may have been used again: a mark counts only if its times are those of the log. `keep` returns those that a hold or a
    retain rule keeps.
    """
    if not store.shares_data:
        return
    marks = swept()
    has_times = pc.or_(*(pc.is_valid(marks[name]) for name in TIMES))
    marks = marks.filter(pc.and_(has_times, pa.array(is_in_log(marks, log.transactions), pa.bool_())))
    is_aside = pc.equal(marks["outcome"], Outcome.SET_ASIDE)
    aside, deleted = (marks.filter(part)["transaction"].to_pylist() for part in (is_aside, pc.invert(is_aside)))
    kept = keep(log, [*aside, *deleted]) if len(marks) else ()
    call_store(store, lambda: store.know_swept(dataset, deleted, aside, kept))


def tokens_of(store: Store, datasets: Sequence[str]) -> Mapping[str, str]:
    """Combine the store's tokens with the realms from the settings: another realm means another log."""
    tokens = ask_store(store, lambda: store.tokens(datasets))
    if store.settings.realm is None:
        return tokens
    realms = {name: realm for name in tokens if (realm := realm_of(store, name)) is not None}
    pairs = {name: repr((tokens[name], realm)).encode(errors="surrogateescape") for name, realm in realms.items()}
    return {**tokens, **{name: hashlib.sha256(pair).hexdigest() for name, pair in pairs.items()}}


def realm_of(store: Store, dataset: str) -> str | None:
    """Realm that the store's settings give a dataset, known before its log is read."""
    return store.settings.realm_of(dataset)


def _realm_line(dataset: str, realm: str, own: str | None) -> dict[str, str] | None:
    if not may_own_datasets(realm):
        return {"dataset": dataset, "fault": f"its name gives it the realm {realm!r}, which is no name of a realm: {NAME_RULE}"}
    if own is None:
        return {"dataset": dataset, "realm": realm}
    if is_within(own, realm):
        return None
    return {"dataset": dataset, "fault": f"its log has the realm {own}, but the settings have {realm}"}


def _own_realms(lines: pa.Table) -> dict[str, str]:
    # Two realms of one dataset are found when the log is checked.
    is_about_dataset = pc.and_(pc.and_(pc.is_null(lines["transaction"]), pc.is_null(lines["branch"])), pc.is_null(lines["tag"]))
    rows = lines.filter(is_about_dataset).select(["dataset", "realm", "attributes"])
    realms = pc.coalesce(join_chunks(rows["realm"]), realms_of(rows))
    pairs = zip(rows["dataset"].to_pylist(), realms.to_pylist(), strict=True)
    return {dataset: realm for dataset, realm in pairs if realm is not None}


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
        return ask_store(one.store, lambda: one.store.shares(one.datasets)) if one.datasets else ()
    except Exception:  # noqa: BLE001 - see above: one store that fails must not keep others from being read
        return [one.datasets]


def read_chosen(chosen: Iterable[ChosenDatasets]) -> Iterator[Log]:
    """Yield logs share by share. Datasets that can't be read are refused."""
    silent: dict[str, Exception] = {}
    for choice in chosen:
        for share in shares_of(choice):
            yield read_share(choice.store, share, silent)


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
        return [_read_log(store, datasets)]
    except Exception as fault:  # noqa: BLE001 - see above: what can't be read is refused by name
        if is_silence(fault):
            silent[store.name] = fault
        if len(datasets) == 1 or store.name in silent:
            return [_refused(datasets, fault)]
        # One dataset may keep the others from being read. If no piece can be read, it isn't one dataset: stop splitting.
        step = -(-len(datasets) // _PIECES)
        pieces = [datasets[begin : begin + step] for begin in range(0, len(datasets), step)]
        logs = [_read_log_or_none(store, piece) for piece in pieces]
        if all(one is None for one in logs):
            return [_refused(datasets, fault)]
        parts = ([log] if log else _logs(store, piece, silent) for piece, log in zip(pieces, logs, strict=True))
        return [log for part in parts for log in part]


def _read_log_or_none(store: Store, datasets: Sequence[str]) -> Log | None:
    try:
        return _read_log(store, datasets)
    except Exception:  # noqa: BLE001 - see above: it is asked for in pieces
        return None


def _read_log(store: Store, datasets: Sequence[str]) -> Log:
    # Datasets without a line are listed too, without transactions: otherwise they would be asked for again and again.
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

"""Applies realms from the settings to the datasets of a store, in lines and tokens.

A log that names its own realm wins, if that is the one of the settings or below it; any other realm is a fault of that dataset
alone.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import join_chunks, keys_of
from retention_assets.frames.log import LINES, realms_of
from retention_assets.policy.realms import NAME_RULE, is_within, may_own_datasets
from retention_assets.stores.protocol import Only, Store, ask_store
from retention_assets.stores.settings import StoreSettings


def read_lines(store: Store, datasets: Sequence[str]) -> pa.Table:
    """Read the log and the refs of the datasets, with the realms from the settings."""
    lines = ask_store(store, lambda: store.read(datasets))
    if not len(lines) or not _gives_realms(store):
        return lines
    names = [name for name in pc.unique(join_chunks(lines["dataset"])).to_pylist() if name is not None]
    given = {name: realm for name in names if (realm := realm_of(store, name)) is not None}
    own = _own_realms(lines) if given else {}
    more = [line for name, realm in given.items() if (line := _line(name, realm, own.get(name))) is not None]
    return pa.concat_tables([lines, pa.Table.from_pylist(more, LINES)]) if more else lines


def read_some_lines(store: Store, only: Only, whole: Collection[str]) -> pa.Table:
    """Read some transactions; for datasets in `whole`, whose lines are counted along, all others as well."""
    lines = store.read(list(only.transactions), only)
    if not whole:
        return lines
    others = store.read(sorted(whole))
    asked = pa.array([f"{dataset}\0{name}" for dataset in whole for name in only.transactions[dataset]], pa.string())
    others = others.filter(pc.and_(pc.is_valid(others["transaction"]), pc.invert(pc.is_in(keys_of(others), asked))))
    return pa.concat_tables([lines, others])


def tokens_of(store: Store, datasets: Sequence[str]) -> Mapping[str, str]:
    """Combine the store's tokens with the realms from the settings: another realm means another log."""
    tokens = ask_store(store, lambda: store.tokens(datasets))
    if not _gives_realms(store):
        return tokens
    realms = {name: realm_of(store, name) for name in tokens}
    return {name: token if realms[name] is None else _digest(token, str(realms[name])) for name, token in tokens.items()}


def _digest(token: str, realm: str) -> str:
    return hashlib.sha256(repr((token, realm)).encode(errors="surrogateescape")).hexdigest()


def _gives_realms(store: Store) -> bool:
    settings = getattr(store, "settings", None)
    return isinstance(settings, StoreSettings) and settings.realm is not None


def realm_of(store: Store, dataset: str) -> str | None:
    """Realm that the store's settings give a dataset, known before its log is read."""
    settings = getattr(store, "settings", None)
    return settings.realm_of(dataset) if isinstance(settings, StoreSettings) else None


def _line(dataset: str, realm: str, own: str | None) -> dict[str, str] | None:
    if not may_own_datasets(realm):
        return {"dataset": dataset, "fault": f"its name gives it the realm {realm!r}, which is no name of a realm: {NAME_RULE}"}
    if own is None:
        return {"dataset": dataset, "realm": realm}
    if is_within(own, realm):
        return None
    return {"dataset": dataset, "fault": f"its log says that its realm is {own}, and the settings say {realm}"}


def _own_realms(lines: pa.Table) -> dict[str, str]:
    """Realms named by the logs, by dataset. Two that differ are found when the log is checked."""
    about = pc.and_(pc.and_(pc.is_null(lines["transaction"]), pc.is_null(lines["branch"])), pc.is_null(lines["tag"]))
    rows = lines.filter(about).select(["dataset", "realm", "attributes"])
    realms = pc.coalesce(join_chunks(rows["realm"]), realms_of(rows))
    pairs = zip(rows["dataset"].to_pylist(), realms.to_pylist(), strict=True)
    return {dataset: realm for dataset, realm in pairs if realm is not None}

"""Applies realms from the settings to the datasets of a store, in lines and tokens.

A log that names its own realm wins, if that is the one of the settings or below it; any other realm is a fault of that dataset
alone. Realms of rows by a column belong to the kinds that have columns.
"""

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.datasets import store_of
from retention_assets.frames.arrays import join_chunks, keys_of
from retention_assets.frames.log import LINES
from retention_assets.policy.model import Hold
from retention_assets.policy.realms import NAME_RULE, OWN_REALMS, REALM, SYSTEM, is_realm_name, is_within
from retention_assets.stores.protocol import SelectiveStore, Store, ask_store
from retention_assets.stores.settings import RealmColumn, RealmPattern, StoreSettings


def read_lines(store: Store, datasets: Sequence[str]) -> pa.Table:
    """Read the log and the refs of the datasets, with the realms from the settings."""
    lines = ask_store(store, lambda: store.read(datasets))
    settings = getattr(store, "settings", None)
    if not isinstance(settings, StoreSettings) or not gives_realms(settings) or not len(lines):
        return lines
    names = [name for name in pc.unique(join_chunks(lines["dataset"])).to_pylist() if name is not None]
    given = {name: realm for name in names if (realm := realm_of(settings, name)) is not None}
    own = _own_realms(lines) if given else {}
    more = [line for name, realm in given.items() if (line := _line(name, realm, own.get(name))) is not None]
    return pa.concat_tables([lines, pa.Table.from_pylist(more, LINES)]) if more else lines


def read_some_lines(
    store: SelectiveStore,
    wanted: Mapping[str, Sequence[str]],
    purging: Collection[str],
    whole: Collection[str],
    holds: Sequence[Hold] = (),
) -> pa.Table:
    """Read some transactions; for datasets in `whole`, whose lines are counted along, all others as well."""
    lines = store.read_some(wanted, purging, holds)
    if not whole:
        return lines
    others = store.read(sorted(whole))
    asked = pa.array([f"{dataset}\0{name}" for dataset in whole for name in wanted[dataset]], pa.string())
    others = others.filter(pc.and_(pc.is_valid(others["transaction"]), pc.invert(pc.is_in(keys_of(others), asked))))
    return pa.concat_tables([lines, others])


def tokens_of(store: Store, datasets: Sequence[str]) -> Mapping[str, str]:
    """Combine the store's tokens with the realms from the settings: another realm means another log.

    A kind that names realms by itself has its settings in its own tokens.
    """
    tokens = ask_store(store, lambda: store.tokens(datasets))
    settings = getattr(store, "settings", None)
    if not isinstance(settings, StoreSettings) or settings.realm is None or settings.names_own_realms:
        return tokens
    said = {name: _said_of(settings, name) for name in tokens}
    return {name: token if said[name] is None else _digest(token, str(said[name])) for name, token in tokens.items()}


def _said_of(settings: StoreSettings, dataset: str) -> str | None:
    """The colon of a column never occurs in the name of a realm."""
    return f"column: {settings.realm.column}" if isinstance(settings.realm, RealmColumn) else realm_of(settings, dataset)


def _digest(token: str, said: str) -> str:
    return hashlib.sha256(repr((token, said)).encode(errors="surrogateescape")).hexdigest()


def gives_realms(settings: StoreSettings) -> bool:
    """Tell whether settings give realms to whole datasets, by name."""
    return isinstance(settings.realm, RealmPattern) or (isinstance(settings.realm, str) and not settings.names_own_realms)


def realm_of(settings: StoreSettings, dataset: str) -> str | None:
    """Return the realm that the store's settings give a dataset, if any."""
    if isinstance(settings.realm, RealmPattern):
        found = re.search(settings.realm.pattern, dataset.removeprefix(f"{store_of(dataset)}/"))
        return found.group(1) if found else None
    return settings.realm if gives_realms(settings) and isinstance(settings.realm, str) else None


def realm_attributes(store: Store, dataset: str) -> Mapping[str, str]:
    """Return the attributes about a dataset's realm that are known before its log is read."""
    settings = getattr(store, "settings", None)
    if not isinstance(settings, StoreSettings) or settings.realm is None:
        return {}
    if not gives_realms(settings):
        return {OWN_REALMS: "true"}
    realm = realm_of(settings, dataset)
    return {} if realm is None else {REALM: realm}


def _line(dataset: str, realm: str, own: str | None) -> dict[str, str] | None:
    if not (is_realm_name(realm) or realm == SYSTEM):
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
    realms = pc.coalesce(join_chunks(rows["realm"]), pc.map_lookup(join_chunks(rows["attributes"]), pa.scalar(REALM), "first"))
    pairs = zip(rows["dataset"].to_pylist(), realms.to_pylist(), strict=True)
    return {dataset: realm for dataset, realm in pairs if realm is not None}

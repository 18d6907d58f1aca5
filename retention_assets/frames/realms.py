"""Rows by realm, where the transactions of a dataset have realms of their own.

A transaction belongs to its own realm and to its dataset's. Other datasets are judged as wholes and cost nothing here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import Bools, Counts, flags, integers, join_chunks
from retention_assets.frames.views.history import History
from retention_assets.policy.model import Datasets
from retention_assets.policy.realms import OWN_REALMS, REALM, is_reserved, is_within


@dataclass(frozen=True)
class RealmRows:
    """Realms by what the datasets of a log say."""

    # mixed datasets, and the realm that each gives to all its transactions
    mixed: Mapping[str, str | None]
    # something may be in a reserved realm
    may_be_reserved: bool

    def members(self, log: pa.Table, datasets: pa.Table, realm: str) -> Bools | None:
        """Rows of a realm in a log of these datasets; None where there is none."""
        said = pc.map_lookup(join_chunks(datasets["attributes"]), pa.scalar(REALM), "first").to_pylist()
        whole = [name for name, own in zip(datasets["dataset"].to_pylist(), said, strict=True) if is_within(own or "", realm)]
        if not whole and not self.mixed:
            return None
        found = flags(pc.is_in(log["dataset"].cast(pa.string()), pa.array(whole, pa.string())))
        if self.mixed:
            some = flags(pc.is_in(log["dataset"].cast(pa.string()), pa.array(list(self.mixed), pa.string())))
            found |= some & self.of(log).within(realm)
        return found

    def of(self, log: pa.Table) -> "LogRealms":
        """Narrow to the rows of a log of these datasets."""
        names = join_chunks(log["dataset"]).dictionary.to_pylist() if self.mixed else []
        return LogRealms(log, {name: self.mixed[name] for name in names if name in self.mixed})


@dataclass(frozen=True)
class LogRealms:
    """Realms of rows."""

    log: pa.Table
    mixed: Mapping[str, str | None]
    _known: dict[str, Bools] = field(default_factory=dict)

    def asked_by(self, datasets: Datasets, history: History) -> Bools | None:
        """Rows that a scope means, in the order of a history of the same log; None where it means whole datasets."""
        realm = datasets.with_.get(REALM)
        return None if realm is None or not self.mixed else history.column(self.within(realm))

    def within(self, realm: str) -> Bools:
        """Rows of a realm, in the order of the log. A dataset that is not mixed counts whole: it was chosen so."""
        if realm not in self._known:
            index = join_chunks(self.log["dataset"])
            whole = [
                name not in self.mixed or is_within(self.mixed[name] or "", realm) for name in index.dictionary.to_pylist()
            ]
            own = [is_within(name, realm) for name in self._own[0]]
            found = np.array([*own, False], dtype=bool)[self._own[1]]
            self._known[realm] = found | np.array(whole, dtype=bool)[integers(index.indices, -1)]
        return self._known[realm]

    @cached_property
    def _own(self) -> tuple[list[str], Counts]:
        """The last place stands for rows that name no realm."""
        said = join_chunks(own_realms(self.log["attributes"]).dictionary_encode())
        names: list[str] = said.dictionary.to_pylist()
        places: Counts = integers(said.indices, len(names))
        return names, places


def realm_rows(datasets: pa.Table) -> RealmRows:
    """Read the realms from the table of datasets."""
    attributes = join_chunks(datasets["attributes"])
    realms = pc.map_lookup(attributes, pa.scalar(REALM), "first")
    mixed = pc.is_valid(pc.map_lookup(attributes, pa.scalar(OWN_REALMS), "first"))
    if not pc.any(mixed).as_py():
        return RealmRows({}, any(map(is_reserved, pc.unique(realms.drop_null()).to_pylist())))
    names = datasets["dataset"].filter(mixed).to_pylist()
    return RealmRows(dict(zip(names, realms.filter(mixed).to_pylist(), strict=True)), True)


def own_realms(attributes: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Realm that each transaction names itself."""
    return join_chunks(pc.map_lookup(join_chunks(attributes), pa.scalar(REALM), "first"))

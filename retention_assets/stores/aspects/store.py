"""The `aspects` store: the table in which DataHub keeps the versions of its metadata aspects.

Belongs here: answering to the protocol. Names are in names.py, SQL in table.py, lines of a log in log.py, deletions in
delete.py.
Does not belong here: whose rule is about which aspect (policy/datahub.py), and anything about connections (sql/foreign.py).

What the questions cost, in scans of the table (or, where its columns suffice, at the index of its key): `datasets` one;
`tokens` one for all datasets that are asked for, over the entities of these; `shares` none after `datasets`; `read` one per
share, over the entities in it, and a second one if a time in it is impossible. Where people's policies are read, `datasets` and
`read` also look at the few rows of these.
"""

import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import pyarrow as pa
from sqlalchemy import ColumnElement

from retention_assets.errors import Refused
from retention_assets.frames.log import LINES
from retention_assets.outcomes import Outcome
from retention_assets.policy.outside import OutsideEntry
from retention_assets.sql.foreign import ForeignDatabase
from retention_assets.sql.reflection import indexes_of, location_of, writes_ahead
from retention_assets.stores.aspects.delete import Deletion
from retention_assets.stores.aspects.log import ROWS, TEXTS, fault_table, lines_of, lines_of_texts
from retention_assets.stores.aspects.names import VERSION_AT, Key, dataset_of, key_of, row_of
from retention_assets.stores.aspects.policies import read_policies
from retention_assets.stores.aspects.settings import AspectsSettings
from retention_assets.stores.aspects.table import KEY, AspectsTable
from retention_assets.stores.cascades import Cascades, DeletedTable
from retention_assets.stores.protocol import (
    Capabilities,
    Permit,
    PreparedTarget,
    Remains,
    SweptTarget,
    Target,
    always,
)
from retention_assets.stores.settings import LazyStore

ROWS_PER_SHARE = 1_000_000
# Whose chains are read at once.
_URNS = 5_000
# Of one urn, what stays is noted with what goes before it: a plan that knew only some of what goes would count on the rest.
_CAPABILITIES = Capabilities(log_is_complete=True, guards=True, parts_at=VERSION_AT)


class AspectsStore(LazyStore[AspectsSettings]):
    """A store over DataHub's table. Travels as its settings; the table is looked at where it is first asked for."""

    def __init__(self, settings: AspectsSettings) -> None:
        super().__init__(settings)
        self._database = ForeignDatabase(settings.url, settings.name, settings.row_security)
        self._opening = threading.Lock()
        self._opened: AspectsTable | None = None
        # How many rows each dataset had when all of them were last counted.
        self._counts: dict[str, int] = {}

    @property
    def capabilities(self) -> Capabilities:
        """The log is the table itself, and each deletion looks again."""
        return _CAPABILITIES

    def datasets(self) -> list[str]:
        """Every entity and aspect that the table has rows of, unless a sweep would be refused."""
        self._cascades().check()
        self.policies()
        self._counts = self._count_rows()
        return sorted(self._counts)

    def shares(self, datasets: Sequence[str]) -> list[tuple[str, ...]]:
        """Datasets of one entity lie in one range of the key, so neighbours by name are together, up to a million rows."""
        if datasets and not self._counts.keys() >= set(datasets):
            self._counts = self._count_rows()
        shares: list[list[str]] = []
        rows = 0
        for name in sorted(set(datasets)):
            count = self._counts.get(name, 0)
            if not shares or rows + count > ROWS_PER_SHARE:
                shares.append([])
                rows = 0
            shares[-1].append(name)
            rows += count
        return [tuple(share) for share in shares]

    def read(self, datasets: Sequence[str]) -> pa.Table:
        """The rows of some datasets as branches and their versions, in one state of the database that no writer waits for."""
        self.policies()
        keys = {key_of(self.name, name): name for name in datasets}
        wanted = {key: name for key, name in keys.items() if key[0]}
        found = [LINES.empty_table()]
        if wanted:
            found.append(self._lines(self._table().among(wanted), wanted))
        if len(wanted) < len(keys):
            there = self._count_rows()
            found += [fault_table(name) for key, name in keys.items() if not key[0] and name in there]
        return pa.concat_tables(found)

    def read_chains(self, dataset: str, transactions: Sequence[str]) -> pa.Table:
        """All versions of the urns of some transactions."""
        key = key_of(self.name, dataset)
        rows = (row_of(name, key[0]) for name in transactions)
        urns = sorted({row[0] for row in rows if row is not None})
        pieces = (urns[first : first + _URNS] for first in range(0, len(urns), _URNS))
        found = [self._lines(self._table().of_urns(some, key[1]), {key: dataset}) for some in pieces]
        return pa.concat_tables(found or [LINES.empty_table()])

    def tokens(self, datasets: Sequence[str]) -> Mapping[str, str]:
        """A hash of numbers over the rows of each dataset: how many, their versions, and a sum over who and when they are."""
        wanted = {key_of(self.name, name) for name in datasets}
        if not wanted:
            return {}
        numbers_of: dict[str, list[str]] = {}
        with self._database.reading() as connection:
            for entity, aspect, *numbers in connection.execute(self._table().fingerprints(wanted)):
                numbers_of.setdefault(dataset_of(self.name, entity, aspect), []).append(repr([entity, *numbers]))
        return {name: _digest(numbers_of[name]) for name in datasets if name in numbers_of}

    def policies(self) -> list[OutsideEntry]:
        """The policies that people made in DataHub, where the settings have them read. Raises Refused if one can't be."""
        if not self.settings.reads_policies:
            return []
        with self._database.reading() as connection:
            return read_policies(connection, self._table(), self.name)

    def present(self) -> datetime | None:
        """What the database's server says."""
        return self._database.present()

    def warnings(self) -> list[str]:
        """What a sweep is refused for, or would do besides; what makes it slow, or makes others wait."""
        try:
            found = self._cascades().warnings()
            indexes = indexes_of(self._database, self.settings.table)
        except Refused as fault:
            return [str(fault)]
        if not any(set(index[: len(KEY)]) == set(KEY) for index in indexes):
            found.append(
                f"The table {self.settings.table} of the store {self.name} has no index on urn, aspect and version, as"
                " DataHub's primary key is: each batch of a sweep reads the whole table. Add the key before you sweep."
            )
        elif not any(index[:1] == ("urn",) for index in indexes):
            found.append(
                f"No index of the table {self.settings.table} of the store {self.name} begins with urn: each share is read by a"
                " look at all rows."
            )
        if not writes_ahead(self._database):
            found.append(
                f"The SQLite file of the store {self.name} is not in WAL mode, so that whoever writes to it waits for those who"
                " read it. PRAGMA journal_mode = WAL changes that for good."
            )
        return found

    def prepare(self, dataset: str, transactions: Sequence[str]) -> list[PreparedTarget]:
        """What each row is now, so that another one in its place is not taken for it, and the bytes that it frees."""
        self._cascades().check()
        return self._deletion(dataset).prepare(transactions)

    def accepted_cascades(self) -> str | None:
        return self._cascades().accepted_paths

    def sweep(self, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always) -> list[SweptTarget]:
        """Delete the rows that still are what they were, by their key."""
        try:
            cascades = self._cascades().check()
            return replace(self._deletion(dataset), cascades=cascades).delete_rows(targets, parallelism, permit)
        except Refused as fault:
            # More would go, or the table itself can't be looked at: one more way in which all of them fail.
            return [SweptTarget(one.transaction, Outcome.FAILED, error=str(fault)) for one in targets]

    def place(self, dataset: str, claim: bool = False) -> str:  # noqa: ARG002 - a table has a place of its own
        """The table and its database."""
        return location_of(self._database, self._table().table)

    def store_place(self, claim: bool = False) -> str:
        """All of them have one place."""
        return self.place("", claim)

    def remains(self, dataset: str, targets: Sequence[Target]) -> Mapping[str, Remains]:
        """A row is there or it is not."""
        return self._deletion(dataset).remains(targets)

    def close(self) -> None:
        """Give back the connections. Asking the store again opens it again."""
        self._database.close()

    def _lines(self, which: ColumnElement[bool], wanted: Mapping[Key, str]) -> pa.Table:
        """Those of some rows that are of these datasets."""
        try:
            return lines_of(self._database.batches(self._table().rows(which), ROWS), wanted)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            # One impossible time is the end of the whole stream. A second one, of texts, shows whose it is.
            return lines_of_texts(self._database.batches(self._table().texts(which), TEXTS), wanted)

    def _deletion(self, dataset: str) -> Deletion:
        return Deletion(self._database, self._table(), *key_of(self.name, dataset))

    def _cascades(self) -> Cascades:
        return Cascades.of(self._database, self.settings.cascades, [DeletedTable(self._table().table)])

    def _table(self) -> AspectsTable:
        with self._opening:
            if self._opened is None:
                self._opened = AspectsTable.of(self._database, self.settings.table)
            return self._opened

    def _count_rows(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        with self._database.reading() as connection:
            for entity, aspect, count in connection.execute(self._table().counts()):
                name = dataset_of(self.name, entity, aspect)
                counts[name] = counts.get(name, 0) + count
        return counts


def _digest(numbers: list[str]) -> str:
    return hashlib.sha256("\n".join(sorted(numbers)).encode()).hexdigest()

"""The `aspects` store: the table in which DataHub keeps the versions of its metadata aspects.

Costs, in scans of the table (or of the index of its key, where its columns suffice): `datasets` one; `tokens` one over the
entities of the requested datasets; `shares` none after `datasets`; `read` one per share, over its entities, and a second one if
a time in it is impossible. Where people's policies are read, `datasets` and `read` also read those few rows.
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property

import pyarrow as pa
from sqlalchemy import ColumnElement

from retention_assets.errors import Refused
from retention_assets.frames.log import LINES
from retention_assets.outcomes import Outcome
from retention_assets.policy.loading import OutsideEntry
from retention_assets.sql.foreign import has_rows, indexes_of, writes_ahead
from retention_assets.sql.foreign_keys import DeletedTable
from retention_assets.stores.aspects.delete import delete_versions
from retention_assets.stores.aspects.log import NO_URNS, ROWS, TEXTS, fault_line, lines_of, lines_of_texts
from retention_assets.stores.aspects.policies import read_policies
from retention_assets.stores.aspects.rows import VERSION_AT, Key, Row, RowNote, dataset_of, key_of, row_of
from retention_assets.stores.aspects.settings import AspectsSettings
from retention_assets.stores.aspects.table import KEY, AspectsTable
from retention_assets.stores.database import DatabaseStore
from retention_assets.stores.protocol import Only, Permit, PreparedTarget, Remains, SweptTarget, Target, always

ROWS_PER_SHARE = 1_000_000
# urns whose chains are read at once
_URNS = 5_000
# All of an urn goes to one task: a note relies on what stays, so a plan that knew only some of what goes would rely on the
# rest.


class AspectsStore(DatabaseStore):
    """A store over DataHub's table. Travels as its settings; reads the table's definition on first use."""

    settings: AspectsSettings
    parts_at = VERSION_AT

    def __init__(self, settings: AspectsSettings) -> None:
        super().__init__(settings)
        # rows per dataset when they were last counted
        self._counts: dict[str, int] = {}

    @cached_property
    def table(self) -> AspectsTable:
        """The table as first inspected. Raises Refused if it is not DataHub's."""
        return AspectsTable.of(self.database, self.settings.table)

    def datasets(self) -> list[str]:
        """Return every entity and aspect with rows, unless a sweep would be refused."""
        self.cascades().check()
        self.policies()
        self._counts = self._count_rows()
        return sorted(self._counts)

    def shares(self, datasets: Sequence[str]) -> list[tuple[str, ...]]:
        """Group neighbours by name up to a million rows: datasets of one entity are one range of the key."""
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

    def read(self, datasets: Sequence[str], only: Only | None = None) -> pa.Table:
        """Read in one database snapshot, which blocks no writer; or all versions of the urns of some transactions."""
        lines = [LINES.empty_table()]
        if only is not None:
            for name in datasets:
                key = key_of(self.name, name)
                rows = (row_of(transaction, key[0]) for transaction in only.transactions[name])
                urns = sorted({row[0] for row in rows if row is not None})
                pieces = (urns[at : at + _URNS] for at in range(0, len(urns), _URNS))
                lines += [self._lines(self.table.of_urns(piece, key[1]), {key: name}) for piece in pieces]
            return pa.concat_tables(lines)
        self.policies()
        keys = {key_of(self.name, name): name for name in datasets}
        wanted = {key: name for key, name in keys.items() if key[0]}
        if wanted:
            lines.append(self._lines(self.table.among(wanted), wanted))
        if len(wanted) < len(keys):
            counts = self._count_rows()
            lines += [fault_line(name, NO_URNS) for key, name in keys.items() if not key[0] and name in counts]
        return pa.concat_tables(lines)

    def tokens(self, datasets: Sequence[str]) -> Mapping[str, str]:
        """Hash the number of rows, their versions, and a checksum over identities and times."""
        wanted = {key_of(self.name, name) for name in datasets}
        if not wanted:
            return {}
        numbers_of: dict[str, list[str]] = {}
        with self.database.reading() as connection:
            for entity, aspect, *numbers in connection.execute(self.table.fingerprints(wanted)):
                numbers_of.setdefault(dataset_of(self.name, entity, aspect), []).append(repr([entity, *numbers]))
        texts = {name: "\n".join(sorted(numbers_of[name])) for name in datasets if name in numbers_of}
        return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}

    def policies(self) -> list[OutsideEntry]:
        """Return policies that people made in DataHub, if the settings ask for it. Raises Refused if one can't be read."""
        if not self.settings.reads_policies:
            return []
        with self.database.reading() as connection:
            return read_policies(connection, self.table, self.name)

    def warnings(self) -> list[str]:
        try:
            remarks = self.cascades().warnings()
            indexes = indexes_of(self.database, self.settings.table)
        except Refused as fault:
            return [str(fault)]
        if not any(set(index[: len(KEY)]) == set(KEY) for index in indexes):
            remarks.append(
                f"The table {self.settings.table} of the store {self.name} has no index on urn, aspect and version like "
                "DataHub's primary key. Each batch of a sweep reads the whole table. Add the key before you sweep."
            )
        elif not any(index[:1] == ("urn",) for index in indexes):
            remarks.append(
                f"No index of the table {self.settings.table} of the store {self.name} begins with urn, so each share reads "
                "all rows."
            )
        if not writes_ahead(self.database):
            remarks.append(
                f"The SQLite file of the store {self.name} is not in WAL mode, so writers wait for readers. PRAGMA "
                "journal_mode = WAL changes that permanently."
            )
        return remarks

    def prepare(self, dataset: str, transactions: Sequence[str]) -> list[PreparedTarget]:
        """Record each row's present state, so that another row in its place is not deleted, and its bytes."""
        self.cascades().check()
        entity, aspect = key_of(self.name, dataset)
        rows = {name: row for name in transactions if (row := row_of(name, entity)) is not None}
        planned: dict[str, set[int]] = {}
        for urn, version in rows.values():
            planned.setdefault(urn, set()).add(version)
        with self.database.reading() as connection:
            urns = self.table.read_versions(connection, sorted(planned), aspect)
        notes: dict[Row, RowNote] = {}
        for urn, present in urns.items():
            newest = max((version for version in present.versions if version not in planned[urn]), default=0)
            for version in planned[urn] & present.versions.keys():
                notes[urn, version] = RowNote(*present.versions[version], newest)
        by_name = {name: notes[row] for name, row in rows.items() if row in notes}
        return [
            PreparedTarget(name, note.bytes, note.written()) if (note := by_name.get(name)) else PreparedTarget(name)
            for name in transactions
        ]

    def sweep(self, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always) -> list[SweptTarget]:
        try:
            cascades, key = self.cascades().check(), key_of(self.name, dataset)
            return delete_versions(self.database, self.table, key, targets, parallelism, permit, cascades)
        except Refused as fault:
            # more would go, or the table can't be inspected: all targets fail
            return [SweptTarget(one.transaction, Outcome.FAILED, error=str(fault)) for one in targets]

    def remains(self, dataset: str, targets: Sequence[Target]) -> Mapping[str, Remains]:
        """Compare with the rows that are there; in an empty table every state is unknown."""
        entity, aspect = key_of(self.name, dataset)
        rows = {one.transaction: row for one in targets if (row := row_of(one.transaction, entity)) is not None}
        with self.database.reading() as connection:
            if not has_rows(connection, self.table.table):
                return {}
            urns = self.table.read_versions(connection, sorted({urn for urn, _ in rows.values()}), aspect)
        there = {(urn, version) for urn, one in urns.items() for version in one.versions}
        noted = {one.transaction for one in targets if one.note}
        return {
            name: Remains.ALL if row in there else Remains.FREED if name in noted else Remains.NOTHING
            for name, row in rows.items()
        }

    def _lines(self, which: ColumnElement[bool], wanted: Mapping[Key, str]) -> pa.Table:
        try:
            return lines_of(self.database.batches(self.table.rows(which), ROWS), wanted)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            # one impossible time ends the whole stream; a second one, of texts, shows whose it is
            return lines_of_texts(self.database.batches(self.table.texts(which), TEXTS), wanted)

    def deleted_tables(self) -> Sequence[DeletedTable]:
        return [DeletedTable(self.table.table)]

    def _count_rows(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        with self.database.reading() as connection:
            for entity, aspect, count in connection.execute(self.table.counts()):
                name = dataset_of(self.name, entity, aspect)
                counts[name] = counts.get(name, 0) + count
        return counts

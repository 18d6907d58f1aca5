"""The `records` store: units of work in a database, each a row of the root table with rows in other tables.

One dataset, `store/root table`; where a column names realms, one for each: `store/root table/realm`. Transactions are RECORDs,
known by their keys as text. The note of each is what its root row said when the sweep was planned, and only what still says it
is deleted.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property

import pyarrow as pa

from retention_assets.errors import Refused
from retention_assets.frames.log import LINES
from retention_assets.outcomes import Outcome
from retention_assets.sql.foreign_keys import Cascades, DeletedTable
from retention_assets.stores.database import DatabaseStore
from retention_assets.stores.protocol import (
    ExpiryCount,
    ExpiryTerms,
    Only,
    Permit,
    PreparedTarget,
    Remains,
    SweptTarget,
    Target,
    always,
)
from retention_assets.stores.records.delete import (
    RowAction,
    apply_action,
    clear_expiry,
    count_expiring,
    delete_rows,
    note_of,
    postpone_expiry,
    present_of,
    remains_of,
    select_expiring,
    set_expiry,
)
from retention_assets.stores.records.log import dataset_of, lines_of, lines_of_some, read_pages, realms_of, tokens_of
from retention_assets.stores.records.settings import RecordsSettings
from retention_assets.stores.records.tables import RecordTables, missing_indexes, tables_of
from retention_assets.stores.settings import RealmColumn

_PIECE = 1_000
_AT_ONCE = 4


class RecordsStore(DatabaseStore):
    """A store over tables. Travels as its settings; inspects the tables on first use."""

    settings: RecordsSettings
    parts_at = ""

    @property
    def expiry(self) -> ExpiryTerms | None:
        ttl = self.settings.ttl
        return ExpiryTerms(ttl.expires_in_max_days, ttl.document_ttl) if ttl else None

    @property
    def dataset(self) -> str:
        return f"{self.name}/{self.settings.root.table}"

    @cached_property
    def tables(self) -> RecordTables:
        """Tables as first inspected. Raises Refused if they don't match the settings."""
        return tables_of(self.database, self.settings)

    def datasets(self) -> list[str]:
        """Return the root table if all that the settings name is there and a sweep would not be refused."""
        if self.settings.ttl is None:
            # with expiry, housekeeping has to go on: it only keeps rows
            self.cascades().check()
        return sorted({dataset_of(self.dataset, realm) for realm in realms_of(self.database, self.tables)})

    def shares(self, datasets: Sequence[str]) -> list[tuple[str, ...]]:
        return [tuple(sorted(set(datasets)))] if datasets else []

    def read(self, datasets: Sequence[str], only: Only | None = None) -> pa.Table:
        own = [name for name in datasets if self._has(name)]
        if not own:
            return LINES.empty_table()
        if only is None:
            return lines_of(self.database, self.tables, self.dataset, own)
        wanted = only.transactions
        return pa.concat_tables(lines_of_some(self.database, self.tables, self.dataset, name, wanted[name]) for name in own)

    def tokens(self, datasets: Sequence[str]) -> Mapping[str, str]:
        """Hash the whole root table in one query."""
        if not any(map(self._has, datasets)):
            return {}
        tokens: dict[str, str] = {}
        for realm, token in sorted(tokens_of(self.database, self.tables).items(), key=str):
            name = dataset_of(self.dataset, realm)
            tokens[name] = f"{tokens[name]} {token}" if name in tokens else token
        return {name: token for name, token in tokens.items() if name in datasets}

    def warnings(self) -> list[str]:
        """Describe what a sweep is refused for, or would do besides, and missing indexes with their statements."""
        try:
            return [*self.cascades().warnings(), *missing_indexes(self.database, self.tables)]
        except Refused as fault:
            return [str(fault)]

    def prepare(self, dataset: str, transactions: Sequence[str]) -> list[PreparedTarget]:
        notes: dict[str, str] = {}
        if self._has(dataset):
            self.cascades().check()
            for at in range(0, len(transactions), _PIECE):
                with self.database.reading() as connection:
                    present = present_of(connection, self.tables, transactions[at : at + _PIECE])
                if self._is_by_realm:
                    present = {
                        name: note for name, note in present.items() if self._is_of(dataset, json.loads(note).get("realm"))
                    }
                notes |= present
        return [PreparedTarget(one, note=notes.get(one)) for one in transactions]

    def sweep(self, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always) -> list[SweptTarget]:
        return self._apply(dataset, targets, delete_rows(self.tables), parallelism, permit, deletes=True)

    def deleted_tables(self) -> Sequence[DeletedTable]:
        return [DeletedTable(rows.table, rows.key.column.name) for rows in (self.tables.root, *self.tables.children)]

    def expire(
        self, dataset: str, targets: Sequence[Target], at: datetime | None, parallelism: int, permit: Permit = always
    ) -> list[SweptTarget]:
        """Set the time at which the database may expire all rows of units of work, or clear it."""
        # a time is cleared whatever is wrong with the tables: nothing goes by it
        action = clear_expiry() if at is None else set_expiry(at)
        return self._apply(dataset, targets, action, parallelism, permit, deletes=at is not None)

    def find_postponable(
        self, dataset: str, within: datetime, archived_types: Collection[str], is_held: Callable[[str], bool] | None
    ) -> Iterator[list[Target]]:
        """Yield them by the thousand."""
        if not self._has(dataset):
            return
        query = select_expiring(self.tables, self._realm_of(dataset), within, archived_types, all_=is_held is not None)
        for page in read_pages(self.database, self.tables, query, _PIECE):
            rows = [row for row in page if self._is_of(dataset, row.realm)] if self._is_by_realm else page
            kept = [row for row in rows if row.kept or (is_held and is_held(row.key))]
            if kept:
                yield [Target(row.key, note_of(row)) for row in kept]

    def postpone(
        self, dataset: str, targets: Sequence[Target], within: datetime, until: datetime, permit: Permit = always
    ) -> list[SweptTarget]:
        return self._apply(dataset, targets, postpone_expiry(self.tables, within, until), _AT_ONCE, permit)

    def count_expiring(
        self, dataset: str, begin: datetime, end: datetime, archived_types: Collection[str]
    ) -> list[ExpiryCount]:
        if not self._has(dataset):
            return []
        with self.database.reading() as connection:
            rows = connection.execute(count_expiring(self.tables, self._realm_of(dataset), begin, end, archived_types)).all()
        return [ExpiryCount(kind, count, int(unfinished), int(other)) for kind, count, unfinished, other in rows if count]

    def remains(self, dataset: str, targets: Sequence[Target]) -> Mapping[str, Remains]:
        """Go by the root, which is deleted last."""
        if not self._has(dataset):
            return {}
        names = [one.transaction for one in targets]
        known = all(one.place_known for one in targets)
        tables = replace(self.tables, one_by_one=_is_one_act(self.cascades()))
        remains: dict[str, Remains] = {}
        for at in range(0, len(names), _PIECE):
            with self.database.reading() as connection:
                remains |= remains_of(connection, tables, names[at : at + _PIECE], known)
        return remains

    @property
    def _is_by_realm(self) -> bool:
        return isinstance(self.settings.realm, RealmColumn)

    def _has(self, dataset: str) -> bool:
        return dataset == self.dataset or (self._is_by_realm and dataset.startswith(f"{self.dataset}/"))

    def _realm_of(self, dataset: str) -> str | None:
        return self.settings.realm_of(dataset) if self._is_by_realm else None

    def _is_of(self, dataset: str, realm: str | None) -> bool:
        return dataset_of(self.dataset, realm) == dataset

    def _apply(
        self,
        dataset: str,
        targets: Sequence[Target],
        action: RowAction,
        parallelism: int,
        permit: Permit,
        deletes: bool = False,
    ) -> list[SweptTarget]:
        if not self._has(dataset):
            return [SweptTarget(one.transaction, Outcome.ALREADY_GONE) for one in targets]
        try:
            cascades = self.cascades().check() if deletes else self.cascades()
        except Refused as fault:
            return [SweptTarget(one.transaction, Outcome.FAILED, error=str(fault)) for one in targets]
        tables = replace(self.tables, one_by_one=_is_one_act(cascades))
        return apply_action(self.database, tables, targets, action, parallelism, permit, cascades)


def _is_one_act(cascades: Cascades) -> bool:
    # children in transactions of their own would be gone for good before the database keeps their root
    return cascades.is_entangled or cascades.may_keep

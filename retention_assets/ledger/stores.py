"""Places of the data of stores, and scans of object stores.

Mark ids rise, so the newest place of a store when a mark was made says where its data was. A scan has its start, end and
counts, and a braked one whether it was accepted; a store has one scan at a time: its lease is checked on each write.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, Select, func, select, text

from retention_assets.errors import Refused
from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.audit.rows import mapping_in, stored
from retention_assets.ledger.database import LedgerPart, WriteTransaction, audited
from retention_assets.ledger.evaluations import Publication, publish, request_evaluations
from retention_assets.ledger.leases import SCAN, Lease, fence
from retention_assets.ledger.schema import CLOCK, EVALUATIONS, MARKS, PLACES, SCANS, SWEPT
from retention_assets.policy.durations import text_of
from retention_assets.sql.columns import DatabaseTime
from retention_assets.sql.transactions import portions


class StorePlace(NamedTuple):
    """The place of a store from a mark on."""

    id: int
    store: str
    place: str
    first_mark: int


_PLACES = select(*(PLACES.c[name] for name in StorePlace._fields)).order_by(PLACES.c.id)


class StorePlaces(LedgerPart):
    def all(self) -> list[StorePlace]:
        return [StorePlace(*row) for row in self.rows(_PLACES)]

    def newest(self) -> dict[str, StorePlace]:
        return {place.store: place for place in self.all()}

    @audited
    def note(
        self, tx: WriteTransaction, places: Mapping[str, str], actor: str, reason: str, known: Mapping[str, StorePlace]
    ) -> None:
        """Note the places of stores, except of those for which another program noted one since they were `known`."""
        # Markers wait for this row: each mark is made entirely before or after a place is noted.
        following = tx.connection.execute(select(CLOCK.c.next_mark).with_for_update()).scalar_one()
        present = newest_places(tx.connection)
        last = tx.connection.execute(select(func.max(PLACES.c.id))).scalar_one() or 0
        unchanged = {name: place for name, place in places.items() if present.get(name) == known.get(name)}
        for number, (name, place) in enumerate(sorted(unchanged.items()), last + 1):
            row = {"store": name, "place": place, "id": number}
            tx.add(Act(ActType.PLACE, actor, reason, detail=row), PLACES, **row, first_mark=following, noted_at=tx.present())


def newest_places(connection: Connection) -> dict[str, StorePlace]:
    return {row.store: StorePlace(*row) for row in connection.execute(_PLACES)}


class ScanStatus(StrEnum):
    RUNNING = "running"
    KEPT = "kept"  # complete, and its log is judged
    BRAKED = "braked"  # complete but suspicious: a person has to accept it
    FAILED = "failed"  # incomplete
    SUPERSEDED = "superseded"


@dataclass(frozen=True)
class ScanRecord:
    """A scan as the ledger keeps it, without its full result."""

    id: int
    store: str
    status: ScanStatus
    holder: str
    started_at: datetime
    ended_at: datetime | None
    reason: str | None
    totals: Mapping[str, int | float]
    accepted_at: datetime | None
    accepted_by: str | None
    accept_reason: str | None
    used_at: datetime | None


@dataclass(frozen=True)
class ScanEnd:
    """End of a scan: complete, braked or failed, with its sums and full result if there are any."""

    status: ScanStatus
    reason: str | None = None
    totals: Mapping[str, int | float] | None = None
    result: str | None = None


@dataclass(frozen=True)
class ScanClosing:
    """A run's end of a scan under the lease of its store; `end` is None if the log of an accepted scan is judged."""

    lease: Lease
    scan: ScanRecord
    end: ScanEnd | None
    # Number of newest scans of the store that keep their full result; None drops nothing.
    kept: int | None = None


def scan_lease(store: str) -> str:
    return f"{SCAN}{store}"


class Scans(LedgerPart):
    @audited
    def begin(self, tx: WriteTransaction, lease: Lease) -> ScanRecord:
        """Begin a scan. An unfinished earlier one is closed as SUPERSEDED: its lease is gone."""
        store = _store_of(tx, lease)
        over = ScanEnd(ScanStatus.SUPERSEDED, "It never ended, and its run has lost the lease.")
        for row in tx.connection.execute(_query(SCANS.c.store == store, SCANS.c.status == ScanStatus.RUNNING)).all():
            _end(tx, _record(row), over, lease.holder)
        newest = tx.connection.execute(select(func.max(SCANS.c.id))).scalar_one()
        number, begun = (newest or 0) + 1, {"store": store, "status": ScanStatus.RUNNING.value}
        act = Act(ActType.SCAN, lease.holder, detail={"scan": number, **begun})
        tx.add(act, SCANS, id=number, **begun, holder=lease.holder, started_at=DatabaseTime())
        return _scan_of(tx.connection, store, number)

    def end(self, lease: Lease, scan: ScanRecord, end: ScanEnd) -> ScanRecord:
        return self.publish([ScanClosing(lease, scan, end)], (), lease.holder)[0]

    @audited
    def publish(
        self, tx: WriteTransaction, closings: Sequence[ScanClosing], publications: Sequence[Publication], actor: str
    ) -> list[ScanRecord]:
        """End scans, or use accepted ones, and publish their logs in one transaction."""
        for closing in closings:
            store = _store_of(tx, closing.lease)
            if closing.end is None:
                scan, usable = closing.scan, _usable(_first(tx.connection, *_has_ended(store)))
                if usable is None or usable.id != scan.id:
                    raise Refused(f"Scan {scan.id} of {store} was judged by another run, or a newer scan has ended.")
                act = Act(ActType.SCAN, actor, "It was accepted.", detail={"scan": scan.id, "store": store, "used": True})
                tx.change(act, SCANS, SCANS.c.id == scan.id, used_at=DatabaseTime())
            else:
                _end(tx, closing.scan, closing.end, actor)
                _drop_results(tx, store, closing.kept, actor)
        publish(tx, publications, actor)
        return [_scan_of(tx.connection, closing.scan.store, closing.scan.id) for closing in closings]

    @audited
    def accept(self, tx: WriteTransaction, store: str, scan: int, actor: str, reason: str) -> ScanRecord:
        """Accept a braked scan, which must be the newest of its store; its datasets are evaluated again soon."""
        # The evaluation loop finds these datasets due at its next tick. Before the chain is locked, as everywhere.
        name = EVALUATIONS.c.dataset
        query = select(name).where(name > f"{store}/", name < f"{store}{chr(ord('/') + 1)}")
        request_evaluations(tx, tx.connection.execute(query).scalars())
        tx.lock_chain()
        record = _scan_of(tx.connection, store, scan)
        if record.status is not ScanStatus.BRAKED:
            raise Refused(f"Scan {scan} of {store} is {record.status}: only a braked scan can be accepted.")
        if record.accepted_at is not None:
            at = text_of(record.accepted_at)
            raise Refused(f"Scan {scan} of {store} was accepted by {record.accepted_by} at {at}. Nothing was changed.")
        newest = _first(tx.connection, *_has_ended(store))
        if newest is not None and newest.id != scan:
            raise Refused(
                f"Scan {scan} of {store} is not the newest: scan {newest.id} has ended since with status {newest.status}. "
                "Nothing was changed, because an old scan may be out of date."
            )
        act = Act(ActType.ACCEPT_SCAN, actor, reason, detail={"scan": scan, "store": store, "brakes": record.reason})
        tx.change(act, SCANS, SCANS.c.id == scan, accepted_at=DatabaseTime(), accepted_by=actor, accept_reason=reason)
        return _scan_of(tx.connection, store, scan)

    def running(self, store: str) -> ScanRecord | None:
        return self._first(SCANS.c.store == store, SCANS.c.status == ScanStatus.RUNNING)

    def newest(self, store: str | None = None, most: int | None = None) -> list[ScanRecord]:
        query = _query(*(() if store is None else (SCANS.c.store == store,))).limit(most)
        return [_record(row) for row in self.rows(query)]

    def of(self, store: str, scan: int) -> ScanRecord:
        with self.database.reading() as connection:
            return _scan_of(connection, store, scan)

    def results(self, scans: Sequence[int]) -> dict[int, str]:
        query = select(SCANS.c.id, SCANS.c.result).where(SCANS.c.id.in_(list(scans)), SCANS.c.result.is_not(None))
        return {row.id: row.result for row in self.rows(query)}

    def newest_result(self, store: str) -> str | None:
        """Full result of the newest complete scan, kept or braked."""
        is_whole = SCANS.c.status.in_((ScanStatus.KEPT, ScanStatus.BRAKED))
        query = select(SCANS.c.result).where(SCANS.c.store == store, is_whole).order_by(SCANS.c.id.desc()).limit(1)
        return next((result for (result,) in self.rows(query)), None)

    def last_whole(self, store: str) -> ScanRecord | None:
        """Newest complete scan: kept, or braked and accepted."""
        return self._first(*_is_whole(store))

    def last_whole_result(self, store: str) -> str | None:
        scan = self.last_whole(store)
        return self.results([scan.id]).get(scan.id) if scan else None

    def swept_since(self, scan: ScanRecord) -> int:
        here = MARKS.c.dataset.startswith(f"{scan.store}/", autoescape=True)
        query = select(func.count()).where(text(SWEPT), here, MARKS.c.changed_at > scan.ended_at)
        with self.database.reading() as connection:
            return int(connection.execute(query.select_from(MARKS)).scalar_one())

    def newest_ended(self, store: str) -> ScanRecord | None:
        return self._first(*_has_ended(store))

    def usable(self, store: str) -> ScanRecord | None:
        """Braked scan that a person accepted and nobody has judged, if no later one ended."""
        return _usable(self.newest_ended(store))

    def needed(self, store: str) -> set[int]:
        """Scans whose listing is still needed: the last complete one, the newest ended one if braked, and a running one."""
        needed = {scan.id for scan in (self.last_whole(store), self.running(store)) if scan}
        newest = self.newest_ended(store)
        return needed | ({newest.id} if newest and newest.status is ScanStatus.BRAKED else set())

    def _first(self, *where: ColumnElement[bool]) -> ScanRecord | None:
        with self.database.reading() as connection:
            return _first(connection, *where)


def _store_of(tx: WriteTransaction, lease: Lease) -> str:
    fence(tx, lease)
    # Ids are counted over all stores, and people accept scans without a lease.
    tx.lock_chain()
    return lease.dataset.removeprefix(SCAN)


def _end(tx: WriteTransaction, scan: ScanRecord, end: ScanEnd, actor: str) -> None:
    if _scan_of(tx.connection, scan.store, scan.id).status is not ScanStatus.RUNNING:
        raise Refused(f"Scan {scan.id} of {scan.store} has ended already.")
    detail = {"scan": scan.id, "store": scan.store, "status": end.status.value, "totals": end.totals}
    totals = None if end.totals is None else json.dumps(end.totals, sort_keys=True)
    values = {"status": end.status.value, "reason": end.reason, "totals": totals, "result": end.result}
    act = Act(ActType.SCAN, actor, end.reason, detail=detail)
    tx.change(act, SCANS, SCANS.c.id == scan.id, **values, ended_at=DatabaseTime())


def _drop_results(tx: WriteTransaction, store: str, kept: int | None, actor: str) -> None:
    # the last complete scan keeps its result: the next one is compared with it
    if kept is None:
        return
    scans = select(SCANS.c.id).where(SCANS.c.store == store)
    newest = scans.order_by(SCANS.c.id.desc()).limit(kept)
    whole = _first(tx.connection, *_is_whole(store))
    needed = {*tx.connection.execute(newest).scalars(), *([whole.id] if whole else [])}
    old = sorted(set(tx.connection.execute(scans.where(SCANS.c.result.is_not(None))).scalars()) - needed)
    for part in portions(old):
        act = Act(ActType.SCAN, actor, "Only the newest are kept whole.", detail={"store": store, "dropped": list(part)})
        tx.change(act, SCANS, SCANS.c.id.in_(part), result=None)


def _is_whole(store: str) -> tuple[ColumnElement[bool], ...]:
    is_accepted = (SCANS.c.status == ScanStatus.BRAKED) & SCANS.c.accepted_at.is_not(None)
    return SCANS.c.store == store, (SCANS.c.status == ScanStatus.KEPT) | is_accepted


def _has_ended(store: str) -> tuple[ColumnElement[bool], ...]:
    return SCANS.c.store == store, SCANS.c.status.in_((ScanStatus.KEPT, ScanStatus.BRAKED, ScanStatus.FAILED))


def _usable(newest: ScanRecord | None) -> ScanRecord | None:
    if newest is None or newest.status is not ScanStatus.BRAKED:
        return None
    return newest if newest.accepted_at is not None and newest.used_at is None else None


def _query(*where: ColumnElement[bool]) -> Select[Any]:
    # newest first, without the possibly long result
    columns = (SCANS.c[field.name] for field in fields(ScanRecord))
    return select(*columns).where(*where).order_by(SCANS.c.id.desc())


def _first(connection: Connection, *where: ColumnElement[bool]) -> ScanRecord | None:
    row = connection.execute(_query(*where).limit(1)).one_or_none()
    return None if row is None else _record(row)


def _scan_of(connection: Connection, store: str, scan: int) -> ScanRecord:
    record = _first(connection, SCANS.c.store == store, SCANS.c.id == scan)
    if record is None:
        raise Refused(f"{store} has no scan {scan}. `retention scans {store}` lists its scans.")
    return record


def _record(row: Row[Any]) -> ScanRecord:
    totals = stored(f"Scan {row.id}", row.totals or "{}", mapping_in)
    return ScanRecord(**row._asdict() | {"status": ScanStatus(row.status), "totals": totals})

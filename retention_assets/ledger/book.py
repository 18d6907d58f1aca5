"""The book of rules: versions of policies and aspects, holds (also a record of those in files), realms, visibility marks.

Nothing held is marked or swept until the hold ends or is released. Realms are retained while ACTIVE or INACTIVE; PURGING ones
are marked entirely, PURGED ones have nothing left. A dataset's history must not be read before its visibility mark, which only
rises.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, Connection, Row, Select, bindparam, func, or_, select, text, true, update
from sqlalchemy.exc import IntegrityError

from retention_assets.errors import BadInput, Problem, Refused
from retention_assets.ledger.audit.chain import Act, ActType, new_id
from retention_assets.ledger.audit.rows import detail_in, stored
from retention_assets.ledger.database import LedgerPart, WriteTransaction, audited
from retention_assets.ledger.leases import clear_paces
from retention_assets.ledger.schema import AUDIT, FILE_HOLDS, HOLDS, MARKS, OPEN, POLICY_VERSIONS, REALMS, VISIBILITY
from retention_assets.policy.book import BookItem, Loaded, Stored, as_loaded
from retention_assets.policy.durations import Duration, parse_duration, text_of
from retention_assets.policy.loading import BookDecision, LoadOutcome, OutsideEntry, compare, decide_outside
from retention_assets.policy.model import Hold, Keeper
from retention_assets.policy.realms import NAME_RULE, RESERVED, is_realm_name, purge_named, purged_hold, with_parents
from retention_assets.sql.columns import DatabaseTime
from retention_assets.sql.transactions import insert_or_skip, portions

_FIELDS = ("name", "content", "digest", "version", "written_by", "written_at", "system", "revoked")
_VERSIONS = select(*(POLICY_VERSIONS.c[field] for field in _FIELDS)).order_by(POLICY_VERSIONS.c.name, POLICY_VERSIONS.c.version)
_KEEPER: TypeAdapter[Keeper] = TypeAdapter(Keeper)
INITIAL = "ACTIVE"
ARROWS: Mapping[str, tuple[str, ...]] = {
    "ACTIVE": ("INACTIVE", "PURGING"),
    "INACTIVE": ("ACTIVE", "PURGING"),
    "PURGING": ("ACTIVE", "INACTIVE", "PURGED"),
    "PURGED": ("ACTIVE",),
}
# States that also apply to everything below a realm, strongest first.
_INHERITED = ("PURGING", "PURGED")


@dataclass(frozen=True)
class Orphaned:
    """Open marks of a policy version no longer in force. They are swept only if a policy in force selects them too."""

    policy: str
    policy_version: int
    marks: int


class PolicyBook(LedgerPart):
    def newest(self) -> list[Stored]:
        with self.database.reading() as connection:
            return _newest(connection)

    def in_force(self) -> list[Stored]:
        return [entry for entry in self.newest() if not entry.revoked]

    def versions(self, name: str) -> list[Stored]:
        return [Stored(**row._mapping) for row in self.rows(_VERSIONS.where(POLICY_VERSIONS.c.name == name))]

    def histories(self, prefix: str) -> list[list[Stored]]:
        histories: dict[str, list[Stored]] = {}
        for row in self.rows(_VERSIONS.where(POLICY_VERSIONS.c.name.startswith(prefix, autoescape=True))):
            # SQLite's LIKE ignores case.
            if row.name.startswith(prefix):
                histories.setdefault(row.name, []).append(Stored(**row._mapping))
        return list(histories.values())

    @audited
    def load(
        self,
        tx: WriteTransaction,
        loaded: Sequence[Loaded],
        actor: str,
        overwrite_user_policies: bool = False,
        stores: Collection[str] = (),
        at: datetime | None = None,
        files: Sequence[str] = (),
    ) -> list[BookDecision]:
        """Compare the files with the book, write the differences and return the decisions. `at`: a simulated time."""
        decisions = compare(_lock_newest(tx), loaded, overwrite_user_policies, stores)
        at = at or tx.present()
        for decision in decisions:
            if decision.outcome is LoadOutcome.WRITTEN:
                _append(tx, decision.written(actor, at), decision.reason, files)
            elif decision.revokes and decision.stored is not None:
                _append(tx, _ended(decision.stored, actor, at), decision.reason)
        return decisions

    def loaded_files(self) -> set[str]:
        query = select(AUDIT.c.policy, AUDIT.c.policy_version, AUDIT.c.detail).where(AUDIT.c.deed == ActType.POLICY)
        with self.database.one_moment():
            current = {(entry.name, entry.version) for entry in self.in_force() if entry.system}
            rows = self.rows_among(query, AUDIT.c.policy, (name for name, _ in current))
        return {file for *key, detail in rows if tuple(key) in current for file in detail_in(detail).get("files", ())}

    @audited
    def take_over(
        self, tx: WriteTransaction, found: Sequence[OutsideEntry], source: str, actor: str, forced: Collection[str] = ()
    ) -> list[BookDecision]:
        """Take over versions that people wrote outside, end those that they removed there, and return the decisions."""
        decisions = decide_outside(_lock_newest(tx), found, source, forced)
        at, authors = tx.present(), {entry.loaded.name: f"{source} {entry.written_by}" for entry in found}
        for decision in decisions:
            if decision.outcome is LoadOutcome.WRITTEN:
                _append(tx, replace(decision.written(authors[decision.name], at), system=False), decision.reason)
            elif decision.outcome is LoadOutcome.ABSENT and decision.stored is not None:
                _append(tx, _ended(decision.stored, actor, at), decision.reason)
        return decisions

    @audited
    def write(self, tx: WriteTransaction, item: BookItem, actor: str, reason: str | None = None) -> Stored:
        """Write a person's version; policy files that differ from it are drift from now on."""
        entry = as_loaded(item)
        stored = {newest.name: newest for newest in _lock_newest(tx)}.get(entry.name)
        if stored and not stored.revoked and stored.digest == entry.digest and not stored.system:
            return stored
        version = stored.version + 1 if stored else 1
        return _append(tx, Stored(entry.name, entry.content, entry.digest, version, actor, tx.present(), system=False), reason)

    @audited
    def revoke(self, tx: WriteTransaction, name: str, actor: str, reason: str) -> Stored:
        """End an entry. The next sweep spares its marks that no other policy in force selects."""
        stored = {newest.name: newest for newest in _lock_newest(tx)}.get(name)
        if stored is None or stored.revoked:
            raise Refused(f"No policy named {name} is in force. `retention policies` lists the policies in force.")
        return _append(tx, replace(_ended(stored, actor, tx.present()), system=False), reason)

    def orphaned(self) -> list[Orphaned]:
        version = (MARKS.c.policy, MARKS.c.policy_version)
        with self.database.one_moment():
            current = {(entry.name, entry.version) for entry in self.in_force()}
            rows = self.rows(select(*version, func.count()).where(text(OPEN)).group_by(*version).order_by(*version))
        return [Orphaned(*row) for row in rows if row[:2] not in current and not row.policy.startswith("::")]


def _newest(connection: Connection) -> list[Stored]:
    return list({row["name"]: Stored(**row) for row in connection.execute(_VERSIONS).mappings()}.values())


def _lock_newest(tx: WriteTransaction) -> list[Stored]:
    # nobody adds a version before this transaction ends
    tx.lock_chain()
    return _newest(tx.connection)


def _ended(stored: Stored, actor: str, at: datetime) -> Stored:
    # Written by the system, so an entry of the files may replace it.
    return replace(stored, version=stored.version + 1, written_by=actor, written_at=at, system=True, revoked=True)


def _append(tx: WriteTransaction, entry: Stored, reason: str | None, files: Sequence[str] = ()) -> Stored:
    detail = {"digest": entry.digest, "system": entry.system, "revoked": entry.revoked}
    detail |= {"files": list(files)} if files else {}
    act = Act(ActType.POLICY, entry.written_by, reason, policy=entry.name, policy_version=entry.version, detail=detail)
    tx.add(act, POLICY_VERSIONS, **{field: getattr(entry, field) for field in _FIELDS})
    # The pace that the previous version reserved no longer applies.
    clear_paces(tx, entry.name)
    return entry


@dataclass(frozen=True)
class Realm:
    """A realm, and the grace of the marks that purging it makes."""

    name: str
    status: str
    grace: Duration

    def as_dict(self) -> dict[str, str]:
        return {"name": self.name, "status": self.status, "grace": str(self.grace)}


class Realms(LedgerPart):
    def of(self, name: str) -> Realm:
        return self.all().get(name, Realm(name, INITIAL, Duration()))

    def all(self) -> dict[str, Realm]:
        query = select(REALMS.c.name, REALMS.c.status, REALMS.c.grace).order_by(REALMS.c.name)
        return {row.name: Realm(row.name, row.status, parse_duration(row.grace)) for row in self.rows(query)}

    def purging(self) -> frozenset[str]:
        return frozenset(realm.name for realm in self.all().values() if realm.status == "PURGING")

    def above(self, name: str) -> Realm | None:
        """The realm above whose status also applies here: a PURGING one, or else a PURGED one."""
        realms = self.all()
        parents = [realms[parent] for parent in with_parents(name)[1:] if parent in realms]
        return next((realm for status in _INHERITED for realm in parents if realm.status == status), None)

    def last_changes(self, name: str) -> list[datetime]:
        """Database times of the realm's last change and last purge deletion: an older listing does not show what is left."""
        policy = purge_named(name)
        is_purge = or_(MARKS.c.policy == policy, MARKS.c.policy.startswith(f"{policy}/", autoescape=True))
        query = select(func.max(MARKS.c.changed_at)).where(MARKS.c.status == "SWEPT", is_purge)
        with self.database.reading() as connection:
            changed = connection.execute(select(REALMS.c.changed_at).where(REALMS.c.name == name)).scalars().all()
            return [*changed, *connection.execute(query.having(func.count() > 0)).scalars()]

    def change(self, name: str, status: str, actor: str, reason: str, grace: Duration | None = None) -> Realm:
        """Change a realm as a person asks. Only a scan that finds nothing makes it PURGED."""
        if status == "PURGED":
            raise Refused(f"{name} becomes PURGED once a scan finds nothing in it. To start that, set it to PURGING.")
        return self.database.write(lambda tx: _change(tx, name, status, actor, reason, grace))

    def purged(self, name: str, actor: str) -> Realm:
        return self.database.write(lambda tx: _change(tx, name, "PURGED", actor, "A scan found nothing in it.", None))


def kept_realms(connection: Connection) -> list[str]:
    """PURGED realms in which everything new is kept, unless a realm above is PURGING."""
    statuses = {row.name: row.status for row in connection.execute(select(REALMS.c.name, REALMS.c.status))}
    purged = sorted(name for name, status in statuses.items() if status == "PURGED")
    return [name for name in purged if "PURGING" not in map(statuses.get, with_parents(name))]


def refuse_realm_name(name: str) -> None:
    """Refuse a name that no realm may have, or that nobody may change."""
    if name.startswith(RESERVED):
        raise Refused(f"{name} belongs to the system: realms whose names begin with {RESERVED} can't be changed.")
    if not is_realm_name(name):
        raise BadInput(Problem("is not the name of a realm", key="name", value=f"'{name}'", expected=NAME_RULE))


def _change(tx: WriteTransaction, name: str, status: str, actor: str, reason: str, grace: Duration | None) -> Realm:
    refuse_realm_name(name)
    # Locks all realms, also those without a row, until this transaction ends.
    tx.lock_chain()
    stored = tx.connection.execute(select(REALMS.c.status, REALMS.c.grace).where(REALMS.c.name == name)).one_or_none()
    # A realm below a PURGED one is PURGED with it and starts again with it.
    above = select(REALMS.c.name).where(REALMS.c.name.in_(with_parents(name)[1:]), REALMS.c.status == "PURGED")
    if status != "PURGED" and (parent := tx.connection.execute(above.order_by(REALMS.c.name)).scalars().first()):
        raise Refused(f"{parent} is PURGED, and {name} with it. To use it again, set {parent} to ACTIVE first.")
    before = Realm(name, stored.status, parse_duration(stored.grace)) if stored else Realm(name, INITIAL, Duration())
    if status == before.status and grace is None:
        return before
    if status != before.status and status not in ARROWS[before.status]:
        allowed = " or ".join(ARROWS[before.status])
        raise Refused(f"{name} is {before.status} and can't become {status}, only {allowed}.")
    new = Realm(name, status, grace if grace is not None else before.grace)
    detail = {"realm": name, "from": before.status, "to": new.status, "grace": str(new.grace)}
    row = {"status": new.status, "grace": str(new.grace), "changed_at": DatabaseTime(), "changed_by": actor}
    tx.put(Act(ActType.REALM, actor, reason, detail=detail), REALMS, name=name, **row)
    return new


class Holds(LedgerPart):
    def place(self, hold: Hold, actor: str) -> None:
        """Place a hold. Raises Refused without a reason, or if a hold of that name is in force."""
        if not hold.name or not hold.reason.strip():
            raise Refused("A hold needs a name and a reason. Give --name and --reason.")
        try:
            self.database.write(lambda tx: place_in(tx, hold, actor))
        except IntegrityError:
            raise Refused(f"A hold named {hold.name} is in force. Release it first, or take another name.") from None

    @audited
    def release(self, tx: WriteTransaction, name: str, actor: str, reason: str) -> None:
        if not actor.strip() or not reason.strip():
            raise Refused("The record needs who releases a hold and why. Give --actor and --reason.")
        query = select(HOLDS.c.id).where(HOLDS.c.name == name, HOLDS.c.released_at.is_(None)).with_for_update()
        number = tx.connection.execute(query).scalar_one_or_none()
        if number is None:
            raise Refused(f"No hold named {name} is in force. `retention hold --list` lists the holds in force.")
        act = Act(ActType.RELEASE, actor, reason, detail={"name": name, "source": "ledger"})
        tx.change(act, HOLDS, HOLDS.c.id == number, released_at=DatabaseTime(), released_by=actor, release_reason=reason)

    def note_files(
        self, holds: Iterable[Keeper], actor: str, folders: Sequence[str] = (), *, ends: bool = True, takes_over: bool = False
    ) -> None:
        """Record which holds and retain rules of policy files appeared and which are gone, also for tasks that have no files.

        A hold ends only if all folders that brought it are read without it and `ends` is true. With `takes_over` the present
        holds count as brought by these folders.
        """
        present = {hashlib.sha256(_content_of(hold).encode()).hexdigest(): hold for hold in holds}
        recorded = {row.digest: folders_of(row) for row in self.rows(_live())}
        gone = {digest for digest in recorded.keys() - present.keys() if ends and recorded[digest] <= set(folders)}
        come = {digest for digest in present if digest not in recorded or (takes_over and recorded[digest] != set(folders))}
        if come or gone:
            self.database.write(lambda tx: _note_files(tx, {digest: present[digest] for digest in come}, gone, actor, folders))

    def recorded(self, as_of: datetime | None = None) -> "RecordedKeepers":
        """Read what is recorded of files, and holds in force at an instant by name; without one, also those that have ended."""
        with self.database.reading() as connection:
            files = [
                FileKeeper(stored("A row of file_holds", row.content, _KEEPER.validate_json), row.came_at, folders_of(row))
                for row in connection.execute(_live())
            ]
            placed = [hold_in(row) for row in connection.execute(placed_holds(as_of))]
            return RecordedKeepers(files, placed, [*map(purged_hold, kept_realms(connection))])


class FileKeeper(NamedTuple):
    """A hold or retain rule of policy files, since when it is recorded, and the folders that brought it."""

    keeper: Keeper
    since: datetime
    folders: frozenset[str]


class RecordedKeepers(NamedTuple):
    """Holds and retain rules recorded of policy files, holds of people, and those over PURGED realms."""

    files: Sequence[FileKeeper] = ()
    placed: Sequence[Hold] = ()
    purged: Sequence[Hold] = ()


def placed_holds(as_of: datetime | ColumnElement[datetime] | None) -> Select[Any]:
    """Query for the rows of holds that are in force at an instant; without one, also of those that have ended."""
    later = true() if as_of is None else or_(HOLDS.c.until.is_(None), HOLDS.c.until > as_of)
    return select(HOLDS.c.name, HOLDS.c.content).where(HOLDS.c.released_at.is_(None), later).order_by(HOLDS.c.name)


def hold_in(row: Row[Any]) -> Hold:
    return stored(f"The hold {row.name}", row.content, Hold.model_validate_json)


def place_in(tx: WriteTransaction, hold: Hold, actor: str) -> None:
    act = Act(ActType.HOLD, actor, hold.reason, detail=_detail_of(hold, "ledger"))
    # A hold that has ended frees its name; its row is closed.
    ended = (HOLDS.c.name == hold.name) & HOLDS.c.released_at.is_(None) & (HOLDS.c.until <= DatabaseTime())
    over = {"released_at": HOLDS.c.until, "released_by": "::until", "release_reason": "It ended by itself."}
    for number in tx.connection.execute(select(HOLDS.c.id).where(ended)).scalars().all():
        tx.change(act, HOLDS, HOLDS.c.id == number, **over)
    row = {"name": hold.name, "content": _content_of(hold), "reason": hold.reason, "owner": hold.owner, "until": hold.until}
    tx.add(act, HOLDS, id=new_id(), **row, placed_at=DatabaseTime(), placed_by=actor)


def _detail_of(hold: Keeper, source: str) -> dict[str, Any]:
    detail = {"name": hold.name, "source": source, **hold.scope}
    if isinstance(hold, Hold):
        detail |= {"owner": hold.owner, "until": text_of(hold.until) if hold.until else None}
    return detail


def _live() -> Select[Any]:
    query = select(FILE_HOLDS, AUDIT.c.detail).join(AUDIT, AUDIT.c.act == FILE_HOLDS.c.act)
    return query.where(FILE_HOLDS.c.gone_at.is_(None)).order_by(FILE_HOLDS.c.digest)


def folders_of(row: Row[Any]) -> frozenset[str]:
    return stored("An act about a hold of files", row.detail, lambda text: frozenset(json.loads(text).get("folders", ())))


def _note_files(
    tx: WriteTransaction, holds: Mapping[str, Keeper], ended: Collection[str], actor: str, folders: Sequence[str]
) -> None:
    tx.lock_chain()
    recorded = {row.digest: row for row in tx.connection.execute(select(FILE_HOLDS).order_by(FILE_HOLDS.c.digest))}
    for digest, hold in holds.items():
        detail = {**_detail_of(hold, "file"), "folders": sorted(folders)}
        values = {"name": hold.name or "", "content": _content_of(hold), "came_at": DatabaseTime(), "gone_at": None}
        tx.put(Act(ActType.HOLD, actor, hold.reason, detail=detail), FILE_HOLDS, digest=digest, **values)
    for digest, row in recorded.items():
        if digest in ended and row.gone_at is None:
            act = Act(ActType.RELEASE, actor, "No policy file has it any more.", detail={"name": row.name, "source": "file"})
            tx.change(act, FILE_HOLDS, FILE_HOLDS.c.digest == digest, gone_at=DatabaseTime())


def _content_of(hold: Keeper) -> str:
    return hold.model_dump_json(by_alias=True, exclude_none=True)


class Raise(NamedTuple):
    visible_from: datetime
    reason: str | None = None


class Visibility(LedgerPart):
    def raise_to(self, raises: Mapping[str, Raise], actor: str) -> dict[str, datetime]:
        """Raise many marks in one transaction, each with an act of its own; return them. Lower values change nothing."""
        before = self.of_all(raises)
        higher = {name: to for name, to in raises.items() if name not in before or before[name] < to.visible_from}
        return {**before, **self.database.write(lambda tx: _raise_to(tx, higher, actor))} if higher else before

    def of(self, dataset: str) -> datetime | None:
        return self.of_all([dataset]).get(dataset)

    def of_all(self, datasets: Iterable[str] | None = None) -> dict[str, datetime]:
        query = select(VISIBILITY.c.dataset, VISIBILITY.c.visible_from).order_by(VISIBILITY.c.dataset)
        rows = self.rows(query) if datasets is None else self.rows_among(query, VISIBILITY.c.dataset, datasets)
        return {row.dataset: row.visible_from for row in rows}


def raise_by(retention: Duration, as_of: datetime, newest_closed_at: datetime, why: str = "") -> Raise:
    """The instant less the retention, but never past the newest transaction: a fast clock can't hide the current view."""
    reason = f"retention of {retention.words()} as of {text_of(as_of)}{why}"
    return Raise(min(retention.before(as_of), newest_closed_at), reason)


def _raise_to(tx: WriteTransaction, raises: Mapping[str, Raise], actor: str) -> dict[str, datetime]:
    # Sorted, so that concurrent writers of the same datasets can't deadlock.
    names = sorted(raises)
    acts, raised = dict[str, Act](), {"raised_at": tx.present(), "raised_by": actor}
    for name in names:
        acts[name] = Act(ActType.ADVANCE, actor, raises[name].reason, name, detail={"to": text_of(raises[name].visible_from)})
    rows = [{"dataset": name, "visible_from": raises[name].visible_from, **raised, "act": acts[name].id} for name in names]
    lower = (VISIBILITY.c.dataset == bindparam("name")) & (VISIBILITY.c.visible_from < bindparam("visible_from"))
    columns = ("visible_from", "raised_at", "raised_by", "act")
    rise = update(VISIBILITY).where(lower).values({name: bindparam(name) for name in columns})
    for part in portions(names):
        tx.seal(VISIBILITY, VISIBILITY.c.dataset.in_(part), *acts.values())
    tx.connection.execute(insert_or_skip(tx.connection, VISIBILITY), rows)
    tx.connection.execute(rise, [{**{name: row[name] for name in columns}, "name": row["dataset"]} for row in rows])
    values: dict[str, datetime] = {}
    for part in portions(names):
        present = select(VISIBILITY.c.dataset, VISIBILITY.c.visible_from, VISIBILITY.c.act)
        for row in tx.connection.execute(present.where(VISIBILITY.c.dataset.in_(part))):
            values[row.dataset] = row.visible_from
            if row.act == acts[row.dataset].id:
                tx.record(acts[row.dataset])
    return values

"""Realms and their states: ACTIVE and INACTIVE are retained, PURGING is marked entirely, PURGED has nothing left."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, func, or_, select

from retention_assets.errors import BadInput, Problem, Refused
from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.database import LedgerPart, WriteTransaction
from retention_assets.ledger.schema import MARKS, REALMS
from retention_assets.policy.durations import Duration, parse_duration
from retention_assets.policy.realms import NAME_RULE, RESERVED, is_realm_name, purge_named, with_parents
from retention_assets.sql.columns import DatabaseTime

INITIAL = "ACTIVE"
ARROWS: Mapping[str, tuple[str, ...]] = {
    "ACTIVE": ("INACTIVE", "PURGING"),
    "INACTIVE": ("ACTIVE", "PURGING"),
    "PURGING": ("ACTIVE", "INACTIVE", "PURGED"),
    "PURGED": ("ACTIVE",),
}
# States that also apply to everything below a realm, strongest first.
_BEATING = ("PURGING", "PURGED")


@dataclass(frozen=True)
class Realm:
    """A realm, and the grace of the marks that purging it makes."""

    name: str
    status: str
    grace: Duration

    def as_dict(self) -> dict[str, str]:
        return {"name": self.name, "status": self.status, "grace": str(self.grace)}


class Realms(LedgerPart):
    """The realms of a ledger."""

    def of(self, name: str) -> Realm:
        return self.all().get(name, Realm(name, INITIAL, Duration()))

    def all(self) -> dict[str, Realm]:
        query = select(REALMS.c.name, REALMS.c.status, REALMS.c.grace).order_by(REALMS.c.name)
        return {row.name: Realm(row.name, row.status, parse_duration(row.grace)) for row in self.rows(query)}

    def purging(self) -> frozenset[str]:
        return frozenset(one.name for one in self.all().values() if one.status == "PURGING")

    def above(self, name: str) -> Realm | None:
        """The realm above whose status also applies here: a PURGING one, or else a PURGED one."""
        known = self.all()
        parents = [known[parent] for parent in with_parents(name)[1:] if parent in known]
        return next((one for status in _BEATING for one in parents if one.status == status), None)

    def last_changes(self, name: str) -> list[datetime]:
        """Database times of the realm's last change and last purge deletion: an older listing does not show what is left."""
        policy = purge_named(name)
        mine = or_(MARKS.c.policy == policy, MARKS.c.policy.startswith(f"{policy}/", autoescape=True))
        query = select(func.max(MARKS.c.changed_at)).where(MARKS.c.status == "SWEPT", mine)
        with self.database.reading() as connection:
            changed = connection.execute(select(REALMS.c.changed_at).where(REALMS.c.name == name)).scalars().all()
            return [*changed, *connection.execute(query.having(func.count() > 0)).scalars()]

    def change(self, name: str, status: str, actor: str, reason: str, grace: Duration | None = None) -> Realm:
        """Change a realm as a person asks. Only a scan that finds nothing makes it PURGED."""
        if status == "PURGED":
            raise Refused(f"{name} is PURGED once a scan finds nothing of it any more. To get there, make it PURGING.")
        return self.database.write(lambda tx: _change(tx, name, status, actor, reason, grace))

    def purged(self, name: str, found: int, actor: str) -> Realm:
        if found:
            return self.of(name)
        return self.database.write(lambda tx: _change(tx, name, "PURGED", actor, "A scan found nothing of it.", None))


def kept_realms(connection: Connection) -> list[str]:
    """PURGED realms in which everything new is kept, unless a realm above is PURGING."""
    known = {row.name: row.status for row in connection.execute(select(REALMS.c.name, REALMS.c.status))}
    purged = sorted(name for name, status in known.items() if status == "PURGED")
    return [name for name in purged if "PURGING" not in map(known.get, with_parents(name))]


def _change(tx: WriteTransaction, name: str, status: str, actor: str, reason: str, grace: Duration | None) -> Realm:
    if name.startswith(RESERVED):
        raise Refused(f"{name} is the system's: realms whose names begin with {RESERVED} are not changed.")
    # Locks all realms, also those without a row, until this transaction ends.
    tx.lock_chain()
    found = tx.connection.execute(select(REALMS.c.status, REALMS.c.grace).where(REALMS.c.name == name)).one_or_none()
    if not found and not is_realm_name(name):
        raise BadInput(Problem("is not the name of a realm", key="name", value=f"'{name}'", expected=NAME_RULE))
    # A realm below a PURGED one is PURGED with it and starts again with it.
    above = select(REALMS.c.name).where(REALMS.c.name.in_(with_parents(name)[1:]), REALMS.c.status == "PURGED")
    if status != "PURGED" and (parent := tx.connection.execute(above.order_by(REALMS.c.name)).scalars().first()):
        raise Refused(f"{parent} is PURGED, and {name} with it. To begin anew, make {parent} ACTIVE first.")
    before = Realm(name, found.status, parse_duration(found.grace)) if found else Realm(name, INITIAL, Duration())
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

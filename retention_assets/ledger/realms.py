"""Realms: ACTIVE and INACTIVE ones are retained, a PURGING one is marked whole, of a PURGED one nothing was left.

Belongs here: the states of a realm, how it goes from one to the next, and what that says of the realms below it.
Does not belong here: what names there are (policy/realms.py), which datasets a realm has (stores) and marking them (dagster).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, func, or_, select

from retention_assets.errors import BadInput, Problem, Refused
from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.database import LedgerDatabase, WriteTransaction
from retention_assets.ledger.schema import AUDIT_HEAD, MARKS, REALMS
from retention_assets.policy.durations import Duration, parse_duration
from retention_assets.policy.purge import purge_named
from retention_assets.policy.realms import NAME_RULE, RESERVED, is_realm_name, with_parents
from retention_assets.sql.columns import DatabaseTime
from retention_assets.sql.upserts import insert_or_update

# The state of a realm that was never changed.
INITIAL = "ACTIVE"
ARROWS: Mapping[str, tuple[str, ...]] = {
    "ACTIVE": ("INACTIVE", "PURGING"),
    "INACTIVE": ("ACTIVE", "PURGING"),
    "PURGING": ("ACTIVE", "INACTIVE", "PURGED"),
    # It begins anew.
    "PURGED": ("ACTIVE",),
}
# Those of a realm that count for everything below it, the first before the second.
_BEATING = ("PURGING", "PURGED")


@dataclass(frozen=True)
class Realm:
    """A realm, and the grace of the marks that purging it makes."""

    name: str
    status: str
    grace: Duration

    def as_dict(self) -> dict[str, str]:
        """As `--format json` prints it."""
        return {"name": self.name, "status": self.status, "grace": str(self.grace)}


@dataclass(frozen=True)
class Realms:
    """The realms of a ledger."""

    database: LedgerDatabase

    def of(self, name: str) -> Realm:
        """A realm as it is."""
        return self.all().get(name, Realm(name, INITIAL, Duration()))

    def all(self) -> dict[str, Realm]:
        """The realms that were ever changed, by name."""
        query = select(REALMS.c.name, REALMS.c.status, REALMS.c.grace).order_by(REALMS.c.name)
        with self.database.reading() as connection:
            return {row.name: Realm(row.name, row.status, parse_duration(row.grace)) for row in connection.execute(query)}

    def purging(self) -> frozenset[str]:
        """The names of those that are being purged."""
        return frozenset(one.name for one in self.all().values() if one.status == "PURGING")

    def above(self, name: str) -> Realm | None:
        """The realm above this one whose status counts for it as well: one that is PURGING, or else one that is PURGED."""
        known = self.all()
        parents = [known[parent] for parent in with_parents(name)[1:] if parent in known]
        return next((one for status in _BEATING for one in parents if one.status == status), None)

    def last_changes(self, name: str) -> list[datetime]:
        """When the realm was changed last, and when something was deleted last because it was being purged, or one below it.

        By the database's clock. What was read before says nothing about what is left of it.
        """
        policy = purge_named(name)
        mine = or_(MARKS.c.policy == policy, MARKS.c.policy.startswith(f"{policy}/", autoescape=True))
        query = select(func.max(MARKS.c.changed_at)).where(MARKS.c.status == "SWEPT", mine)
        with self.database.reading() as connection:
            changed = connection.execute(select(REALMS.c.changed_at).where(REALMS.c.name == name)).scalars().all()
            return [*changed, *connection.execute(query.having(func.count() > 0)).scalars()]

    def change(self, name: str, status: str, actor: str, reason: str, grace: Duration | None = None) -> Realm:
        """Change a realm, as a person wants it. Nobody makes it PURGED: a scan that finds nothing does."""
        if status == "PURGED":
            raise Refused(f"{name} is PURGED once a scan finds nothing of it any more. To get there, make it PURGING.")
        return self.database.write(lambda tx: _change(tx, name, status, actor, reason, grace))

    def purged(self, name: str, found: int, actor: str) -> Realm:
        """Make a realm that is PURGING PURGED, if a scan found nothing of it."""
        if found:
            return self.of(name)
        return self.database.write(lambda tx: _change(tx, name, "PURGED", actor, "A scan found nothing of it.", None))


def kept_realms(connection: Connection) -> list[str]:
    """The realms of which everything that appears is kept: those that are PURGED, unless one above is being purged."""
    known = {row.name: row.status for row in connection.execute(select(REALMS.c.name, REALMS.c.status))}
    purged = sorted(name for name, status in known.items() if status == "PURGED")
    return [name for name in purged if "PURGING" not in map(known.get, with_parents(name))]


def _change(tx: WriteTransaction, name: str, status: str, actor: str, reason: str, grace: Duration | None) -> Realm:
    if name.startswith(RESERVED):
        raise Refused(f"{name} is the system's: realms whose names begin with {RESERVED} are not changed.")
    act = Act(ActType.REALM, actor, reason)
    row = {"name": name, "changed_at": DatabaseTime(), "changed_by": actor, "act": act.id}
    # Nobody else changes a realm before this transaction ends, also one that has no row yet.
    tx.connection.execute(select(AUDIT_HEAD.c.position).with_for_update())
    found = tx.connection.execute(select(REALMS.c.status, REALMS.c.grace).where(REALMS.c.name == name)).one_or_none()
    if not found and not is_realm_name(name):
        raise BadInput(Problem("is not the name of a realm", key="name", value=f"'{name}'", expected=NAME_RULE))
    if status != "PURGED":
        _refuse_below_purged(tx, name)
    before = Realm(name, found.status, parse_duration(found.grace)) if found else Realm(name, INITIAL, Duration())
    if status == before.status and grace is None:
        return before
    if status != before.status and status not in ARROWS[before.status]:
        allowed = " or ".join(ARROWS[before.status])
        raise Refused(f"{name} is {before.status} and can't become {status}, only {allowed}.")
    tx.seal(act, REALMS, REALMS.c.name == name)
    new = Realm(name, status, grace if grace is not None else before.grace)
    changes = insert_or_update(tx.connection, REALMS, ["name"], ["status", "grace", "changed_at", "changed_by", "act"])
    tx.connection.execute(changes.values(**row, status=new.status, grace=str(new.grace)))
    act.detail = {"realm": name, "from": before.status, "to": new.status, "grace": str(new.grace)}
    tx.record(act)
    return new


def _refuse_below_purged(tx: WriteTransaction, name: str) -> None:
    """What is below a realm that is PURGED is PURGED with it, and begins anew with it."""
    above = select(REALMS.c.name).where(REALMS.c.name.in_(with_parents(name)[1:]), REALMS.c.status == "PURGED")
    if parent := tx.connection.execute(above.order_by(REALMS.c.name)).scalars().first():
        raise Refused(f"{parent} is PURGED, and {name} with it. To begin anew, make {parent} ACTIVE first.")

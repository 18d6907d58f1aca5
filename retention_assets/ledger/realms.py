"""Realms: ACTIVE and INACTIVE ones are retained, a PURGING one is marked whole, a PURGED one is over.

Belongs here: the states of a realm and how it goes from one to the next.
Does not belong here: which datasets it has (stores) and marking them (dagster/assets).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import select

from retention_assets.errors import Refused
from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.database import LedgerDatabase, WriteTransaction
from retention_assets.ledger.schema import AUDIT_HEAD, REALMS
from retention_assets.policy.durations import Duration, parse_duration
from retention_assets.sql.columns import DatabaseTime
from retention_assets.sql.upserts import insert_or_update

# The state of a realm that was never changed.
INITIAL = "ACTIVE"
ARROWS: Mapping[str, tuple[str, ...]] = {
    "ACTIVE": ("INACTIVE", "PURGING"),
    "INACTIVE": ("ACTIVE", "PURGING"),
    "PURGING": ("ACTIVE", "INACTIVE", "PURGED"),
    "PURGED": (),
}
SYSTEM = "::"


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


def _change(tx: WriteTransaction, name: str, status: str, actor: str, reason: str, grace: Duration | None) -> Realm:
    if name.startswith(SYSTEM):
        raise Refused(f"{name} is the system's: realms whose names begin with {SYSTEM} are not changed.")
    act = Act(ActType.REALM, actor, reason)
    row = {"name": name, "changed_at": DatabaseTime(), "changed_by": actor, "act": act.id}
    # Nobody else changes a realm before this transaction ends, also one that has no row yet.
    tx.connection.execute(select(AUDIT_HEAD.c.position).with_for_update())
    found = tx.connection.execute(select(REALMS.c.status, REALMS.c.grace).where(REALMS.c.name == name)).one_or_none()
    before = Realm(name, found.status, parse_duration(found.grace)) if found else Realm(name, INITIAL, Duration())
    if status == before.status and grace is None:
        return before
    if status != before.status and status not in ARROWS[before.status]:
        allowed = " or ".join(ARROWS[before.status])
        ending = f", only {allowed}." if allowed else ": that is its end. New data belongs in a realm of another name."
        raise Refused(f"{name} is {before.status} and can't become {status}{ending}")
    tx.seal(act, REALMS, REALMS.c.name == name)
    new = Realm(name, status, grace if grace is not None else before.grace)
    changes = insert_or_update(tx.connection, REALMS, ["name"], ["status", "grace", "changed_at", "changed_by", "act"])
    tx.connection.execute(changes.values(**row, status=new.status, grace=str(new.grace)))
    act.detail = {"realm": name, "from": before.status, "to": new.status, "grace": str(new.grace)}
    tx.record(act)
    return new

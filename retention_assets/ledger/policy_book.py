"""The policy book: every version of every policy and aspect, its author and time, and the marks that changes orphan."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection, func, select, text

from retention_assets.errors import Refused
from retention_assets.ledger.audit.chain import Act, ActType
from retention_assets.ledger.database import LedgerPart, WriteTransaction, audited
from retention_assets.ledger.leases import clear_paces
from retention_assets.ledger.schema import AUDIT, MARKS, OPEN, POLICY_VERSIONS
from retention_assets.policy.book import (
    BookDecision,
    BookItem,
    Loaded,
    LoadOutcome,
    OutsideDecision,
    OutsideEntry,
    Stored,
    as_loaded,
    compare,
    decide_outside,
)

_FIELDS = ("name", "content", "digest", "version", "written_by", "written_at", "system", "revoked")
_VERSIONS = select(*(POLICY_VERSIONS.c[field] for field in _FIELDS)).order_by(POLICY_VERSIONS.c.name, POLICY_VERSIONS.c.version)


@dataclass(frozen=True)
class Orphaned:
    """Open marks of a policy version no longer in force. They are swept only if a policy in force selects them too."""

    policy: str
    policy_version: int
    marks: int


class PolicyBook(LedgerPart):
    """The policy book of a ledger."""

    def newest(self) -> list[Stored]:
        with self.database.reading() as connection:
            return _newest(connection)

    def in_force(self) -> list[Stored]:
        return [entry for entry in self.newest() if not entry.revoked]

    def versions(self, name: str) -> list[Stored]:
        return [Stored(**row._mapping) for row in self.rows(_VERSIONS.where(POLICY_VERSIONS.c.name == name))]

    def histories(self, prefix: str) -> list[list[Stored]]:
        found: dict[str, list[Stored]] = {}
        for row in self.rows(_VERSIONS.where(POLICY_VERSIONS.c.name.startswith(prefix, autoescape=True))):
            # SQLite's LIKE ignores case.
            if row.name.startswith(prefix):
                found.setdefault(row.name, []).append(Stored(**row._mapping))
        return list(found.values())

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
        current = {(entry.name, entry.version) for entry in self.in_force() if entry.system}
        query = select(AUDIT.c.policy, AUDIT.c.policy_version, AUDIT.c.detail).where(AUDIT.c.deed == ActType.POLICY)
        rows = self.rows_among(query, AUDIT.c.policy, (name for name, _ in current))
        return {file for *key, detail in rows if tuple(key) in current for file in json.loads(detail).get("files", ())}

    @audited
    def take_over(
        self, tx: WriteTransaction, found: Sequence[OutsideEntry], source: str, actor: str, forced: Collection[str] = ()
    ) -> list[OutsideDecision]:
        """Take over versions that people wrote outside, end those that they removed there, and return the decisions."""
        decisions = decide_outside(_lock_newest(tx), found, source, forced)
        at = tx.present()
        for one in decisions:
            decision, stored = one.decision, one.decision.stored
            version = stored.version + 1 if stored else 1
            if decision.outcome is LoadOutcome.WRITTEN and decision.loaded is not None:
                entry = decision.loaded
                new = Stored(entry.name, entry.content, entry.digest, version, one.written_by, at, system=False)
                _append(tx, new, decision.reason)
            elif decision.outcome is LoadOutcome.ABSENT and stored is not None:
                _append(tx, _ended(stored, actor, at), decision.reason)
        return decisions

    @audited
    def write(self, tx: WriteTransaction, item: BookItem, actor: str, reason: str | None = None) -> Stored:
        """Write a person's version; policy files that differ from it are drift from now on."""
        entry = as_loaded(item)
        stored = {one.name: one for one in _lock_newest(tx)}.get(entry.name)
        if stored and not stored.revoked and stored.digest == entry.digest and not stored.system:
            return stored
        version = stored.version + 1 if stored else 1
        new = Stored(entry.name, entry.content, entry.digest, version, actor, tx.present(), system=False)
        return _append(tx, new, reason)

    @audited
    def revoke(self, tx: WriteTransaction, name: str, actor: str, reason: str) -> Stored:
        """End an entry. The next sweep spares its marks that no other policy in force selects."""
        stored = {one.name: one for one in _lock_newest(tx)}.get(name)
        if stored is None or stored.revoked:
            raise Refused(f"No policy named {name} is in force. `retention policies` lists those that are.")
        return _append(tx, replace(_ended(stored, actor, tx.present()), system=False), reason)

    def orphaned(self) -> list[Orphaned]:
        current = {(entry.name, entry.version) for entry in self.in_force()}
        by_version = select(MARKS.c.policy, MARKS.c.policy_version, func.count()).where(text(OPEN))
        grouped = by_version.group_by(MARKS.c.policy, MARKS.c.policy_version).order_by(MARKS.c.policy, MARKS.c.policy_version)
        found = [Orphaned(*row) for row in self.rows(grouped)]
        return [one for one in found if (one.policy, one.policy_version) not in current and not one.policy.startswith("::")]


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

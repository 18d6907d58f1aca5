"""Verification: whether the record still says what was written.

Belongs here: computing the chain of the audit again, and the seals and digests of the members of bulk acts, and naming every
row that was changed, removed, moved or added.
Does not belong here: mending anything.

What it can't find: somebody who writes the whole chain anew from some row on. Who wants to rule that out keeps
`AuditResult.head` (or the exported lines) elsewhere and passes it as `known` the next time.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, func, or_, select

from retention_assets.ledger.audit.chain import GENESIS, ActType, hash_of, rows
from retention_assets.ledger.audit.seals import mark_seals, step_seal
from retention_assets.ledger.marks.marking import MARK_ROWS
from retention_assets.ledger.schema import AUDIT, AUDIT_HEAD, MARKS, STEPS
from retention_assets.sql.streams import stream

# A ledger that somebody has rewritten wholesale is not listed row by row.
_MOST = 1_000
# How far around its place a row that was moved is looked for.
_AROUND = 1_000
_WITH_MEMBERS = frozenset({ActType.MARK, ActType.UNMARK, ActType.SPARE, ActType.BEGIN, ActType.SETTLE})


@dataclass(frozen=True)
class ChainHead:
    """A position of the chain and the hash of the row there."""

    position: int
    hash: str


@dataclass(frozen=True)
class AuditResult:
    """How much was verified, and its faults: sentences that each name a row."""

    rows: int
    members: int
    head: ChainHead
    faults: tuple[str, ...]


def verify(connection: Connection, known: ChainHead | None = None) -> AuditResult:
    """Compute everything again, in one consistent state."""
    chain = _Chain(known)
    found = [*islice(chain.faults(connection), _MOST)]
    members = _Members(chain.acts)
    for part in (members.mark_faults(connection), members.step_faults(connection), members.missing(), _life_faults(connection)):
        found += islice(part, max(0, _MOST - len(found)))
    return AuditResult(chain.count, sum(members.counted.values()), chain.last, tuple(found))


@dataclass
class _Chain:
    """A walk along the audit, and the acts with members that it passes."""

    known: ChainHead | None
    last: ChainHead = ChainHead(0, GENESIS)
    count: int = 0
    acts: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def faults(self, connection: Connection) -> Iterator[str]:
        for row in rows(connection):
            yield from self._at(row)
            self.last, self.count = ChainHead(row["position"], row["hash"]), self.count + 1
            if row["digest"] is not None:
                self.acts[row["act"]] = {name: row[name] for name in ("position", "deed", "members", "digest")}
        head = ChainHead(*connection.execute(select(AUDIT_HEAD.c.position, AUDIT_HEAD.c.hash)).one())
        if head.position > self.last.position:
            yield _missing(self.last.position + 1, head.position)
        elif head != self.last:
            yield f"The head of the audit says that it ends with row {head.position}; it ends with row {self.last.position}."
        if self.known and self.known.position > head.position:
            yield f"Row {self.known.position} of the audit was noted before, and the audit ends with row {head.position}."

    def _at(self, row: Mapping[str, Any]) -> Iterator[str]:
        position = row["position"]
        if position > self.last.position + 1:
            yield _missing(self.last.position + 1, position - 1)
        if hash_of(row) != row["hash"]:
            was = _written_as(row)
            end = f"moved: it was written as row {was}." if was else "changed: it has not the hash of what it says."
            yield f"Row {position} of the audit ({row['deed']}) was {end}"
        elif position == self.last.position + 1 and row["previous"] != self.last.hash:
            yield f"Row {position} of the audit ({row['deed']}) does not follow the row before it: one of them was replaced."
        if self.known and position == self.known.position and row["hash"] != self.known.hash:
            yield f"Row {position} of the audit is not the one that was noted before: the audit was written anew."


def _missing(first: int, last: int) -> str:
    return f"Row {first} of the audit is missing." if first == last else f"Rows {first} to {last} of the audit are missing."


def _written_as(row: Mapping[str, Any]) -> int | None:
    """The position for which a row's hash was computed, if it is near."""
    near = range(max(1, row["position"] - _AROUND), row["position"] + _AROUND)
    return next((place for place in near if hash_of({**row, "position": place}) == row["hash"]), None)


class _Members:
    """The members of bulk acts, each against its own seal, and all of an act against its digest."""

    def __init__(self, acts: Mapping[int, Mapping[str, Any]]) -> None:
        self.acts = acts
        self.counted: dict[int, int] = {}

    def mark_faults(self, connection: Connection) -> Iterator[str]:
        """Marks, in the order of their ids: those of one act stand together."""
        digests: dict[int, Any] = {}
        for batch in stream(connection, select(*(MARKS.c[name] for name in MARK_ROWS.names)).order_by(MARKS.c.id), MARK_ROWS):
            table = pa.Table.from_batches([batch])
            acts, seals, ids = (table[name].to_pylist() for name in ("act", "seal", "id"))
            for row, (act, seal, right) in enumerate(zip(acts, seals, mark_seals(table), strict=True)):
                self.counted[act] = self.counted.get(act, 0) + 1
                digests.setdefault(act, hashlib.sha256()).update(seal.encode())
                if seal != right:
                    name = f"{table['transaction'][row]} of {table['dataset'][row]}"
                    yield f"Mark {ids[row]} ({name}) was changed: it has not the hash of what it says."
        for act, digest in digests.items():
            yield from self._against(act, digest.hexdigest(), "marks")

    def step_faults(self, connection: Connection) -> Iterator[str]:
        """Steps, act by act."""
        columns = [STEPS.c[name] for name in ("act", "mark", "status", "outcome", "bytes", "why", "seal")]
        query = select(*columns).order_by(STEPS.c.act, STEPS.c.mark)
        current, digest = None, hashlib.sha256()
        for act, *values, seal in connection.execute(query, execution_options={"yield_per": 50_000}):
            if act != current:
                if current is not None:
                    yield from self._against(current, digest.hexdigest(), "steps")
                current, digest = act, hashlib.sha256()
            self.counted[act] = self.counted.get(act, 0) + 1
            digest.update(seal.encode())
            if seal != step_seal(*values):
                yield f"The step of mark {values[0]} to {values[1]} was changed: it has not the hash of what it says."
        if current is not None:
            yield from self._against(current, digest.hexdigest(), "steps")

    def _against(self, act: int, digest: str, what: str) -> Iterator[str]:
        row = self.acts.get(act)
        if row is None:
            yield f"The audit knows nothing of {self.counted[act]} {what} that act {act} is said to have written."
            return
        place = f"Row {row['position']} of the audit ({row['deed']})"
        if row["members"] != self.counted[act]:
            yield f"{place} is about {row['members']} {what}, and there are {self.counted[act]}."
        elif row["digest"] != digest:
            yield f"{place} is about other {what} than there are: at least one of them was replaced."

    def missing(self) -> Iterator[str]:
        """Acts none of whose members are there."""
        for act, row in self.acts.items():
            if act not in self.counted and row["deed"] in _WITH_MEMBERS:
                place = f"Row {row['position']} of the audit ({row['deed']})"
                yield f"{place} is about {row['members']} members, and there are none."


def _life_faults(connection: Connection) -> Iterator[str]:
    """Marks that are not where their last step led."""
    last = select(STEPS.c.mark, func.max(AUDIT.c.position).label("position")).join(AUDIT, AUDIT.c.act == STEPS.c.act)
    newest = last.group_by(STEPS.c.mark).subquery()
    led = select(newest.c.mark, STEPS.c.status, STEPS.c.act).join(AUDIT, AUDIT.c.position == newest.c.position)
    led_to = led.join(STEPS, (STEPS.c.act == AUDIT.c.act) & (STEPS.c.mark == newest.c.mark)).subquery()
    should = func.coalesce(led_to.c.status, "MARKED").label("should")
    query = select(MARKS.c.id, MARKS.c.dataset, MARKS.c.transaction, MARKS.c.status, should)
    query = query.outerjoin(led_to, led_to.c.mark == MARKS.c.id)
    strays = query.where(or_(MARKS.c.status != should, func.coalesce(MARKS.c.changed_act, 0) != func.coalesce(led_to.c.act, 0)))
    for row in connection.execute(strays.order_by(MARKS.c.id)):
        yield (
            f"Mark {row.id} ({row.transaction} of {row.dataset}) is said to be {row.status}, and its last step led to"
            f" {row.should}: it was changed past the audit."
        )

"""The walk along the chain of the audit: a row that was moved, changed, replaced or removed is named."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, select

from retention_assets.ledger.audit.chain import GENESIS, ActType, hash_of, rows
from retention_assets.ledger.audit.members import BulkAct
from retention_assets.ledger.audit.rows import INITIAL, Recorded, RowKey, detail_in, rows_in
from retention_assets.ledger.schema import AUDIT, AUDIT_HEAD

# positions, in both directions, at which a moved row is looked for
_AROUND = 1_000


@dataclass(frozen=True)
class ChainHead:
    position: int
    hash: str


@dataclass
class Walk:
    """A walk along the chain that collects acts with members and the newest seal of each row."""

    known: ChainHead | None
    since: ChainHead | None
    last: ChainHead = ChainHead(0, GENESIS)
    count: int = 0
    acts: dict[int, BulkAct] = field(default_factory=dict)
    recorded: dict[RowKey, Recorded] = field(default_factory=dict)
    ledger: str | None = None

    def __post_init__(self) -> None:
        if self.since is None:
            self.recorded = {**INITIAL}
        else:
            self.last = self.since

    def faults(self, connection: Connection) -> Iterator[str]:
        if self.since is not None:
            here = select(AUDIT.c.hash).where(AUDIT.c.position == self.since.position)
            if self.since.position and connection.execute(here).scalar_one_or_none() != self.since.hash:
                yield f"Row {self.since.position} of the audit is not the row up to which the record was verified."
        for row in rows(connection, self.last.position):
            yield from self._at(row)
            self.last, self.count = ChainHead(row["position"], row["hash"]), self.count + 1
        head = ChainHead(*connection.execute(select(AUDIT_HEAD.c.position, AUDIT_HEAD.c.hash)).one())
        if head.position > self.last.position:
            yield _missing(self.last.position + 1, head.position)
        elif head != self.last:
            yield f"The head of the audit ends with row {head.position}, but the audit with row {self.last.position}."
        if self.known and self.known.position > head.position:
            yield f"Row {self.known.position} of the audit was noted before, but the audit ends with row {head.position}."

    def _at(self, row: Mapping[str, Any]) -> Iterator[str]:
        position = row["position"]
        if position > self.last.position + 1:
            yield _missing(self.last.position + 1, position - 1)
        if hash_of(row) != row["hash"]:
            near = range(max(1, position - _AROUND), position + _AROUND)
            was = next((place for place in near if hash_of({**row, "position": place}) == row["hash"]), None)
            end = f"moved: it was written as row {was}." if was else "changed: its hash is wrong."
            yield f"Row {position} of the audit ({row['deed']}) was {end}"
        elif position == self.last.position + 1 and row["previous"] != self.last.hash:
            yield f"Row {position} of the audit ({row['deed']}) does not follow the row before it: one of them was replaced."
        if self.known and position == self.known.position and row["hash"] != self.known.hash:
            yield f"Row {position} of the audit is not the row that was noted before: the audit was rewritten."
        self._note(row)

    def _note(self, row: Mapping[str, Any]) -> None:
        detail = detail_in(row["detail"])
        try:
            seals = [*rows_in(detail)]
        except (ValueError, TypeError, AttributeError):
            detail, seals = {}, []
        self.recorded |= {key: Recorded(seal, row["position"]) for key, seal in seals}
        self.ledger = detail.get("ledger", self.ledger)
        if row["digest"] is not None:
            ids = {name: detail.get(name) for name in ("first", "last")} if row["deed"] == ActType.MARK else {}
            named = detail.get("plans") or [detail.get("plan")] if row["deed"] == ActType.PLAN else []
            plans = tuple(plan for plan in named if plan is not None)
            self.acts[row["act"]] = BulkAct(row["position"], row["deed"], row["members"], row["digest"], **ids, plans=plans)


def _missing(first: int, last: int) -> str:
    return f"Row {first} of the audit is missing." if first == last else f"Rows {first} to {last} of the audit are missing."

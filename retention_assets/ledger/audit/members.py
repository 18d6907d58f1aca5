"""Members of bulk acts (marks, steps, planned marks), compared with their own seals and with the digest of their act."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from sqlalchemy import Connection, Select, select

from retention_assets.ledger.audit.chain import ActType
from retention_assets.ledger.audit.seals import mark_seals, planned_seals, step_seals
from retention_assets.ledger.marks.marking import MARK_ROWS
from retention_assets.ledger.schema import MARKS, PLANNED, STEPS
from retention_assets.sql.streams import stream
from retention_assets.sql.transactions import portions

_WITH_MEMBERS = frozenset({ActType.MARK, ActType.UNMARK, ActType.SPARE, ActType.PLAN, ActType.BEGIN, ActType.SETTLE})
_SHOWN = 5


class BulkAct(NamedTuple):
    """A bulk act as the chain has it: `first` and `last` are mark ids, `plans` the plans that it made."""

    position: int
    deed: str
    members: int
    digest: str
    first: int | None = None
    last: int | None = None
    plans: tuple[int, ...] = ()

    @property
    def place(self) -> str:
        return f"Row {self.position} of the audit ({self.deed})"


class _Batch(NamedTuple):
    """Members of bulk acts: the act of each (None: no act made its plan), its seal, and the faults among them."""

    acts: Iterable[int | None]
    seals: Iterable[str]
    faults: Iterable[str]


def unsealed_marks(table: pa.Table) -> Iterator[tuple[str, str]]:
    """Marks whose seal does not match their content, as (dataset, sentence)."""
    for row, (seal, right) in enumerate(zip(table["seal"].to_pylist(), mark_seals(table), strict=True)):
        if seal != right:
            dataset, transaction, mark = (table[name][row].as_py() for name in ("dataset", "transaction", "id"))
            yield dataset, f"Mark {mark} ({transaction} of {dataset}) was changed: it has not the hash of what it says."


class Members:
    """Verifies members of acts; `only` limits it to these acts, otherwise all marks, steps and plans are read."""

    def __init__(self, acts: Mapping[int, BulkAct], only: bool = False) -> None:
        self.acts, self._only = acts, only
        self.counted: defaultdict[int, int] = defaultdict(int)
        self._plans = {plan: number for number, act in acts.items() for plan in act.plans}

    def faults(self, connection: Connection) -> Iterator[str]:
        members = {"marks": self._marks, "steps": self._steps, "planned marks": self._planned}
        for what, batches in members.items():
            digests: defaultdict[int, Any] = defaultdict(hashlib.sha256)
            # In the order in which the act's digest was computed.
            for batch in batches(connection):
                for act, seal in zip(batch.acts, batch.seals, strict=True):
                    if act is not None:
                        self.counted[act] += 1
                        digests[act].update(seal.encode())
                yield from batch.faults
            for act, digest in digests.items():
                yield from self._act_faults(connection, act, digest.hexdigest(), what)
        for number, bulk in self.acts.items():
            if number not in self.counted and bulk.members and bulk.deed in _WITH_MEMBERS:
                yield f"{bulk.place} is about {bulk.members} members, and there are none."

    def _marks(self, connection: Connection) -> Iterator[_Batch]:
        query = select(*(MARKS.c[name] for name in MARK_ROWS.names)).order_by(MARKS.c.id)
        made = [(number, act) for number, act in self.acts.items() if act.deed == ActType.MARK]
        mine = [query.where(MARKS.c.id.between(act.first, act.last), MARKS.c.act == number) for number, act in made]
        for part in mine if self._only else [query]:
            for batch in stream(connection, part, MARK_ROWS):
                table = pa.Table.from_batches([batch])
                faults = (sentence for _, sentence in unsealed_marks(table))
                yield _Batch(table["act"].to_pylist(), table["seal"].to_pylist(), faults)

    def _steps(self, connection: Connection) -> Iterator[_Batch]:
        columns = [STEPS.c[name] for name in ("act", "mark", "status", "outcome", "bytes", "why", "seal")]
        query = select(*columns).order_by(STEPS.c.act, STEPS.c.mark)
        mine = [query.where(STEPS.c.act.in_(some)) for some in portions(sorted(self.acts))]
        for rows in _batches(connection, mine if self._only else [query]):
            pairs = zip(rows, step_seals(row[1:-1] for row in rows), strict=True)
            steps = (f"The step of mark {row.mark} to {row.status}" for row, seal in pairs if row[-1] != seal)
            faults = (f"{step} was changed: it has not the hash of what it says." for step in steps)
            # Columns by place: by name they take three times as long.
            yield _Batch([row[0] for row in rows], [row[-1] for row in rows], faults)

    def _planned(self, connection: Connection) -> Iterator[_Batch]:
        columns = [PLANNED.c[name] for name in ("plan", "mark", "bytes", "note", "seal")]
        query = select(*columns).order_by(PLANNED.c.plan, PLANNED.c.mark)
        mine = [query.where(PLANNED.c.plan.in_(some)) for some in portions(sorted(self._plans))]
        for rows in _batches(connection, mine if self._only else [query]):
            acts = [self._plans.get(row[0]) for row in rows]
            yield _Batch(acts, [row[-1] for row in rows], self._planned_faults(rows, acts))

    def _planned_faults(self, rows: Sequence[Any], acts: Sequence[int | None]) -> Iterator[str]:
        for row, act, seal in zip(rows, acts, planned_seals(row[:-1] for row in rows), strict=True):
            if act is None:
                yield f"Mark {row.mark} of plan {row.plan} was added past the ledger: no act made that plan."
            elif row[-1] != seal:
                yield f"Mark {row.mark} of plan {row.plan} was changed: it has not the hash of what it says."

    def _act_faults(self, connection: Connection, number: int, digest: str, what: str) -> Iterator[str]:
        act = self.acts.get(number)
        if act is None:
            yield f"The audit knows nothing of {self.counted[number]} {what} that act {number} is said to have written."
        elif act.members != self.counted[number]:
            gone = self._missing_marks(connection, number, act)
            more = "" if len(gone) <= _SHOWN else " …"
            named = f" Removed: {', '.join(map(str, gone[:_SHOWN]))}{more}." if gone else ""
            yield f"{act.place} is about {act.members} {what}, and there are {self.counted[number]}.{named}"
        elif act.digest != digest:
            yield f"{act.place} is about other {what} than there are: at least one of them was replaced."

    def _missing_marks(self, connection: Connection, number: int, act: BulkAct) -> Sequence[int]:
        if act.first is None or act.last is None or act.members != act.last - act.first + 1:
            return ()
        mine = select(MARKS.c.id).where(MARKS.c.id.between(act.first, act.last), MARKS.c.act == number)
        return sorted(set(range(act.first, act.last + 1)) - set(connection.execute(mine).scalars()))


def _batches(connection: Connection, queries: Iterable[Select[Any]]) -> Iterator[Sequence[Any]]:
    for query in queries:
        yield from connection.execute(query, execution_options={"yield_per": 50_000}).partitions()

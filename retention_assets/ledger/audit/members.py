"""Members of bulk acts (marks, steps, planned marks), compared with their own seals and with the digest of their act."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from sqlalchemy import ColumnElement, Connection, Select, select

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
        self.counted: dict[int, int] = {}
        self._plans = {plan: number for number, act in acts.items() for plan in act.plans}

    def faults(self, connection: Connection) -> Iterator[str]:
        yield from self._mark_faults(connection)
        yield from self._step_faults(connection)
        yield from self._planned_faults(connection)
        for number, act in self.acts.items():
            if number not in self.counted and act.members and act.deed in _WITH_MEMBERS:
                yield f"{act.place} is about {act.members} members, and there are none."

    def _mark_faults(self, connection: Connection) -> Iterator[str]:
        """By id, so that the marks of an act come together."""
        digests: dict[int, Any] = {}
        for where in self._marks():
            query = select(*(MARKS.c[name] for name in MARK_ROWS.names)).order_by(MARKS.c.id)
            for batch in stream(connection, query if where is None else query.where(where), MARK_ROWS):
                table = pa.Table.from_batches([batch])
                for act, seal in zip(table["act"].to_pylist(), table["seal"].to_pylist(), strict=True):
                    self.counted[act] = self.counted.get(act, 0) + 1
                    digests.setdefault(act, hashlib.sha256()).update(seal.encode())
                yield from (sentence for _, sentence in unsealed_marks(table))
        for act, digest in digests.items():
            yield from self._against(act, digest.hexdigest(), "marks", self._missing_marks(connection, act))

    def _marks(self) -> Iterator[ColumnElement[bool] | None]:
        if not self._only:
            yield None
            return
        for number, act in self.acts.items():
            if act.deed == ActType.MARK:
                yield MARKS.c.id.between(act.first, act.last) & (MARKS.c.act == number)

    def _missing_marks(self, connection: Connection, number: int) -> Sequence[int]:
        act = self.acts.get(number)
        if act is None or act.first is None or act.last is None or act.members != act.last - act.first + 1:
            return ()
        if self.counted[number] >= act.members:
            return ()
        mine = select(MARKS.c.id).where(MARKS.c.id.between(act.first, act.last), MARKS.c.act == number)
        return sorted(set(range(act.first, act.last + 1)) - set(connection.execute(mine).scalars()))

    def _step_faults(self, connection: Connection) -> Iterator[str]:
        columns = [STEPS.c[name] for name in ("act", "mark", "status", "outcome", "bytes", "why", "seal")]
        query = select(*columns).order_by(STEPS.c.act, STEPS.c.mark)
        parts = [query.where(STEPS.c.act.in_(some)) for some in portions(sorted(self.acts))] if self._only else [query]
        for part in parts:
            current, digest = None, hashlib.sha256()
            for (act, mark, status, *_, seal), own in _beside_own(connection, part, lambda row: row[1:-1], step_seals):
                if act != current:
                    if current is not None:
                        yield from self._against(current, digest.hexdigest(), "steps")
                    current, digest = act, hashlib.sha256()
                self.counted[act] = self.counted.get(act, 0) + 1
                digest.update(seal.encode())
                if seal != own:
                    yield f"The step of mark {mark} to {status} was changed: it has not the hash of what it says."
            if current is not None:
                yield from self._against(current, digest.hexdigest(), "steps")

    def _planned_faults(self, connection: Connection) -> Iterator[str]:
        columns = [PLANNED.c[name] for name in ("plan", "mark", "bytes", "note", "seal")]
        query = select(*columns).order_by(PLANNED.c.plan, PLANNED.c.mark)
        parts = [query.where(PLANNED.c.plan.in_(some)) for some in portions(sorted(self._plans))] if self._only else [query]
        digests: dict[int, Any] = {}
        for part in parts:
            for (plan, mark, *_, seal), own in _beside_own(connection, part, lambda row: row[:-1], planned_seals):
                act = self._plans.get(plan)
                if act is None:
                    yield f"Mark {mark} of plan {plan} was added past the ledger: no act made that plan."
                    continue
                self.counted[act] = self.counted.get(act, 0) + 1
                digests.setdefault(act, hashlib.sha256()).update(seal.encode())
                if seal != own:
                    yield f"Mark {mark} of plan {plan} was changed: it has not the hash of what it says."
        for act, digest in digests.items():
            yield from self._against(act, digest.hexdigest(), "planned marks")

    def _against(self, number: int, digest: str, what: str, missing: Iterable[int] = ()) -> Iterator[str]:
        act = self.acts.get(number)
        if act is None:
            yield f"The audit knows nothing of {self.counted[number]} {what} that act {number} is said to have written."
            return
        if act.members != self.counted[number]:
            gone = [*missing]
            more = "" if len(gone) <= _SHOWN else " …"
            named = f" Removed: {', '.join(map(str, gone[:_SHOWN]))}{more}." if gone else ""
            yield f"{act.place} is about {act.members} {what}, and there are {self.counted[number]}.{named}"
        elif act.digest != digest:
            yield f"{act.place} is about other {what} than there are: at least one of them was replaced."


def _beside_own(
    connection: Connection,
    query: Select[Any],
    said: Callable[[Any], Sequence[Any]],
    seals: Callable[[Iterable[Sequence[Any]]], list[str]],
) -> Iterator[tuple[Any, str]]:
    for rows in connection.execute(query, execution_options={"yield_per": 50_000}).partitions():
        yield from zip(rows, seals(map(said, rows)), strict=True)

"""Members of bulk acts: each against its seal, and all of an act against its count and digest."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

import pyarrow as pa
from sqlalchemy import ColumnElement, Connection, Executable, select, text, union_all

from retention_assets.ledger.audit.chain import BATCH_SEALED, ActType, batch_seals, mark_seals, planned_seals, step_seals
from retention_assets.ledger.mark_rows import MARK_ROWS
from retention_assets.ledger.schema import AUDIT, BATCHES, MARKS, OVER, PLANNED, STEPS, TAKEN_BACK
from retention_assets.ledger.steps import END, STEP, among
from retention_assets.sql.streams import stream
from retention_assets.sql.transactions import portions

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


@dataclass(frozen=True, eq=False)
class SealedKind:
    # from the act to the seal; the columns between them are sealed
    columns: Sequence[ColumnElement[Any]]
    seals: Callable[[Any], list[str]]
    name: str


ENDS = SealedKind(END, step_seals, "The end of mark {0.id}")
MARK_STEPS = SealedKind(STEP, step_seals, "The step of mark {0.mark} to {0.status}")
PLANNED_MARKS = SealedKind(
    [PLANNED.c[name] for name in ("plan", "mark", "bytes", "note", "seal")], planned_seals, "Mark {0.mark} of plan {0.plan}"
)
BEGUN_BATCHES = SealedKind(
    [BATCHES.c[name] for name in (*BATCH_SEALED, "seal")], batch_seals, "The batch of act {0.begun} and plan {0.plan}"
)


class SealedRows(NamedTuple):
    """Members of bulk acts: the act of each (None: no act made its plan), its seal, and the faults among them."""

    acts: Iterable[int | None]
    seals: Iterable[str]
    faults: Iterable[str]


def unsealed_marks(table: pa.Table) -> Iterator[tuple[str, str]]:
    """Marks whose seal does not match their content, as (dataset, sentence)."""
    for row, (seal, right) in enumerate(zip(table["seal"].to_pylist(), mark_seals(table), strict=True)):
        if seal != right:
            dataset, transaction, mark = (table[name][row].as_py() for name in ("dataset", "transaction", "id"))
            yield dataset, f"Mark {mark} ({transaction} of {dataset}) was changed: its hash is wrong."


class Members:
    """Verifies members of acts. With `since`, `acts` are those after it, and `moved` their batches' marks; otherwise all."""

    def __init__(self, acts: Mapping[int, BulkAct], since: int | None = None, moved: Sequence[int] = ()) -> None:
        self.acts, self._since, self._moved = acts, since, moved
        self.counted: defaultdict[int, int] = defaultdict(int)
        self._plans = {plan: number for number, act in acts.items() for plan in act.plans}
        self._new = select(AUDIT.c.act).where(AUDIT.c.position > (since or 0))

    def faults(self, connection: Connection) -> Iterator[str]:
        digests: defaultdict[int, Any] = defaultdict(sha256)
        nouns: dict[int, str] = {}
        kinds = {
            "marks": (self._marks,),
            "steps": (self._ends, self._steps),
            "planned marks": (self._planned,),
            "batches": (self._begun,),
        }
        # In the order in which the act's digest was computed.
        for noun, batches in ((noun, batch) for noun, kind in kinds.items() for read in kind for batch in read(connection)):
            for act, seal in zip(batches.acts, batches.seals, strict=True):
                if act is not None:
                    self.counted[act] += 1
                    digests[act].update(seal.encode())
                    nouns[act] = noun
            yield from batches.faults
        for act, digest in digests.items():
            yield from self._act_faults(connection, act, digest.hexdigest(), nouns[act])
        for number, bulk in self.acts.items():
            if number not in self.counted and bulk.members:
                yield f"{bulk.place} counts {bulk.members} members, but there are none."

    def _marks(self, connection: Connection) -> Iterator[SealedRows]:
        query = select(*(MARKS.c[name] for name in MARK_ROWS.names)).order_by(MARKS.c.id)
        acts = [(number, act) for number, act in self.acts.items() if act.deed == ActType.MARK]
        queries = [query.where(MARKS.c.id.between(act.first, act.last), MARKS.c.act == number) for number, act in acts]
        for part in queries if self._since is not None else [query]:
            for batch in stream(connection, part, MARK_ROWS):
                table = pa.Table.from_batches([batch])
                faults = (sentence for _, sentence in unsealed_marks(table))
                yield SealedRows(table["act"].to_pylist(), table["seal"].to_pylist(), faults)

    def _ends(self, connection: Connection) -> Iterator[SealedRows]:
        query = select(*END).where(MARKS.c.end_seal.is_not(None))
        taken_back = select(*STEP).where(STEPS.c.outcome == TAKEN_BACK)
        queries: list[Executable] = []
        if self._since is not None:
            # Settled marks are found by their batch, all others by their act.
            moved = among(connection.dialect.name, MARKS.c.id, self._moved)
            settled = MARKS.c.changed_act.in_(self._new.where(AUDIT.c.deed == ActType.SETTLE))
            ended_alone = MARKS.c.changed_act.in_(self._new.where(AUDIT.c.deed != ActType.SETTLE))
            queries = [query.where(text(OVER), ended_alone).order_by(MARKS.c.id)]
            query, taken_back = query.where(moved, settled), taken_back.where(STEPS.c.act.in_(self._new))
        # An act's digest has all ends that it made, by their marks.
        made = union_all(query, taken_back).order_by(text("2"))
        yield from read_sealed(connection, [made, *queries], ENDS)

    def _begun(self, connection: Connection) -> Iterator[SealedRows]:
        return begun_batches(connection, *([BATCHES.c.begun.in_(self._new)] if self._since is not None else []))

    def _steps(self, connection: Connection) -> Iterator[SealedRows]:
        query = select(*STEP).where(STEPS.c.outcome.is_distinct_from(TAKEN_BACK)).order_by(STEPS.c.act, STEPS.c.mark)
        query = query.where(STEPS.c.act.in_(self._new)) if self._since is not None else query
        return read_sealed(connection, [query], MARK_STEPS)

    def _planned(self, connection: Connection) -> Iterator[SealedRows]:
        query = select(*PLANNED_MARKS.columns).order_by(PLANNED.c.plan, PLANNED.c.mark)
        queries = [query.where(PLANNED.c.plan.in_(batch)) for batch in portions(sorted(self._plans))]
        for batch in _batches(connection, queries if self._since is not None else [query]):
            acts = [self._plans.get(row[0]) for row in batch]
            yield SealedRows(acts, [row[-1] for row in batch], self._planned_faults(batch, acts))

    def _planned_faults(self, rows: Sequence[Any], acts: Sequence[int | None]) -> Iterator[str]:
        for row, act, seal in zip(rows, acts, planned_seals(row[:-1] for row in rows), strict=True):
            if act is None:
                yield f"Mark {row.mark} of plan {row.plan} was added past the ledger: no act has that plan."
            elif row[-1] != seal:
                yield f"Mark {row.mark} of plan {row.plan} was changed: its hash is wrong."

    def _act_faults(self, connection: Connection, number: int, digest: str, what: str) -> Iterator[str]:
        act = self.acts.get(number)
        if act is None:
            yield f"The audit does not know {self.counted[number]} {what} of act {number}."
        elif act.members != self.counted[number]:
            gone = self._missing_marks(connection, number, act)
            more = "" if len(gone) <= _SHOWN else " …"
            named = f" Removed: {', '.join(map(str, gone[:_SHOWN]))}{more}." if gone else ""
            yield f"{act.place} counts {act.members} {what}, but there are {self.counted[number]}.{named}"
        elif act.digest != digest:
            yield f"{act.place} names other {what} than there are: at least one of them was replaced."

    def _missing_marks(self, connection: Connection, number: int, act: BulkAct) -> Sequence[int]:
        if act.first is None or act.last is None or act.members != act.last - act.first + 1:
            return ()
        query = select(MARKS.c.id).where(MARKS.c.id.between(act.first, act.last), MARKS.c.act == number)
        return sorted(set(range(act.first, act.last + 1)) - set(connection.execute(query).scalars()))


def _batches(connection: Connection, queries: Iterable[Executable]) -> Iterator[Sequence[Any]]:
    for query in queries:
        yield from connection.execute(query, execution_options={"yield_per": 50_000}).partitions()


def begun_batches(connection: Connection, *where: ColumnElement[bool]) -> Iterator[SealedRows]:
    query = select(*BEGUN_BATCHES.columns).where(*where).order_by(BATCHES.c.begun, BATCHES.c.plan)
    return read_sealed(connection, [query], BEGUN_BATCHES)


def read_sealed(connection: Connection, queries: Iterable[Executable], kind: SealedKind) -> Iterator[SealedRows]:
    # act and seal by their places: by name they take three times as long
    for batch in _batches(connection, queries):
        pairs = zip(batch, kind.seals(row[:-1] for row in batch), strict=True)
        faults = (f"{kind.name.format(row)} was changed: its hash is wrong." for row, seal in pairs if row[-1] != seal)
        yield SealedRows([row[0] for row in batch], [row[-1] for row in batch], faults)

"""Verification: recompute the chain of the audit and compare every table with it; before each sweep, only what it rests on.

It can't detect that somebody rewrote the whole chain from some row on. To rule that out, keep `AuditResult.head` (or the
exported lines) elsewhere and pass it as `known` next time; the warehouse keeps one too. The checks before a sweep compare rule
rows and due marks with their newest acts, at a cost that does not grow with the chain.

Anything that acts on the ledger's tables (trigger, rule, row filter) is a fault. In a SQLite file any other table, view or
index is one too; in a shared PostgreSQL schema other tables are a remark.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from hashlib import sha256
from itertools import chain, islice
from typing import Any, NamedTuple

import pyarrow as pa
from sqlalchemy import (
    Boolean,
    ColumnElement,
    Connection,
    Date,
    Executable,
    Integer,
    Select,
    Text,
    and_,
    case,
    exists,
    func,
    or_,
    select,
    text,
    type_coerce,
    union_all,
)
from sqlalchemy.exc import DataError, OperationalError

from retention_assets.ledger.audit.chain import (
    BATCH_SEALED,
    GENESIS,
    ActType,
    batch_seals,
    hash_of,
    mark_seals,
    planned_seals,
    rows,
    step_seals,
)
from retention_assets.ledger.audit.rows import (
    INITIAL,
    SEALED,
    Recorded,
    RowFault,
    RowKey,
    detail_in,
    name_of,
    row_faults,
    rows_in,
    state_faults,
    text_in,
)
from retention_assets.ledger.mark_rows import MARK_ROWS
from retention_assets.ledger.schema import (
    ASIDE,
    AUDIT,
    AUDIT_HEAD,
    BATCHES,
    BEGUN,
    CLOCK,
    MARKS,
    METADATA,
    OPEN,
    OVER,
    PLANNED,
    STEPS,
    SWEPT,
    TAKEN_BACK,
)
from retention_assets.ledger.steps import (
    END,
    NO_ERROR,
    SHOWN_MARKS,
    STEP,
    among,
    is_to_empty_by,
    is_to_sweep_by,
    marks_of,
    members_of,
    touched_since,
)
from retention_assets.sql.columns import DatabaseTime, IdsColumn
from retention_assets.sql.streams import stream
from retention_assets.sql.transactions import portions

_TABLES = {*METADATA.tables}
_INDEXES = {str(index.name) for table in METADATA.tables.values() for index in table.indexes}
_FILE = text("SELECT type, name, tbl_name FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY type, name")
_OURS = "(SELECT to_regclass(quote_ident(name)) FROM unnest(cast(:names AS text[])) AS name)"
_SERVER = text(
    f"""
    SELECT 'trigger', tgname, tgrelid::regclass::text FROM pg_trigger WHERE NOT tgisinternal AND tgrelid IN {_OURS}
    UNION ALL SELECT 'rule', rulename, ev_class::regclass::text
      FROM pg_rewrite WHERE rulename <> '_RETURN' AND ev_class IN {_OURS}
    UNION ALL SELECT 'row level security', relname, oid::regclass::text
      FROM pg_class WHERE relrowsecurity AND oid IN {_OURS}
    UNION ALL SELECT 'kind of relation', relkind::text, oid::regclass::text
      FROM pg_class WHERE relkind <> 'r' AND oid IN {_OURS}
    UNION ALL SELECT 'table that inherits', inhrelid::regclass::text, inhparent::regclass::text
      FROM pg_inherits WHERE inhparent IN {_OURS}
    ORDER BY 1, 2, 3
    """
).bindparams(names=sorted(_TABLES))
_OTHERS = text(
    "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'v', 'm', 'f', 'p')"
    " AND relname <> ALL (:names) AND relname !~ '^staged_[a-z]+_[0-9]+_[0-9a-f]{16}$' ORDER BY relname"
).bindparams(names=sorted(_TABLES))
_SHOWN = 5
# Runs continue from the last verification, but verify everything this often.
WHOLE_EVERY = timedelta(days=1)
# A ledger that was rewritten wholesale is not listed row by row.
_MOST = 1_000
_AROUND = 1_000
# Errors of values that somebody wrote past the ledger.
_UNREADABLE = (ValueError, TypeError, AttributeError, OverflowError, KeyError, DataError, OperationalError, sqlite3.Error)
# Each evaluation appends one of these acts; only the newest per dataset, or of all, matters.
_NEWEST_BY_DATASET = (ActType.ADVANCE,)
_NEWEST = (ActType.MARK, ActType.CLOCK)
_PLANNED = [PLANNED.c[name] for name in ("plan", "mark", "bytes", "note", "seal")]


def life_faults(connection: Connection, where: ColumnElement[bool] | None = None) -> Iterator[str]:
    """Find marks whose columns don't follow from their end, which is sealed, or from the steps of one that has none."""
    failures = func.count(case((STEPS.c.outcome == "FAILED", 1)))
    amounts = (failures.label("times"), func.max(AUDIT.c.position).label("position"))
    steps = select(STEPS.c.mark, *amounts).join(AUDIT, AUDIT.c.act == STEPS.c.act).group_by(STEPS.c.mark)
    steps = steps.where(STEPS.c.outcome.is_distinct_from(TAKEN_BACK))
    newest = (steps if where is None else steps.where(STEPS.c.mark.in_(select(MARKS.c.id).where(where)))).subquery()
    failed, ended, act = STEPS.alias("failed"), MARKS.c.end_seal.is_not(None), AUDIT.alias("last_act")
    by_deed = ((act.c.deed == ActType.UNMARK, "UNMARKED"), (act.c.deed == ActType.RESTORE, "RESTORED"))
    did = case(*by_deed, (MARKS.c.outcome.is_not(None), "SWEPT"), else_="SPARED")
    should = {
        "status": case((ended, did), else_=func.coalesce(failed.c.status, "MARKED")),
        "changed_act": case((ended, MARKS.c.changed_act), else_=failed.c.act),
        "attempts": func.coalesce(newest.c.times, 0),
        "last_error": case((failed.c.outcome == "FAILED", func.coalesce(failed.c.why, NO_ERROR))),
        **{name: case((ended, MARKS.c[name])) for name in ("why", "freed")},
        "outcome": case((ended, MARKS.c.outcome), (failed.c.status == "SWEPT", "SET_ASIDE")),
        "until": case((ended, MARKS.c.until), else_=failed.c.until),
        "changed_at": act.c.at,
        "changed_by": act.c.actor,
    }
    failure = AUDIT.alias("failure_act")
    query = select(MARKS, *(value.label(f"should_{name}") for name, value in should.items()))
    query = query.outerjoin(newest, newest.c.mark == MARKS.c.id).outerjoin(failure, failure.c.position == newest.c.position)
    query = query.outerjoin(failed, and_(failed.c.act == failure.c.act, failed.c.mark == MARKS.c.id))
    query = query.outerjoin(act, act.c.act == should["changed_act"])
    strays = or_(*(MARKS.c[name].is_distinct_from(value) for name, value in should.items()))
    query = query.where(strays) if where is None else query.where(where, strays)
    for row in connection.execute(query.order_by(MARKS.c.id)):
        mark = f"Mark {row.id} ({row.transaction} of {row.dataset})"
        if row.status != row.should_status or row.changed_act != row.should_changed_act:
            led = f"its last step led to {row.should_status}"
            yield f"{mark} has the status {row.status}, but {led}: it was changed past the audit."
        for column in [*should][2:]:
            present, by_record = getattr(row, column), getattr(row, f"should_{column}")
            if present != by_record:
                yield f"{mark} was changed: its {column} is {present!s}, but by its steps it is {by_record!s}."


def batch_faults(connection: Connection, *where: ColumnElement[bool]) -> Iterator[str]:
    """Find settled marks of batches that neither ended nor failed since, and open ones that did or are none of their batch."""
    all_of, still_open = members_of(BATCHES.c.ids, *where), members_of(BATCHES.c.open_ids, *where)
    for members, others, is_settled in ((all_of, still_open, True), (still_open, all_of, False)):
        begun, moved = AUDIT.alias("begun_act"), AUDIT.alias("moved_act")
        failed = exists().where(STEPS.c.mark == members.c.mark, moved.c.act == STEPS.c.act, moved.c.position > begun.c.position)
        of_same = and_(others.c.mark == members.c.mark, others.c.begun == members.c.begun)
        query = select(members.c.mark, members.c.dataset, MARKS.c.transaction, begun.c.position).select_from(members)
        query = query.join(begun, begun.c.act == members.c.begun).outerjoin(others, of_same)
        query = query.outerjoin(MARKS, MARKS.c.id == members.c.mark).order_by(members.c.mark)
        is_other = others.c.mark.is_(None)
        if is_settled:
            query = query.where(is_other, MARKS.c.end_seal.is_(None), ~failed)
        else:
            query = query.where(or_(is_other, MARKS.c.end_seal.is_not(None), failed))
        for row in connection.execute(query):
            state = "is settled, and the mark has no outcome" if is_settled else "is not settled, and the mark has an outcome"
            mark = f"Mark {row.mark} ({row.transaction} of {row.dataset})"
            yield f"{mark} was changed past the ledger: the batch that began with row {row.position} of the audit {state}."
    readable = exists().where(still_open.c.begun == BATCHES.c.begun, still_open.c.plan == BATCHES.c.plan)
    for act, plan in connection.execute(select(BATCHES.c.begun, BATCHES.c.plan).where(text(BEGUN), ~readable, *where)):
        yield f"The batch of act {act} and plan {plan} was changed: its open_ids can't be read."


def single_faults(connection: Connection, ledger: str | None) -> Iterator[str]:
    """Check the two single values that no seal covers: the ledger's id and the next mark id."""
    present = connection.execute(select(AUDIT_HEAD.c.ledger)).scalar_one()
    if ledger is not None and ledger != present:
        yield f"The head of the audit names ledger {present}, but its first row is of ledger {ledger}."
    newest = connection.execute(select(func.max(MARKS.c.id))).scalar_one()
    following = connection.execute(select(CLOCK.c.next_mark)).scalar_one_or_none()
    recorded = _next_mark(connection)
    if following != recorded:
        there = "no mark" if newest is None else f"a mark {newest}"
        yield (
            f"The clock names {following} as the next mark, but {there} exists and the record names {recorded}: its "
            "next_mark was changed."
        )


def _next_mark(connection: Connection) -> int:
    # by the newest marking act, or by a later act in which a person vouched for another one
    marked, vouched = (
        connection.execute(
            select(AUDIT.c.position, AUDIT.c.detail)
            .where(AUDIT.c.deed == deed, AUDIT.c.dataset.is_(None))
            .order_by(AUDIT.c.position.desc())
            .limit(1)
        ).one_or_none()
        for deed in (ActType.MARK, ActType.ACCEPT)
    )
    if vouched and (not marked or vouched.position > marked.position):
        following = detail_in(vouched.detail).get("next_mark")
        if following is not None:
            return int(following)
    return int(detail_in(marked.detail).get("last", 0)) + 1 if marked else 1


def unreadable_values(connection: Connection, only_booleans: bool = False) -> Iterator[str]:
    """Find values of the wrong type, which SQLite allows."""
    if connection.dialect.name != "sqlite":
        return
    for table, column, query in _values_of_other_types(only_booleans):
        for *key, kind in connection.execute(query):
            name = name_of((table, tuple(map(str, key))))
            yield f"{name} was changed past the ledger: its {column} can't be read: it has the type {kind}."


# to build a statement takes longer than to run it over a small table
@cache
def _values_of_other_types(only_booleans: bool) -> Sequence[tuple[str, str, Select[Any]]]:
    queries: list[Any] = []
    kind = Boolean if only_booleans else object
    for column in (column for table in METADATA.sorted_tables for column in table.columns if isinstance(column.type, kind)):
        is_text = isinstance(column.type, Text | Date | IdsColumn)
        wrong: ColumnElement[bool] = func.typeof(column).not_in(["null", "text" if is_text else "integer"])
        if isinstance(column.type, Boolean):
            wrong |= type_coerce(column, Integer).not_in([0, 1])
        elif isinstance(column.type, Date):
            wrong |= func.date(column).is_distinct_from(type_coerce(column, Text))
        keys = [text_in("sqlite", key) for key in column.table.primary_key]
        query = select(*keys, func.typeof(column)).where(wrong, column.is_not(None))
        queries.append((column.table.name, column.name, query))
    return queries


def acting_faults(connection: Connection) -> Iterator[str]:
    """Find triggers and other objects that act on the ledger's tables or replace one."""
    if connection.dialect.name != "sqlite":
        for kind, name, table in connection.execute(_SERVER):
            yield _foreign(kind, name, table)
        return
    present = {(kind, name): table for kind, name, table in connection.execute(_FILE)}
    for (kind, name), table in present.items():
        if kind == "trigger" or (kind != "table" and name in _TABLES):
            yield _foreign(kind, name, table)
    for kind, names in (("table", _TABLES), ("index", _INDEXES)):
        for name in sorted(names - {there for its_kind, there in present if its_kind == kind}):
            yield f"The {kind} {name} of the ledger is missing: it was dropped past the ledger."


def foreign_faults(connection: Connection) -> Iterator[str]:
    """Find acting objects and, in a SQLite file, every table, view and index that is not the ledger's."""
    yield from acting_faults(connection)
    if connection.dialect.name == "sqlite":
        for kind, name, table in connection.execute(_FILE):
            if kind != "trigger" and name not in _TABLES | _INDEXES:
                yield _foreign(kind, name, table)


def _foreign(kind: str, name: str, table: str) -> str:
    where = "in the ledger's file" if kind in ("table", "view") else f"on {table}"
    return f"The {kind} {name} {where} is not part of the ledger. Find out who made it and drop it."


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

    def _marks(self, connection: Connection) -> Iterator[_Batch]:
        query = select(*(MARKS.c[name] for name in MARK_ROWS.names)).order_by(MARKS.c.id)
        acts = [(number, act) for number, act in self.acts.items() if act.deed == ActType.MARK]
        queries = [query.where(MARKS.c.id.between(act.first, act.last), MARKS.c.act == number) for number, act in acts]
        for part in queries if self._since is not None else [query]:
            for batch in stream(connection, part, MARK_ROWS):
                table = pa.Table.from_batches([batch])
                faults = (sentence for _, sentence in unsealed_marks(table))
                yield _Batch(table["act"].to_pylist(), table["seal"].to_pylist(), faults)

    def _ends(self, connection: Connection) -> Iterator[_Batch]:
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
        yield from _sealed(connection, [made, *queries], step_seals, "The end of mark {0.id}".format)

    def _begun(self, connection: Connection) -> Iterator[_Batch]:
        yield from begun_batches(connection, *([BATCHES.c.begun.in_(self._new)] if self._since is not None else []))

    def _steps(self, connection: Connection) -> Iterator[_Batch]:
        query = select(*STEP).where(STEPS.c.outcome.is_distinct_from(TAKEN_BACK)).order_by(STEPS.c.act, STEPS.c.mark)
        query = query.where(STEPS.c.act.in_(self._new)) if self._since is not None else query
        yield from _sealed(connection, [query], step_seals, "The step of mark {0.mark} to {0.status}".format)

    def _planned(self, connection: Connection) -> Iterator[_Batch]:
        query = select(*_PLANNED).order_by(PLANNED.c.plan, PLANNED.c.mark)
        queries = [query.where(PLANNED.c.plan.in_(batch)) for batch in portions(sorted(self._plans))]
        for batch in _batches(connection, queries if self._since is not None else [query]):
            acts = [self._plans.get(row[0]) for row in batch]
            yield _Batch(acts, [row[-1] for row in batch], self._planned_faults(batch, acts))

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


def begun_batches(connection: Connection, *where: ColumnElement[bool]) -> Iterator[_Batch]:
    query = select(*(BATCHES.c[name] for name in (*BATCH_SEALED, "seal"))).order_by(BATCHES.c.begun, BATCHES.c.plan)
    name = "The batch of act {0.begun} and plan {0.plan}".format
    yield from _sealed(connection, [query.where(*where)], batch_seals, name)


def _sealed(
    connection: Connection, queries: Iterable[Executable], seals: Callable[[Any], list[str]], name: Callable[[Any], str]
) -> Iterator[_Batch]:
    # rows with their act in the first column and their seal in the last: by name they take three times as long
    for batch in _batches(connection, queries):
        pairs = zip(batch, seals(row[:-1] for row in batch), strict=True)
        faults = (f"{name(row)} was changed: its hash is wrong." for row, seal in pairs if row[-1] != seal)
        yield _Batch([row[0] for row in batch], [row[-1] for row in batch], faults)


@dataclass(frozen=True)
class ChainHead:
    position: int
    hash: str


@dataclass(frozen=True)
class AuditResult:
    """How much was verified, and its faults: sentences that each name a row."""

    rows: int
    members: int
    head: ChainHead
    faults: tuple[str, ...]
    # Harmless objects beside the ledger.
    remarks: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        return f"{len(self.faults):,} faults: the record was changed."


def verify(connection: Connection, known: ChainHead | None = None, since: ChainHead | None = None) -> AuditResult:
    """Verify everything, or what was appended after the head `since`, in one consistent state."""
    walk = _Chain(known, since)
    faults = [*islice(_readable(connection, walk.faults(connection)), _MOST)]
    lives: Sequence[ColumnElement[bool] | None] = [None]
    touched, moved = list[ColumnElement[bool]](), list[int]()
    if since is not None:
        touched = [touched_since(connection, since.position)]
        moved = marks_of(connection, *touched)
        acts = select(AUDIT.c.act).where(AUDIT.c.position > since.position)
        ended_alone = and_(text(f"marks.{OVER}"), MARKS.c.changed_act.in_(acts))
        lives = [among(connection.dialect.name, MARKS.c.id, moved), ended_alone]
    members = Members(walk.acts, since.position if since else None, moved)
    parts = (
        # In a boolean column any text reads as true.
        unreadable_values(connection, only_booleans=True),
        members.faults(connection),
        (fault.sentence for fault in row_faults(connection, SEALED, walk.recorded, only_recorded=since is not None)),
        single_faults(connection, walk.ledger),
        *(life_faults(connection, where) for where in lives),
        batch_faults(connection, *touched),
        state_faults(connection),
        foreign_faults(connection),
    )
    for part in parts:
        faults += islice(_readable(connection, part), max(0, _MOST - len(faults)))
    others = () if connection.dialect.name == "sqlite" else connection.execute(_OTHERS).scalars()
    remarks = tuple(f"The table {name} in the ledger's schema does not belong to the ledger." for name in others)
    return AuditResult(walk.count, sum(members.counted.values()), walk.last, tuple(dict.fromkeys(faults)), remarks)


def _readable(connection: Connection, faults: Iterator[str]) -> Iterator[str]:
    # if rows can't be read, the unreadable values are named instead
    try:
        yield from faults
    except _UNREADABLE as error:
        unreadable = [*unreadable_values(connection)]
        # An unreachable database is no fault of the record.
        if isinstance(error, OperationalError | sqlite3.Error) and not unreadable:
            raise
        yield from unreadable or [f"A row of the ledger can't be read: {error}."]


def changed_rows_of(connection: Connection) -> list[RowFault]:
    walk = _Chain(None, None)
    for _ in walk.faults(connection):
        """The chain's own faults are verify's."""
    return [*row_faults(connection, SEALED, walk.recorded)]


def last_verified(connection: Connection) -> ChainHead | None:
    row = next(_verifications(connection, ("all", "new")), None)
    return _head_in(row) if row else None


def verified_lately(connection: Connection, scope: str) -> ChainHead | None:
    """Head of the last verification of `scope` without a fault, if it is less than a day old by the ledger's clock."""
    row = next(_verifications(connection, (scope,)), None)
    # An act that was changed past the ledger, or dated in the future, would postpone the whole verification.
    if row is None or hash_of(row) != row["hash"]:
        return None
    age = connection.execute(select(DatabaseTime())).scalar_one() - row["at"]
    return _head_in(row) if timedelta(0) <= age < WHOLE_EVERY else None


def _verifications(connection: Connection, scopes: Collection[str]) -> Iterator[Mapping[str, Any]]:
    query = select(AUDIT).where(AUDIT.c.deed == ActType.VERIFY).order_by(AUDIT.c.position.desc())
    with connection.execute(query, execution_options={"yield_per": 20}) as acts:
        yield from (dict(row) for row in acts.mappings() if detail_in(row["detail"]).get("scope") in scopes)


def _head_in(row: Mapping[str, Any]) -> ChainHead:
    detail = detail_in(row["detail"])
    return ChainHead(detail.get("position", 0), detail.get("hash", GENESIS))


@dataclass
class _Chain:
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
            yield (f"The head of the audit ends with row {head.position}, but the audit with row {self.last.position}.")
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


def rule_faults(connection: Connection) -> Iterator[tuple[str, str]]:
    """Faults in holds, realms, policies, visibility, clock and objections, as (dataset, sentence); "" means all datasets."""
    rules = {table: sealing for table, sealing in SEALED.items() if sealing.is_rule}
    writers = {deed for sealing in rules.values() for deed in sealing.writers} | {ActType.ACCEPT}
    all_of = sorted(writers - {*_NEWEST_BY_DATASET, *_NEWEST})
    by_dataset = select(func.max(AUDIT.c.position)).where(AUDIT.c.deed.in_(_NEWEST_BY_DATASET)).group_by(AUDIT.c.dataset)
    newest = select(func.max(AUDIT.c.position)).where(AUDIT.c.deed.in_(_NEWEST)).group_by(AUDIT.c.deed)
    wanted = or_(AUDIT.c.deed.in_(all_of), AUDIT.c.position.in_(by_dataset), AUDIT.c.position.in_(newest))
    acts = select(AUDIT).where(wanted).order_by(AUDIT.c.position)
    recorded = {**INITIAL}
    for row in map(dict, connection.execute(acts, execution_options={"yield_per": 1_000}).mappings()):
        if hash_of(row) != row["hash"]:
            yield "", f"Row {row['position']} of the audit ({row['deed']}) was changed: its hash is wrong."
            continue
        recorded |= {key: Recorded(seal, row["position"]) for key, seal in rows_in(detail_in(row["detail"]))}
    changed = (fault.sentence for fault in row_faults(connection, rules, recorded))
    yield from (("", sentence) for sentence in chain(changed, single_faults(connection, None), acting_faults(connection)))


def due_mark_faults(connection: Connection, datasets: Sequence[str], as_of: datetime) -> Iterator[tuple[str, str]]:
    """Faults of marks that are due, begun, to be deleted for good or called swept, each with its dataset."""
    for part in portions(sorted(set(datasets))):
        here = MARKS.c.dataset.in_(part)
        for state, is_due in ((OPEN, is_to_sweep_by(as_of)), (ASIDE, is_to_empty_by(as_of))):
            query = select(*(MARKS.c[name] for name in MARK_ROWS.names)).select_from(SHOWN_MARKS).where(is_due, here)
            for batch in stream(connection, query.order_by(MARKS.c.dataset, MARKS.c.id), MARK_ROWS):
                yield from unsealed_marks(pa.Table.from_batches([batch]))
            yield from _unmade_marks(connection, (is_due, here))
            yield from (("", sentence) for sentence in _record_faults(connection, and_(text(f"marks.{state}"), here)))
        begun = [BATCHES.c.dataset.in_(part) & text(BEGUN)]
        swept = [MARKS.c.id.in_(ids) for ids in portions(_swept_past_ledger(connection, part))]
        faults = chain(_batches_in(connection, begun), *(_record_faults(connection, marks) for marks in swept))
        yield from (("", sentence) for sentence in faults)


def _swept_past_ledger(connection: Connection, datasets: Sequence[str]) -> Sequence[int]:
    # stores are told what was swept: not what another act ended, or none
    settled = func.coalesce(MARKS.c.changed_act, 0).in_(select(AUDIT.c.act).where(AUDIT.c.deed == ActType.SETTLE))
    has_end = or_(MARKS.c.end_seal.is_not(None), text(ASIDE))
    odd = or_(MARKS.c.outcome.is_(None), ~settled, ~has_end)
    return connection.execute(select(MARKS.c.id).where(text(SWEPT), MARKS.c.dataset.in_(datasets), odd)).scalars().all()


def _record_faults(connection: Connection, marks: ColumnElement[bool]) -> Iterator[str]:
    # what the record has of marks that have not ended: of what failed, was stopped or set aside, or is at work
    yield from life_faults(connection, marks)
    ids, plans = select(MARKS.c.id).where(marks), set[Any]()
    for query, seals, name in (
        (select(*END).where(marks, MARKS.c.end_seal.is_not(None)), step_seals, "The end of mark {0.id}"),
        (select(*STEP).where(STEPS.c.mark.in_(ids)), step_seals, "The step of mark {0.mark} to {0.status}"),
        (select(*_PLANNED).where(PLANNED.c.mark.in_(ids)), planned_seals, "Mark {0.mark} of plan {0.plan}"),
    ):
        for read in _sealed(connection, [query], seals, name.format):
            plans.update(read.acts if seals is planned_seals else ())
            yield from read.faults
    yield from _batches_in(connection, (BATCHES.c.plan.in_(part) for part in portions(sorted(plans))))


def _batches_in(connection: Connection, conditions: Iterable[ColumnElement[bool]]) -> Iterator[str]:
    for where in conditions:
        for batch in begun_batches(connection, where):
            yield from batch.faults
        yield from batch_faults(connection, where)


def _unmade_marks(connection: Connection, due: Sequence[Any]) -> Iterator[tuple[str, str]]:
    # no marking act reserved their ids
    ends = (func.min(MARKS.c.id).label("first"), func.max(MARKS.c.id).label("last"), func.min(MARKS.c.dataset).label("dataset"))
    groups = select(MARKS.c.act, *ends).select_from(SHOWN_MARKS).where(*due).group_by(MARKS.c.act).subquery()
    query = select(groups, AUDIT.c.deed, AUDIT.c.detail, AUDIT.c.position).outerjoin(AUDIT, AUDIT.c.act == groups.c.act)
    for row in connection.execute(query):
        detail = detail_in(row.detail) if row.deed == ActType.MARK else {}
        first, last = (detail.get(name) for name in ("first", "last"))
        if not (isinstance(first, int) and isinstance(last, int) and first <= row.first and row.last <= last):
            marks = f"Marks {row.first} to {row.last} ({row.dataset} among others)"
            yield row.dataset, f"{marks} were added past the ledger: no act made them."

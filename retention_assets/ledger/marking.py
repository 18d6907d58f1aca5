"""Marks: what is to be deleted, by which policy, since when and when it is due.

Candidates are staged in a table, by this program or by many tasks at once, and become marks inside the database, millions in
one statement.
"""

import hashlib
import json
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    FromClause,
    Integer,
    MetaData,
    Table,
    Text,
    and_,
    case,
    exists,
    func,
    insert,
    literal,
    literal_column,
    or_,
    select,
    text,
    true,
    type_coerce,
    update,
    values,
)

from retention_assets.errors import Refused
from retention_assets.ledger.audit.chain import Act, ActType, MarkSeal, common_hash, groups_of, new_id, teach_seals
from retention_assets.ledger.database import LedgerDatabase, WriteTransaction
from retention_assets.ledger.evaluations import Publication, SweptBefore, publish, record_evaluations
from retention_assets.ledger.mark_rows import INSTANT, MARK_ROWS, MarkReader, only_hidden
from retention_assets.ledger.schema import ASIDE, CLOCK, MARKS, OPEN, SWEPT, TIMES
from retention_assets.ledger.steps import BEGUN_REPLAYS, IS_BEGUN, SHOWN_MARKS, is_to_sweep_by
from retention_assets.ledger.stores import StorePlace, newest_places
from retention_assets.policy.durations import parse_duration, text_of
from retention_assets.sql.columns import ByteSum, InstantColumn
from retention_assets.sql.staging import STAGED, SharedTable, shared_table
from retention_assets.sql.streams import stream
from retention_assets.sql.transactions import insert_counted

# Transactions that policies select and nothing spares. `grace` is a policy's duration, `reason` SELECTED or
# LATEST_VIEW_ALLOWED.
CANDIDATES = pa.schema(
    [
        pa.field("dataset", pa.string(), nullable=False),
        pa.field("transaction", pa.string(), nullable=False),
        pa.field("policy", pa.string(), nullable=False),
        pa.field("policy_version", pa.int32(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("grace", pa.string(), nullable=False),
        pa.field("bytes", pa.int64()),
        # Times at marking: with other times, the same id is another transaction.
        pa.field("opened_at", INSTANT),
        pa.field("closed_at", INSTANT),
    ]
)
# A row by its load, its place in the load, and its group of common values.
STAGED_ROWS = pa.schema(
    [
        pa.field("load", pa.int64()),
        pa.field("place", pa.int64()),
        pa.field("common", pa.int64()),
        pa.field("dataset", pa.string()),
        pa.field("transaction", pa.string()),
        pa.field("bytes", pa.int64()),
        *(pa.field(name, pa.int64()) for name in TIMES),
    ]
)
# rows staged per batch; larger batches only need more memory
_PORTION = 100_000
# new marks from which on statistics are updated: old query plans become bad
_MANY = 10_000
_KINDS = {pa.int64(): BigInteger, pa.string(): Text}
_GROUPS: tuple[Column[Any], ...] = (
    Column("number", BigInteger), Column("policy", Text), Column("policy_version", Integer), Column("reason", Text),
    Column("grace", Text), Column("due_at", InstantColumn), Column("seal", Text),
)  # fmt: skip
_LOADS: tuple[Column[Any], ...] = (Column("number", BigInteger), Column("first", BigInteger))
# Columns that a staged row gives to its mark and, in this order, to its seal.
_SEALED = ("bytes", "dataset", "transaction")
_SEALS = pa.schema([MARK_ROWS.field("seal")])
# on earlier marks
_Condition = Callable[[FromClause], ColumnElement[bool]]


class MarkGroup(NamedTuple):
    """Values that many new marks share."""

    policy: str
    policy_version: int
    reason: str
    grace: str

    @property
    def number(self) -> int:
        """Hash of the group: equal in every task without coordination."""
        text = json.dumps(self, ensure_ascii=False)
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 2


class Load(NamedTuple):
    number: int
    rows: int


@dataclass
class OwnCandidates:
    """Candidates of this program, staged in one load. `rows` and `groups` are complete after iteration."""

    parts: Iterable[pa.Table]
    number: int = 0
    rows: int = 0
    groups: dict[int, MarkGroup] = field(default_factory=dict)

    @property
    def table(self) -> str:
        return STAGED

    @property
    def loads(self) -> list[Load]:
        return [Load(self.number, self.rows)]

    def __iter__(self) -> Iterator[pa.Table]:
        self.rows, self.groups = 0, {}
        for part in self.parts:
            for at in range(0, len(part) or 1, _PORTION):
                yield self._staged(part.slice(at, _PORTION))

    def _staged(self, part: pa.Table) -> pa.Table:
        if missing := set(CANDIDATES.names) - set(part.column_names):
            raise ValueError(f"candidates lack the columns {', '.join(sorted(missing))}")
        # The cast refuses null where the schema does.
        table = part.select(CANDIDATES.names).cast(CANDIDATES)
        combinations, group = groups_of(table, MarkGroup._fields)
        groups = [
            MarkGroup(str(policy), int(str(version)), str(why), str(grace)) for policy, version, why, grace in combinations
        ]
        numbers = np.array([common.number for common in groups], dtype=np.int64)
        merge_groups(self.groups, zip(numbers.tolist(), groups, strict=True))
        columns = {
            "load": pa.array(np.full(len(table), self.number, dtype=np.int64)),
            "place": pa.array(np.arange(self.rows, self.rows + len(table), dtype=np.int64)),
            "common": pa.array(numbers[group] if len(table) else numbers),
            **{name: table[name] for name in ("dataset", "transaction", "bytes")},
            **{name: table[name].cast(pa.int64()) for name in TIMES},
        }
        self.rows += len(table)
        return pa.table(columns, schema=STAGED_ROWS)


@dataclass(frozen=True)
class StagedCandidates:
    """Candidates that tasks staged, in the order of `loads`. Other loads don't count: their task died or ran twice."""

    table: str
    loads: Sequence[Load]
    groups: Mapping[int, MarkGroup]

    @property
    def rows(self) -> int:
        return sum(load.rows for load in self.loads)


@dataclass(frozen=True)
class CandidateTable:
    """A shared staging table; it can be sent to tasks."""

    shared: SharedTable

    def __call__(self, candidates: pa.Table) -> str:
        """Stage candidates; whoever knows that this task counts passes the returned text to `staged`."""
        own = OwnCandidates([candidates], secrets.randbits(62))
        for rows in own:
            if len(rows):
                self.shared.append(rows)
        return json.dumps([own.number, own.rows, list(own.groups.values())])

    def staged(self, told: Iterable[str]) -> StagedCandidates:
        loads: list[Load] = []
        groups: dict[int, MarkGroup] = {}
        for number, rows, common in map(json.loads, told):
            loads += [Load(number, rows)] if rows else []
            merge_groups(groups, ((group.number, group) for group in (MarkGroup(*values) for values in common)))
        return StagedCandidates(self.shared.name, loads, groups)


@contextmanager
def candidate_table(database: LedgerDatabase) -> Iterator[CandidateTable | None]:
    """Staging table for one run on PostgreSQL, which tasks can reach; None on SQLite."""
    if database.engine.dialect.name != "postgresql":
        yield None
        return
    with shared_table(database.engine, "marks", STAGED_ROWS) as shared:
        yield CandidateTable(shared)


def merge_groups(groups: dict[int, MarkGroup], more: Iterable[tuple[int, MarkGroup]]) -> None:
    """Add groups by number. Raises ValueError on a collision, which would give marks the wrong policy."""
    for number, group in more:
        if groups.setdefault(number, group) != group:
            raise ValueError(f"{groups[number]} and {group} have one number")


@dataclass(frozen=True)
class MarkResult:
    """Number of new marks, and of candidates marked or swept before; `swept` counts the swept ones by dataset and policy."""

    new: int
    known: int
    marked_at: datetime
    act: int | None
    swept: SweptBefore = field(default_factory=dict)


class PendingSweep(NamedTuple):
    """A dataset's work for a sweep: marks, those that a sweep has begun, failed attempts, bytes, and what is no open mark."""

    dataset: str
    marks: int = 0
    begun: int = 0
    attempts: int = 0
    bytes: int = 0
    # set aside, and to be deleted for good or brought back by now; or begun to be replayed
    aside: int = 0

    @property
    def is_due(self) -> bool:
        """False where a sweep only looks whether something has to come back."""
        return bool(self.marks or self.aside)


class Marks(MarkReader):
    def mark(
        self,
        candidates: pa.Table | Iterable[pa.Table] | StagedCandidates,
        present: datetime,
        actor: str,
        reason: str | None = None,
        published: Sequence[Publication] = (),
        evaluations: pa.Table | Iterable[pa.Table] = (),
        hidden_again: Collection[str] = (),
        places: Mapping[str, StorePlace] | None = None,
    ) -> MarkResult:
        """Mark what is not marked or swept yet, and publish the assets that it came with, in one transaction.

        A hidden transaction counts as swept, except in the stores `hidden_again`, which delete every version now. An id that
        was swept and has other times now is another transaction and is marked.

        `candidates` have the columns of CANDIDATES: a table, tables in parts, or what tasks staged. `evaluations` have those of
        EVALUATION_ROWS. Parts may be iterated more than once. Raises Refused if the place of a store in `places`, noted at
        judgement, has changed. Grace counts from `present`, the time of writing, not from the `as_of` of the judgement. Marking
        again changes neither time nor policy.
        """
        staging = candidates if isinstance(candidates, StagedCandidates) else OwnCandidates(_parts(candidates))
        work = _Marking(staging, present, actor, reason, published, _parts(evaluations), hidden_again, places)
        done = self.database.write(work, staging if isinstance(staging, OwnCandidates) else None)
        if done.new >= _MANY:
            self.database.analyze(MARKS)
        return done

    def datasets_to_sweep(self, as_of: datetime) -> list[str]:
        return [sweep.dataset for sweep in self.to_sweep(as_of)]

    def to_sweep(self, as_of: datetime, datasets: Collection[str] | None = None) -> list[PendingSweep]:
        """Work by dataset: what is due or begun, whatever is set aside, and what is being replayed."""
        begun = func.sum(case((IS_BEGUN, 1), else_=0))
        counts = (func.count(), begun, func.sum(MARKS.c.attempts), ByteSum(MARKS.c.bytes))
        query = select(MARKS.c.dataset, *counts).select_from(SHOWN_MARKS).where(is_to_sweep_by(as_of))
        query = query.group_by(MARKS.c.dataset).order_by(MARKS.c.dataset)
        over = func.sum(case((or_(IS_BEGUN, MARKS.c.until <= as_of), 1), else_=0))
        aside = select(MARKS.c.dataset, over).select_from(SHOWN_MARKS).where(text(f"marks.{ASIDE}"))
        replayed = select(BEGUN_REPLAYS.c.dataset, func.count()).group_by(BEGUN_REPLAYS.c.dataset)
        with self.database.one_moment():
            due, in_trash, replays = (
                self.rows(each) if datasets is None else self.rows_among(each, each.selected_columns[0], datasets)
                for each in (query, aside.group_by(MARKS.c.dataset), replayed)
            )
        work = {name: PendingSweep(name, *map(int, counted)) for name, *counted in due}
        for name, amount in (*in_trash, *replays):
            known = work.get(name, PendingSweep(name))
            work[name] = known._replace(aside=known.aside + int(amount))
        return [work[name] for name in sorted(work)]


# The transaction that marks. It may be repeated: no state survives an attempt.
@dataclass(frozen=True)
class _Marking:
    candidates: OwnCandidates | StagedCandidates
    present: datetime
    actor: str
    reason: str | None
    published: Sequence[Publication]
    evaluations: Iterable[pa.Table]
    hidden_again: Collection[str] = ()
    places: Mapping[str, StorePlace] | None = None

    def __call__(self, tx: WriteTransaction) -> MarkResult:
        # Held until commit: markers are serialised, so none overlooks what another is marking, and ids rise as their
        # times do.
        clock = tx.connection.execute(select(CLOCK.c.newest_mark_at, CLOCK.c.next_mark).with_for_update()).one()
        places = newest_places(tx.connection) if self.places else {}
        if any(places.get(name) != row for name, row in (self.places or {}).items()):
            raise Refused("The place of a store changed while this run judged it, so nothing is marked. Run again.")
        # Mark times never go back: under a slow clock grace starts at the newest mark.
        marked_at = max(self.present, clock.newest_mark_at) if clock.newest_mark_at else self.present
        act, amount = new_id(), self.candidates.rows
        first, last = clock.next_mark, clock.next_mark + amount - 1
        new = self._insert(tx, act, first, marked_at) if amount else 0
        if new:
            marking = tx.record(self._act(tx, act, new, (first, last), marked_at))
            tx.seal(CLOCK, CLOCK.c.id == 1, marking)
            # Ids reserved for candidates that are not marked stay unused.
            tx.connection.execute(update(CLOCK).values(next_mark=last + 1, newest_mark_at=marked_at, act=act))
        publish(tx, self.published, self.actor)
        marked_before = amount - new
        swept = self._swept(tx) if marked_before else {}
        for part in self.evaluations:
            record_evaluations(tx, part, swept)
        return MarkResult(new, marked_before, marked_at, act if new else None, swept)

    def _swept(self, tx: WriteTransaction) -> SweptBefore:
        staged = self._staged
        alike = (staged.c.dataset, staged.c.common)
        query = select(*alike, func.count().label("amount"), ByteSum(staged.c.bytes).label("size"))
        sums: dict[tuple[str, str], tuple[int, int]] = {}
        unmarked = query.where(self._is_loaded(staged), ~_has_mark(staged, OPEN)).group_by(*alike)
        for row in tx.connection.execute(unmarked):
            key = (row.dataset, self.candidates.groups[row.common].policy)
            amount, size = sums.get(key, (0, 0))
            sums[key] = (amount + row.amount, size + int(row.size))
        return sums

    @property
    def _staged(self) -> Table:
        columns = (Column(field.name, _KINDS[field.type]) for field in STAGED_ROWS)
        return Table(self.candidates.table, MetaData(), *columns)

    def _is_loaded(self, staged: Table) -> ColumnElement[bool]:
        # other loads in the table are of tasks that died or ran twice
        numbers = [load.number for load in self.candidates.loads]
        return staged.c.load == numbers[0] if len(numbers) == 1 else staged.c.load.in_(numbers)

    def _insert(self, tx: WriteTransaction, act: int, first: int, marked_at: datetime) -> int:
        teach_seals(tx.connection)
        staged = self._staged
        common: list[tuple[object, ...]] = []
        for number, group in self.candidates.groups.items():
            due_at = parse_duration(group.grace).after(marked_at)
            common.append((number, *group, due_at, common_hash((*group, marked_at, due_at))))
        groups = values(*_GROUPS, name="mark_groups").data(common).cte()
        # An outer join, so that SQLite scans the rows once and not once per group.
        rows = staged.outerjoin(groups, staged.c.common == groups.c.number)
        first_of_load: ColumnElement[int] = literal(first, BigInteger)
        if len(self.candidates.loads) > 1:
            firsts = accumulate((load.rows for load in self.candidates.loads), initial=first)
            numbered = [(load.number, begin) for load, begin in zip(self.candidates.loads, firsts, strict=False)]
            loads = values(*_LOADS, name="mark_loads").data(numbered).cte()
            rows, first_of_load = rows.join(loads, staged.c.load == loads.c.number), loads.c.first
        mark = first_of_load + staged.c.place
        columns = {
            "id": mark,
            **{name: staged.c[name] for name in (*_SEALED, *TIMES)},
            **{name: groups.c[name] for name in (*MarkGroup._fields, "due_at")},
            "marked_at": literal(marked_at, InstantColumn()),
            "act": literal(act, BigInteger),
            "seal": MarkSeal(mark, *(staged.c[name] for name in _SEALED), groups.c.seal, *(staged.c[name] for name in TIMES)),
            "status": literal("MARKED"),
        }
        new = select(*columns.values()).select_from(rows).where(self._is_loaded(staged), *self._is_new(tx.connection, staged))
        return insert_counted(tx.connection, insert(MARKS).from_select(list(columns), new))

    def _is_new(self, connection: Connection, staged: Table) -> Iterator[ColumnElement[bool]]:
        # One condition per index, for open and for swept marks. An open mark blocks its id whatever the transaction; the next
        # one is marked when it is over.
        yield ~_has_mark(staged, OPEN)
        for is_same in _is_same_life(connection, staged):
            yield ~_has_mark(staged, SWEPT, is_same, self.hidden_again)

    def _act(self, tx: WriteTransaction, act: int, new: int, ids: tuple[int, int], marked_at: datetime) -> Act:
        first, last = ids
        query = select(MARKS.c.seal).where(MARKS.c.id.between(first, last) & (MARKS.c.act == act)).order_by(MARKS.c.id)
        digest = hashlib.sha256()
        for batch in stream(tx.connection, query, _SEALS):
            digest.update("".join(batch.column(0).to_pylist()).encode())
        policies = sorted({f"{group.policy}@{group.policy_version}" for group in self.candidates.groups.values()})
        detail = {"first": first, "last": last, "marked_at": text_of(marked_at), "policies": policies}
        return Act(ActType.MARK, self.actor, self.reason, detail=detail, members=new, digest=digest.hexdigest(), id=act)


def _parts(tables: pa.Table | Iterable[pa.Table]) -> Iterable[pa.Table]:
    return [tables] if isinstance(tables, pa.Table) else tables


def _has_mark(
    staged: Table, condition: str, also: _Condition | None = None, hidden_again: Collection[str] = ()
) -> ColumnElement[bool]:
    earlier = MARKS.alias()
    same = (earlier.c.dataset == staged.c.dataset) & (earlier.c.transaction == staged.c.transaction)
    matches = exists().where(same, text(condition), true() if also is None else also(earlier))
    return matches.where(~only_hidden(earlier, hidden_again)) if hidden_again else matches


def _is_same_life(connection: Connection, staged: Table) -> Sequence[_Condition]:
    # one swept mark must meet any of these for a row to be the same transaction (frames/log.py)

    def has_same_times(known: FromClause) -> ColumnElement[bool]:
        return and_(*(_comparable(known.c[name]) == _comparable(staged.c[name]) for name in TIMES))

    if connection.dialect.name == "postgresql":
        # Separately: PostgreSQL hashes equal values, but no OR.
        return _knows_no_times, has_same_times
    return (lambda known: or_(_knows_no_times(known), has_same_times(known)),)


def _knows_no_times(known: FromClause) -> ColumnElement[bool]:
    # logs may know no times of what was aborted
    return and_(*(known.c[name].is_(None) for name in TIMES))


def _comparable(time: ColumnElement[Any]) -> ColumnElement[int]:
    # as a number, equal to another missing time too, so that it can be hashed
    return func.coalesce(type_coerce(time, BigInteger), literal_column(str(-(2**62))))

"""The chain of the audit: each act is an appended row that holds the hash of the row before.

A bulk act has a digest over the seals of its members (marks, their ends, steps, planned marks, batches), each of which has its
own in its row: a changed member does not match its seal; a missing, added or resealed one does not match the digest.
"""

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection, Table, Text, insert, literal_column, select, update
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from retention_assets.ledger.schema import AUDIT, AUDIT_HEAD, TIMES
from retention_assets.policy.durations import text_of
from retention_assets.sql.columns import DatabaseTime, InstantColumn

GENESIS = "0" * 64

# columns covered by a row's hash, in this order
_HASHED = tuple(column.name for column in AUDIT.columns if column.name != "hash")

# built once: every transaction uses it
_HEAD = (
    select(AUDIT_HEAD.c.position, AUDIT_HEAD.c.hash, AUDIT_HEAD.c.ledger, DatabaseTime().label("at"))
    .where(AUDIT_HEAD.c.id == 1)
    .with_for_update()
)
_APPEND = insert(AUDIT)
_MOVE_HEAD = update(AUDIT_HEAD).where(AUDIT_HEAD.c.id == 1)
# 128 bits: a forger needs the preimage of a given seal, and a million rows stay a third smaller.
_SEAL = 32
_PART = 500_000
# columns of a batch that its seal covers
BATCH_SEALED = ("begun", "plan", "dataset", "begun_at", "begun_by", "first", "last", "ids", "order_given", "until")
_COMMON = ("policy", "policy_version", "reason", "grace", "marked_at", "due_at")


class ActType(StrEnum):
    MARK = "MARK"
    UNMARK = "UNMARK"
    SPARE = "SPARE"
    PLAN = "PLAN"
    BEGIN = "BEGIN"  # a batch of a plan may be deleted
    SETTLE = "SETTLE"  # outcomes of a batch
    RESTORE = "RESTORE"  # outcomes of a batch that is brought back
    FINISH = "FINISH"  # a plan is done
    TAKE_OVER = "TAKE_OVER"  # an expired lease, by another holder
    PUBLISH = "PUBLISH"
    HOLD = "HOLD"
    RELEASE = "RELEASE"
    ADVANCE = "ADVANCE"
    REALM = "REALM"
    POLICY = "POLICY"
    REPORT = "REPORT"
    CLOCK = "CLOCK"
    POSTPONE = "POSTPONE"  # postpones expiry by the store itself
    OBJECT = "OBJECT"
    WITHDRAW = "WITHDRAW"
    SCAN = "SCAN"
    ACCEPT_SCAN = "ACCEPT_SCAN"  # a person lets a braked scan mark
    PLACE = "PLACE"  # a store joins with the place of its data, or a person accepts another place
    HEAD = "HEAD"  # a place where heads are noted is remembered, given up, or can't be written
    CONFIRM = "CONFIRM"  # a person agreed to what a run was about to delete
    VERIFY = "VERIFY"  # a verification that found no fault
    ACCEPT = "ACCEPT"  # a person vouches for the ledger as it is


def new_id() -> int:
    """Draw a random id before the chain is locked, so that rows can name the act that wrote them."""
    return secrets.randbits(62) + 1


@dataclass
class Act:
    """An act to be appended to the audit; a bulk act has `members` and their `digest`."""

    deed: ActType
    actor: str
    reason: str | None = None
    dataset: str | None = None
    policy: str | None = None
    policy_version: int | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
    members: int | None = None
    digest: str | None = None
    # None: the time of appending; otherwise the time that its rows carry.
    at: datetime | None = None
    id: int = field(default_factory=new_id)


def append_acts(connection: Connection, acts: Sequence[Act]) -> None:
    """Append acts to the chain. Must be the last write of a transaction: other writers wait from here on."""
    if not acts:
        return
    head = connection.execute(_HEAD).one()
    rows: list[dict[str, Any]] = []
    position, previous = head.position, head.hash
    for act in acts:
        position += 1
        # The first row names the ledger.
        detail = {**act.detail, "ledger": head.ledger} if position == 1 else act.detail
        row = {
            "position": position, "act": act.id, "at": act.at or head.at, "actor": act.actor, "deed": act.deed.value,
            "dataset": act.dataset, "policy": act.policy, "policy_version": act.policy_version, "reason": act.reason,
            "detail": json.dumps(detail, sort_keys=True, ensure_ascii=False),
            "members": act.members, "digest": act.digest, "previous": previous,
        }  # fmt: skip
        previous = row["hash"] = hash_of(row)
        rows.append(row)
    connection.execute(_APPEND, rows)
    connection.execute(_MOVE_HEAD, {"position": position, "hash": previous})


def hash_of(row: Mapping[str, Any]) -> str:
    """Hash a row. The previous hash is part of it, so it covers the whole chain up to here."""
    # A value written past the ledger may have any type.
    values = [_plain(row[name]) for name in _HASHED]
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"), default=repr)
    return sha256(text.encode(errors="surrogatepass")).hexdigest()


def _plain(value: Any) -> Any:
    return text_of(value) if isinstance(value, datetime) else value


def rows(connection: Connection, after: int = 0) -> Iterator[Mapping[str, Any]]:
    """Stream the chain in order, from its beginning or after a position."""
    query = select(AUDIT).where(AUDIT.c.position > after).order_by(AUDIT.c.position)
    # A statement option: on the connection it would also apply to later statements. Small batches, because the act of a
    # run that published thousands of datasets is long.
    with connection.execute(query, execution_options={"yield_per": 500}) as result:
        yield from (dict(row) for row in result.mappings())


def as_line(row: Mapping[str, Any]) -> str:
    """Write a row as a JSON line from which anybody can compute its hash again."""
    try:
        detail = json.loads(row["detail"])
    except (TypeError, ValueError):
        detail = row["detail"]
    return json.dumps({**row, "at": _plain(row["at"]), "detail": detail}, ensure_ascii=False, default=repr)


def groups_of(table: pa.Table, names: Sequence[str]) -> tuple[list[tuple[object, ...]], npt.NDArray[np.int64]]:
    key = np.zeros(len(table), dtype=np.int64)
    for name in names:
        column = table[name].combine_chunks()
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64)
        # Renumber after each column so that the codes can't overflow.
        _, key = np.unique(key * (len(encoded.dictionary) + 1) + codes, return_inverse=True)
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    columns = [table[name].take(pa.array(first)).to_pylist() for name in names]
    return list(zip(*columns, strict=True)), group


def mark_seals(table: pa.Table) -> list[str]:
    groups, group = groups_of(table, _COMMON)
    # Common values enter each line as a hash: short lines make a million of them fast.
    texts = pa.array([common_hash(values) for values in groups], pa.string())
    # In parts: the texts of very many marks don't fit one Arrow array.
    parts = range(0, len(table), _PART)
    lines = (_lines(table.slice(at, _PART).combine_chunks(), texts.take(pa.array(group[at : at + _PART]))) for at in parts)
    return [sha256(line).hexdigest()[:_SEAL] for part in lines for line in part]


def _lines(table: pa.Table, common: pa.Array) -> list[bytes]:
    parts = [
        _text(table["id"]),
        pc.fill_null(_text(table["bytes"]), "?"),
        # The length prefix keeps names from being cut elsewhere and read as two others.
        _text(pc.binary_length(table["dataset"])), table["dataset"],
        _text(pc.binary_length(table["transaction"])), table["transaction"],
        pa.chunked_array([common]),
    ]  # fmt: skip
    # A mark without either time is sealed without them.
    has_times = pc.or_(*(pc.is_valid(table[name]) for name in TIMES))
    times = [pc.fill_null(_text(table[name].cast(pa.int64())), "?") for name in TIMES]
    lines = pc.binary_join_element_wise(*parts, *times, "|")
    if not pc.all(has_times).as_py():
        lines = pc.if_else(has_times, lines, pc.binary_join_element_wise(*parts, "|"))
    return list(lines.cast(pa.binary()).to_pylist())


def common_hash(values: tuple[object, ...]) -> str:
    return sha256(json.dumps(values, default=_as_text, ensure_ascii=False).encode()).hexdigest()


def _as_text(value: object) -> str:
    if not isinstance(value, datetime):
        raise TypeError(f"{value!r} has no seal")
    return text_of(value)


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string())


def planned_seals(rows: Iterable[Sequence[Any]]) -> list[str]:
    # Only the note is free text; it comes last, so no line is ambiguous.
    lines = (f"{plan}|{mark}|{size}|{'' if note is None else f'+{note}'}" for plan, mark, size, note in rows)
    return [sha256(line.encode(errors="surrogatepass")).hexdigest()[:_SEAL] for line in lines]


def batch_seals(rows: Iterable[Sequence[Any]]) -> list[str]:
    return [common_hash(tuple(row))[:_SEAL] for row in rows]


def step_seals(steps: Iterable[Sequence[Any]]) -> list[str]:
    """Seals of steps: act, mark, status, outcome, bytes, until, why."""
    # Only `why` is free text; it comes last, so no line is ambiguous.
    lines = (
        f"{act}|{mark}|{status}|{outcome}|{size}|{until and text_of(until)}|{'' if why is None else f'+{why}'}"
        for act, mark, status, outcome, size, until, why in steps
    )
    return [sha256(line.encode()).hexdigest()[:_SEAL] for line in lines]


class MarkSeal(FunctionElement[str]):
    """Seal of a mark as SQL over id, bytes, dataset, transaction, the hash of its common values, and its times.

    A mark's id and time are known only under the markers' lock, so the inserting statement computes the seal: staged rows stay
    valid whoever comes first, and no mark passes through this program. A test compares it with `mark_seals`.
    """

    type = Text()
    inherit_cache = True
    # A function of this program on SQLite (`teach`).
    name = "retention_mark_seal"


class RowSeal(FunctionElement[str]):
    """Seal of a row as SQL over its table and the name and value of each column that is not null."""

    type = Text()
    inherit_cache = True
    name = "retention_row_seal"

    def __init__(self, table: Table) -> None:
        columns = (column for column in table.columns if column.name != "seal")
        pairs: Iterable[tuple[Any, Any]] = ((literal_column(f"'{column.name}'"), column) for column in columns)
        super().__init__(literal_column(f"'{table.name}'"), *chain.from_iterable(pairs))


@compiles(MarkSeal, "postgresql")
def _mark_seal_on_postgresql(element: MarkSeal, compiler: Any, **options: Any) -> str:
    number, size, dataset, transaction, common, opened, closed = (compiler.process(part, **options) for part in element.clauses)
    has_times = f"{opened} IS NOT NULL OR {closed} IS NOT NULL"
    # A null is left out of the line with its separator.
    times = ", ".join(f"CASE WHEN {has_times} THEN coalesce({time}::text, '?') END" for time in (opened, closed))
    names = ", ".join(f"octet_length(convert_to({name}, 'UTF8')), {name}" for name in (dataset, transaction))
    line = f"concat_ws('|', {number}, coalesce({size}::text, '?'), {names}, {common}, {times})"
    return f"substr(encode(sha256(convert_to({line}, 'UTF8')), 'hex'), 1, {_SEAL})"


@compiles(RowSeal, "postgresql")
def _row_seal_on_postgresql(element: RowSeal, compiler: Any, **options: Any) -> str:
    clauses: list[Any] = [*element.clauses]
    texts = [f"{compiler.process(clauses[0], **options)}::text"]
    for name, column in zip(clauses[1::2], clauses[2::2], strict=True):
        value = compiler.process(column, **options)
        instant = f"to_char({value} AT TIME ZONE 'UTC', 'YYYYMMDDHH24MISSUS')"
        value = instant if isinstance(column.type, InstantColumn) else f"{value}::text"
        texts.append(f"{compiler.process(name, **options)} || '=' || length({value}) || ':' || {value}")
    return f"left(encode(sha256(convert_to(concat_ws('|', {', '.join(texts)}), 'UTF8')), 'hex'), {_SEAL})"


@compiles(MarkSeal, "sqlite")
@compiles(RowSeal, "sqlite")
def _on_sqlite(element: MarkSeal | RowSeal, compiler: Any, **options: Any) -> str:
    return f"{element.name}({', '.join(compiler.process(value, **options) for value in element.clauses)})"


def teach_seals(connection: Connection) -> None:
    if connection.dialect.name == "sqlite":
        teach(connection.connection.driver_connection)


def teach(driver: Any) -> None:
    """Give a SQLite connection the functions with which statements seal marks and rows."""
    driver.create_function(MarkSeal.name, 7, _mark_seal, deterministic=True)
    driver.create_function(RowSeal.name, -1, _row_seal, deterministic=True)


def _mark_seal(
    number: int, size: int | None, dataset: str, transaction: str, common: str, opened: int | None, closed: int | None
) -> str:
    line = (
        f"{number}|{'?' if size is None else size}|{len(dataset.encode())}|{dataset}"
        f"|{len(transaction.encode())}|{transaction}|{common}"
    )
    if opened is not None or closed is not None:
        line = f"{line}|{'?' if opened is None else opened}|{'?' if closed is None else closed}"
    return sha256(line.encode()).hexdigest()[:_SEAL]


def _row_seal(table: str, *pairs: Any) -> str:
    values = [(name, value) for name, value in zip(pairs[::2], pairs[1::2], strict=True) if value is not None]
    return sha256(repr((table, values)).encode(errors="surrogatepass")).hexdigest()[:_SEAL]

"""The chain of the audit: each act is an appended row that holds the hash of the row before."""

import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, insert, select, update

from retention_assets.ledger.schema import AUDIT, AUDIT_HEAD
from retention_assets.policy.durations import text_of
from retention_assets.sql.columns import DatabaseTime

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


class ActType(StrEnum):
    """Kinds of acts."""

    MARK = "MARK"
    UNMARK = "UNMARK"
    SPARE = "SPARE"
    PLAN = "PLAN"
    BEGIN = "BEGIN"  # a batch of a plan goes from MARKED to SWEEPING
    SETTLE = "SETTLE"  # outcomes of a batch
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
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _plain(value: Any) -> Any:
    return text_of(value) if isinstance(value, datetime) else value


def rows(connection: Connection, after: int = 0) -> Iterator[Mapping[str, Any]]:
    """Stream the chain in order, from its beginning or after a position."""
    query = select(AUDIT).where(AUDIT.c.position > after).order_by(AUDIT.c.position)
    # A statement option: on the connection it would also apply to later statements. Small batches, because the act of a
    # run that published thousands of datasets is long.
    with connection.execute(query, execution_options={"yield_per": 500}) as found:
        yield from (dict(row) for row in found.mappings())


def as_line(row: Mapping[str, Any]) -> str:
    """Write a row as a JSON line from which anybody can compute its hash again."""
    try:
        detail = json.loads(row["detail"])
    except (TypeError, ValueError):
        detail = row["detail"]
    return json.dumps({**row, "at": _plain(row["at"]), "detail": detail}, ensure_ascii=False, default=repr)

"""The audit: every decision and act as one appended row that has the hash of the row before.

Belongs here: what an act is, appending the acts of a transaction to the chain, and writing the chain out as JSON lines.
Does not belong here: checking the chain (verify.py), the seals of an act's members (seals.py).
"""

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

# What the first row has as the hash of the row before it.
GENESIS = "0" * 64

# What the hash of a row covers, in this order: everything but the hash itself.
_HASHED = tuple(column.name for column in AUDIT.columns if column.name != "hash")

# Of each transaction: made once.
_HEAD = (
    select(AUDIT_HEAD.c.position, AUDIT_HEAD.c.hash, AUDIT_HEAD.c.ledger, DatabaseTime().label("at"))
    .where(AUDIT_HEAD.c.id == 1)
    .with_for_update()
)
_APPEND = insert(AUDIT)
_MOVE_HEAD = update(AUDIT_HEAD).where(AUDIT_HEAD.c.id == 1)


class ActType(StrEnum):
    """What was done."""

    MARK = "MARK"
    UNMARK = "UNMARK"
    SPARE = "SPARE"
    PLAN = "PLAN"
    BEGIN = "BEGIN"  # a batch of a plan goes from MARKED to SWEEPING
    SETTLE = "SETTLE"  # what became of a batch
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
    POSTPONE = "POSTPONE"  # what a store would have expired by itself, and must not yet
    OBJECT = "OBJECT"  # a check of what was judged failed: its datasets are not swept
    WITHDRAW = "WITHDRAW"  # an objection is taken back
    SCAN = "SCAN"  # a scan of a store began or ended, or an accepted one is judged
    ACCEPT_SCAN = "ACCEPT_SCAN"  # a person lets a braked scan mark
    PLACE = "PLACE"  # a store joins with the place of its data, or a person accepts another place
    HEAD = "HEAD"  # a place where heads are noted is remembered, given up, or can't be written
    CONFIRM = "CONFIRM"  # a person said yes to what a run was about to delete
    VERIFY = "VERIFY"  # a verification that found no fault
    ACCEPT = "ACCEPT"  # a person vouches for the ledger as it is


def new_id() -> int:
    """An id that no other writer will choose, known before the chain is locked: rows can name the act that wrote them."""
    return secrets.randbits(62) + 1


@dataclass
class Act:
    """One row that the audit is to have. With `members` and their `digest` where it was done to many at once."""

    deed: ActType
    actor: str
    reason: str | None = None
    dataset: str | None = None
    policy: str | None = None
    policy_version: int | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
    members: int | None = None
    digest: str | None = None
    # When it was done, where a row says the same; otherwise when it is appended.
    at: datetime | None = None
    id: int = field(default_factory=new_id)


def append_acts(connection: Connection, acts: Sequence[Act]) -> None:
    """Add rows to the end of the chain. To be the last that a transaction does: from here on other writers wait for it."""
    if not acts:
        return
    head = connection.execute(_HEAD).one()
    rows: list[dict[str, Any]] = []
    position, previous = head.position, head.hash
    for act in acts:
        position += 1
        # The first row says whose chain it is.
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
    """The hash of a row of the audit, over everything in it and, with the hash of the row before, over all before it."""
    # What was put there past the ledger may be of any type.
    values = [_plain(row[name]) for name in _HASHED]
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _plain(value: Any) -> Any:
    return text_of(value) if isinstance(value, datetime) else value


def rows(connection: Connection, after: int = 0) -> Iterator[Mapping[str, Any]]:
    """The chain from its beginning, or what follows a position, without holding all of it in memory."""
    query = select(AUDIT).where(AUDIT.c.position > after).order_by(AUDIT.c.position)
    # An option of the statement: of the connection, it would be one of every later statement as well.
    # Few at a time: the act of a run that published thousands of datasets is long.
    with connection.execute(query, execution_options={"yield_per": 500}) as found:
        yield from (dict(row) for row in found.mappings())


def as_line(row: Mapping[str, Any]) -> str:
    """A row as a line of JSON, from which its hash can be computed again by anybody."""
    try:
        detail = json.loads(row["detail"])
    except (TypeError, ValueError):
        detail = row["detail"]
    return json.dumps({**row, "at": _plain(row["at"]), "detail": detail}, ensure_ascii=False, default=repr)

"""The tables of the ledger, the same on SQLite and PostgreSQL. Who changes them changes REVISION, and writes a migration.

Rows are never removed: one that is over (unmarked, given up, released) says so.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.sql.schema import SchemaItem
from sqlalchemy.types import TypeEngine

from retention_assets.sql.columns import IdsColumn, InstantColumn, MicrosColumn, Name

REVISION = "0026"

METADATA = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

# As the only key, SQLite's row id, which needs no index.
Key = BigInteger().with_variant(Integer, "sqlite")
# Act that wrote a row. No foreign key: the audit row is appended last, when the chain is locked.
ACT = BigInteger

# Open marks. Spelled out in each condition, because both databases use a partial index only if its text matches.
OPEN = "status = 'MARKED'"


# The usual value first: SQLite makes a table for each row of which it asks whether a value is in a list of three or more.
_STATUSES = "status = 'MARKED' OR status IN ('UNMARKED', 'SPARED', 'SWEPT', 'RESTORED')"
_ENDS = "outcome IS NULL OR outcome IN ('DELETED', 'ALREADY_GONE', 'HIDDEN', 'SET_ASIDE')"
# Outcome of an end of 0.2.0 that the upgrade took back (migrations/r0025.py). Its step holds the seal that its act covers.
TAKEN_BACK = "KEPT_READABLE"

Kind = TypeEngine[Any] | type[TypeEngine[Any]]


def _keys(kind: Kind, *names: str) -> list[Column[Any]]:
    return [Column(name, kind, primary_key=True, autoincrement=False) for name in names]


def _set(kind: Kind, *names: str) -> list[Column[Any]]:
    return [Column(name, kind, nullable=False) for name in names]


def _may_be_null(kind: Kind, *names: str) -> list[Column[Any]]:
    return [Column(name, kind) for name in names]


def _counters(*names: str) -> list[Column[Any]]:
    return [Column(name, BigInteger, nullable=False, server_default=text("0")) for name in names]


def _table(name: str, *parts: SchemaItem) -> Table:
    return Table(name, METADATA, *parts)


def _decision(name: str, *parts: SchemaItem) -> Table:
    # rows are sealed in the act that wrote them last (audit/rows.py)
    return _table(name, *parts, *_set(ACT, "act"))


def _state(name: str, *parts: SchemaItem) -> Table:
    # rows change too often for an act each: each holds its own seal (audit/rows.py)
    return _table(name, *parts, Column("seal", Text))


def _partial_index(name: str, condition: str, *columns: Column[Any], unique: bool = False) -> Index:
    return Index(name, *columns, unique=unique, sqlite_where=text(condition), postgresql_where=text(condition))


LEDGER_REVISION = _table("ledger_revision", *_keys(Text, "revision"))

POLICY_VERSIONS = _decision(
    "policy_versions",
    *_keys(Name, "name"),
    *_keys(Integer, "version"),
    *_set(Text, "content", "digest", "written_by"),
    *_set(InstantColumn, "written_at"),
    *_set(Boolean, "system", "revoked"),
    CheckConstraint("version >= 1", name="version"),
)

PLANS = _table(
    "plans",
    *_keys(Key, "id"),
    Column("dataset", Name, nullable=False, index=True),
    *_set(BigInteger, "token"),
    *_set(InstantColumn, "as_of"),
    *_set(BigInteger, "marks", "bytes"),
    *_set(InstantColumn, "planned_at"),
    *_may_be_null(InstantColumn, "finished_at"),
    *_set(ACT, "act"),
    # Where the data was, as the store describes it; null if the store has no place.
    *_may_be_null(Text, "place"),
)

MARKS = _table(
    "marks",
    *_keys(Key, "id"),
    *_set(Name, "dataset", "transaction", "policy"),
    *_set(Integer, "policy_version"),
    *_set(Text, "reason"),
    *_may_be_null(BigInteger, "bytes"),
    # Times of the marked transaction: with other times, the same id is another transaction. Both null: unknown.
    *_may_be_null(MicrosColumn, "opened_at", "closed_at"),
    *_set(Text, "grace"),
    *_set(InstantColumn, "marked_at", "due_at"),
    *_set(ACT, "act"),
    *_set(Text, "seal"),
    # Everything above is set once; the columns below change with the mark's state. A MARKED mark of an open batch is shown as
    # SWEEPING (batches.py).
    *_set(Text, "status"),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    *_may_be_null(Text, "last_error", "why"),
    *_may_be_null(InstantColumn, "changed_at"),
    *_may_be_null(Text, "changed_by"),
    *_may_be_null(ACT, "changed_act"),
    # How it ended, with `status` and `why`; null while it is MARKED. If it is set aside it is SWEPT, and has no end yet.
    *_may_be_null(Text, "outcome"),
    *_may_be_null(BigInteger, "freed"),
    *_may_be_null(Text, "end_seal"),
    # If it is set aside: until when it can be restored.
    *_may_be_null(InstantColumn, "until"),
    CheckConstraint(_STATUSES, name="status"),
    CheckConstraint(_ENDS, name="outcome"),
    CheckConstraint("due_at >= marked_at", name="grace"),
)
# Distinguish transactions that had the same id one after the other (frames/log.py).
TIMES = ("opened_at", "closed_at")
# One open mark per transaction; also finds the open marks of a dataset.
_partial_index("uq_marks_open", OPEN, MARKS.c.dataset, MARKS.c.transaction, unique=True)
# Each life of an id is swept once unless only hidden, which the marking statement ensures. Separate from open marks, so that
# marking a million updates one index, not two.
SWEPT = "status = 'SWEPT'"
_partial_index("ix_marks_swept", SWEPT, MARKS.c.dataset, MARKS.c.transaction, MARKS.c.opened_at, MARKS.c.closed_at)

# Set aside: they can be restored, or deleted for good.
ASIDE = "outcome = 'SET_ASIDE'"
_partial_index("ix_marks_aside", ASIDE, MARKS.c.dataset, MARKS.c.until)

# The remaining marks, so that one of the three indexes finds every mark by transaction.
OVER = "status NOT IN ('MARKED', 'SWEPT')"
_partial_index("ix_marks_over", OVER, MARKS.c.dataset, MARKS.c.transaction)
# Marks that a batch settled are found by their batch.
_partial_index("ix_marks_over_act", OVER, MARKS.c.changed_act)

# No foreign keys here and in steps: PostgreSQL would look up and lock the mark of each row, and the audit names the act of
# every member.
PLANNED = _table(
    "planned",
    *_keys(BigInteger, "plan"),
    Column("mark", BigInteger, primary_key=True, autoincrement=False, index=True),
    *_may_be_null(BigInteger, "bytes"),
    # With this the store finds the rest of a transaction whose deletion was interrupted.
    *_may_be_null(Text, "note"),
    *_set(Text, "seal"),
)

# Marks of a plan on which a sweep begins together, by its act: its ids, the lowest and the highest.
BATCHES = _table(
    "batches",
    *_keys(ACT, "begun"),
    Column("plan", BigInteger, primary_key=True, autoincrement=False, index=True),
    *_set(Name, "dataset"),
    *_set(InstantColumn, "begun_at"),
    *_set(Text, "begun_by"),
    *_set(BigInteger, "first", "last"),
    *_set(IdsColumn, "ids"),
    # Order to the store, and until when what it sets aside can be restored.
    *_set(Text, "order_given"),
    *_may_be_null(InstantColumn, "until"),
    *_set(Text, "seal"),
    # Everything above is set once. Those that are not settled; null: all are.
    *_may_be_null(IdsColumn, "open_ids"),
)
BEGUN = "open_ids IS NOT NULL"
_partial_index("ix_batches_open", BEGUN, BATCHES.c.dataset)

# Steps after which a mark does not end: failures, setting aside, replays of what ended, and ends that an upgrade took back.
STEPS = _table(
    "steps",
    *_keys(ACT, "act"),
    Column("mark", BigInteger, primary_key=True, autoincrement=False, index=True),
    *_set(Text, "status"),
    *_may_be_null(Text, "outcome"),
    *_may_be_null(BigInteger, "bytes"),
    *_may_be_null(InstantColumn, "until"),
    *_may_be_null(Text, "why"),
    *_set(Text, "seal"),
    CheckConstraint(_STATUSES, name="status"),
    CheckConstraint(_ENDS.replace("(", f"('FAILED', '{TAKEN_BACK}', "), name="outcome"),
)

LEASES = _state(
    "leases",
    *_keys(Name, "dataset"),
    # Rises with every holder: a write with an older token comes from a holder that lost the lease.
    *_set(BigInteger, "token"),
    *_set(Text, "holder"),
    *_set(InstantColumn, "taken_at", "beat_at", "expires_at"),
    *_set(Boolean, "given_up"),
)

# Parts of a dataset dealt out to tasks under one lease: the newest attempt at a part may write.
LEASE_PARTS = _state(
    "lease_parts",
    *_keys(Name, "dataset"),
    *_keys(Integer, "part"),
    # Token of the lease under which it was last begun.
    *_set(BigInteger, "token", "attempt"),
    # Newest attempt that ended: neither it nor an older one acts any more.
    *_set(BigInteger, "ended"),
    # Time until which the newest attempt believes it may act.
    *_set(InstantColumn, "expires_at"),
)

# Stop requests and task progress by run (the name that holds its leases). They decide nothing.
STOPS = _state("stops", *_keys(Name, "run"), *_set(Text, "reason"), *_set(InstantColumn, "asked_at"))

TASK_PROGRESS = _state(
    "task_progress", *_keys(Name, "run"), *_keys(Integer, "task"), *_set(Text, "progress"), *_set(InstantColumn, "told_at")
)

# Earliest start of a policy's next batch. It only delays, so no act covers it.
PACES = _state("paces", *_keys(Name, "policy"), *_set(InstantColumn, "next_at"))

VISIBILITY = _decision(
    "visibility", *_keys(Name, "dataset"), *_set(InstantColumn, "visible_from", "raised_at"), *_set(Text, "raised_by")
)

REALMS = _decision(
    "realms",
    *_keys(Name, "name"),
    *_set(Text, "status", "grace"),
    *_set(InstantColumn, "changed_at"),
    *_set(Text, "changed_by"),
    CheckConstraint("status IN ('ACTIVE', 'INACTIVE', 'PURGING', 'PURGED')", name="status"),
)

HOLDS = _decision(
    "holds",
    *_keys(Key, "id"),
    *_set(Name, "name"),
    *_set(Text, "content", "reason", "owner"),
    *_may_be_null(InstantColumn, "until"),
    *_set(InstantColumn, "placed_at"),
    *_set(Text, "placed_by"),
    *_may_be_null(InstantColumn, "released_at"),
    *_may_be_null(Text, "released_by", "release_reason"),
)
# A released hold frees its name.
HELD = "released_at IS NULL"
_partial_index("uq_holds_name", HELD, HOLDS.c.name, unique=True)

# Holds of policy files as they came and went. Files in place hold by themselves; tasks on machines without the files use
# these rows.
FILE_HOLDS = _decision(
    "file_holds",
    *_keys(Text, "digest"),
    *_set(Name, "name"),
    *_set(Text, "content"),
    *_set(InstantColumn, "came_at"),
    *_may_be_null(InstantColumn, "gone_at"),
)

# Place of a store's data from a mark on: the newest row is where it may be marked and swept.
PLACES = _decision(
    "places",
    *_keys(Key, "id"),
    *_set(Name, "store"),
    *_set(Text, "place"),
    # First mark id of the store at this place, up to the store's next row.
    *_set(BigInteger, "first_mark"),
    *_set(InstantColumn, "noted_at"),
)

# Files in which a head of the chain was noted: a missing one stops every sweep.
NOTED_HEADS = _decision(
    "noted_heads",
    *_keys(Name, "place"),
    *_may_be_null(Name, "store"),
    # False: never noted, or given up by a person.
    *_set(Boolean, "noted"),
    # Reason why the newest head could not be noted there.
    *_may_be_null(Text, "fault"),
    *_set(InstantColumn, "changed_at"),
)

# Objections of checks to judged datasets. A dataset with a standing one is not swept.
OBJECTIONS = _decision(
    "objections",
    *_keys(Name, "dataset", "check_name"),
    *_set(Text, "sentence"),
    *_set(InstantColumn, "raised_at"),
    *_set(Text, "raised_by"),
    *_may_be_null(InstantColumn, "withdrawn_at"),
    *_may_be_null(Text, "withdrawn_by"),
)

# Violations that stand until the check finds them mended, not until a run looks elsewhere. They decide nothing (objections
# do), so no act covers them.
VIOLATIONS = _state(
    "violations",
    *_keys(Name, "check_name", "dataset"),
    *_set(Text, "what"),
    *_set(BigInteger, "times"),
    *_set(InstantColumn, "since"),
    *_set(Text, "found_by"),
    *_may_be_null(InstantColumn, "over_at"),
)
STANDING = "over_at IS NULL"
_partial_index("ix_violations_standing", STANDING, VIOLATIONS.c.check_name, VIOLATIONS.c.dataset)

# Last complete look of each check, not limited to one run's datasets.
WHOLE_CHECKS = _state("whole_checks", *_keys(Name, "check_name"), *_set(InstantColumn, "looked_at"))

# Row counts of the tables that no act covers.
ROW_COUNTS = _state("row_counts", *_keys(Name, "name"), *_set(BigInteger, "rows"))


REPORTS = _table(
    "reports",
    *_keys(Date, "execution_date"),
    *_keys(Name, "dataset"),
    *_set(Text, "policies", "bounds"),
    *_may_be_null(Boolean, "terminal_only"),
    *_set(Text, "archived_types"),
    *_set(BigInteger, "to_delete", "bytes_to_free"),
    *_counters("deleted", "already_gone", "failed", "spared", "unmarked", "hidden", "left", "set_aside", "restored"),
    *_counters("kept_readable", "bytes_freed", "bytes_hidden", "bytes_set_aside"),
    *_set(Text, "classes"),
    *_set(InstantColumn, "started_at"),
    *_may_be_null(InstantColumn, "finished_at"),
    *_set(ACT, "act"),
    # The report's set: marks with a lower id that are due by then. Null: the day has not begun.
    *_may_be_null(InstantColumn, "due_by"),
    *_may_be_null(BigInteger, "marks_before"),
    # Null where nothing was replayed, and in reports from before revision 0026.
    *_may_be_null(BigInteger, "replayed"),
)

# One row per day on which somebody looked, to tell a day without due marks from a day without a run.
DAYS = _decision(
    "days",
    *_keys(Date, "execution_date"),
    # `as_of`, and the database's time of the look.
    *_set(InstantColumn, "as_of", "looked_at"),
    # At that time: the newest evaluation, the number of datasets ever judged, and the due marks.
    *_may_be_null(InstantColumn, "judged_at"),
    *_set(BigInteger, "datasets", "due"),
)

PUBLISHED = _decision(
    "published", *_keys(Name, "asset", "dataset"), *_set(Text, "folder", "run"), *_set(InstantColumn, "published_at")
)

# Scans of object stores, kept for ever. Their listings stay in the warehouse only while needed.
SCANS = _decision(
    "scans",
    # Counted over all stores, so that people can type it.
    *_keys(Key, "id"),
    *_set(Name, "store"),
    *_set(Text, "status", "holder"),
    *_set(InstantColumn, "started_at"),
    *_may_be_null(InstantColumn, "ended_at"),
    *_may_be_null(Text, "reason"),
    # JSON: sums for lists, and the full result by realm and kind, which may be long.
    *_may_be_null(Text, "totals", "result"),
    # who accepted a braked scan, and when its log was published to be judged
    *_may_be_null(InstantColumn, "accepted_at"),
    *_may_be_null(Text, "accepted_by", "accept_reason"),
    *_may_be_null(InstantColumn, "used_at"),
    CheckConstraint("status IN ('running', 'kept', 'superseded', 'braked', 'failed')", name="status"),
)
Index("ix_scans_store", SCANS.c.store, SCANS.c.id)
RUNNING = "status = 'running'"
_partial_index("uq_scans_running", RUNNING, SCANS.c.store, unique=True)

# Newest evaluation of each dataset: the only table that forgets.
EVALUATIONS = _state(
    "looks",
    *_keys(Name, "dataset"),
    *_may_be_null(Text, "token"),
    *_set(Text, "rules"),
    *_set(InstantColumn, "looked_at"),
    *_may_be_null(InstantColumn, "next_look"),
    # Results: verdicts as JSON (evaluations.py), or why it was refused.
    *_may_be_null(Text, "counts", "fault"),
)

# One row each: the ledger's times and next mark id, and the head of the audit.
CLOCK = _table(
    "clock",
    *_keys(Integer, "id"),
    *_may_be_null(InstantColumn, "newest_mark_at", "newest_seen_at", "accepted_until"),
    *_set(BigInteger, "next_mark"),
    # Null until something other than the next id is written.
    *_may_be_null(ACT, "act"),
    # Simulated times, for tests and demonstrations. Null: undecided, and real once the ledger is used.
    *_may_be_null(Boolean, "simulated"),
    CheckConstraint("id = 1", name="one_row"),
)

AUDIT = _table(
    "audit",
    *_keys(Key, "position"),
    *_set(ACT, "act"),
    *_set(InstantColumn, "at"),
    *_set(Text, "actor", "deed"),
    *_may_be_null(Name, "dataset", "policy"),
    *_may_be_null(Integer, "policy_version"),
    *_may_be_null(Text, "reason"),
    *_set(Text, "detail"),
    *_may_be_null(BigInteger, "members"),
    *_may_be_null(Text, "digest"),
    *_set(Text, "previous", "hash"),
    UniqueConstraint("act"),
)
# Checks before each sweep read a few kinds of acts from a chain of any length.
Index("ix_audit_deed", AUDIT.c.deed, AUDIT.c.dataset, AUDIT.c.position)

AUDIT_HEAD = _table(
    "audit_head",
    *_keys(Integer, "id"),
    *_set(BigInteger, "position"),
    *_set(Text, "hash"),
    # Random id of the ledger: a warehouse recognises its own by it.
    Column("ledger", Text, nullable=False, server_default=text("''")),
    CheckConstraint("id = 1", name="one_row"),
)

# Rows that change too often for an act each; each holds its own seal (audit/rows.py).
STATE = (LEASES, LEASE_PARTS, PACES, EVALUATIONS, VIOLATIONS, WHOLE_CHECKS, STOPS, TASK_PROGRESS)

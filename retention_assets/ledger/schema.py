"""The tables of the ledger, the same on SQLite and PostgreSQL. Change REVISION with them: other revisions are refused.

Rows are never removed: one that is over (unmarked, given up, released) says so.
"""

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

from retention_assets.sql.columns import InstantColumn, MicrosColumn, Name

REVISION = "0020"

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
OPEN = "status IN ('MARKED', 'SWEEPING')"


def _seal() -> Column[str]:
    """Seal of a row that no act covers (audit/state.py)."""
    return Column("seal", Text)


LEDGER_REVISION = Table("ledger_revision", METADATA, Column("revision", Text, primary_key=True))

POLICY_VERSIONS = Table(
    "policy_versions",
    METADATA,
    Column("name", Name, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("content", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("written_by", Text, nullable=False),
    Column("written_at", InstantColumn, nullable=False),
    Column("system", Boolean, nullable=False),
    Column("revoked", Boolean, nullable=False),
    Column("act", ACT, nullable=False),
    CheckConstraint("version >= 1", name="version"),
)

PLANS = Table(
    "plans",
    METADATA,
    Column("id", Key, primary_key=True, autoincrement=False),
    Column("dataset", Name, nullable=False, index=True),
    Column("token", BigInteger, nullable=False),
    Column("as_of", InstantColumn, nullable=False),
    Column("marks", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("planned_at", InstantColumn, nullable=False),
    Column("finished_at", InstantColumn),
    Column("act", ACT, nullable=False),
    # Where the data was, as the store describes it; null if the store has no place.
    Column("place", Text),
)

MARKS = Table(
    "marks",
    METADATA,
    Column("id", Key, primary_key=True, autoincrement=False),
    Column("dataset", Name, nullable=False),
    Column("transaction", Name, nullable=False),
    Column("policy", Name, nullable=False),
    Column("policy_version", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("bytes", BigInteger),
    # Times of the marked transaction: with other times, the same id is another transaction. Both null: unknown.
    Column("opened_at", MicrosColumn),
    Column("closed_at", MicrosColumn),
    Column("grace", Text, nullable=False),
    Column("marked_at", InstantColumn, nullable=False),
    Column("due_at", InstantColumn, nullable=False),
    Column("act", ACT, nullable=False),
    Column("seal", Text, nullable=False),
    # Everything above is set once; the columns below change with the mark's state.
    Column("status", Text, nullable=False),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("last_error", Text),
    Column("why", Text),
    Column("changed_at", InstantColumn),
    Column("changed_by", Text),
    Column("changed_act", ACT),
    CheckConstraint("status IN ('MARKED', 'UNMARKED', 'SPARED', 'SWEEPING', 'SWEPT')", name="status"),
    CheckConstraint("due_at >= marked_at", name="grace"),
)
# Distinguish transactions that had the same id one after the other (frames/lives.py).
TIMES = ("opened_at", "closed_at")
# One open mark per transaction; also finds the open marks of a dataset.
Index("uq_marks_open", MARKS.c.dataset, MARKS.c.transaction, unique=True, sqlite_where=text(OPEN), postgresql_where=text(OPEN))
# Each life of an id is swept once unless only hidden, which the marking statement ensures. Separate from open marks, so that
# marking a million updates one index, not two.
SWEPT = "status = 'SWEPT'"
Index(
    "ix_marks_swept",
    MARKS.c.dataset,
    MARKS.c.transaction,
    MARKS.c.opened_at,
    MARKS.c.closed_at,
    sqlite_where=text(SWEPT),
    postgresql_where=text(SWEPT),
)

# The remaining marks, so that one of the three indexes finds every mark by transaction.
OVER = "status IN ('UNMARKED', 'SPARED')"
Index("ix_marks_over", MARKS.c.dataset, MARKS.c.transaction, sqlite_where=text(OVER), postgresql_where=text(OVER))

# No foreign keys here and in steps: PostgreSQL would look up and lock the mark of each row, and the audit names the act of
# every member.
PLANNED = Table(
    "planned",
    METADATA,
    Column("plan", BigInteger, primary_key=True, autoincrement=False),
    Column("mark", BigInteger, primary_key=True, autoincrement=False, index=True),
    Column("bytes", BigInteger),
    # With this the store finds the rest of a transaction whose deletion was interrupted.
    Column("note", Text),
    Column("seal", Text, nullable=False),
)

STEPS = Table(
    "steps",
    METADATA,
    Column("act", ACT, primary_key=True, autoincrement=False),
    Column("mark", BigInteger, primary_key=True, autoincrement=False, index=True),
    Column("status", Text, nullable=False),
    Column("outcome", Text),
    Column("bytes", BigInteger),
    Column("why", Text),
    Column("seal", Text, nullable=False),
    CheckConstraint("status IN ('MARKED', 'UNMARKED', 'SPARED', 'SWEEPING', 'SWEPT')", name="status"),
    CheckConstraint("outcome IN ('DELETED', 'ALREADY_GONE', 'HIDDEN', 'FAILED')", name="outcome"),
)

LEASES = Table(
    "leases",
    METADATA,
    Column("dataset", Name, primary_key=True),
    # Rises with every holder: a write with an older token comes from a holder that lost the lease.
    Column("token", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
    Column("taken_at", InstantColumn, nullable=False),
    Column("beat_at", InstantColumn, nullable=False),
    Column("expires_at", InstantColumn, nullable=False),
    Column("given_up", Boolean, nullable=False),
    _seal(),
)

# Parts of a dataset dealt out to tasks under one lease: the newest attempt at a part may write.
LEASE_PARTS = Table(
    "lease_parts",
    METADATA,
    Column("dataset", Name, primary_key=True),
    Column("part", Integer, primary_key=True, autoincrement=False),
    # Token of the lease under which it was last begun.
    Column("token", BigInteger, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    # Newest attempt that ended: neither it nor an older one acts any more.
    Column("ended", BigInteger, nullable=False),
    # Time until which the newest attempt believes it may act.
    Column("expires_at", InstantColumn, nullable=False),
    _seal(),
)

# Stop requests and task progress by run (the name that holds its leases). They decide nothing.
STOPS = Table(
    "stops",
    METADATA,
    Column("run", Name, primary_key=True),
    Column("reason", Text, nullable=False),
    Column("asked_at", InstantColumn, nullable=False),
    _seal(),
)

TASK_PROGRESS = Table(
    "task_progress",
    METADATA,
    Column("run", Name, primary_key=True),
    Column("task", Integer, primary_key=True, autoincrement=False),
    Column("progress", Text, nullable=False),
    Column("told_at", InstantColumn, nullable=False),
    _seal(),
)

# Earliest start of a policy's next batch. It only delays, so no act covers it.
PACES = Table(
    "paces",
    METADATA,
    Column("policy", Name, primary_key=True),
    Column("next_at", InstantColumn, nullable=False),
    _seal(),
)

VISIBILITY = Table(
    "visibility",
    METADATA,
    Column("dataset", Name, primary_key=True),
    Column("visible_from", InstantColumn, nullable=False),
    Column("raised_at", InstantColumn, nullable=False),
    Column("raised_by", Text, nullable=False),
    Column("act", ACT, nullable=False),
)

REALMS = Table(
    "realms",
    METADATA,
    Column("name", Name, primary_key=True),
    Column("status", Text, nullable=False),
    Column("grace", Text, nullable=False),
    Column("changed_at", InstantColumn, nullable=False),
    Column("changed_by", Text, nullable=False),
    Column("act", ACT, nullable=False),
    CheckConstraint("status IN ('ACTIVE', 'INACTIVE', 'PURGING', 'PURGED')", name="status"),
)

HOLDS = Table(
    "holds",
    METADATA,
    Column("id", Key, primary_key=True, autoincrement=False),
    Column("name", Name, nullable=False),
    Column("content", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("until", InstantColumn),
    Column("placed_at", InstantColumn, nullable=False),
    Column("placed_by", Text, nullable=False),
    Column("released_at", InstantColumn),
    Column("released_by", Text),
    Column("release_reason", Text),
    Column("act", ACT, nullable=False),
)
# A released hold frees its name.
HELD = "released_at IS NULL"
Index("uq_holds_name", HOLDS.c.name, unique=True, sqlite_where=text(HELD), postgresql_where=text(HELD))

# Holds of policy files as they came and went. Files in place hold by themselves; tasks on machines without the files use
# these rows.
FILE_HOLDS = Table(
    "file_holds",
    METADATA,
    Column("digest", Text, primary_key=True),
    Column("name", Name, nullable=False),
    Column("content", Text, nullable=False),
    Column("came_at", InstantColumn, nullable=False),
    Column("gone_at", InstantColumn),
    Column("act", ACT, nullable=False),
)

# Place of a store's data from a mark on: the newest row is where it may be marked and swept.
PLACES = Table(
    "places",
    METADATA,
    Column("id", Key, primary_key=True, autoincrement=False),
    Column("store", Name, nullable=False),
    Column("place", Text, nullable=False),
    # First mark id of the store at this place, up to the store's next row.
    Column("first_mark", BigInteger, nullable=False),
    Column("noted_at", InstantColumn, nullable=False),
    Column("act", ACT, nullable=False),
)

# Files in which a head of the chain was noted: a missing one stops every sweep.
NOTED_HEADS = Table(
    "noted_heads",
    METADATA,
    Column("place", Name, primary_key=True),
    Column("store", Name),
    # False: never noted, or given up by a person.
    Column("noted", Boolean, nullable=False),
    # Reason why the newest head could not be noted there.
    Column("fault", Text),
    Column("changed_at", InstantColumn, nullable=False),
    Column("act", ACT, nullable=False),
)

# Objections of checks to judged datasets. A dataset with a standing one is not swept.
OBJECTIONS = Table(
    "objections",
    METADATA,
    Column("dataset", Name, primary_key=True),
    Column("check_name", Name, primary_key=True),
    Column("sentence", Text, nullable=False),
    Column("raised_at", InstantColumn, nullable=False),
    Column("raised_by", Text, nullable=False),
    Column("withdrawn_at", InstantColumn),
    Column("withdrawn_by", Text),
    Column("act", ACT, nullable=False),
)

# Violations that stand until the check finds them mended, not until a run looks elsewhere. They decide nothing (objections
# do), so no act covers them.
VIOLATIONS = Table(
    "violations",
    METADATA,
    Column("check_name", Name, primary_key=True),
    Column("dataset", Name, primary_key=True),
    Column("what", Text, nullable=False),
    Column("times", BigInteger, nullable=False),
    Column("since", InstantColumn, nullable=False),
    Column("found_by", Text, nullable=False),
    Column("over_at", InstantColumn),
    _seal(),
)
STANDING = "over_at IS NULL"
Index(
    "ix_violations_standing",
    VIOLATIONS.c.check_name,
    VIOLATIONS.c.dataset,
    sqlite_where=text(STANDING),
    postgresql_where=text(STANDING),
)

# Last complete look of each check, not limited to one run's datasets.
WHOLE_CHECKS = Table(
    "whole_checks",
    METADATA,
    Column("check_name", Name, primary_key=True),
    Column("looked_at", InstantColumn, nullable=False),
    _seal(),
)

# Row counts of the tables that no act covers.
ROW_COUNTS = Table(
    "row_counts",
    METADATA,
    Column("name", Name, primary_key=True),
    Column("rows", BigInteger, nullable=False),
    _seal(),
)


def _counter(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=text("0"))


REPORTS = Table(
    "reports",
    METADATA,
    Column("execution_date", Date, primary_key=True),
    Column("dataset", Name, primary_key=True),
    Column("policies", Text, nullable=False),
    Column("bounds", Text, nullable=False),
    Column("terminal_only", Boolean),
    Column("archived_types", Text, nullable=False),
    Column("to_delete", BigInteger, nullable=False),
    Column("bytes_to_free", BigInteger, nullable=False),
    *(_counter(name) for name in ("deleted", "already_gone", "failed", "spared", "unmarked", "hidden", "left")),
    *(_counter(name) for name in ("bytes_freed", "bytes_hidden")),
    Column("classes", Text, nullable=False),
    Column("started_at", InstantColumn, nullable=False),
    Column("finished_at", InstantColumn),
    Column("act", ACT, nullable=False),
    # The report's set: marks with a lower id that are due by then. Null: the day has not begun.
    Column("due_by", InstantColumn),
    Column("marks_before", BigInteger),
)

# One row per day on which somebody looked, to tell a day without due marks from a day without a run.
DAYS = Table(
    "days",
    METADATA,
    Column("execution_date", Date, primary_key=True),
    # `as_of`, and the database's time of the look.
    Column("as_of", InstantColumn, nullable=False),
    Column("looked_at", InstantColumn, nullable=False),
    # At that time: the newest evaluation, the number of datasets ever judged, and the due marks.
    Column("judged_at", InstantColumn),
    Column("datasets", BigInteger, nullable=False),
    Column("due", BigInteger, nullable=False),
    Column("act", ACT, nullable=False),
)

PUBLISHED = Table(
    "published",
    METADATA,
    Column("asset", Name, primary_key=True),
    Column("dataset", Name, primary_key=True),
    Column("folder", Text, nullable=False),
    Column("run", Text, nullable=False),
    Column("published_at", InstantColumn, nullable=False),
    Column("act", ACT, nullable=False),
)

# Scans of object stores, kept for ever. Their listings stay in the warehouse only while needed.
SCANS = Table(
    "scans",
    METADATA,
    # Counted over all stores, so that people can type it.
    Column("id", Key, primary_key=True, autoincrement=False),
    Column("store", Name, nullable=False),
    Column("status", Text, nullable=False),
    Column("holder", Text, nullable=False),
    Column("started_at", InstantColumn, nullable=False),
    Column("ended_at", InstantColumn),
    Column("reason", Text),
    # JSON: sums for lists, and the full result by realm and kind, which may be long.
    Column("totals", Text),
    Column("result", Text),
    # Of a braked scan: who accepted it, and when its log was published to be judged.
    Column("accepted_at", InstantColumn),
    Column("accepted_by", Text),
    Column("accept_reason", Text),
    Column("used_at", InstantColumn),
    Column("act", ACT, nullable=False),
    CheckConstraint("status IN ('running', 'kept', 'superseded', 'braked', 'failed')", name="status"),
)
Index("ix_scans_store", SCANS.c.store, SCANS.c.id)
RUNNING = "status = 'running'"
Index("uq_scans_running", SCANS.c.store, unique=True, sqlite_where=text(RUNNING), postgresql_where=text(RUNNING))

# Newest evaluation of each dataset: the only table that forgets.
EVALUATIONS = Table(
    "looks",
    METADATA,
    Column("dataset", Name, primary_key=True),
    Column("token", Text),
    Column("rules", Text, nullable=False),
    Column("looked_at", InstantColumn, nullable=False),
    Column("next_look", InstantColumn),
    # Results: verdicts as JSON (evaluations.py), or why it was refused.
    Column("counts", Text),
    Column("fault", Text),
    _seal(),
)

# One row each: the ledger's times and next mark id, and the head of the audit.
CLOCK = Table(
    "clock",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("newest_mark_at", InstantColumn),
    Column("newest_seen_at", InstantColumn),
    Column("accepted_until", InstantColumn),
    Column("next_mark", BigInteger, nullable=False),
    # Null until something other than the next id is written.
    Column("act", ACT),
    # Simulated times, for tests and demonstrations. Null: undecided, and real once the ledger is used.
    Column("simulated", Boolean),
    CheckConstraint("id = 1", name="one_row"),
)

AUDIT = Table(
    "audit",
    METADATA,
    Column("position", Key, primary_key=True, autoincrement=False),
    Column("act", ACT, nullable=False),
    Column("at", InstantColumn, nullable=False),
    Column("actor", Text, nullable=False),
    Column("deed", Text, nullable=False),
    Column("dataset", Name),
    Column("policy", Name),
    Column("policy_version", Integer),
    Column("reason", Text),
    Column("detail", Text, nullable=False),
    Column("members", BigInteger),
    Column("digest", Text),
    Column("previous", Text, nullable=False),
    Column("hash", Text, nullable=False),
    UniqueConstraint("act"),
)
# Checks before each sweep read a few kinds of acts from a chain of any length.
Index("ix_audit_deed", AUDIT.c.deed, AUDIT.c.dataset, AUDIT.c.position)

AUDIT_HEAD = Table(
    "audit_head",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("position", BigInteger, nullable=False),
    Column("hash", Text, nullable=False),
    # Random id of the ledger: a warehouse recognises its own by it.
    Column("ledger", Text, nullable=False, server_default=text("''")),
    CheckConstraint("id = 1", name="one_row"),
)

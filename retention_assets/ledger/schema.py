"""The tables of the ledger.

Belongs here: tables, keys and the conditions that hold for every row, the same on SQLite and PostgreSQL. Whoever changes them
changes REVISION: a ledger of another revision is refused.
Does not belong here: any statement that reads or writes.

No row of the ledger is ever removed. What is over (a mark taken back, a lease given up, a hold released) says so in its row.
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

# Alone as a primary key this is SQLite's own row id, which costs no index.
Key = BigInteger().with_variant(Integer, "sqlite")
# The id of the act in the audit that wrote a row. No foreign key: the audit row is appended last, when the chain is locked.
ACT = BigInteger

# A mark that is MARKED or SWEEPING is open. Written out wherever it narrows: only so do both databases use the partial index.
OPEN = "status IN ('MARKED', 'SWEEPING')"


def _seal() -> Column[str]:
    """The seal of a row that no act is about (audit/state.py)."""
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
    # Where the data was, in the words of the store; null if it has none.
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
    # Of the transaction that was marked: one of other times under its id is another one. Both null: nobody knows.
    Column("opened_at", MicrosColumn),
    Column("closed_at", MicrosColumn),
    Column("grace", Text, nullable=False),
    Column("marked_at", InstantColumn, nullable=False),
    Column("due_at", InstantColumn, nullable=False),
    Column("act", ACT, nullable=False),
    Column("seal", Text, nullable=False),
    # Everything above is set once. What follows is where the mark is in its life.
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
# By what the transactions are told apart that had one id after the other (frames/lives.py).
TIMES = ("opened_at", "closed_at")
# At most one open mark per transaction; also the way to the open marks of a dataset.
Index("uq_marks_open", MARKS.c.dataset, MARKS.c.transaction, unique=True, sqlite_where=text(OPEN), postgresql_where=text(OPEN))
# Each life of an id is swept once, unless that only hid it, which the statement that marks holds. Apart from the open ones, so
# that marking a million keeps one index and not two.
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

# The rest, so that every mark is found by its transaction through one of the three.
OVER = "status IN ('UNMARKED', 'SPARED')"
Index("ix_marks_over", MARKS.c.dataset, MARKS.c.transaction, sqlite_where=text(OVER), postgresql_where=text(OVER))

# What is planned, and the steps below, have no foreign keys: a server would look up and lock the mark of each row of a batch,
# and the audit says of every member to which act it belongs.
PLANNED = Table(
    "planned",
    METADATA,
    Column("plan", BigInteger, primary_key=True, autoincrement=False),
    Column("mark", BigInteger, primary_key=True, autoincrement=False, index=True),
    Column("bytes", BigInteger),
    # By what the store finds the rest of a transaction again whose deletion was cut short.
    Column("note", Text),
    Column("seal", Text, nullable=False),
)

# One row per transition of a mark after it was made. A step that leaves SWEEPING carries the outcome.
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
    # Rises with every holder: a write that names an older one comes from somebody who lost the lease.
    Column("token", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
    Column("taken_at", InstantColumn, nullable=False),
    Column("beat_at", InstantColumn, nullable=False),
    Column("expires_at", InstantColumn, nullable=False),
    Column("given_up", Boolean, nullable=False),
    _seal(),
)

# The marks of a dataset that are dealt out to tasks in parts, under one lease: who may write for a part is its newest attempt.
LEASE_PARTS = Table(
    "lease_parts",
    METADATA,
    Column("dataset", Name, primary_key=True),
    Column("part", Integer, primary_key=True, autoincrement=False),
    # Of the lease under which it was begun last.
    Column("token", BigInteger, nullable=False),
    Column("attempt", BigInteger, nullable=False),
    # The newest attempt that has come to its end: nobody acts by it, or by one before it, any more.
    Column("ended", BigInteger, nullable=False),
    # Until when the newest attempt may act, as far as it knows.
    Column("expires_at", InstantColumn, nullable=False),
    _seal(),
)

# By the name under which a run holds its leases: the word to stop, and how far each of its tasks is. They decide nothing.
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

# From when on the next batch of a policy may begin. It decides nothing but when, so no act is about it.
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
# A name can be used again once its hold was released.
HELD = "released_at IS NULL"
Index("uq_holds_name", HOLDS.c.name, unique=True, sqlite_where=text(HELD), postgresql_where=text(HELD))

# Holds of policy files, as the record has seen them come and go. Where the files are they hold by standing there; a task on
# another machine, which has no files, goes by these.
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

# Where the data of a store is, from a mark on: the newest row of a store is where it may be marked and swept.
PLACES = Table(
    "places",
    METADATA,
    Column("id", Key, primary_key=True, autoincrement=False),
    Column("store", Name, nullable=False),
    Column("place", Text, nullable=False),
    # Marks of the store with this id or a later one were made here, up to the store's next row.
    Column("first_mark", BigInteger, nullable=False),
    Column("noted_at", InstantColumn, nullable=False),
    Column("act", ACT, nullable=False),
)

# Every file in which a head of the chain was noted: one that is missing stops every sweep.
NOTED_HEADS = Table(
    "noted_heads",
    METADATA,
    Column("place", Name, primary_key=True),
    # Null: in a warehouse.
    Column("store", Name),
    # False: never, or a person gave it up.
    Column("noted", Boolean, nullable=False),
    # Why the newest head could not be noted there.
    Column("fault", Text),
    Column("changed_at", InstantColumn, nullable=False),
    Column("act", ACT, nullable=False),
)

# What checks of judged datasets found wrong. A dataset with an objection that was not taken back is not swept.
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

# What asset checks found wrong and nobody has found mended since: a run that looks at other datasets does not end it. It
# decides nothing (objections do), so no act is about it.
VIOLATIONS = Table(
    "violations",
    METADATA,
    Column("check_name", Name, primary_key=True),
    # A dataset or a store, as the check has it; empty where it is about none.
    Column("dataset", Name, primary_key=True),
    Column("what", Text, nullable=False),
    Column("times", BigInteger, nullable=False),
    Column("since", InstantColumn, nullable=False),
    Column("found_by", Text, nullable=False),
    # Null while it stands.
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

# When a check last looked at all that there is, and not only at what one run was about.
WHOLE_CHECKS = Table(
    "whole_checks",
    METADATA,
    Column("check_name", Name, primary_key=True),
    Column("looked_at", InstantColumn, nullable=False),
    _seal(),
)

# How many rows there are of each table that no act is about.
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
    # The set of the report: marks that were made before and are due by then. Null: the day has not begun.
    Column("due_by", InstantColumn),
    Column("marks_before", BigInteger),
)

# One row per day on which somebody looked, so that a day without anything due is not a day on which nobody came.
DAYS = Table(
    "days",
    METADATA,
    Column("execution_date", Date, primary_key=True),
    # As of when, and when that was by the database's clock.
    Column("as_of", InstantColumn, nullable=False),
    Column("looked_at", InstantColumn, nullable=False),
    # What was known then: how many datasets were ever judged, as of when the last one was, and the marks that were due.
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

# One row per scan of a store of objects, for ever. What it listed stays in the warehouse only as long as it is needed.
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
    # Why it failed, was braked or superseded.
    Column("reason", Text),
    # What it counted, as JSON: sums, which lists show, and everything by realm and kind, which may be long.
    Column("totals", Text),
    Column("result", Text),
    # Of a braked one: who lets it mark, and when its log was published to be judged.
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

# What was true of a dataset when it was last judged: the newest evaluation alone, so this one table forgets.
EVALUATIONS = Table(
    "looks",
    METADATA,
    Column("dataset", Name, primary_key=True),
    Column("token", Text),
    Column("rules", Text, nullable=False),
    Column("looked_at", InstantColumn, nullable=False),
    Column("next_look", InstantColumn),
    # What was found, for those who ask how things stand: verdicts as JSON (evaluations.py), or why it was refused.
    Column("counts", Text),
    Column("fault", Text),
    _seal(),
)

# One row each: what the ledger knows of time, the next id of a mark, and where the chain of the audit ends.
CLOCK = Table(
    "clock",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("newest_mark_at", InstantColumn),
    Column("newest_seen_at", InstantColumn),
    Column("accepted_until", InstantColumn),
    Column("next_mark", BigInteger, nullable=False),
    # Null until somebody writes anything but the next id.
    Column("act", ACT),
    # Whether its times are made up, for tests and demonstrations. Null: nobody has said so, and it is real once it is used.
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
# What is asked before each sweep is about a few kinds of acts, in a chain of any length.
Index("ix_audit_deed", AUDIT.c.deed, AUDIT.c.dataset, AUDIT.c.position)

AUDIT_HEAD = Table(
    "audit_head",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("position", BigInteger, nullable=False),
    Column("hash", Text, nullable=False),
    # Which ledger this is, by chance and for ever: a warehouse knows its own by it.
    Column("ledger", Text, nullable=False, server_default=text("''")),
    CheckConstraint("id = 1", name="one_row"),
)

"""The record: policies, marks and their steps, plans, leases, outcomes, visibility, realms, holds, reports, versions, audit."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# The types as they were when this was written: a later release may have others.
INSTANT = sa.BigInteger().with_variant(sa.TIMESTAMP(timezone=True), "postgresql")
KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
NAME = sa.Text(collation="C").with_variant(sa.Text(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("position", KEY, autoincrement=False, nullable=False),
        sa.Column("act", sa.BigInteger, nullable=False),
        sa.Column("at", INSTANT, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("deed", sa.Text, nullable=False),
        sa.Column("dataset", NAME),
        sa.Column("policy", NAME),
        sa.Column("policy_version", sa.Integer),
        sa.Column("reason", sa.Text),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("members", sa.BigInteger),
        sa.Column("digest", sa.Text),
        sa.Column("previous", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("position", name="pk_audit"),
        sa.UniqueConstraint("act", name="uq_audit_act"),
    )
    op.create_table(
        "audit_head",
        sa.Column("id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.CheckConstraint("id = 1", name="ck_audit_head_one_row"),
        sa.PrimaryKeyConstraint("id", name="pk_audit_head"),
    )
    op.create_table(
        "clock",
        sa.Column("id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("newest_mark_at", INSTANT),
        sa.Column("newest_seen_at", INSTANT),
        sa.Column("accepted_until", INSTANT),
        sa.Column("next_mark", sa.BigInteger, nullable=False),
        sa.CheckConstraint("id = 1", name="ck_clock_one_row"),
        sa.PrimaryKeyConstraint("id", name="pk_clock"),
    )
    op.create_table(
        "holds",
        sa.Column("id", KEY, autoincrement=False, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("until", INSTANT),
        sa.Column("placed_at", INSTANT, nullable=False),
        sa.Column("placed_by", sa.Text, nullable=False),
        sa.Column("released_at", INSTANT),
        sa.Column("released_by", sa.Text),
        sa.Column("release_reason", sa.Text),
        sa.Column("act", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_holds"),
    )
    op.create_index(
        "uq_holds_name",
        "holds",
        ["name"],
        unique=True,
        sqlite_where=sa.text("released_at IS NULL"),
        postgresql_where=sa.text("released_at IS NULL"),
    )
    op.create_table(
        "leases",
        sa.Column("dataset", NAME, nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("taken_at", INSTANT, nullable=False),
        sa.Column("beat_at", INSTANT, nullable=False),
        sa.Column("expires_at", INSTANT, nullable=False),
        sa.Column("given_up", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("dataset", name="pk_leases"),
    )
    op.create_table(
        "marks",
        sa.Column("id", KEY, autoincrement=False, nullable=False),
        sa.Column("dataset", NAME, nullable=False),
        sa.Column("transaction", NAME, nullable=False),
        sa.Column("policy", NAME, nullable=False),
        sa.Column("policy_version", sa.Integer, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("bytes", sa.BigInteger),
        sa.Column("grace", sa.Text, nullable=False),
        sa.Column("marked_at", INSTANT, nullable=False),
        sa.Column("due_at", INSTANT, nullable=False),
        sa.Column("act", sa.BigInteger, nullable=False),
        sa.Column("seal", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, server_default=sa.text("0"), nullable=False),
        sa.Column("last_error", sa.Text),
        sa.Column("why", sa.Text),
        sa.Column("changed_at", INSTANT),
        sa.Column("changed_by", sa.Text),
        sa.Column("changed_act", sa.BigInteger),
        sa.CheckConstraint("status IN ('MARKED', 'UNMARKED', 'SPARED', 'SWEEPING', 'SWEPT')", name="ck_marks_status"),
        sa.CheckConstraint("due_at >= marked_at", name="ck_marks_grace"),
        sa.PrimaryKeyConstraint("id", name="pk_marks"),
    )
    op.create_index(
        "ix_marks_over",
        "marks",
        ["dataset", "transaction"],
        unique=False,
        sqlite_where=sa.text("status IN ('UNMARKED', 'SPARED')"),
        postgresql_where=sa.text("status IN ('UNMARKED', 'SPARED')"),
    )
    op.create_index(
        "uq_marks_open",
        "marks",
        ["dataset", "transaction"],
        unique=True,
        sqlite_where=sa.text("status IN ('MARKED', 'SWEEPING')"),
        postgresql_where=sa.text("status IN ('MARKED', 'SWEEPING')"),
    )
    op.create_index(
        "uq_marks_swept",
        "marks",
        ["dataset", "transaction"],
        unique=True,
        sqlite_where=sa.text("status = 'SWEPT'"),
        postgresql_where=sa.text("status = 'SWEPT'"),
    )
    op.create_table(
        "plans",
        sa.Column("id", KEY, autoincrement=False, nullable=False),
        sa.Column("dataset", NAME, nullable=False),
        sa.Column("token", sa.BigInteger, nullable=False),
        sa.Column("as_of", INSTANT, nullable=False),
        sa.Column("marks", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("planned_at", INSTANT, nullable=False),
        sa.Column("finished_at", INSTANT),
        sa.Column("act", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_plans"),
    )
    op.create_index("ix_plans_dataset", "plans", ["dataset"], unique=False)
    op.create_table(
        "policy_versions",
        sa.Column("name", NAME, nullable=False),
        sa.Column("version", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("written_by", sa.Text, nullable=False),
        sa.Column("written_at", INSTANT, nullable=False),
        sa.Column("system", sa.Boolean, nullable=False),
        sa.Column("revoked", sa.Boolean, nullable=False),
        sa.Column("act", sa.BigInteger, nullable=False),
        sa.CheckConstraint("version >= 1", name="ck_policy_versions_version"),
        sa.PrimaryKeyConstraint("name", "version", name="pk_policy_versions"),
    )
    op.create_table(
        "published",
        sa.Column("asset", NAME, nullable=False),
        sa.Column("dataset", NAME, nullable=False),
        sa.Column("folder", sa.Text, nullable=False),
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("published_at", INSTANT, nullable=False),
        sa.Column("act", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("asset", "dataset", name="pk_published"),
    )
    op.create_table(
        "realms",
        sa.Column("name", NAME, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("grace", sa.Text, nullable=False),
        sa.Column("changed_at", INSTANT, nullable=False),
        sa.Column("changed_by", sa.Text, nullable=False),
        sa.Column("act", sa.BigInteger, nullable=False),
        sa.CheckConstraint("status IN ('ACTIVE', 'INACTIVE', 'PURGING', 'PURGED')", name="ck_realms_status"),
        sa.PrimaryKeyConstraint("name", name="pk_realms"),
    )
    op.create_table(
        "reports",
        sa.Column("execution_date", sa.Date, nullable=False),
        sa.Column("dataset", NAME, nullable=False),
        sa.Column("policies", sa.Text, nullable=False),
        sa.Column("bounds", sa.Text, nullable=False),
        sa.Column("terminal_only", sa.Boolean),
        sa.Column("archived_types", sa.Text, nullable=False),
        sa.Column("to_delete", sa.BigInteger, nullable=False),
        sa.Column("bytes_to_free", sa.BigInteger, nullable=False),
        sa.Column("deleted", sa.BigInteger, server_default=sa.text("0"), nullable=False),
        sa.Column("already_gone", sa.BigInteger, server_default=sa.text("0"), nullable=False),
        sa.Column("failed", sa.BigInteger, server_default=sa.text("0"), nullable=False),
        sa.Column("spared", sa.BigInteger, server_default=sa.text("0"), nullable=False),
        sa.Column("unmarked", sa.BigInteger, server_default=sa.text("0"), nullable=False),
        sa.Column("bytes_freed", sa.BigInteger, server_default=sa.text("0"), nullable=False),
        sa.Column("classes", sa.Text, nullable=False),
        sa.Column("started_at", INSTANT, nullable=False),
        sa.Column("finished_at", INSTANT),
        sa.Column("act", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("execution_date", "dataset", name="pk_reports"),
    )
    op.create_table(
        "visibility",
        sa.Column("dataset", NAME, nullable=False),
        sa.Column("visible_from", INSTANT, nullable=False),
        sa.Column("raised_at", INSTANT, nullable=False),
        sa.Column("raised_by", sa.Text, nullable=False),
        sa.Column("act", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("dataset", name="pk_visibility"),
    )
    op.create_table(
        "planned",
        sa.Column("plan", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("mark", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("bytes", sa.BigInteger),
        sa.ForeignKeyConstraint(["mark"], ["marks.id"], name="fk_planned_mark"),
        sa.ForeignKeyConstraint(["plan"], ["plans.id"], name="fk_planned_plan"),
        sa.PrimaryKeyConstraint("plan", "mark", name="pk_planned"),
    )
    op.create_table(
        "steps",
        sa.Column("act", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("mark", sa.BigInteger, autoincrement=False, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text),
        sa.Column("bytes", sa.BigInteger),
        sa.Column("why", sa.Text),
        sa.Column("seal", sa.Text, nullable=False),
        sa.CheckConstraint("outcome IN ('DELETED', 'ALREADY_GONE', 'FAILED')", name="ck_steps_outcome"),
        sa.CheckConstraint("status IN ('MARKED', 'UNMARKED', 'SPARED', 'SWEEPING', 'SWEPT')", name="ck_steps_status"),
        sa.ForeignKeyConstraint(["mark"], ["marks.id"], name="fk_steps_mark"),
        sa.PrimaryKeyConstraint("act", "mark", name="pk_steps"),
    )
    op.create_index("ix_steps_mark", "steps", ["mark"], unique=False)
    clock = sa.table("clock", sa.column("id"), sa.column("next_mark"))
    op.bulk_insert(clock, [{"id": 1, "next_mark": 1}])
    head = sa.table("audit_head", sa.column("id"), sa.column("position"), sa.column("hash"))
    op.bulk_insert(head, [{"id": 1, "position": 0, "hash": "0" * 64}])

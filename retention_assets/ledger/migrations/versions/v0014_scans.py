"""Scans of stores of objects: what each counted, how it ended, and who let a braked one mark."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

NAME = sa.Text(collation="C").with_variant(sa.Text(), "sqlite")
INSTANT = sa.BigInteger().with_variant(sa.TIMESTAMP(timezone=True), "postgresql")
KEY = sa.BigInteger().with_variant(sa.Integer, "sqlite")
RUNNING = sa.text("status = 'running'")


def upgrade() -> None:
    op.create_table(
        "scans",
        sa.Column("id", KEY, autoincrement=False, nullable=False),
        sa.Column("store", NAME, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("started_at", INSTANT, nullable=False),
        sa.Column("ended_at", INSTANT),
        sa.Column("reason", sa.Text),
        sa.Column("totals", sa.Text),
        sa.Column("result", sa.Text),
        sa.Column("accepted_at", INSTANT),
        sa.Column("accepted_by", sa.Text),
        sa.Column("accept_reason", sa.Text),
        sa.Column("used_at", INSTANT),
        sa.Column("act", sa.BigInteger, nullable=False),
        sa.CheckConstraint("status IN ('running', 'kept', 'superseded', 'braked', 'failed')", name="ck_scans_status"),
        sa.PrimaryKeyConstraint("id", name="pk_scans"),
    )
    op.create_index("ix_scans_store", "scans", ["store", "id"])
    op.create_index("uq_scans_running", "scans", ["store"], unique=True, sqlite_where=RUNNING, postgresql_where=RUNNING)

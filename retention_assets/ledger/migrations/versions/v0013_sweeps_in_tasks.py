"""Sweeps in many tasks: the word to stop, and how far each task is."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

NAME = sa.Text(collation="C").with_variant(sa.Text(), "sqlite")
INSTANT = sa.BigInteger().with_variant(sa.TIMESTAMP(timezone=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "stops",
        sa.Column("run", NAME, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("asked_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("run", name="pk_stops"),
    )
    op.create_table(
        "task_progress",
        sa.Column("run", NAME, nullable=False),
        sa.Column("task", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("progress", sa.Text, nullable=False),
        sa.Column("told_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("run", "task", name="pk_task_progress"),
    )

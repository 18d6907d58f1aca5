"""Seals of the rows that no act is about, and how many of them there are, as they are found."""

import sqlalchemy as sa
from alembic import op

from retention_assets.ledger.audit.state import seal_state

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

NAME = sa.Text(collation="C").with_variant(sa.Text(), "sqlite")
TABLES = ("leases", "lease_parts", "stops", "task_progress", "paces", "violations", "whole_checks", "looks")


def upgrade() -> None:
    for table in TABLES:
        op.add_column(table, sa.Column("seal", sa.Text))
    op.create_table(
        "row_counts",
        sa.Column("name", NAME, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("seal", sa.Text),
        sa.PrimaryKeyConstraint("name", name="pk_row_counts"),
    )
    seal_state(op.get_bind())

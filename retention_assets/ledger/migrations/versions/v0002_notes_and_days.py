"""Notes of stores in plans, so that a killed sweep finds again what it began; and the set of marks that a report is about."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

INSTANT = sa.BigInteger().with_variant(sa.TIMESTAMP(timezone=True), "postgresql")


def upgrade() -> None:
    op.add_column("planned", sa.Column("note", sa.Text))
    op.add_column("reports", sa.Column("due_by", INSTANT))
    op.add_column("reports", sa.Column("marks_before", sa.BigInteger))
    # Reports of before counted everything of their day; as a set that is what was due when they opened.
    op.execute("UPDATE reports SET due_by = started_at, marks_before = (SELECT next_mark FROM clock)")

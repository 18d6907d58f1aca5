"""Days on which somebody looked, whether anything was due or not; and what was found when a dataset was last judged."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

INSTANT = sa.BigInteger().with_variant(sa.TIMESTAMP(timezone=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "days",
        sa.Column("execution_date", sa.Date, nullable=False),
        sa.Column("as_of", INSTANT, nullable=False),
        sa.Column("looked_at", INSTANT, nullable=False),
        sa.Column("judged_at", INSTANT),
        sa.Column("datasets", sa.BigInteger, nullable=False),
        sa.Column("due", sa.BigInteger, nullable=False),
        sa.Column("act", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("execution_date", name="pk_days"),
    )
    for name in ("counts", "fault"):
        op.add_column("looks", sa.Column(name, sa.Text))

"""What was true of a dataset when it was last judged."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

NAME = sa.Text(collation="C").with_variant(sa.Text(), "sqlite")
INSTANT = sa.BigInteger().with_variant(sa.TIMESTAMP(timezone=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "looks",
        sa.Column("dataset", NAME, nullable=False),
        sa.Column("token", sa.Text),
        sa.Column("rules", sa.Text, nullable=False),
        sa.Column("looked_at", INSTANT, nullable=False),
        sa.Column("next_look", INSTANT),
        sa.PrimaryKeyConstraint("dataset", name="pk_looks"),
    )

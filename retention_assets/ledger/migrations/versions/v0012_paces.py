"""From when on the next batch of a policy may begin, whoever sweeps it."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

NAME = sa.Text(collation="C").with_variant(sa.Text(), "sqlite")
INSTANT = sa.BigInteger().with_variant(sa.TIMESTAMP(timezone=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "paces",
        sa.Column("policy", NAME, nullable=False),
        sa.Column("next_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("policy", name="pk_paces"),
    )

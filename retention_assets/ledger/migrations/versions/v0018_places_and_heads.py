"""Where each store has its data, by the marks from which on that is so; and every place in which a head was noted."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

NAME = sa.Text(collation="C").with_variant(sa.Text(), "sqlite")
INSTANT = sa.BigInteger().with_variant(sa.TIMESTAMP(timezone=True), "postgresql")
KEY = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "places",
        sa.Column("id", KEY, autoincrement=False, nullable=False),
        sa.Column("store", NAME, nullable=False),
        sa.Column("place", sa.Text, nullable=False),
        sa.Column("first_mark", sa.BigInteger, nullable=False),
        sa.Column("noted_at", INSTANT, nullable=False),
        sa.Column("act", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_places"),
    )
    op.create_table(
        "noted_heads",
        sa.Column("place", NAME, nullable=False),
        sa.Column("store", NAME),
        sa.Column("noted", sa.Boolean, nullable=False),
        sa.Column("fault", sa.Text),
        sa.Column("changed_at", INSTANT, nullable=False),
        sa.Column("act", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("place", name="pk_noted_heads"),
    )

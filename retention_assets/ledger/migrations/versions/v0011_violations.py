"""What checks found wrong, until it is mended; and when each last looked at everything."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

NAME = sa.Text(collation="C").with_variant(sa.Text(), "sqlite")
INSTANT = sa.BigInteger().with_variant(sa.TIMESTAMP(timezone=True), "postgresql")
STANDING = sa.text("over_at IS NULL")


def upgrade() -> None:
    op.create_table(
        "violations",
        sa.Column("check_name", NAME, nullable=False),
        sa.Column("dataset", NAME, nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("times", sa.BigInteger, nullable=False),
        sa.Column("since", INSTANT, nullable=False),
        sa.Column("found_by", sa.Text, nullable=False),
        sa.Column("over_at", INSTANT),
        sa.PrimaryKeyConstraint("check_name", "dataset", name="pk_violations"),
    )
    op.create_index(
        "ix_violations_standing",
        "violations",
        ["check_name", "dataset"],
        sqlite_where=STANDING,
        postgresql_where=STANDING,
    )
    op.create_table(
        "whole_checks",
        sa.Column("check_name", NAME, nullable=False),
        sa.Column("looked_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("check_name", name="pk_whole_checks"),
    )

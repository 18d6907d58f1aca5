"""How many files of what was swept stay where they are, in the report of the day."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("reports", sa.Column("left", sa.BigInteger, server_default=sa.text("0"), nullable=False))

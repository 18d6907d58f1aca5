"""What a bucket that keeps versions only hides: an outcome, counters of its own, and transactions that are swept once more."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

OUTCOMES = "outcome IN ('DELETED', 'ALREADY_GONE', 'HIDDEN', 'FAILED')"


def upgrade() -> None:
    for name in ("hidden", "bytes_hidden"):
        op.add_column("reports", sa.Column(name, sa.BigInteger, server_default=sa.text("0"), nullable=False))
    # SQLite makes the table anew, with what it finds there.
    with op.batch_alter_table("steps") as steps:
        steps.drop_constraint("ck_steps_outcome", type_="check")
        steps.create_check_constraint("ck_steps_outcome", OUTCOMES)

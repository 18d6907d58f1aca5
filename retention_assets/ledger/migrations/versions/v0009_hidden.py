"""What a bucket that keeps versions only hides: an outcome, counters of its own, and transactions that are swept once more."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0004"
branch_labels = None
depends_on = None

OUTCOMES = "outcome IN ('DELETED', 'ALREADY_GONE', 'HIDDEN', 'FAILED')"
SWEPT = sa.text("status = 'SWEPT'")


def upgrade() -> None:
    for name in ("hidden", "bytes_hidden"):
        op.add_column("reports", sa.Column(name, sa.BigInteger, server_default=sa.text("0"), nullable=False))
    # SQLite makes the table anew, with what it finds there.
    with op.batch_alter_table("steps") as steps:
        steps.drop_constraint("ck_steps_outcome", type_="check")
        steps.create_check_constraint("ck_steps_outcome", OUTCOMES)
    # What was hidden and is deleted later is swept twice. That nothing else is, is held by the statement that marks.
    op.drop_index("uq_marks_swept", "marks")
    op.create_index(
        "ix_marks_swept", "marks", ["dataset", "transaction"], unique=False, sqlite_where=SWEPT, postgresql_where=SWEPT
    )

"""What a bucket that keeps versions only hides: an outcome, counters of its own, and transactions that are swept once more."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0003"
branch_labels = None
depends_on = None

OUTCOMES = "outcome IN ('DELETED', 'ALREADY_GONE', 'HIDDEN', 'FAILED')"
STATUSES = "status IN ('MARKED', 'UNMARKED', 'SPARED', 'SWEEPING', 'SWEPT')"
SWEPT = sa.text("status = 'SWEPT'")


def upgrade() -> None:
    for name in ("hidden", "bytes_hidden"):
        op.add_column("reports", sa.Column(name, sa.BigInteger, server_default=sa.text("0"), nullable=False))
    # SQLite makes the table anew, from what it knows of it: conditions are not among that.
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    conditions = (sa.CheckConstraint(STATUSES, name="ck_steps_status"), sa.CheckConstraint(OUTCOMES, name="ck_steps_outcome"))
    anew = {"recreate": "always", "table_args": conditions} if is_sqlite else {}
    with op.batch_alter_table("steps", **anew) as steps:
        if not is_sqlite:
            steps.drop_constraint("ck_steps_outcome", type_="check")
            steps.create_check_constraint("ck_steps_outcome", OUTCOMES)
    # What was hidden and is deleted later is swept twice. That nothing else is, is held by the statement that marks.
    op.drop_index("uq_marks_swept", "marks")
    op.create_index(
        "ix_marks_swept", "marks", ["dataset", "transaction"], unique=False, sqlite_where=SWEPT, postgresql_where=SWEPT
    )

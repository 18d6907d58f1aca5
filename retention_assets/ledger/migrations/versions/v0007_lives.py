"""What was marked: when it was opened and closed. An id that comes again with other times is another transaction."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

SWEPT = sa.text("status = 'SWEPT'")


def upgrade() -> None:
    # Marks of before know neither: they count as marks of whatever the log has under their id.
    op.add_column("marks", sa.Column("opened_at", sa.BigInteger))
    op.add_column("marks", sa.Column("closed_at", sa.BigInteger))
    # Each life of an id is swept once, and once more if that only hid it: the statement that marks holds it.
    op.drop_index("uq_marks_swept", "marks")
    op.create_index(
        "ix_marks_swept",
        "marks",
        ["dataset", "transaction", "opened_at", "closed_at"],
        unique=False,
        sqlite_where=SWEPT,
        postgresql_where=SWEPT,
    )

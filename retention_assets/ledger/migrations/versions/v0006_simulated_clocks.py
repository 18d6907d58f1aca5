"""Whether the times of a ledger are made up. Those of every ledger of before are real."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("clock", sa.Column("simulated", sa.Boolean))
    op.execute("UPDATE clock SET simulated = false WHERE EXISTS (SELECT 1 FROM audit)")

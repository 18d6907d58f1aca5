"""Whether the times of a ledger are made up. Those of a ledger in which something is recorded, and nothing of this, are real.

So nothing is written here: the row of the clock is sealed as it is.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("clock", sa.Column("simulated", sa.Boolean))

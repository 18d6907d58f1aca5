"""Where the data of a plan was, so that no other place is taken for it when the sweep is resumed."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("plans", sa.Column("place", sa.Text))

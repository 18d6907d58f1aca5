"""Planned marks are found by their mark: whoever asked for the notes of some marks read all plans that there ever were."""

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_planned_mark", "planned", ["mark"])

"""Steps and planned marks without foreign keys: on a server each row of a batch cost a look-up, and a lock of its mark.

The audit says what the keys said, and more: a step or a planned mark is a member of an act, each mark is a member of another,
and one that is missing or added is a fault that a verification names.
"""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

KEYS = {"steps": ("fk_steps_mark",), "planned": ("fk_planned_mark", "fk_planned_plan")}


def upgrade() -> None:
    for table, keys in KEYS.items():
        # SQLite makes the table anew, with what it finds there.
        with op.batch_alter_table(table) as members:
            for key in keys:
                members.drop_constraint(key, type_="foreignkey")

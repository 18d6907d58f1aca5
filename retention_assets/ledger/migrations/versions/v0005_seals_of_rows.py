"""Seals of every row that decides something; which ledger this is; holds of files and objections of checks in the record.

What older releases left has no seal: it is sealed as it is found, in one act that says so.
"""

import secrets

import sqlalchemy as sa
from alembic import op

from retention_assets.ledger.audit.seal_existing import seal_existing

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

NAME = sa.Text(collation="C").with_variant(sa.Text(), "sqlite")
INSTANT = sa.BigInteger().with_variant(sa.TIMESTAMP(timezone=True), "postgresql")


def upgrade() -> None:
    op.add_column("planned", sa.Column("seal", sa.Text))
    op.add_column("clock", sa.Column("act", sa.BigInteger))
    op.add_column("audit_head", sa.Column("ledger", sa.Text, nullable=False, server_default=sa.text("''")))
    op.create_table(
        "file_holds",
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("came_at", INSTANT, nullable=False),
        sa.Column("gone_at", INSTANT),
        sa.Column("act", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_file_holds"),
    )
    op.create_table(
        "objections",
        sa.Column("dataset", NAME, nullable=False),
        sa.Column("check_name", NAME, nullable=False),
        sa.Column("sentence", sa.Text, nullable=False),
        sa.Column("raised_at", INSTANT, nullable=False),
        sa.Column("raised_by", sa.Text, nullable=False),
        sa.Column("withdrawn_at", INSTANT),
        sa.Column("withdrawn_by", sa.Text),
        sa.Column("act", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("dataset", "check_name", name="pk_objections"),
    )
    op.create_index("ix_audit_deed", "audit", ["deed", "dataset", "position"], unique=False)
    head = sa.table("audit_head", sa.column("ledger"))
    op.get_bind().execute(sa.update(head).values(ledger=secrets.token_hex(16)))
    seal_existing(op.get_bind())

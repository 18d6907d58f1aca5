"""What Alembic runs around the migrations: on the connection that it is given, in the transaction that is open there.

Belongs here: handing that connection over. A migration is never written to a file as SQL, and none opens a connection.
"""

from alembic import context

from retention_assets.ledger.schema import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    # SQLite changes a table by making it anew.
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()

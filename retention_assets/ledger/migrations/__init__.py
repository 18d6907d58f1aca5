"""Migrations: how a ledger of an older release becomes one of this release.

Belongs here: applying the migrations in `versions/`, once, however many open the ledger at the same moment. A released
migration is never changed, and none leads back.
Does not belong here: the tables as they are now (schema.py).
"""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from retention_assets.errors import Refused

FOLDER = Path(__file__).parent
# Any number that no other program is likely to lock in the same PostgreSQL database.
_LOCK = 7_268_359_114


def migrate(connection: Connection, folder: Path = FOLDER) -> None:
    """Bring a ledger up to date, in the transaction of the connection; refuse one that is ahead of this code."""
    if connection.dialect.name == "postgresql":
        # SQLite needs no lock of its own: the transaction began with the right to write.
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    config = Config()
    # A percent sign in a path would otherwise begin an interpolation.
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    found = set(MigrationContext.configure(connection).get_current_heads())
    if strange := sorted(found - known):
        raise Refused(
            f"The ledger has schema {', '.join(strange)}, and this release knows schemas up to {max(known)}: a newer release"
            " has opened it. Install that release (pip install --upgrade retention-assets); nothing was changed."
        )
    command.upgrade(config, "head")

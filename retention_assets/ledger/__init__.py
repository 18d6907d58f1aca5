"""The ledger: the record of every decision, on SQLite or PostgreSQL.

Belongs here: what is marked and what became of it, plans, leases, reports, and the audit of all that, never removed and never
changed past the audit.
Does not belong here: deciding what may go (frames), deleting it (stores), and Dagster.
"""

from retention_assets.ledger.ledger import Ledger, ledger_is_there, ledger_time, open_ledger

__all__ = ["Ledger", "ledger_is_there", "ledger_time", "open_ledger"]

"""The ledger: the record of every decision, on SQLite or PostgreSQL. Rows are never removed or changed outside the audit."""

from retention_assets.ledger.ledger import Ledger, ledger_is_there, ledger_time, open_ledger

__all__ = ["Ledger", "ledger_is_there", "ledger_time", "open_ledger"]

"""The tests of the ledger: one contract, run on SQLite and on a real PostgreSQL."""

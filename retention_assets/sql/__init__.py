"""Databases, the ledger's and other people's: engines, transactions, errors, streams and upserts, alike on every kind."""

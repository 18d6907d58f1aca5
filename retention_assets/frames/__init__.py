"""Frames: pure functions from columns to columns and from tables to tables, in Arrow and NumPy.

No file is read or written here, no clock is looked at, and nothing knows Dagster, the ledger or a store.
"""

"""Pure functions from columns to columns and from tables to tables, in Arrow and NumPy.

Nothing here does I/O, reads a clock, or knows Dagster, the ledger or a store.
"""

"""The policy language: rules for what may go, written by people.

Pure Python: nothing here knows Dagster, Spark, the ledger or a store, and nothing here reads a clock.
"""

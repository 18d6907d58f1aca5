"""The policy language: what may go, in words that a person writes and a machine obeys.

Pure Python: nothing here knows Dagster, Spark, the ledger or a store, and nothing here reads a clock.
"""

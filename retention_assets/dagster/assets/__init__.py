"""Dagster's view of the work: one module per asset. No rule of retention is decided here."""

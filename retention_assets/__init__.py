"""Retention for versioned data: mark, wait, re-check, sweep, report, as Dagster assets on Spark."""

__version__ = "0.1.0"

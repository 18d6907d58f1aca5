"""Schedules, sensors and alerts, which Dagster's daemon runs."""

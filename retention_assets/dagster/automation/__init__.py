"""Schedules and sensors, which Dagster's daemon runs."""

"""Dagster's definitions: assets, checks, jobs, sensors, schedules, and the step that they share."""

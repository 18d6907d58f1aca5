"""Everything that Dagster sees: assets, checks, jobs, sensors, schedules, and the step that they share."""

"""The asset checks: their queries, and their form in Dagster."""

"""The asset checks: their queries, their standing results, and their form in Dagster."""

"""The asset checks: what each asks, what stands of the answers, and how Dagster is told."""

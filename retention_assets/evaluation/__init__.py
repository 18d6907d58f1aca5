"""Judging without Dagster: which rules are in force, what changed since the last evaluation, previews and explanations."""

"""Tests of what Dagster sees and runs: definitions, checks, jobs, runs and what they show."""

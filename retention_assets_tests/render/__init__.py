"""Tests of what people are shown, per medium: terminal, page, plots and Dagster."""

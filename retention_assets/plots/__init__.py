"""Plots: pictures of the numbers that matter over time, as SVG that needs nothing else, for Dagster and for the report."""

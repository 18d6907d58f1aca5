"""Rendering of results: one module per medium (terminal, Dagster's pages, HTML), and the plots that two of them share."""

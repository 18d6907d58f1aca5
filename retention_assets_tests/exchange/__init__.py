"""Tests of the exchange format: JSON lines and Parquet, in files and folders."""

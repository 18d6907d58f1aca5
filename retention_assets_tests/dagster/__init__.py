"""Tests of `retention_assets/dagster`."""

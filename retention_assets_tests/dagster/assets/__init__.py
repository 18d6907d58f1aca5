"""Tests of `retention_assets/dagster/assets`."""

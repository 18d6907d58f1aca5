"""Tests of `retention_assets/stores/iceberg`."""

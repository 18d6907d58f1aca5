"""Tests of `retention_assets/stores/records`."""

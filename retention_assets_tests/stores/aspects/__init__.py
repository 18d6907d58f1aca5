"""Tests of `retention_assets/stores/aspects`."""

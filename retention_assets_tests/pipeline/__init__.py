"""Tests of `retention_assets/pipeline`."""

"""Tests of `retention_assets/evaluation`."""

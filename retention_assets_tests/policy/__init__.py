"""Tests of `retention_assets/policy`."""

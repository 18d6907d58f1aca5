"""Tests of `retention_assets/settings`."""

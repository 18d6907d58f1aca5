"""Tests of `retention_assets/render`."""

"""Tests of `retention_assets/exchange`."""

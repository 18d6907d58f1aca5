"""Tests of `retention_assets/ledger/marks`."""

"""Tests of `retention_assets/ledger/audit`."""

"""Tests of `retention_assets/sql`."""

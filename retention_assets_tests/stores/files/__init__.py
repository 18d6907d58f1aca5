"""Tests of `retention_assets/stores/files`."""

"""Tests of `retention_assets/frames/views`."""

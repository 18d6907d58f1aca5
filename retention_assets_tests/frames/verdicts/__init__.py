"""Tests of `retention_assets/frames/verdicts`."""

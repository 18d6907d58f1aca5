"""Tests of settings: what `retention.yaml` means, its environment variables and URLs, and its mistakes."""

"""Tests of verdicts: each selector and condition on small histories, and when a verdict changes by time alone."""

"""Tests of stages: reading logs in shares, and the same verdicts whatever the parts."""

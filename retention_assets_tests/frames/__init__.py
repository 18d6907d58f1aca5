"""Tests of the kernel over whole logs: against the oracle, by laws, which logs are trusted, and sums."""

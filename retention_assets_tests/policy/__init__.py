"""Tests of policies as text and as values: files, durations, globs, sentences, the policy book and DataHub's format."""

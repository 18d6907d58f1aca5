"""Tests of the demonstration: a newcomer's first run."""

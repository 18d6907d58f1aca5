"""Tests of the look of a sweep: what it finds, what it leaves, and what it costs the sources."""

"""Tests of places: one contract for every kind, and what only one kind has."""

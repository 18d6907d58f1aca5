"""Tests of marks: made, taken back, due, and their history."""

"""Tests of the Iceberg store: the contract, what a table still needs, other writers, and damaged metadata."""

"""Tests of the records store: the contract, tables and keys of all kinds, and the whole cycle over units of work."""

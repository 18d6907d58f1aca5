"""Databases, the ledger's and those of stores: connecting, reading, writing and retrying."""

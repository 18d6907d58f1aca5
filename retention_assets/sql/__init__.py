"""Databases, the ledger's and other people's: how they are connected to, read, written and tried again."""

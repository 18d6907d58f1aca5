"""Tests of the audit: whatever somebody writes past the ledger is named."""

"""Sweeps as the ledger knows them: leases, plans and outcomes, reports, and what was put off."""

"""Sweeps in the ledger: leases, plans, outcomes, reports and postponements."""

"""The sweep of a share: some datasets of one store, under their leases, in one transaction of the ledger for each step."""

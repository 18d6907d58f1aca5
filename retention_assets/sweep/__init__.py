"""The sweep: from marks that are due to bytes that are gone, and a record of every step between.

Belongs here: the order of a sweep (design section 7): lease, what an earlier sweep left, a fresh look at the store, the plan,
batches with their outcomes, the pace, stopping. All of it works on any ledger and any store.
Does not belong here: deleting (stores), what the ledger writes (ledger), who is protected (frames), and Dagster.
"""

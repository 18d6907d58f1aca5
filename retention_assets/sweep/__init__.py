"""The sweep: deletes what due marks select and records every step, with any ledger and any store (design section 7)."""

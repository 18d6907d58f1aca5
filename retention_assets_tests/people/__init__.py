"""The commands over the ledger, as people and scripts meet them: through the console script, on a real ledger.

What a mark, a hold or a realm is belongs to the tests of the ledger; here is what is on stdout and stderr, and the exit code.
"""

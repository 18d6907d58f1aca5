"""The tests of the ledger: one contract, run on SQLite and on a real PostgreSQL.

Belongs here: what the record promises, under races, under SIGKILL and after somebody wrote past it.
"""

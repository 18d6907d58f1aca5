"""The `records` store: units of work in a database, a root row each with rows in other tables."""

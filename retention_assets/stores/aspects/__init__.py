"""The `aspects` store: the table in which DataHub keeps the versions of its metadata aspects."""

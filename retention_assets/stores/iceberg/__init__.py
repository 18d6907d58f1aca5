"""The `iceberg` store: tables of a PyIceberg catalog; each snapshot is a transaction."""

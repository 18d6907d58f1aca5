"""How Spark places the work: reading logs, one pass over clustered Parquet, and the folders of the warehouse."""

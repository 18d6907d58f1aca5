"""Places work with Spark: reading logs, one pass over clustered Parquet, and the folders of the warehouse."""

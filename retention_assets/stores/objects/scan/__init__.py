"""A scan: lists objects, reads references and assigns each object a class. Its steps are numbered tasks, which Spark
(pipeline/scan_stage.py) or this process runs."""

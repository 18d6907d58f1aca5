"""A scan: what is listed, what refers to it, and so which class each object is in.

Belongs here: fingerprints, membership, edges, classes, brakes, and the steps of a scan as numbered tasks.
Does not belong here: who runs these tasks; Spark does (pipeline/scan_stage.py), or this process.
"""

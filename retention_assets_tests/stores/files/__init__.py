"""Tests of the files store: the contract on a local folder and on S3, paths and ownership, tombstones, and deleting."""

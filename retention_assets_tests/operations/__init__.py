"""Tests of operations, each through both of its entries: the command and the Dagster job."""

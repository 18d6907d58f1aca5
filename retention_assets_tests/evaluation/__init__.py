"""Tests of judging without Dagster: the rules of a run, and the published cases as `retention preview` answers them."""

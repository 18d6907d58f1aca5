"""Tests of reading a `where` line: what is accepted and what it becomes, and what is refused and how.

Does not belong here: what a condition says about rows (frames/verdicts/test_where_condition.py).
"""

"""Tests of reading a `where` line: what is accepted and what it becomes, and what is refused and how."""

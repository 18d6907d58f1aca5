"""Marks: creating them, their states, taking them back, and their history."""

"""Marks: making them, their transitions, taking them back, and what is known of each."""

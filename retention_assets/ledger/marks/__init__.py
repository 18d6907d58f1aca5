"""Marks: making them, every step of their life, taking them back, and what is known of each."""

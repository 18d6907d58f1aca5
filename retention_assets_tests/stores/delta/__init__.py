"""Tests of the Delta store, and writers and readers of Delta tables that share no code with it."""

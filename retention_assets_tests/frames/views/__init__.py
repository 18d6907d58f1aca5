"""Tests of the views that a branch has, and of what protects them."""

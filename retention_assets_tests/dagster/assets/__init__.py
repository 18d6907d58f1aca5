"""Tests of single assets without the runs around them."""

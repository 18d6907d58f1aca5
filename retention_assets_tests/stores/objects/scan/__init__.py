"""Tests of scans: what is listed and named, and so which class each object is in."""

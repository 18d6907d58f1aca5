"""Tests of the objects store: listings, references, scans, brakes and conditional deletion."""

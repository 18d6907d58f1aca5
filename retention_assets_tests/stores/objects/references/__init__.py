"""Tests of sources of references and edges: of every kind, what they say, and how they prove it."""

"""Tests of sources of references and edges: of every kind, what they say, how they prove it, and who is a witness."""

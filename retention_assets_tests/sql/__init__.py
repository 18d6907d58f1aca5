"""Tests of the layer over every database: what is tried again, what is reflected, and how rows are streamed."""

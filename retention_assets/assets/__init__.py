"""Dagster's view of the work: one thin file per asset, named as its frame. No rule of retention is decided here."""

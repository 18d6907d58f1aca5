"""Tests of the sweep: the engine on real stores and real ledgers, with bytes that are counted afterwards."""

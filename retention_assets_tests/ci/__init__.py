"""Tests of the scripts in `.ci`, on a machine that has nothing but what a test puts on it."""

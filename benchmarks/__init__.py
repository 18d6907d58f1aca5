"""Benchmarks: how fast the project is, beside others who do the same job on the same machine in the same minutes.

Belongs here: environments made from a seed, contenders, measuring, and the table that comes of it. A speed is no promise of the
code, so nothing here asserts one; what is asserted, before any time counts, is that both sides give the same answer.
Does not belong here: anything that the package or its tests import.
"""

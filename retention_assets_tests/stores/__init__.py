"""Tests of the stores: one contract for all of them, and what each promises beyond it.

Belongs here: the contract, the environments that it runs in, and one module of tests per kind of store.
"""

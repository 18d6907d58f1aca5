"""The tests: one module per module of the package, and what they share.

Belongs here: drawings of histories, the laws and their oracle, a contract per protocol, the rules of the house, benchmarks.
Does not belong here: anything the package imports. What needs a running Spark carries the marker `spark`; nothing else may
need Java, a network or a clock, so that `make check` stays a matter of seconds.
"""

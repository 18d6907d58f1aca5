"""The tests: a folder per folder of the package, and what they share.

Belongs here: histories as drawings, random policies, the oracle, a contract per protocol, and the rules of the tree itself.
Does not belong here: anything the package imports. What needs a running Spark carries the marker `spark`; nothing else may
need Java, a network or a clock, so that `make check` stays a matter of seconds.
"""

"""Stores read histories from the outside world and, alone in this package, delete from it.

One folder for each kind: settings.py has its keys, store.py derives from the base (protocol.py), log.py makes the lines of a
log, and only delete*.py delete. A store deletes the ids of a plan; it never decides what may go.
"""

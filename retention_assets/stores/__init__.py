"""Stores: what reads histories from the world and, alone in this package, deletes from it.

Belongs here: one folder per kind of store, the protocol that they share, and the registry that says which kinds there are. In a
folder, settings.py has the keys of the kind, store.py answers the protocol, log.py makes the lines of a log, and delete*.py are
the only modules that delete.
Does not belong here: any decision. A store gets ids from a plan and deletes them; it never decides what may go.
"""

"""The edge: what reads histories from the world and, alone in this package, deletes from it.

Belongs here: one module per kind of store, the protocol that they share, and the registry that says which kinds there are.
Does not belong here: any decision. A store is told ids by a plan and carries them out; it never asks itself what may go.
"""

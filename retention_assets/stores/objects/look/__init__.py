"""The look of a sweep: who refers now to any of the objects that are due, found once for all of them.

Belongs here: fingerprints of what is due, every source read once past them, edges, and the exact answers afterwards. What is
due may be millions of keys, and references billions: each step is numbered tasks, which leave what they find in a folder.
Does not belong here: what a sweep makes of the answers (../second_look.py), and the scan that finds what may become due.

A fingerprint is of a key alone, for the ledger does not know realms. It only says what has to be written down: what counts is
compared by whole keys and realms when an object is asked about. So two keys of one fingerprint cost a row, and change nothing.
"""

"""The look of a sweep: finds, once for all due objects, who refers to them now.

Due keys may be millions and references billions: so each step consists of numbered tasks that leave their results in a folder.
A fingerprint covers the key alone, as the ledger does not know realms, and only selects what is written down. Answers compare
whole keys and realms, so a collision of fingerprints costs a row and changes nothing.
"""

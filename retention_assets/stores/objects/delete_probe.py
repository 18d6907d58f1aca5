"""Removing the file by whose time a disk tells its clock.

Belongs here: the one function that removes such a file, and the form of its name, by which listings leave it out.
Does not belong here: making it (listings/local.py), and anything about objects.
"""

import os
import re
from contextlib import suppress

PROBE = re.compile(r"\.retention-clock-[0-9a-f]{32}")


def remove_probe(name: str, folder: int) -> None:
    """Remove a probe from the folder of a descriptor, if it is there. Raises ValueError for any other name."""
    if not PROBE.fullmatch(name):
        raise ValueError(name)
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)

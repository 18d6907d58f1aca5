"""Removes the probe file by which the clock of a disk is read, and defines its name so that listings skip it."""

import os
import re
from contextlib import suppress

PROBE = re.compile(r"\.retention-clock-[0-9a-f]{32}")


def remove_probe(name: str, folder: int) -> None:
    """Remove a probe from the folder of a descriptor, if it exists. Raises ValueError for any other name."""
    if not PROBE.fullmatch(name):
        raise ValueError(name)
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)

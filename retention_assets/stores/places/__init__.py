"""Places of files: folders of disks, prefixes of buckets, and whatever else fsspec opens."""

import re

# the file that identifies a root; it is no data
IDENTITY = ".retention-store"
_OWN = re.compile(rf"{re.escape(IDENTITY)}|\.{re.escape(IDENTITY)}\.[0-9a-f]{{16}}")


def is_own_file(name: str) -> bool:
    """Tell whether a name is that of the root's identity file or of an unfinished one."""
    return _OWN.fullmatch(name) is not None


def is_on_s3(place: str) -> bool:
    """Also true of servers that are compatible with S3."""
    return place.lower().startswith(("s3:", "s3a:"))

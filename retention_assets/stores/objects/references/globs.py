"""Files by a glob, as they were when they were read and as they are in the end.

Belongs here: which files must still be read before a source is whole.
Does not belong here: finding files and their versions (../../files/listing.py), and what is in them.
"""

from collections.abc import Iterable, Sequence

from retention_assets.errors import BadInput, Refused
from retention_assets.settings.urls import mask_secrets
from retention_assets.stores.files.listing import LogFile, files_matching
from retention_assets.stores.objects.references.source import SourceNotWhole


def whole_files(label: str, glob: str) -> Sequence[LogFile]:
    """The files as they are now. Raises SourceNotWhole where there is none, or they can't be listed."""
    try:
        found = files_matching(glob)
    except (BadInput, Refused) as fault:
        raise SourceNotWhole(f"{label} can't be read: {fault}") from fault
    # File systems of others raise what they like; all of it means that nobody knows which files there are.
    except Exception as fault:
        raise SourceNotWhole(f"{label} can't be listed: {type(fault).__name__}: {mask_secrets(str(fault))}") from fault
    if not found:
        raise SourceNotWhole(f"No file matches {mask_secrets(glob)}. Write a glob of files, such as refs/*, or look for them.")
    return found


def has_changed(label: str, glob: str, file: LogFile) -> bool:
    """Whether a file is not any more what it was when it was listed, so that a fault in it may be that of a writer at work."""
    return file not in whole_files(label, glob)


def unread_files(label: str, glob: str, seen: Iterable[LogFile], whole: Iterable[LogFile]) -> Sequence[LogFile]:
    """The files that were not read to their end as they are now. Raises SourceNotWhole for one that was seen and is gone."""
    found = whole_files(label, glob)
    gone = sorted({file.shown for file in seen} - {file.shown for file in found})
    if gone:
        raise SourceNotWhole(f"{label} is not whole: {gone[0]} was there and is gone. Scan when the files are all there.")
    read = set(whole)
    return [file for file in found if file not in read]

"""Files matching a glob, and which of them must be read again before a source is whole."""

from collections.abc import Iterable, Sequence

from retention_assets.errors import BadInput, Refused
from retention_assets.settings.urls import mask_secrets
from retention_assets.stores.files.listing import LogFile, files_matching
from retention_assets.stores.objects.references.source import SourceNotWhole


def whole_files(label: str, glob: str) -> Sequence[LogFile]:
    """Files as they are now. Raises SourceNotWhole if there are none, or if they cannot be listed."""
    try:
        found = files_matching(glob)
    except (BadInput, Refused) as fault:
        raise SourceNotWhole(f"{label} can't be read: {fault}") from fault
    # File systems raise their drivers' exceptions: any of them means that the files are unknown.
    except Exception as fault:
        raise SourceNotWhole(f"{label} can't be listed: {type(fault).__name__}: {mask_secrets(str(fault))}") from fault
    if not found:
        raise SourceNotWhole(f"No file matches {mask_secrets(glob)}. Write a glob of files, such as refs/*, or look for them.")
    return found


def has_changed(label: str, glob: str, file: LogFile) -> bool:
    """Tell whether a file changed since it was listed: then a fault in it may be due to a concurrent writer."""
    return file not in whole_files(label, glob)


def unread_files(label: str, glob: str, seen: Iterable[LogFile], whole: Iterable[LogFile]) -> Sequence[LogFile]:
    """Files not completely read in their present version. Raises SourceNotWhole if a file that was seen is gone."""
    found = whole_files(label, glob)
    gone = sorted({file.shown for file in seen} - {file.shown for file in found})
    if gone:
        raise SourceNotWhole(f"{label} is not whole: {gone[0]} was there and is gone. Scan when the files are all there.")
    read = set(whole)
    return [file for file in found if file not in read]

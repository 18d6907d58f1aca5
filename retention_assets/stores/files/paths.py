"""Turns names of transactions into folders below the root of a `files` store.

Names come from a log that anybody may have written: a name that is not plainly one folder is refused, never repaired. What the
file system has there (symlinks, files) is checked during removal.
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from retention_assets.errors import Refused, quote
from retention_assets.stores.files.settings import FilesSettings
from retention_assets.stores.places import IDENTITY, Folder

TRANSACTION = "{transaction}"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")
_GLOB = re.compile(r"[*?\[\]]")


def fold_case(name: str) -> str:
    """Fold names that some disks (macOS, Windows, SMB) treat as equal."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


@dataclass(frozen=True)
class FolderLayout:
    """The template `data` of a store: its root, and the segments below it."""

    store: str
    root: str
    segments: Folder

    @classmethod
    def of(cls, settings: FilesSettings) -> Self:
        """Split at the first segment with a placeholder; what stands before it is shared by all transactions."""
        segments = settings.data.rstrip("/").split("/")
        first = next(place for place, segment in enumerate(segments) if "{" in segment)
        return cls(settings.name, "/".join(segments[:first]), tuple(segments[first:]))

    def folder(self, dataset: str, transaction: str) -> Folder:
        """Return the segments of a transaction's folder below the root. Raises Refused for an unsafe name."""
        name = self._name(dataset)
        _check("transaction", transaction, transaction)
        if "/" in transaction:
            raise Refused(f"The transaction {quote(transaction)} holds a /, so its folder would be another's. {_REMEDY}")
        found = tuple("/".join(self.segments).format(dataset=name, transaction=transaction).split("/"))
        if found[0] == IDENTITY:
            raise Refused(f"The folder {quote('/'.join(found))} has the name of the file by which the root is known. {_REMEDY}")
        if not {"", ".", ".."}.isdisjoint(found):
            raise Refused(f"The folder {quote('/'.join(found))} does not lie plainly below the root. {_REMEDY}")
        return found

    def parent(self, dataset: str) -> Folder:
        """Return the segments of the folder above a dataset's transactions; empty where that is the root."""
        folder = self.folder(dataset, "transaction")
        own = next(place for place, segment in enumerate(self.segments) if TRANSACTION in segment)
        # a dataset's name may have several segments
        return folder[: len(folder) - (len(self.segments) - own)]

    def pattern(self, dataset: str) -> Folder:
        """Return the folded segments of all folders of a dataset, with a placeholder for the transaction."""
        name = dataset.partition("/")[2]
        return tuple(fold_case("/".join(self.segments).replace("{dataset}", name)).split("/"))

    def owner_of_shared(self, folder: Folder, other: str, name_of: Callable[[str, str], str | None]) -> str | None:
        """Return a dataset or transaction whose folder may contain, lie in or equal this one, or None.

        `name_of` maps a folded id to a transaction of the other dataset, never to the one asked about.
        """
        inside = None
        for segment, pattern in zip(map(fold_case, folder), self.pattern(other), strict=False):
            before, placeholder, after = pattern.partition(TRANSACTION)
            if placeholder and len(segment) > len(before + after) and segment.startswith(before) and segment.endswith(after):
                inside = segment[len(before) : len(segment) - len(after)]
            elif segment != pattern:
                return None
        if inside is None:
            return f"the dataset {other}"
        name = name_of(other, inside)
        return None if name is None else f"the transaction {quote(name)} of {other}"

    def fault_of(self, dataset: str) -> str | None:
        """Say why a dataset can have no folder, so that nothing of it could ever be deleted; None if it can."""
        try:
            self._name(dataset)
        except Refused as fault:
            return str(fault)
        return None

    def _name(self, dataset: str) -> str:
        store, _, name = dataset.partition("/")
        if store != self.store:
            raise Refused(f"The dataset {quote(dataset)} is not of the store {self.store}.")
        _check("dataset", dataset, *name.split("/"))
        return name


_REMEDY = "Mend the log, or remove its data by hand."


def _check(what: str, name: str, *segments: str) -> None:
    fault = None
    if not all(segments):
        fault = "has an empty name" if segments == ("",) else "holds an empty segment"
    elif "." in segments or ".." in segments:
        fault = "holds . or .. as a segment"
    elif "\\" in name:
        fault = "holds a backslash"
    elif _CONTROL.search(name):
        fault = "holds a control character"
    elif found := _GLOB.search(name):
        fault = f"holds {found[0]}, which file systems take for a pattern"
    if fault:
        raise Refused(f"The {what} {quote(name)} {fault}. {_REMEDY}")

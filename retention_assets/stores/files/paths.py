"""Where the folder of a transaction is, and every reason for which a name may not become one.

Belongs here: names to folders below the root of a `files` store, before anything is touched. A name comes from a log, which
anybody may have written: what is not plainly the name of one folder is refused, never repaired.
Does not belong here: what the file system says about the folder (symlinks, files in its place); removal does that as it goes.
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from retention_assets.errors import Refused, quote
from retention_assets.stores.files.settings import FilesSettings

Folder = tuple[str, ...]

TRANSACTION = "{transaction}"
# The file in a root that says which root it is. It is no data.
IDENTITY = ".retention-store"
_OWN = re.compile(rf"{re.escape(IDENTITY)}|\.{re.escape(IDENTITY)}\.[0-9a-f]{{16}}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")
_GLOB = re.compile(r"[*?\[\]]")


def is_own_file(name: str) -> bool:
    """Whether a name in a root is that of its file, also of one that was being written when its program was killed."""
    return _OWN.fullmatch(name) is not None


def fold_case(name: str) -> str:
    """The same text for names that some disks (of macOS, of Windows, behind SMB) take for one."""
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
        """Split at the first segment that holds a placeholder: what stands before it is the same for all transactions."""
        segments = settings.data.rstrip("/").split("/")
        first = next(place for place, segment in enumerate(segments) if "{" in segment)
        return cls(settings.name, "/".join(segments[:first]), tuple(segments[first:]))

    def folder(self, dataset: str, transaction: str) -> Folder:
        """The segments of a transaction's folder below the root. Raises Refused for a name that can be none."""
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
        """Give the segments of the folder in which a dataset has those of its transactions; none where that is the root."""
        folder = self.folder(dataset, "transaction")
        own = next(place for place, segment in enumerate(self.segments) if TRANSACTION in segment)
        # A dataset's name may have several segments.
        return folder[: len(folder) - (len(self.segments) - own)]

    def pattern(self, dataset: str) -> Folder:
        """The segments of all folders of a dataset, folded, with the placeholder where the transaction stands."""
        name = dataset.partition("/")[2]
        return tuple(fold_case("/".join(self.segments).replace("{dataset}", name)).split("/"))

    def owner_of_shared(self, folder: Folder, other: str, name_of: Callable[[str, str], str | None]) -> str | None:
        """The dataset, or the transaction of a dataset, in, around or instead of whose folder this one may lie, or none.

        `name_of` gives the id of a transaction of that dataset, and not the one that is asked about, by its folded id.
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
        """Why a dataset can have no folder, so that nothing of it could ever be deleted; none if it can."""
        try:
            self._name(dataset)
        except Refused as fault:
            return str(fault)
        return None

    def _name(self, dataset: str) -> str:
        """The name without its store."""
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

"""Where the folder of a transaction is, and every reason for which a name may not become one.

Belongs here: names to folders below the root of a `files` store, before anything is touched. A name comes from a log, which
anybody may have written: what is not plainly the name of one folder is refused, never repaired.
Does not belong here: what the file system says about the folder (symlinks, files in its place); removal does that as it goes.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Self

from retention_assets.problems import Refused, shown
from retention_assets.stores.kinds import FilesSettings

Folder = tuple[str, ...]

_TRANSACTION = "{transaction}"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")
_GLOB = re.compile(r"[*?\[\]]")


@dataclass(frozen=True)
class Layout:
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
            raise Refused(f"The transaction {shown(transaction)} holds a /, so its folder would be another's. {_REMEDY}")
        found = tuple("/".join(self.segments).format(dataset=name, transaction=transaction).split("/"))
        if not {"", ".", ".."}.isdisjoint(found):
            raise Refused(f"The folder {shown('/'.join(found))} does not lie plainly below the root. {_REMEDY}")
        return found

    def overlapping(self, dataset: str, others: Iterable[str]) -> list[str]:
        """Of other datasets those whose folders may lie around or in folders of this one.

        Where both names have as many segments, so have all their folders, and then different ones never nest.
        """
        mine, depth = self._pattern(dataset), dataset.count("/")
        return [
            other
            for other in others
            if other.count("/") != depth and all(_may_equal(*pair) for pair in zip(mine, self._pattern(other), strict=False))
        ]

    def shared(self, folder: Folder, other: str, knows: Callable[[str, str], bool]) -> str | None:
        """The dataset or transaction of another dataset that this folder lies around or in, or none.

        `knows` says whether a dataset has a transaction of that id.
        """
        inside = None
        for segment, pattern in zip(folder, self._pattern(other), strict=False):
            before, placeholder, after = pattern.partition(_TRANSACTION)
            if placeholder and len(segment) > len(before + after) and segment.startswith(before) and segment.endswith(after):
                inside = segment[len(before) : len(segment) - len(after)]
            elif segment != pattern:
                return None
        if inside is None:
            return f"the dataset {other}"
        return f"the transaction {shown(inside)} of {other}" if knows(other, inside) else None

    def _name(self, dataset: str) -> str:
        """The name without its store."""
        store, _, name = dataset.partition("/")
        if store != self.store:
            raise Refused(f"The dataset {shown(dataset)} is not of the store {self.store}.")
        _check("dataset", dataset, *name.split("/"))
        return name

    def _pattern(self, dataset: str) -> Folder:
        name = dataset.partition("/")[2]
        return tuple("/".join(self.segments).replace("{dataset}", name).split("/"))


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
        raise Refused(f"The {what} {shown(name)} {fault}. {_REMEDY}")


def _may_equal(one: str, other: str) -> bool:
    return one == other or _TRANSACTION in one or _TRANSACTION in other

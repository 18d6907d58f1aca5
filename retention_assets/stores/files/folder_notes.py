"""Notes in a plan about the folder to delete, and the comparison with the folder as it is now."""

import json
from collections.abc import Callable, Iterable
from typing import NamedTuple, Self


class FolderChanged(Exception):
    """A folder is not what was planned; the text says how."""


class FolderNote(NamedTuple):
    """State of a folder with all that is in it. None: the file system doesn't say, or the plan is older than the field."""

    # bytes that removing it frees; a file hard-linked elsewhere frees none
    freed: int
    files: int | None = None
    size: int | None = None
    # of its files, in nanoseconds; a folder's own time changes with each removal in it
    newest: int | None = None
    # inode of the folder itself
    inode: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        values = json.loads(text)
        return cls(values) if isinstance(values, int) else cls(*values)

    @classmethod
    def of_files(cls, freed: int, files: Iterable[tuple[int, int | None]]) -> Self:
        sizes, times = zip(*files, strict=True) if (files := list(files)) else ((), ())
        return cls(freed, len(sizes), sum(sizes), None if None in times else max(times, default=0))

    @property
    def text(self) -> str:
        return f"[{', '.join('null' if value is None else str(value) for value in self)}]"

    def change(self, planned: "FolderNote", begun: bool) -> str | None:
        """Say how this differs from what was planned; None if it doesn't.

        Once a sweep has begun on a folder, less may be there, but nothing newer.
        """
        if None not in (planned.inode, self.inode) and planned.inode != self.inode:
            return "Another folder stands in its place now than when its deletion was planned."
        pairs = ((self.files, planned.files), (self.size, planned.size), (self.newest, planned.newest))
        if any(now > then if begun else now != then for now, then in pairs if now is not None and then is not None):
            return (
                f"Its files changed since its deletion was planned: {planned.files} files of {planned.size} bytes then,"
                f" {self.files} of {self.size} now."
            )
        return None


# raises FolderChanged for what may not be removed
FolderCheck = Callable[[FolderNote], None]


def accept_any(note: FolderNote) -> None:
    """Accept a folder without a plan."""

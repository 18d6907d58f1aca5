"""What a folder was when its deletion was planned, and what makes it another one.

Belongs here: the note of a plan about a folder, as text and back, and the comparison with what is there.
Does not belong here: looking at a folder (delete_local.py, delete_s3.py, delete_remote.py), and what follows (store.py).
"""

import json
from collections.abc import Callable, Iterable
from typing import NamedTuple, Self


class FolderChanged(Exception):
    """A folder is not what was planned; the text says in what."""


class FolderNote(NamedTuple):
    """A folder with all that is in it. None: its file system does not say it, or the plan is of before it was noted."""

    # The bytes that removing it frees: a file with names elsewhere frees none.
    freed: int
    files: int | None = None
    size: int | None = None
    # Of its files, in nanoseconds. A folder's own time changes with each removal in it.
    newest: int | None = None
    # Of the folder itself.
    inode: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """The note of a text."""
        values = json.loads(text)
        return cls(values) if isinstance(values, int) else cls(*values)

    @classmethod
    def of_files(cls, freed: int, files: Iterable[tuple[int, int | None]]) -> Self:
        """The note of a folder of some files, each with its bytes and its time."""
        sizes, times = zip(*files, strict=True) if (files := list(files)) else ((), ())
        return cls(freed, len(sizes), sum(sizes), None if None in times else max(times, default=0))

    @property
    def text(self) -> str:
        """The note as a plan keeps it."""
        return json.dumps(self)

    def change(self, planned: "FolderNote", begun: bool) -> str | None:
        """Why this is not what was planned, if it is not. Of a folder that a sweep has begun on less may be there, but
        nothing that is newer.
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


# Raises FolderChanged for what may not be removed.
FolderCheck = Callable[[FolderNote], None]


def accept_any(note: FolderNote) -> None:
    """Accept a folder of which no plan says anything."""

"""The protocol of places: their methods, and the values that go in and out.

Every place lists, finds and deletes single objects for stores of objects, and measures and deletes whole folders for stores
that keep a transaction in each. All of them pass one contract test.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from threading import Lock
from time import sleep
from typing import Any, NamedTuple, Protocol, Self

from retention_assets.clock import moment, now
from retention_assets.errors import Refused, quote
from retention_assets.outcomes import Order
from retention_assets.policy.durations import Duration
from retention_assets.settings.places import mask_secrets
from retention_assets.stores.protocol import Permit, SweptTarget

# segments below a root
Folder = tuple[str, ...]

SEPARATOR = "/"
# version id of objects written while versioning is suspended: each write replaces the last one
NO_VERSION = "null"
ANOTHER = "another object now"
# the file that identifies a root; it is no data
IDENTITY = ".retention-store"
# folder of a root in which the things of a plan are set aside; it is no data
TRASH = ".retention-trash"
_OWN = re.compile(rf"{re.escape(IDENTITY)}|\.{re.escape(IDENTITY)}\.[0-9a-f]{{16}}|{re.escape(TRASH)}(-[0-9a-f]{{32}})?")
# deletions per second after the first complaint if there was no limit: half of S3's rate for a prefix
_USUAL = 1750.0
# deletions per second at least; lasting failures are reported by the requests themselves
_SLOWEST = 1.0


class Entry(NamedTuple):
    """A file or an object. None: its place doesn't say."""

    # below the root, compared to the byte
    key: str
    size: int | None
    # when it was written, in nanoseconds
    time: int | None
    version: str | None = None
    generation: str | None = None
    etag: str | None = None
    # on disks only
    inode: int | None = None
    # hard links: removing one of several frees nothing
    links: int = 1


class DueObject(NamedTuple):
    """A key to delete, and the version or ETag by which a server is told which object is meant."""

    key: str
    version: str | None = None
    etag: str | None = None
    # its own folder in the trash, as plan/mark
    aside: str = ""


# says why the object that is there now stays; raises Refused for a plan that can't be read
ObjectCheck = Callable[[Entry], str | None]


class FolderChanged(Refused):
    """A folder is not what was planned; the text says how."""


class FolderNote(NamedTuple):
    """State of a folder with all that is in it. None: the file system doesn't say."""

    # bytes that removing it frees; a file hard-linked elsewhere frees none
    freed: int
    files: int
    size: int
    # when its newest file was written, in nanoseconds; a folder's own time changes with each removal in it
    newest: int | None
    # inode of the folder itself
    inode: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls(*json.loads(text))

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
            return "Another folder has taken its place since its deletion was planned."
        pairs = ((self.files, planned.files), (self.size, planned.size), (self.newest, planned.newest))
        known = [(now, then) for now, then in pairs if now is not None and then is not None]
        if any(now > then if begun else now != then for now, then in known):
            return (
                f"Its files changed since its deletion was planned: {planned.files} files of {planned.size} bytes then,"
                f" {self.files} of {self.size} now."
            )
        return None


# raises FolderChanged for what may not be removed
FolderCheck = Callable[[FolderNote], None]


class RemovedFolder(NamedTuple):
    """Bytes that a removal freed, and the bytes that stay readable as versions."""

    freed: int
    hidden: int | None = None


class DeletionPace:
    """Deletions per second, lowered when the place complains; 0 is unlimited. All threads of a store share one."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._next = 0.0
        self._lock = Lock()

    def wait(self, amount: int) -> None:
        if not self.rate:
            return
        with self._lock:
            present = moment().running
            begin = max(present, self._next)
            self._next = begin + amount / self.rate
        if begin > present:
            sleep(begin - present)

    def halve(self) -> None:
        with self._lock:
            self.rate = max(_SLOWEST, self.rate / 2 if self.rate else _USUAL)


class Place(Protocol):
    """A root and everything below it. It and its shares travel to tasks, so connections are opened where they are used."""

    def clock(self) -> datetime:
        """Time by which the place tells when something was written; this machine's if it tells none."""
        return now()

    def shares(self, wanted: int) -> Sequence[Any]:
        """Split what is below the root into about this many disjoint parts that leave nothing out, whatever comes or goes."""

    def entries(self, share: Any) -> Iterator[Entry]:
        """List a share. Raises Refused if it can't be listed completely."""

    def find(self, keys: Sequence[str]) -> Iterator[Entry]:
        """Return the entries that are there now under some keys."""

    def names_in(self, folder: Folder = ()) -> Iterator[str]:
        """Return the names in a folder; those of folders end in the separator."""

    def delete(
        self, objects: Sequence[DueObject], check: ObjectCheck, permit: Permit, pace: DeletionPace, parallelism: int
    ) -> list[SweptTarget]:
        """Delete objects, each after a look at it and only if nothing speaks against it; one outcome for each.

        Raises Refused for a root from which nobody can tell what is gone.
        """

    def may_keep(self, key: str, version: str | None) -> bool:
        """Tell whether an object that is not there may still have bytes, as a version of it."""

    def check_root(self) -> None:
        """Raises Refused for a root without data: that of an unmounted disk or a mistyped one looks so."""

    def has(self, folder: Folder) -> bool:
        """Tell whether anything is in a folder."""

    @property
    def may_hide(self) -> bool:
        """Tell whether what is deleted with its folder may stay readable as a version."""
        return False

    def measure(self, folder: Folder) -> FolderNote | None:
        """Return the state of a folder; None if it is not there."""

    def delete_tree(self, folder: Folder, permit: Permit, check: FolderCheck) -> RemovedFolder | None:
        """Delete a folder with all that is in it; None if it was not there. `check` runs before anything of it goes.

        Raises OSError, Refused, FolderChanged or Withheld when anything stays; the next call removes the rest.
        """

    # Setting aside: on disks in TRASH below the root, in a bucket with versions behind delete markers. `aside` names the folder
    # in the trash that belongs to one thing alone, as plan/mark.

    def undo_fault(self) -> str | None:
        """Say why nothing can be set aside here, and what to do; None if it can. A disk is tried once, in the root."""
        return "Such a place has no trash. Leave `undo` out for the datasets of its store."

    def lifecycle_warnings(self, undo: Duration) -> list[str]:
        """Name the rules that delete what is set aside before `undo` is over."""
        return []

    def carry_out(
        self, order: Order, due: Sequence[DueObject], check: ObjectCheck, permit: Permit, pace: DeletionPace, parallelism: int
    ) -> list[SweptTarget]:
        """Set objects aside, bring them back, or delete what is set aside; each after a look at it, as in `delete`.

        What an earlier call has done is done: SET_ASIDE, RESTORED or ALREADY_GONE. Nothing that comes back replaces anything.
        """
        raise Refused(f"{order}: {self.undo_fault()}")

    def carry_out_tree(
        self, order: Order, folder: Folder, aside: str, permit: Permit, check: FolderCheck
    ) -> RemovedFolder | None:
        """Set a folder with all that is in it aside, bring it back, or delete it from the trash. None if it was not there.

        `check` runs before anything moves. Raises what `delete_tree()` raises, and Refused for what can't come back whole.
        """
        raise Refused(f"{order}: {self.undo_fault()}")


def lost_trash(aside: str, root: str) -> str:
    """Sentence about a thing that is not in the trash, though no sweep has begun to delete it."""
    remedy = "Bring it back, or say by `retention trash forget` that it is gone."
    return f"Nothing is at {TRASH}/{aside} in {mask_secrets(root)}, and no sweep has begun to delete what was. {remedy}"


def check_origin(origin: Folder, folder: Folder) -> None:
    """Raises Refused where a folder that was set aside has another place by now."""
    if origin != folder:
        was, here = (quote(SEPARATOR.join(path), 200) for path in (origin, folder))
        raise Refused(f"It was set aside from {was}, and its place is {here} now. Name in the settings the place that it had.")


def is_own_file(name: str) -> bool:
    """Tell whether a name in a root is that of its identity file, of its trash, or of an unfinished one of these."""
    return _OWN.fullmatch(name) is not None


def is_plain_key(key: str) -> bool:
    """Tell whether a key plainly is a path below a root."""
    return "\0" not in key and {"", ".", ".."}.isdisjoint(key.split(SEPARATOR))

"""The trash of a disk.

A file or folder is renamed into a folder of its own, `<root>/.retention-trash/<plan>/<mark>`, and looked at again there: if it
was written to in between, it moves back. For a folder, `<mark>.json` beside it notes its place and content. A mark's folder has
the time of the move: what changed later does not come back. Its mtime and ctime agree until the trash is copied; then neither
times nor inodes are compared.
"""

import json
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from retention_assets.errors import Refused, Withheld, quote
from retention_assets.outcomes import Order
from retention_assets.stores.places.disk_root import DiskRoot, segments_of
from retention_assets.stores.places.moves import move_new, opener, rename_new
from retention_assets.stores.places.protocol import SEPARATOR, TRASH, Folder, FolderChanged, FolderNote, is_plain_key
from retention_assets.stores.protocol import Permit, error_text

_ASIDE = re.compile(r"[0-9]+/[0-9]+")
# nanoseconds, at most, between the times that one rename gives to a file and to its new folder
_ONE_CALL = 100_000_000
NO_UNDO = "Leave `undo` out where a file system refuses that, as overlays do and mounts within the root."
# bytes that deleting a path below the root frees, None if nothing is there; raises OSError or Refused for what may not move
Look = Callable[[Folder], int | None]


@dataclass(frozen=True)
class DiskTrash:
    """The trash below the descriptor of an open root."""

    disk: DiskRoot
    root: int

    def read_note(self, mark: Folder) -> tuple[Folder, FolderNote] | None:
        place = (*mark[:-1], f"{mark[-1]}.json")
        try:
            with self.disk.enter_parent(self.root, place) as parent, open(place[-1], "rb", opener=opener(parent)) as file:
                # a crash leaves an empty one
                if not (content := file.read()):
                    return None
            facts = json.loads(content)
            return segments_of(facts["path"]), FolderNote(**facts["note"])
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, AttributeError):
            fault = "is no note of what was set aside. Bring it back, or remove it: then its plan alone says what was there."
            raise Refused(f"{SEPARATOR.join(place)} in {self.disk.root} {fault}") from None

    def move(
        self, order: Order, path: Folder, path_aside: Folder, permit: Permit, look: Look, note: Callable[[], str] = str
    ) -> int | None:
        aside, present = self.disk.status_of(self.root, path_aside), self.disk.status_of(self.root, path)
        if aside and present and os.path.samestat(aside, present):
            # a killed restore has linked the file, and its name in the trash is left
            permit()
            with self.disk.enter_parent(self.root, path_aside) as mark:
                os.unlink(path_aside[-1], dir_fd=mark)
            aside = None
        if order is Order.RESTORE:
            if look(path_aside) is not None:
                permit()
                self.put_back(path, path_aside)
            elif look(path) is None:
                raise Refused(f"Neither {SEPARATOR.join(path_aside)} nor {SEPARATOR.join(path)} is in {self.disk.root}.")
            self.clear(path_aside[:-1])
            return 0
        if aside is None:
            if look(path) is None:
                self.clear(path_aside[:-1])
                return None
            permit()
            self.put_aside(path, path_aside, note())
        try:
            return look(path_aside)
        except (OSError, Refused):
            try:
                self.put_back(path, path_aside)
            except (OSError, Refused) as fault:
                raise Withheld(f"{SEPARATOR.join(path_aside)} changed, and can't be put back: {error_text(fault)}") from fault
            self.clear(path_aside[:-1])
            raise

    def put_aside(self, path: Folder, path_aside: Folder, note: str = "") -> None:
        name = path[-1]
        try:
            with (
                self.disk.enter_parent(self.root, path) as parent,
                self.disk.enter_path(self.root, path_aside[:-1], mode=0o700) as ((*_, plan, mark), _),
            ):
                if names := os.listdir(mark):
                    raise Refused(
                        f"{SEPARATOR.join(path_aside[:-1])} in {self.disk.root} holds {quote(names[0])}. Move it away."
                    )
                if note:
                    with open(f"{path_aside[-2]}.json", "wb", buffering=0, opener=opener(plan)) as file:
                        file.write(note.encode())
                if not rename_new(name, parent, mark):
                    # nobody else writes into the folder of a mark, which is empty
                    os.rename(name, name, src_dir_fd=parent, dst_dir_fd=mark)
        except OSError as fault:
            self.clear(path_aside[:-1])
            name = quote(SEPARATOR.join(path), 200)
            raise Refused(f"{name} can't be moved to {TRASH} in {self.disk.root}: {fault.strerror}. {NO_UNDO}") from fault

    def put_back(self, path: Folder, path_aside: Folder) -> None:
        try:
            with (
                self.disk.enter_parent(self.root, path_aside) as mark,
                self.disk.enter_parent(self.root, path, mode=0o777) as parent,
            ):
                move_new(path[-1], mark, parent)
        except FileExistsError:
            name = quote(SEPARATOR.join(path), 200)
            raise Refused(f"Something else is at {name} in {self.disk.root}. Move it away to restore.") from None

    def clear(self, folder: Folder) -> None:
        # removes a mark's folder with its note, and the folders above it, if they are empty; one that stays does no harm
        with suppress(OSError, Refused), self.disk.enter_path(self.root, folder) as ((*_, parent, here), _):
            if not os.listdir(here):
                os.unlink(f"{folder[-1]}.json", dir_fd=parent)
        for depth in range(len(folder), 0, -1):
            with suppress(OSError, Refused), self.disk.enter_parent(self.root, folder[:depth]) as parent:
                os.rmdir(folder[depth - 1], dir_fd=parent)


def trash_path(aside: str, name: str) -> Folder:
    if not (_ASIDE.fullmatch(aside) and is_plain_key(name)):
        raise Refused(f"{quote(aside)} is no folder of the trash, or {quote(name, 200)} no name in one.")
    return (TRASH, *aside.split(SEPARATOR), name)


def is_copied(mark: int) -> bool:
    status = os.fstat(mark)
    return status.st_mtime_ns != status.st_ctime_ns


def check_untouched(mark: int, changed: int, name: str) -> None:
    if not is_copied(mark) and changed > os.fstat(mark).st_mtime_ns + _ONE_CALL:
        raise FolderChanged(
            f"{quote(name, 200)} was changed after it was set aside, though not in size and time. Compare it with a backup. To "
            "restore it as it is, `touch` the folder of its mark in the trash."
        )

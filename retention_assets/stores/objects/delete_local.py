"""Deletes local objects: single files, each only if it is the planned one.

It descends from the root by directory descriptors, follows no symlink and enters no other mount, so that swapping a folder for
a symlink or mounting something in it leads nowhere. A file is compared and removed through the descriptor of its folder,
microseconds apart; disks have no conditional deletion. Folders that become empty stay: object stores have none, and a writer
may be about to use one.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from retention_assets.errors import Refused, Withheld, quote
from retention_assets.outcomes import Outcome
from retention_assets.stores.concurrency import map_concurrently
from retention_assets.stores.files.delete_local import Guarded, check_unguarded
from retention_assets.stores.objects.conditions import ObjectCondition
from retention_assets.stores.objects.notes import NO_NOTE, already_gone, planned_of, says_of_file
from retention_assets.stores.places import is_own_file
from retention_assets.stores.places.mounts import mount_of
from retention_assets.stores.places.pace import DeletionPace
from retention_assets.stores.protocol import Permit, SweptTarget, Target, error_text

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# seconds per file on a local disk; network disks take longer
_QUICK = 0.002
# files of one folder per piece of work
_PIECE = 128


def delete_files(
    root: str,
    targets: Sequence[Target],
    conditional: bool,
    parallelism: int,
    permit: Permit,
    pace: DeletionPace,
    guarded: Guarded = frozenset(),
) -> list[SweptTarget]:
    """Delete files, one outcome for each. Raises Refused if the root is missing or empty."""
    by_folder: dict[str, list[Target]] = {}
    for one in targets:
        by_folder.setdefault(one.transaction.rpartition("/")[0], []).append(one)
    pieces = [
        (folder, some[at : at + _PIECE]) for folder, some in by_folder.items() for at in range(0, len(some), _PIECE)
    ]  # fmt: skip
    with _opened_root(root) as top, ThreadPoolExecutor(max(1, parallelism)) as threads:

        def delete(piece: tuple[str, Sequence[Target]]) -> list[SweptTarget]:
            return _delete_from(top, *piece, conditional, permit, pace, guarded)

        quick = _QUICK * len(targets) / max(1, len(pieces))
        return [one for some in map_concurrently(threads, delete, pieces, quick) for one in some]


def check_root(root: str) -> None:
    """Raises Refused if the root is missing or empty, as that of an unmounted disk is."""
    with _opened_root(root):
        pass


@contextmanager
def _opened_root(root: str) -> Iterator[int]:
    try:
        top = os.open(root, _FOLDER)
    except FileNotFoundError:
        raise Refused(f"The root {root} is not there. Is a disk not mounted? Nothing is taken for gone without it.") from None
    try:
        with os.scandir(top) as entries:
            # The IDENTITY file suffices: the last objects may be gone.
            if next(entries, None) is None:
                raise Refused(f"The root {root} is empty. Is a disk not mounted? Nothing is taken for gone on it.")
        yield top
    finally:
        os.close(top)


def _delete_from(
    top: int,
    folder: str,
    targets: Sequence[Target],
    conditional: bool,
    permit: Permit,
    pace: DeletionPace,
    guarded: Guarded,
) -> list[SweptTarget]:
    try:
        with _opened(top, folder, guarded) as here:
            return [_delete_file(here, one, conditional, permit, pace, guarded) for one in targets]
    except (OSError, Refused) as fault:
        return [SweptTarget(one.transaction, Outcome.FAILED, error=error_text(fault)) for one in targets]


@contextmanager
def _opened(top: int, folder: str, guarded: Guarded) -> Iterator[int | None]:
    """Open a folder below the root; yields None if it does not exist. Raises Refused where the path leaves the root's mount."""
    here, home = os.dup(top), mount_of(top)
    try:
        for segment in folder.split("/") if folder else ():
            if segment in ("", ".", ".."):
                raise Refused(f"{quote(folder)} is no folder of objects on a disk: it has a part {quote(segment)}.")
            try:
                below = os.open(segment, _FOLDER | os.O_NOFOLLOW, dir_fd=here)
            except FileNotFoundError:
                yield None
                return
            os.close(here)
            here = below
            if mount_of(here) != home:
                raise Refused(f"Something is mounted at {quote(segment)}, so nothing there is deleted. Unmount it.")
            check_unguarded(segment, os.fstat(here), guarded)
        yield here
    finally:
        os.close(here)


def _delete_file(
    here: int | None, one: Target, conditional: bool, permit: Permit, pace: DeletionPace, guarded: Guarded
) -> SweptTarget:
    key = one.transaction
    name = key.rpartition("/")[2]
    try:
        if here is None:
            permit()
            return _gone(one)
        if name in ("", ".", "..") or is_own_file(name):
            raise Refused(f"{quote(key)} is not the name of an object on a disk.")
        pace.wait(1)
        permit()
        found = os.stat(name, dir_fd=here, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode):
            raise Refused(f"{quote(key)} is no file any more. Remove it by hand.")
        check_unguarded(name, found, guarded)
        # Fast path: most notes match the file literally; the others are compared fact by fact.
        if not (conditional and says_of_file(one.note, found)):
            planned = planned_of(one, conditional)
            why = NO_NOTE if planned is None else planned.change(_facts(found))
            if why is not None:
                return SweptTarget(key, Outcome.SPARED, error=why)
        os.unlink(name, dir_fd=here)
    except FileNotFoundError:
        return _gone(one)
    except Withheld as fault:
        return SweptTarget(key, Outcome.WITHHELD, error=str(fault))
    except (OSError, Refused) as fault:
        return SweptTarget(key, Outcome.FAILED, error=error_text(fault))
    # A file with other hard links frees nothing.
    return SweptTarget(key, Outcome.DELETED, found.st_size if found.st_nlink == 1 else 0)


def _gone(one: Target) -> SweptTarget:
    planned = planned_of(one, conditional=False) if one.begun_earlier else None
    return SweptTarget(one.transaction, Outcome.ALREADY_GONE) if planned is None else already_gone(planned)


def _facts(found: os.stat_result) -> ObjectCondition:
    return ObjectCondition(
        mtime_ns=found.st_mtime_ns, size=found.st_size, inode=found.st_ino, created_at=found.st_mtime_ns // 1_000
    )

"""Files of retention itself: the file by which a root is known, files written whole, and temporary folders.

The identity file holds a random id in its first line, and notes of the ledger behind it, replaced together. It is no data:
nobody lists or sweeps it. It is copied with a root; the number of the root's folder is not, and stays when it is renamed.

A temporary folder goes when its program ends. A program locks a file in it as long as it lives: a folder that is older than a
day and not locked was left by a killed one, and the next program removes it.
"""

import fcntl
import os
import re
import secrets
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import lru_cache

from retention_assets.clock import now
from retention_assets.errors import Refused
from retention_assets.settings.places import mask_secrets
from retention_assets.stores.places import IDENTITY, open_place
from retention_assets.stores.places.file_systems import FileSystem, is_local, is_s3, open_file_system, without_retries
from retention_assets.stores.places.local import LocalPlace
from retention_assets.stores.protocol import IN_FOLDER, KNOWN_BY, error_text, is_same_place

_ID = re.compile(rb"[0-9a-f]{32}")
_MOST_BYTES = 1 << 16
_LOCK = ".in-use"
_ABANDONED = timedelta(days=1)  # age at which an unlocked folder is removed


def place_of_root(place: str) -> str:
    """Return the place of a root, with its identity if it has one, and then with the number of a folder that keeps it."""
    fs, root = open_file_system(place)
    shown = os.path.realpath(root) if is_local(fs) else mask_secrets(place)
    if not (known := identity_of(place)):
        return shown
    number = LocalPlace(shown).number() if is_local(fs) else None
    return f"{shown}{KNOWN_BY}{known}{IN_FOLDER}{number}" if number else f"{shown}{KNOWN_BY}{known}"


def is_at(noted: str, place: str) -> bool:
    """Tell whether a root is the one at a noted place, or that one renamed: then no other has its identity where it was."""
    if not is_same_place(noted, place):
        return False
    origin, root = noted.partition(KNOWN_BY)[0], place.partition(KNOWN_BY)[0]
    with suppress(OSError):
        return origin == root or not is_same_place(noted, place_of_root(origin)) or os.path.samefile(origin, root)
    return False


def leave_identity(place: str) -> None:
    """Write an identity file unless there is one. A root without write permission is known by its name alone."""
    fs, root = open_file_system(place)
    content = f"{uuid.uuid4().hex}\n".encode()
    if is_local(fs):
        file = os.path.join(root, IDENTITY)
        with suppress(OSError):
            # A program killed while writing, or a full disk, leaves an empty file, which identifies nothing.
            if os.path.lexists(file) and not os.lstat(file).st_size:
                write_file(file, content)
            else:
                with open(file, "xb") as stream:
                    stream.write(content)
    elif identity_of(place) is None:
        # drivers that can't create a file exclusively raise errors of their own
        with suppress(Exception):
            fs.pipe_file(_file_of(root), content, mode="create")


def holds_anything(place: str) -> bool:
    """Tell whether anything is below a root: an empty one may be mistyped or an unmounted disk."""
    with suppress(Refused):
        return next(open_place(place).names_in(), None) is not None
    return False


def read_notes(place: str) -> str | None:
    """Read the notes in a root; None where it has no identity. Raises OSError where that can't be told."""
    with _as_os_errors():
        content = _content(*open_file_system(place))
    return None if content is None else content.partition(b"\n")[2].decode(errors="replace")


def write_notes(place: str, text: str) -> bool:
    """Replace the notes in a root; False where the root is still empty. Raises OSError where they can't be written."""
    with _as_os_errors():
        fs, root = open_file_system(place)
        content = _content(fs, root)
        if content is None and not holds_anything(place):
            return False
        if content is None:
            raise OSError(f"its file {IDENTITY}, which identifies it, is missing or can't be written")
        new = content.partition(b"\n")[0] + b"\n" + text.encode()
        if is_local(fs):
            write_file(_file_of(root), new)
        else:
            fs.pipe_file(_file_of(root), new)
    return True


@contextmanager
def _as_os_errors() -> Iterator[None]:
    try:
        yield
    except OSError:
        raise
    except Exception as fault:
        raise OSError(error_text(fault)) from fault  # drivers raise anything


def identity_of(place: str) -> str | None:
    """Return the identity of a root, if it has one. Raises OSError where that can't be told."""
    content = _content(*open_file_system(place))
    return None if content is None else content.partition(b"\n")[0].decode()


def _content(fs: FileSystem, root: str) -> bytes | None:
    try:
        if is_local(fs):
            with open(os.open(_file_of(root), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
                content = file.read(_MOST_BYTES)
        else:
            fs.invalidate_cache()
            content = fs.cat_file(_file_of(root))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    return content if _ID.fullmatch(content.partition(b"\n")[0].strip()) else None


def _file_of(root: str) -> str:
    return f"{root.rstrip('/')}/{IDENTITY}"


def write_file(path: str, content: bytes) -> None:
    """Write a file that is there whole or not at all, also after a crash."""
    folder, name = os.path.split(path)
    unfinished = os.path.join(folder, f".{name}.{secrets.token_hex(8)}")
    try:
        with open(unfinished, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(unfinished, path)
    except OSError:
        with suppress(FileNotFoundError):
            os.unlink(unfinished)
        raise
    parent = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


def add_file(place: str, content: bytes) -> bool:
    """Write a new file whole on a disk or S3; False where one of that name is there already, whoever writes it at this instant.

    Raises OSError where that can't be promised: on disks without hard links, and for servers that ignore the condition.
    """
    with _as_os_errors():
        fs, path = open_file_system(place)
        if is_s3(fs):
            _check_conditions(fs, path.rpartition("/")[0].rpartition("/")[0])
            return _put_new(fs, path, content)
        if not is_local(fs):
            raise OSError(f"{mask_secrets(place)} is neither on a disk nor on S3")
        unfinished = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{secrets.token_hex(8)}")
        try:
            write_file(unfinished, content)
            os.link(unfinished, path)
        except FileExistsError:
            return False
        finally:
            with suppress(FileNotFoundError):
                os.unlink(unfinished)
        return True


def _put_new(fs: FileSystem, path: str, content: bytes) -> bool:
    bucket, _, key = path.partition("/")
    try:
        without_retries(fs, os.getpid()).call_s3("put_object", Bucket=bucket, Key=key, Body=content, IfNoneMatch="*")
    except OSError:
        # the answer may have been lost: the content that is there tells
        fs.invalidate_cache()
        with suppress(FileNotFoundError):
            return bool(fs.cat_file(path) == content)
        raise
    return True


@lru_cache(maxsize=64)
def _check_conditions(fs: FileSystem, root: str) -> None:
    # a server that ignores the condition would replace what others write: it is tried on a file that is no data
    content = _content(fs, root) or f"{uuid.uuid4().hex}\n".encode()
    bucket, _, key = _file_of(root).partition("/")
    for _ in range(2):
        try:
            fs.call_s3("put_object", Bucket=bucket, Key=key, Body=content, IfNoneMatch="*")
        except OSError as fault:
            if "PreconditionFailed" in str(fault.__cause__):
                return
            raise
    raise OSError(f"the server of {bucket} replaces objects although it is told not to")


@contextmanager
def temporary_folder(kind: str) -> Iterator[str]:
    """Make a local folder, and remove abandoned ones of the same kind and user."""
    _remove_abandoned(re.compile(rf"retention-{kind}-[a-z0-9_]{{8}}"))
    with tempfile.TemporaryDirectory(prefix=f"retention-{kind}-") as folder, open(f"{folder}/{_LOCK}", "wb") as lock:
        # without file locks nobody else gets one either, and the folder stays
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder


def _remove_abandoned(form: re.Pattern[str]) -> None:
    latest = (now() - _ABANDONED).timestamp()
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            # a folder that can't be removed is left to the next program
            with suppress(OSError):
                if form.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                    _remove_unless_in_use(entry, latest)


def _remove_unless_in_use(entry: os.DirEntry[str], latest: float) -> None:
    if entry.stat(follow_symlinks=False).st_uid != os.geteuid():
        return
    with open(os.open(f"{entry.path}/{_LOCK}", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC), "r+b") as lock:
        if os.fstat(lock.fileno()).st_mtime <= latest:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if it is locked
            shutil.rmtree(entry.path)


def write_own_file(place: str, content: bytes) -> None:
    """Write a file of ours, such as a note in the trash, with the folders above it. Raises OSError."""
    with _as_os_errors():
        fs, path = open_file_system(place)
        if is_local(fs):
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            write_file(path, content)
        else:
            fs.pipe_file(path, content)


def read_own_file(place: str) -> bytes | None:
    """Read a file of ours; None if it is not there. Raises OSError."""
    with _as_os_errors():
        fs, path = open_file_system(place)
        fs.invalidate_cache()
        try:
            content: bytes = fs.cat_file(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return content


def own_files_in(place: str) -> list[str]:
    """Return the files below a folder of ours, relative to it. Raises OSError."""
    with _as_os_errors():
        fs, path = open_file_system(place)
        fs.invalidate_cache()
        return [name[len(path.rstrip("/")) + 1 :] for name in fs.find(path)]


def remove_own_file(place: str) -> None:
    """Remove a file of ours, and the folder above it if it is empty then. Raises OSError."""
    with _as_os_errors():
        fs, path = open_file_system(place)
        fs.rm_file(path)
        if is_local(fs):
            with suppress(OSError):
                os.rmdir(os.path.dirname(path))

"""The file in a root by which it is known, and what the ledger notes in it beside the data.

Belongs here: a random id in the first line, and lines of notes behind it that are replaced together with it, at once or not at
all. It is no data: nobody lists it, and nobody sweeps it.
Does not belong here: what the notes say (pipeline/head_file.py), and other signs that a root is the right one (witness.py).
"""

import os
import re
import secrets
import uuid
from contextlib import suppress

from retention_assets.settings.urls import mask_secrets
from retention_assets.stores.files.file_systems import FileSystem, is_local, is_s3, open_file_system
from retention_assets.stores.files.paths import IDENTITY
from retention_assets.stores.protocol import KNOWN_BY, error_text

_ID = re.compile(rb"[0-9a-f]{32}")
_MOST_BYTES = 1 << 16


def place_of_root(place: str) -> str:
    """Where a root is, and by what it is known, if anything."""
    fs, root = open_file_system(place)
    shown = os.path.realpath(root) if is_local(fs) else mask_secrets(place)
    known = identity_of(fs, root)
    return f"{shown}{KNOWN_BY}{known}" if known else shown


def leave_identity(place: str) -> None:
    """Leave in a root by what it is known again, unless that is there. One in which nobody may write has its name alone."""
    fs, root = open_file_system(place)
    content = f"{uuid.uuid4().hex}\n".encode()
    if is_local(fs):
        file = os.path.join(root, IDENTITY)
        with suppress(OSError):
            # A program that was killed as it made the file, or a full disk, has left an empty one, by which nothing is known.
            if os.path.lexists(file) and not os.lstat(file).st_size:
                replace_file(file, content)
            else:
                with open(file, "xb") as stream:
                    stream.write(content)
    elif identity_of(fs, root) is None:
        # What does not know how to make a file only where there is none says so with errors of its own.
        with suppress(Exception):
            fs.pipe_file(_file_of(root), content, mode="create")


def holds_anything(place: str) -> bool:
    """Whether anything is below a root: an empty one may be that of a disk that is not mounted, or mistyped."""
    fs, root = open_file_system(place)
    if is_local(fs):
        if not os.path.isdir(root):
            return False
        with os.scandir(root) as entries:
            return next(entries, None) is not None
    if is_s3(fs):
        bucket, _, prefix = root.partition("/")
        return bool(
            fs.call_s3("list_objects_v2", Bucket=bucket, Prefix=f"{prefix.rstrip('/')}/".lstrip("/"), MaxKeys=1).get("Contents")
        )
    return bool(fs.ls(root, detail=False))


def read_notes(place: str) -> str | None:
    """The notes in a root; none where it is not known by anything. Raises OSError where that can't be told."""
    try:
        content = _content(*open_file_system(place))
    except OSError:
        raise
    except Exception as fault:
        # Drivers raise what they like.
        raise OSError(error_text(fault)) from fault
    return None if content is None else content.partition(b"\n")[2].decode(errors="replace")


def write_notes(place: str, text: str) -> bool:
    """Replace the notes in a root; False where nothing is in it yet. Raises OSError where they can't be written."""
    try:
        fs, root = open_file_system(place)
        content = _content(fs, root)
        if content is None and not holds_anything(place):
            return False
        if content is None:
            raise OSError(f"there is no file {IDENTITY} by which it is known, or it can't be written")
        new = content.partition(b"\n")[0] + b"\n" + text.encode()
        if is_local(fs):
            replace_file(_file_of(root), new)
        else:
            fs.pipe_file(_file_of(root), new)
    except OSError:
        raise
    except Exception as fault:
        raise OSError(error_text(fault)) from fault
    return True


def replace_file(file: str, data: bytes) -> None:
    """Write a local file under another name first, and on the disk before it has its own."""
    folder, name = os.path.split(file)
    new = os.path.join(folder, f".{name}.{secrets.token_hex(8)}")
    with open(new, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(new, file)


def identity_of(fs: FileSystem, root: str) -> str | None:
    """By what a root is known. Raises OSError where it can't be told whether it is by anything."""
    content = _content(fs, root)
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

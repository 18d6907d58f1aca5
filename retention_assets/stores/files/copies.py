"""Checks that a copy of a remote log is complete: its size, and its hash where the store has one that can be compared."""

import base64
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from retention_assets.errors import BadInput, Problem
from retention_assets.stores.files.listing import LogFile
from retention_assets.stores.places.file_systems import FileSystem, is_s3

_MD5 = re.compile(r"[0-9a-f]{32}")
_AGAIN = "Try again; if it stays so, look at the network and at the store."


def check_copy(fs: FileSystem, file: LogFile, copy: Path) -> None:
    """Raises BadInput for a copy that is not the whole file that was listed."""
    size = copy.stat().st_size
    if size != file.size:
        raise _fault(file, f"came with {size} bytes, and was listed with {file.size}")
    expected = _md5_of(fs, file)
    if expected is not None and _digest(copy) != expected:
        raise _fault(file, "came with another content than its store says it has")


def _fault(file: LogFile, what: str) -> BadInput:
    return BadInput(Problem(what, file=file.shown, expected="the whole file", remedy=_AGAIN))


def _digest(copy: Path) -> str:
    with copy.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _md5_of(fs: FileSystem, file: LogFile) -> str | None:
    if is_s3(fs):
        return _md5_on_s3(fs, file)
    info: Mapping[str, Any] = fs.info(file.path)
    settings = info.get("content_settings") or {}
    written = info.get("md5Hash") or (settings.get("content_md5") if isinstance(settings, Mapping) else None)
    if not written:
        return None
    return (bytes(written) if isinstance(written, bytes | bytearray) else base64.b64decode(written)).hex()


def _md5_on_s3(fs: FileSystem, file: LogFile) -> str | None:
    """The ETag is the MD5 of the content except for multipart uploads and objects encrypted with a key of their own."""
    bucket, key, _ = fs.split_path(file.path)
    head = fs.call_s3("head_object", Bucket=bucket, Key=key)
    tag = str(head.get("ETag", "")).strip('"')
    own_key = head.get("SSECustomerAlgorithm") or str(head.get("ServerSideEncryption", "")).startswith("aws:kms")
    return tag if _MD5.fullmatch(tag) and not own_key else None

"""Compressed logs (gzip, bzip2, xz, Zstandard): fully unpacked and every checksum compared before a line is read.

Damaged or truncated files, trailing data and missing checksums are refused; DuckDB would not compare checksums.
"""

import bz2
import lzma
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from retention_assets.errors import BadInput, Problem

_CHUNK = 1 << 16
_ZSTD_FRAME, _ZSTD_SKIPPED = 0xFD2FB528, 0x184D2A50
_REMEDY = "Write it again, or replace it by a complete copy."


class _Damaged(Exception):
    """Fault of a compressed file, as a message."""


def is_packed(name: str) -> bool:
    return name.endswith(tuple(_UNPACK))


@contextmanager
def unpacked(file: Path) -> Iterator[Path]:
    """Yield the file, or a temporary plain copy of a compressed one. Raises BadInput if it is damaged."""
    if not is_packed(file.name):
        yield file
        return
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "plain.jsonl"
        try:
            with plain.open("wb") as target:
                _UNPACK[file.suffix](file, target)
        except (_Damaged, OSError, EOFError, zlib.error, lzma.LZMAError, ValueError) as fault:
            raise BadInput(_problem(file, fault)) from None
        yield plain


def _problem(file: Path, fault: Exception) -> Problem:
    if isinstance(fault, FileNotFoundError | PermissionError):
        return Problem(f"cannot be read: {fault}", file=str(file))
    expected = "a whole packed file with its checksums"
    return Problem(f"cannot be read, it is damaged: {fault}", file=str(file), expected=expected, remedy=_REMEDY)


def _members(begin: Callable[[], Any], file: Path, target: BinaryIO) -> None:
    with file.open("rb") as source:
        member, chunk, begun = begin(), source.read(_CHUNK), False
        while chunk:
            target.write(member.decompress(chunk))
            begun = True
            chunk = b""
            if member.eof:
                if getattr(member, "check", None) == lzma.CHECK_NONE:
                    raise _Damaged("it was written without a checksum")
                member, chunk, begun = begin(), member.unused_data, False
            chunk = chunk or source.read(_CHUNK)
        if begun:
            raise _Damaged("it ends too early")


def _unpack_zstd(file: Path, target: BinaryIO) -> None:
    with file.open("rb") as source:
        _check_zstd_frames(source)
    with pa.OSFile(str(file)) as raw, pa.CompressedInputStream(raw, "zstd") as source:
        while chunk := source.read(_CHUNK):
            target.write(chunk)


def _check_zstd_frames(source: BinaryIO) -> None:
    # Require a checksum in every frame, which writers may omit. Unpacking compares it.
    while head := source.read(4):
        magic = int.from_bytes(head, "little")
        if magic & ~0xF == _ZSTD_SKIPPED:
            _exactly(source, int.from_bytes(_exactly(source, 4), "little"))
            continue
        if magic != _ZSTD_FRAME:
            raise _Damaged("it has other data at its end, or it is not Zstandard")
        flags = _exactly(source, 1)[0]
        if not flags & 0b100:
            raise _Damaged("it was written without a checksum (zstd --check writes one)")
        single, dictionary, size = flags >> 5 & 1, flags & 0b11, flags >> 6
        _exactly(source, (not single) + (0, 1, 2, 4)[dictionary] + (single, 2, 4, 8)[size])
        last = False
        while not last:
            block = int.from_bytes(_exactly(source, 3), "little")
            last = bool(block & 1)
            # An RLE block stores its byte once.
            _exactly(source, 1 if block >> 1 & 0b11 == 1 else block >> 3)
        _exactly(source, 4)


def _exactly(source: BinaryIO, size: int) -> bytes:
    data = source.read(size)
    if len(data) < size:
        raise _Damaged("it ends too early")
    return data


# By suffix. 31: gzip header and checksum.
_UNPACK: dict[str, Callable[[Path, BinaryIO], None]] = {
    ".gz": lambda file, target: _members(lambda: zlib.decompressobj(31), file, target),
    ".bz2": lambda file, target: _members(bz2.BZ2Decompressor, file, target),
    ".xz": lambda file, target: _members(lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), file, target),
    ".zst": _unpack_zstd,
}

"""Packed logs, and damaged ones: nothing is believed otherwise than it was written, whichever byte is another one."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from retention_assets.errors import BadInput
from retention_assets.exchange import datasets_in, read_lines
from retention_assets.exchange.compression import unpacked
from retention_assets.policy import parse_instant
from retention_assets_tests.exchange.lines import LINE, SOUND, line, refusal

Pack = Callable[[bytes], bytes]


def zst(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(content)


PACKS: dict[str, Pack] = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zst}
ENDS = pytest.mark.parametrize("end", PACKS)
PINNED = f'{LINE}\n{{"dataset":"lake/d","tag":"v1","head":"T1","expires_at":null}}\n'.encode()
# A second member, as appending writes it.
FIRST = len(LINE) + 1


def content_of(file: Path) -> bytes | None:
    """What is unpacked of a file; None where it is refused."""
    try:
        with unpacked(file) as plain:
            return plain.read_bytes()
    except BadInput:
        return None


def two_members(end: str) -> bytes:
    return PACKS[end](PINNED[:FIRST]) + PACKS[end](PINNED[FIRST:])


@ENDS
def test_a_packed_log_of_several_members_is_read_whole(tmp_path: Path, end: str) -> None:
    file = tmp_path / f"log.jsonl{end}"
    file.write_bytes(two_members(end))
    found = read_lines(file)
    assert (found["transaction"].to_pylist(), found["tag"].to_pylist()) == (["T1", None], [None, "v1"])
    assert datasets_in(file) == ["lake/d"]
    # In a folder it is a log like the others.
    assert read_lines(tmp_path).equals(found)


@ENDS
@pytest.mark.parametrize("flip", [1, 16, 255])
def test_no_flipped_bit_of_a_packed_log_is_believed(tmp_path: Path, end: str, flip: int) -> None:
    file, whole = tmp_path / f"log.jsonl{end}", two_members(end)
    believed = set()
    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :])
        believed.add(content_of(file))
    # The time in the head of gzip, for one, is nobody's content.
    assert None in believed
    assert believed <= {None, PINNED}


@ENDS
def test_a_packed_log_that_is_cut_short_anywhere_is_refused(tmp_path: Path, end: str) -> None:
    file, whole = tmp_path / f"log.jsonl{end}", two_members(end)
    boundary = len(PACKS[end](PINNED[:FIRST]))
    for length in range(1, len(whole)):
        file.write_bytes(whole[:length])
        assert content_of(file) is None or length == boundary
    assert boundary < len(whole)


@ENDS
@pytest.mark.parametrize("garbage", [b"x", b"\0", b"\0" * 8, b"\n", b'{"dataset":"lake/d"}\n'])
def test_a_packed_log_with_something_behind_it_is_refused(tmp_path: Path, end: str, garbage: bytes) -> None:
    problem = refusal(tmp_path, two_members(end) + garbage, f"log.jsonl{end}")
    assert problem.what.startswith("cannot be read, it is damaged")
    assert (problem.expected, problem.remedy) == (
        "a whole packed file with its checksums",
        "Write it again, or replace it by a complete copy.",
    )


@pytest.mark.parametrize(
    ("end", "pack"),
    [
        (".zst", zstandard.ZstdCompressor(write_checksum=False).compress),
        (".zst", lambda content: pa.compress(content, codec="zstd", asbytes=True)),
        (".zst", lambda content: zst(content) + zstandard.ZstdCompressor(write_checksum=False).compress(b"\n")),
        (".xz", lambda content: lzma.compress(content, check=lzma.CHECK_NONE)),
        (".xz", lambda content: lzma.compress(content) + lzma.compress(b"\n", check=lzma.CHECK_NONE)),
    ],
)
def test_a_packed_log_without_a_checksum_is_refused(tmp_path: Path, end: str, pack: Pack) -> None:
    assert "written without a checksum" in refusal(tmp_path, pack(PINNED), f"log.jsonl{end}").what


def test_what_zstandard_skips_is_skipped_and_large_frames_are_read(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl.zst"
    # Repeated bytes, so that some block is one byte that is repeated; and more than one block.
    content = PINNED + b" " * 1_000_000 + bytes(range(32, 127)) * 5_000
    file.write_bytes(b"\x5a\x2a\x4d\x18\x03\0\0\0abc" + zst(content) + b"\x50\x2a\x4d\x18\0\0\0\0")
    assert content_of(file) == content
    file.write_bytes(file.read_bytes()[:-1])
    assert content_of(file) is None


@pytest.mark.parametrize("end", [*PACKS, ".parquet"])
def test_what_only_has_the_name_of_a_packed_log_is_refused(tmp_path: Path, end: str) -> None:
    assert refusal(tmp_path, PINNED, f"log.jsonl{end}").what


def test_an_empty_packed_log_is_empty(tmp_path: Path) -> None:
    assert refusal(tmp_path, b"", "log.jsonl.gz").what == "is empty"
    assert refusal(tmp_path, gzip.compress(b""), "log.jsonl.gz").what == "is empty"


def test_a_plain_log_is_never_unpacked_by_whoever_reads_it(tmp_path: Path) -> None:
    assert refusal(tmp_path, gzip.compress(PINNED), "log.jsonl").what == "is not text"
    assert refusal(tmp_path, gzip.compress(PINNED), "log.jsonl.GZ").what == "is not text"


def test_a_fault_in_a_packed_log_is_told_by_its_line(tmp_path: Path) -> None:
    problem = refusal(tmp_path, gzip.compress(f"{LINE}\n\n{line(byts=1)}\n".encode()), "log.jsonl.gz")
    assert (problem.line, problem.key) == (3, "byts")


def test_gzip_says_how_long_it_is(tmp_path: Path) -> None:
    """The attack: a reader that does not compare the sum at the end takes a pinned transaction for another's."""
    file, whole = tmp_path / "log.jsonl.gz", bytearray(gzip.compress(PINNED, compresslevel=0))
    place = whole.index(b'"head":"T1"') + len(b'"head":"T')
    whole[place] ^= 1
    file.write_bytes(whole)
    assert zlib.decompressobj(-15).decompress(bytes(whole[10:])) != PINNED
    with pytest.raises(BadInput, match="damaged"):
        read_lines(file)


def test_no_flipped_bit_of_a_parquet_log_with_checksums_is_believed(tmp_path: Path) -> None:
    at = parse_instant("2026-01-01T00:00:00Z")
    file = tmp_path / "log.parquet"
    row = {**SOUND, "opened_at": at, "closed_at": at, "heads": ["main"]}
    pq.write_table(pa.Table.from_pylist([row]), file, write_page_checksum=True)
    whole, sound = file.read_bytes(), read_lines(file)
    refused = 0
    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ (1, 64)[place % 2]]) + whole[place + 1 :])
        try:
            assert read_lines(file).equals(sound)
        except BadInput:
            refused += 1
    assert refused > len(whole) / 10


@pytest.mark.parametrize(("unit", "coerced"), [("s", None), ("ns", "us"), ("ns", "ms"), ("us", "ms"), ("us", None)])
def test_times_that_a_writer_kept_coarser_are_read(tmp_path: Path, unit: str, coerced: str | None) -> None:
    at = pa.array([parse_instant("2026-01-01T00:00:00Z")], pa.timestamp("us", tz="UTC")).cast(pa.timestamp(unit, tz="UTC"))
    table = pa.table({name: [SOUND[name]] for name in ("dataset", "transaction", "type", "status")})
    table = table.append_column("opened_at", at).append_column("closed_at", at)
    pq.write_table(table, tmp_path / "log.parquet", coerce_timestamps=coerced)
    assert read_lines(tmp_path / "log.parquet")["closed_at"].to_pylist() == [parse_instant("2026-01-01T00:00:00Z")]


def test_times_that_python_has_not_refuse_a_parquet_log(tmp_path: Path) -> None:
    """What was written in microseconds and is read as milliseconds is far in the future."""
    late = pa.array([1_767_225_600_000_000], pa.int64()).cast(pa.timestamp("ms", tz="UTC"))
    table = pa.table({name: [SOUND[name]] for name in ("dataset", "transaction", "type", "status")})
    pq.write_table(table.append_column("opened_at", late), tmp_path / "log.parquet")
    with pytest.raises(BadInput, match="opened_at: is out of range"):
        read_lines(tmp_path / "log.parquet")

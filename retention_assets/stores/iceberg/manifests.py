"""Reads manifest lists and manifests strictly: an incomplete file is an error, never a shorter answer.

PyIceberg's reader takes the end of a truncated file for the end of its entries. A reader of the table then sees too few rows; a
sweep would delete live data. So blocks are walked here to the last byte, and the entries of a manifest are counted against what
its list says.

A sweep asks for files several times: each time they are read, and parsed again only if their bytes differ. So nothing relies on
files staying unchanged.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from threading import Lock
from typing import Any, TypeVar

from pyiceberg.avro.decoder import StreamingBinaryDecoder, new_decoder
from pyiceberg.avro.file import META_SCHEMA, SYNC_SIZE, AvroFileHeader
from pyiceberg.avro.reader import NoneReader, OptionReader, Reader, StructReader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from retention_assets.stores.iceberg.fence import file_identity

_Value = TypeVar("_Value")

# bytes of memory that values take by the estimates of callers; and of one value at least, with its key
_MOST = 64 * 2**20
_LEAST = 1_000
_LIST = StructType(
    NestedField(500, "manifest_path", StringType(), required=True),
    NestedField(501, "manifest_length", LongType(), required=True),
    NestedField(517, "content", IntegerType(), required=False),
    NestedField(504, "added_files_count", IntegerType(), required=False),
    NestedField(505, "existing_files_count", IntegerType(), required=False),
    NestedField(506, "deleted_files_count", IntegerType(), required=False),
)
_FILE = StructType(
    NestedField(100, "file_path", StringType(), required=True),
    NestedField(104, "file_size_in_bytes", LongType(), required=True),
)
_MANIFEST = StructType(
    NestedField(0, "status", IntegerType(), required=True),
    NestedField(2, "data_file", _FILE, required=True),
)
_HEADER = construct_reader(META_SCHEMA, {-1: AvroFileHeader})
# bytes of memory per entry of a manifest or list, with its texts
_MEMORY = 700
# a disk or a network may fail briefly; a missing or broken file stays so
_TRIES = 3


class ParsedFiles:
    """LRU cache of values by kind, location and digest of the content."""

    def __init__(self, most: int = _MOST) -> None:
        self._most, self._taken = most, 0
        self._kept: OrderedDict[tuple[str, str], tuple[bytes, Any, int]] = OrderedDict()
        self._lock = Lock()

    def of(
        self, kind: str, location: str, content: bytes, parse: Callable[[], _Value], size_of: Callable[[_Value], int]
    ) -> _Value:
        """Return the parsed content, which must not be modified. Exceptions of `parse` pass through."""
        key, digest = (kind, location), blake2b(content, digest_size=32).digest()
        with self._lock:
            known = self._kept.get(key)
            if known is not None and known[0] == digest:
                self._kept.move_to_end(key)
                kept: _Value = known[1]
                return kept
        value = parse()
        self._keep(key, digest, value, _LEAST + size_of(value))
        return value

    def _keep(self, key: tuple[str, str], digest: bytes, value: Any, size: int) -> None:
        with self._lock:
            if (old := self._kept.pop(key, None)) is not None:
                self._taken -= old[2]
            # a giant value would evict all others
            if size > self._most // 4:
                return
            self._kept[key] = digest, value, size
            self._taken += size
            while self._taken > self._most:
                self._taken -= self._kept.popitem(last=False)[1][2]


# for callers that read each file once
NOTHING_KEPT = ParsedFiles(0)


class Unreadable(Exception):
    """A metadata file of the table that can't be read, and whether it is missing."""

    def __init__(self, location: str, why: str, missing: bool) -> None:
        super().__init__(f"{location} can't be read: {why}")
        self.location, self.missing = location, missing


@dataclass(frozen=True, slots=True)
class File:
    location: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Manifest(File):
    """A manifest as a manifest list names it. Counts are None where an old writer left them out."""

    identity: str
    entries: int | None
    live: int | None
    # its files hold position or equality deletes, or deletion vectors
    deletes: bool = False


@dataclass(frozen=True, slots=True)
class ManifestList(File):
    manifests: tuple[Manifest, ...]


def manifest_list(io: FileIO, location: str, known: dict[str, Manifest], parsed: ParsedFiles = NOTHING_KEPT) -> ManifestList:
    """Read the manifests of a snapshot. `known` shares one value for a manifest that many lists name."""
    data = _content(io, location)
    manifests = parsed.of("list", location, data, lambda: _manifests_in(data, location), lambda found: _MEMORY * len(found))
    return ManifestList(location, len(data), tuple(known.setdefault(one.location, one) for one in manifests))


def _manifests_in(data: bytes, location: str) -> list[Manifest]:
    manifests = []
    for path, length, content, added, existing, deleted in _records(data, _LIST, location):
        live = None if added is None or existing is None else added + existing
        entries = None if live is None or deleted is None else live + deleted
        manifests.append(Manifest(path, length, file_identity(path), entries, live, content == ManifestContent.DELETES))
    return manifests


def live_files(io: FileIO, manifest: Manifest, parsed: ParsedFiles = NOTHING_KEPT) -> Mapping[str, File]:
    """Return the live files of a manifest, by identity: data files, delete files and puffin files of deletion vectors."""
    location, data = manifest.location, _content(io, manifest.location)
    found, entries = parsed.of("manifest", location, data, lambda: _live_in(data, location), lambda one: _MEMORY * one[1])
    if manifest.entries is not None and entries != manifest.entries:
        why = f"it holds {entries} entries, but the manifest list says {manifest.entries}"
        raise Unreadable(manifest.location, why, missing=False)
    return found


def _live_in(data: bytes, location: str) -> tuple[dict[str, File], int]:
    live, entries = {}, 0
    for status, file in _records(data, _MANIFEST, location):
        entries += 1
        if status != ManifestEntryStatus.DELETED:
            live[file_identity(file[0])] = File(file[0], file[1])
    return live, entries


def _content(io: FileIO, location: str) -> bytes:
    for more_tries in reversed(range(_TRIES)):
        try:
            with io.new_input(location).open() as stream:
                return bytes(stream.read())
        except FileNotFoundError as fault:
            raise Unreadable(location, "it is not there", missing=True) from fault
        except OSError as fault:
            if not more_tries:
                raise Unreadable(location, str(fault), missing=False) from fault
        # foreign file systems raise anything; the file was not read
        except Exception as fault:
            raise Unreadable(location, f"{type(fault).__name__}: {fault}", missing=False) from fault
    raise AssertionError("the last try returns or raises")


def _records(data: bytes, wanted: StructType, location: str) -> Iterator[Any]:
    try:
        yield from _blocks(data, wanted)
    # a broken file makes a decoder raise anything: wrong magic, a broken codec, invalid text
    except Exception as fault:
        raise Unreadable(location, f"{type(fault).__name__}: {fault}", missing=False) from fault


def _blocks(data: bytes, wanted: StructType) -> Iterator[Any]:
    # this decoder checks that all requested bytes are there; the fast one reads past the end
    decoder = StreamingBinaryDecoder(data)
    header = _HEADER.read(decoder)
    codec = header.compression_codec()
    reader = _reader(header.meta["avro.schema"], wanted)
    while decoder.tell() < len(data):
        amount, content = decoder.read_int(), decoder.read_bytes()
        if decoder.read(SYNC_SIZE) != header.sync:
            raise ValueError("a block does not end with the file's marker")
        records = codec.decompress(content) if codec else content
        block = new_decoder(records)
        for _ in range(amount):
            yield reader.read(block)
        if block.tell() != len(records):
            raise ValueError("a block ends before or after its last record")


@lru_cache(maxsize=256)
def _reader(avro_schema: str, wanted: StructType) -> Reader:
    # most files of a table share one schema, and making a reader takes longer than reading a small file
    return _reader_of(AvroSchemaConversion().avro_to_iceberg(json.loads(avro_schema)).as_struct(), wanted)


def _reader_of(file: StructType, wanted: StructType) -> Reader:
    # reads the wanted fields and skips all others, whatever the writer's layout
    places = {field.field_id: (place, field.field_type) for place, field in enumerate(wanted.fields)}
    readers: list[tuple[int | None, Reader]] = []
    for field in file.fields:
        place, inner = places.get(field.field_id, (None, None))
        if isinstance(field.field_type, StructType) and isinstance(inner, StructType):
            reader = _reader_of(field.field_type, inner)
        else:
            reader = construct_reader(field.field_type)
        readers.append((place, reader if field.required else OptionReader(reader)))
    present = {field.field_id for field in file.fields}
    for place, field in enumerate(wanted.fields):
        if field.field_id in present:
            continue
        if field.required:
            raise ValueError(f"it has no field {field.name}")
        readers.append((place, NoneReader()))  # type: ignore[no-untyped-call]
    return StructReader(tuple(readers), Record, wanted)

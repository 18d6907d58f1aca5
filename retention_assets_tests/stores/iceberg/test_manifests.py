"""Manifest lists and manifests that are damaged: on the side that stays nothing is deleted, on the side that goes it is reported."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.avro.file import SYNC_SIZE, AvroOutputFile
from pyiceberg.manifest import DataFileContent, ManifestEntry, ManifestEntryStatus, write_manifest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from retention_assets.outcomes import Outcome
from retention_assets.stores.iceberg.manifests import NOTHING_KEPT, Manifest, ParsedFiles, Unreadable, live_files, manifest_list
from retention_assets.stores.iceberg.store import IcebergStore
from retention_assets_tests.stores.iceberg.sweeps import outcomes, own_metadata, snapshots, sweep
from retention_assets_tests.stores.iceberg.tables import (
    COUNTS,
    Warehouse,
    append,
    change,
    content,
    entry_of,
    head,
    live,
    replaced,
    write_counts,
    written,
)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


SPOILS: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "cut off": cut,
    "empty": lambda file: file.write_bytes(b""),
    "no Avro": lambda file: file.write_bytes(b"what is this?" * 100),
}


@pytest.mark.parametrize("what", ["list", "manifest"])
@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
def test_what_remains_and_cant_be_read_lets_nothing_be_deleted(
    warehouse: Warehouse, store: IcebergStore, spoil: Callable[[Path], object], what: str
) -> None:
    table, (one, two, three) = replaced(warehouse, 3)
    spoil(own_metadata(table, two, what))
    there = warehouse.files()
    [result] = sweep(store, one).values()
    assert result.outcome is Outcome.FAILED
    assert str(result.error).startswith("nothing was deleted, because it is unknown what other snapshots need: file:///")
    assert (warehouse.files(), snapshots(table)) == (there, [one, two, three])


@pytest.mark.parametrize("what", ["list", "manifest"])
@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
def test_what_goes_and_cant_be_read_is_reported_and_skipped(
    warehouse: Warehouse, store: IcebergStore, spoil: Callable[[Path], object], what: str
) -> None:
    table, (one, two, three) = replaced(warehouse, 3)
    unknown = live(table, table.metadata.snapshots[0])
    file = own_metadata(table, one, what)
    spoil(file)
    results = sweep(store, one, two)
    assert outcomes(results) == {one: Outcome.DELETED, two: Outcome.DELETED}
    assert f"what it names was not deleted: file://{file} can't be read" in str(results[one].error)
    assert results[two].error is None
    assert unknown <= warehouse.files().keys()
    assert content(table) == {three: [3]}


def test_a_file_that_was_cut_off_anywhere_is_never_taken_for_a_shorter_one(warehouse: Warehouse) -> None:
    table = warehouse.table()
    change(table, adding=[written(table, number) for number in range(3)])
    for what in ("list", "manifest"):
        file = own_metadata(table, snapshots(table)[0], what)
        whole = file.read_bytes()
        read = _lists if what == "list" else _entries
        assert read(table, file)
        shorter = []
        for length in _lengths(whole):
            file.write_bytes(whole[:length])
            try:
                read(table, file)
            except Unreadable:
                continue
            shorter.append(length)
        file.write_bytes(whole)
        assert shorter == [], what


def _lists(table: Table, file: Path) -> int:
    read = manifest_list(table.io, str(file), {})
    # A list that ends with its header is whole, and empty; nothing in the file says otherwise.
    return len(read.manifests) or _refused(file)


def _entries(table: Table, file: Path) -> int:
    return len(live_files(table.io, Manifest(str(file), 0, str(file), 3, 3)))


def _refused(file: Path) -> int:
    raise Unreadable(str(file), "empty", missing=False)


def test_a_block_that_holds_more_than_it_says_is_unreadable(warehouse: Warehouse) -> None:
    table = warehouse.table(**{"write.avro.compression-codec": "null"})
    append(table, 1)
    append(table, 2)
    file = own_metadata(table, head(table), "list")
    said = bytearray(file.read_bytes())
    # The marker that ends each block also ends the header; the number of records follows it, two of them written as 4.
    amount = said.index(said[-16:]) + 16
    assert said[amount] == 4
    said[amount] = 2
    file.write_bytes(said)
    with pytest.raises(Unreadable, match="a block ends before or after its last record"):
        manifest_list(table.io, str(file), {})


def test_a_manifest_with_fewer_entries_than_its_list_says_is_unreadable(warehouse: Warehouse) -> None:
    table = warehouse.table()
    append(table, 1)
    [manifest] = table.metadata.snapshots[0].manifests(table.io)
    with pytest.raises(Unreadable, match="it holds 1 entries, but the manifest list says 2"):
        live_files(table.io, Manifest(manifest.manifest_path, 0, "m", 2, 2))
    with pytest.raises(Unreadable, match="it holds 1 entries, but the manifest list says 0"):
        live_files(table.io, Manifest(manifest.manifest_path, 0, "m", 0, 0))
    assert len(live_files(table.io, Manifest(manifest.manifest_path, 0, "m", None, None))) == 1


def test_of_a_manifest_with_entries_of_all_kinds_only_the_live_ones_count(warehouse: Warehouse) -> None:
    table = warehouse.table()
    location = f"{table.location()}/metadata/mixed.avro"
    added, existing, deleted = (
        entry_of(table, f"file:///{name}", 7, DataFileContent.DATA) for name in ("added", "existing", "deleted")
    )
    with write_manifest(2, table.spec(), table.schema(), table.io.new_output(location), 5, "deflate") as writer:
        writer.add(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=5, data_file=added))
        for write, file in ((writer.existing, existing), (writer.delete, deleted)):
            write(ManifestEntry.from_args(snapshot_id=4, sequence_number=1, file_sequence_number=1, data_file=file))
    found = live_files(table.io, Manifest(location, 0, location, 3, 2))
    assert {name: file.bytes for name, file in found.items()} == {"file:/added": 7, "file:/existing": 7}


COUNTED = (
    ((1, 2, 3), 6, 3),
    ((0, 0, 3), 3, 0),
    ((0, 0, 0), 0, 0),
    ((None, 2, 3), None, None),
    ((1, None, 3), None, None),
    ((0, None, 3), None, None),
    ((None, 0, 3), None, None),
    ((1, 2, None), None, 3),
    ((0, 0, None), None, 0),
    ((None, None, None), None, None),
)


@pytest.mark.parametrize(("counts", "entries", "living"), COUNTED)
def test_what_a_list_does_not_say_is_not_known(
    warehouse: Warehouse, counts: tuple[int | None, ...], entries: int | None, living: int | None
) -> None:
    table = warehouse.table()
    append(table, 1)
    write_counts(table, dict(zip(COUNTS, counts, strict=True)))
    [manifest] = manifest_list(table.io, table.metadata.snapshots[0].manifest_list, {}).manifests
    assert (manifest.entries, manifest.live) == (entries, living)


def _lengths(whole: bytes) -> list[int]:
    """Shorter than an Avro file: in its header, which is mostly the text of a schema, here and there; from its end on each."""
    header = whole.index(whole[-SYNC_SIZE:]) + SYNC_SIZE
    assert 500 < header < len(whole) - 3 * SYNC_SIZE
    return [*range(0, header - 3 * SYNC_SIZE, 101), *range(header - 3 * SYNC_SIZE, len(whole))]


@pytest.mark.parametrize("codec", ["null", "gzip"])
@pytest.mark.parametrize("what", ["list", "manifest"])
def test_a_block_without_the_marker_of_its_file_is_unreadable(warehouse: Warehouse, what: str, codec: str) -> None:
    """Where blocks of two files got mixed, what lies between them may be missing."""
    table = warehouse.table(**{"write.avro.compression-codec": codec})
    file = own_metadata(table, append(table, 1), what)
    said = bytearray(file.read_bytes())
    said[-1] ^= 1
    file.write_bytes(said)
    with pytest.raises(Unreadable, match="a block does not end with the file's marker"):
        _lists(table, file) if what == "list" else live_files(table.io, Manifest(str(file), 0, str(file), 1, 1))


@pytest.mark.parametrize("without", ["manifest_path", "manifest_length"])
def test_a_list_that_does_not_say_what_it_must_is_unreadable(warehouse: Warehouse, tmp_path: Path, without: str) -> None:
    table = warehouse.table()
    fields = [
        NestedField(500, "manifest_path", StringType(), required=True),
        NestedField(501, "manifest_length", LongType(), required=True),
    ]
    schema = Schema(*(field for field in fields if field.name != without))
    output = table.io.new_output(f"file://{tmp_path}/list.avro")
    with AvroOutputFile[Record](output, schema, "manifest_file", schema, {}) as writer:
        writer.write_block([Record("file:///m.avro" if without == "manifest_length" else 7)])
    with pytest.raises(Unreadable, match=f"it has no field {without}"):
        manifest_list(table.io, f"{tmp_path}/list.avro", {})


def ask(parsed: ParsedFiles, location: str, content: bytes, size: int = 0, kind: str = "list") -> list[bytes]:
    return parsed.of(kind, location, content, lambda: [content], lambda _: size)


def test_a_content_is_parsed_once_and_another_one_anew() -> None:
    parsed = ParsedFiles()
    first = ask(parsed, "a", b"1")
    assert ask(parsed, "a", b"1") is first
    assert ask(parsed, "a", b"1", kind="manifest") is not first
    assert ask(parsed, "b", b"1") is not first
    assert ask(parsed, "a", b"2") == [b"2"]
    assert ask(parsed, "a", b"1") is not first


def test_what_was_not_asked_for_the_longest_goes_first() -> None:
    parsed = ParsedFiles(10_000)
    a, b, c = (ask(parsed, name, b"", 1_400) for name in "abc")
    assert ask(parsed, "a", b"", 1_400) is a
    ask(parsed, "d", b"", 1_400)
    ask(parsed, "e", b"", 1_400)
    assert ask(parsed, "a", b"", 1_400) is a
    assert ask(parsed, "c", b"", 1_400) is c
    assert ask(parsed, "b", b"", 1_400) is not b


@pytest.mark.parametrize("size", [0, 500, 1_400, 2_600])
def test_what_is_kept_never_takes_more_than_it_may(size: int) -> None:
    parsed = ParsedFiles(10_000)
    for number in range(40):
        ask(parsed, str(number % 15), bytes([number % 7]), size)
        assert parsed._taken == sum(one[2] for one in parsed._kept.values()) <= 10_000


def test_what_is_too_large_or_cant_be_parsed_is_parsed_each_time_and_drives_nothing_out() -> None:
    parsed = ParsedFiles(10_000)
    small, giant = ask(parsed, "small", b""), ask(parsed, "giant", b"", 5_000)
    with pytest.raises(ZeroDivisionError):
        parsed.of("list", "a", b"", lambda: 1 // 0, lambda _: 0)
    assert ask(parsed, "a", b"") == [b""]
    assert ask(parsed, "giant", b"", 5_000) is not giant
    assert ask(parsed, "small", b"") is small
    assert ask(NOTHING_KEPT, "a", b"") is not ask(NOTHING_KEPT, "a", b"")

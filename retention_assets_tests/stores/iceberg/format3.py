"""Tables of format 3 with deletion vectors, written by hand: PyIceberg reads them, and can't write them yet."""

import json
import struct
from pathlib import Path
from typing import Literal

from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from retention_assets_tests.stores.iceberg.tables import STORE, DeletesWriter, Warehouse, files_of, place

_BLOB = b"\x00\x00\x00\x20\xd1\xd3\x39\x64" + bytes(28)
# What format 3 adds to an entry of a manifest list.
_FIRST_ROW = NestedField(520, "first_row_id", LongType(), required=False)


class _VectorsWriter(DeletesWriter):
    """Entries with where in which file a vector is, and of which data file."""

    @property
    def version(self) -> Literal[1, 2, 3]:
        return 3

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        schema = self._with_partition(3)
        return AvroOutputFile(self._output_file, schema, "manifest_entry", schema, self._meta)


def add_vectors(warehouse: Warehouse, table: Table) -> str:
    """Make a table one of format 3, in which each data file has a deletion vector; all are in one Puffin file, which is told."""
    table.refresh()
    parent = table.current_snapshot()
    assert parent is not None
    data = files_of(table)
    puffin = f"{table.location()}/data/vectors.puffin"
    one, folder = parent.snapshot_id + 1, f"{table.location()}/metadata"
    with _VectorsWriter(table.spec(), table.schema(), table.io.new_output(f"{folder}/{one}-m0.avro"), one, "null") as writer:
        for entry in _entries(table, puffin, [file.file_path for file in data], one):
            writer.add(entry)
    number = table.metadata.next_sequence_number()
    manifests = [writer.to_manifest_file(), *parent.manifests(table.io)]
    manifests[0].sequence_number = manifests[0].min_sequence_number = number
    location = f"{folder}/snap-{one}.avro"
    schema = MANIFEST_LIST_FILE_SCHEMAS[2]
    listed = Schema(*schema.fields, _FIRST_ROW)
    with AvroOutputFile[ManifestFile](
        table.io.new_output(location), listed, "manifest_file", schema, {"format-version": "3"}
    ) as written:
        written.write_block(manifests)
    said = json.loads(table.metadata.model_dump_json())
    rows = {"first-row-id": 0, "added-rows": 0}
    snapshot = {
        "snapshot-id": one, "parent-snapshot-id": parent.snapshot_id, "sequence-number": number, "manifest-list": location,
        "timestamp-ms": parent.timestamp_ms + 1, "summary": {"operation": "delete"}, "schema-id": table.schema().schema_id,
    }  # fmt: skip
    said |= {
        "format-version": 3, "next-row-id": 3, "current-snapshot-id": one, "last-sequence-number": number,
        "snapshots": [{**before, **rows} for before in [*said["snapshots"], snapshot]],
        "refs": {"main": {"snapshot-id": one, "type": "branch"}},
        "metadata-log": [*said["metadata-log"], {"metadata-file": table.metadata_location, "timestamp-ms": said["last-updated-ms"]}],
    }  # fmt: skip
    newest = f"{folder}/00099-v3.metadata.json"
    Path(place(newest)).write_text(json.dumps(said))
    name = table.name()[-2:]
    warehouse.catalog.drop_table(name)
    warehouse.catalog.register_table(name, newest)
    assert warehouse.catalog.name == STORE
    return puffin


def _entries(table: Table, puffin: str, data_files: list[str], snapshot: int) -> list[ManifestEntry]:
    blobs = []
    content = b"PFA1"
    for location in data_files:
        properties = {"referenced-data-file": location, "cardinality": "0"}
        blobs.append({
            "type": "deletion-vector-v1", "fields": [2147483645], "snapshot-id": -1, "sequence-number": -1,
            "offset": len(content), "length": len(_BLOB), "properties": properties,
        })  # fmt: skip
        content += _BLOB
    footer = json.dumps({"blobs": blobs}).encode()
    content += b"PFA1" + footer + struct.pack("<i", len(footer)) + bytes(4) + b"PFA1"
    Path(place(puffin)).write_bytes(content)
    found = []
    for location, blob in zip(data_files, blobs, strict=True):
        file = DataFile.from_args(
            _table_format_version=3, content=DataFileContent.POSITION_DELETES, file_path=puffin, file_format=FileFormat.PUFFIN,
            partition=Record(), record_count=1, file_size_in_bytes=len(content), referenced_data_file=location,
            content_offset=blob["offset"], content_size_in_bytes=blob["length"],
        )  # fmt: skip
        file.spec_id = table.spec().spec_id
        found.append(
            ManifestEntry.from_args(
                _table_format_version=3, status=ManifestEntryStatus.ADDED, snapshot_id=snapshot, data_file=file
            )
        )
    return found

"""The newest complete inventory of a bucket, as S3 Inventory delivers it in CSV or Parquet. A delivery is a folder named by its
time with a manifest.json and its checksum; its files are in the folder `data` beside it. Incomplete deliveries are skipped in
favour of older complete ones. Only latest versions are objects; delete markers are not."""

import gzip
import hashlib
import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import IO, Any
from urllib.parse import unquote_plus

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from retention_assets.errors import Refused
from retention_assets.policy.durations import from_micros
from retention_assets.settings.places import has_scheme, mask_secrets, without_scheme
from retention_assets.stores.objects.sources.finished import FinishedListing, objects_of, packed
from retention_assets.stores.places.file_systems import FileSystem, is_s3, open_file_system

_MANIFEST, _CHECKSUM = "manifest.json", "manifest.checksum"
_DELIVERY = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}Z")
_ROWS = 131_072
_PIECE = 1 << 20
_AT_ONCE = 16
# CSV names to Parquet names
_CSV = {
    "Bucket": "bucket", "Key": "key", "VersionId": "version_id", "IsLatest": "is_latest", "IsDeleteMarker": "is_delete_marker",
    "Size": "size", "LastModifiedDate": "last_modified_date", "ETag": "e_tag",
}  # fmt: skip
_ROLES = {"key": "key", "created_at": "last_modified_date", "size": "size", "etag": "e_tag", "version": "version_id"}
_FILTERS = ("is_latest", "is_delete_marker")


@dataclass(frozen=True)
class InventoryFile:
    """A file of a delivery; size and MD5 are the manifest's."""

    place: str
    size: int
    md5: str
    form: str
    # columns of CSV files, which have no header
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Delivery:
    bucket: str
    made: datetime
    files: tuple[InventoryFile, ...]


class _Incomplete(Exception):
    """A delivery lacks something."""


@dataclass
class InventoryObjects(FinishedListing):
    """A folder of deliveries or one manifest; `path` is the root of the objects if it is not the whole bucket."""

    manifest: str
    path: str | None
    # delivery that begin() chose
    _delivery: Delivery | None = None

    def begin(self) -> datetime:
        with self._refusing():
            self._delivery = self._newest()
        return self._delivery.made

    def shares(self, wanted: int) -> Sequence[tuple[InventoryFile, ...]]:
        if self._delivery is None:
            self.begin()
        assert self._delivery is not None, "begin sets it"
        files = sorted(self._delivery.files, key=lambda file: (-file.size, file.place))
        return packed(files, lambda file: file.size, min(wanted, len(files)))

    def read(self, share: tuple[InventoryFile, ...], columns: Any = None) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - derives none
        for file in share:
            with self._copied(file) as copy:
                for batch in self._rows(file, copy):
                    if len(batch):
                        yield batch

    def _newest(self) -> Delivery:
        fs, root = open_file_system(self.manifest)
        fs.invalidate_cache()
        if root.endswith(f"/{_MANIFEST}"):
            folders = [root.removesuffix(f"/{_MANIFEST}")]
        else:
            folders = self._folders(fs, root.rstrip("/"))
        lacks: list[str] = []
        for folder in folders:
            try:
                return self._complete(fs, folder)
            except _Incomplete as fault:
                lacks.append(f"{folder.rpartition('/')[2]}: {fault}")
        newest = f" The newest one is not complete: {lacks[0]}." if lacks else ""
        raise Refused(
            f"There is no complete inventory at {mask_secrets(self.manifest)}.{newest} Wait for the next delivery, or check "
            "the place of delivery."
        )

    def _folders(self, fs: FileSystem, root: str) -> list[str]:
        try:
            names = [str(info["name"]).rstrip("/") for info in fs.ls(root, detail=True) if info["type"] == "directory"]
        except FileNotFoundError:
            names = []
        return sorted((name for name in names if _DELIVERY.fullmatch(name.rpartition("/")[2])), reverse=True)

    def _complete(self, fs: FileSystem, folder: str) -> Delivery:
        try:
            text, checksum = fs.cat_file(f"{folder}/{_MANIFEST}"), fs.cat_file(f"{folder}/{_CHECKSUM}")
        except FileNotFoundError as fault:
            raise _Incomplete(f"{_MANIFEST if _MANIFEST in str(fault) else _CHECKSUM} is not there") from None
        if hashlib.md5(text, usedforsecurity=False).hexdigest() != checksum.decode(errors="replace").strip().lower():
            raise _Incomplete(f"{_CHECKSUM} is not that of {_MANIFEST}")
        delivery = self._read_manifest(fs, folder, text)

        def check(file: InventoryFile) -> None:
            name = file.place.rpartition("/")[2]
            try:
                size = fs.info(open_file_system(file.place)[1])["size"]
            except FileNotFoundError:
                raise _Incomplete(f"its file {name} is not there") from None
            if size != file.size:
                raise _Incomplete(f"its file {name} has {size} bytes instead of {file.size}")

        with ThreadPoolExecutor(_AT_ONCE) as threads:
            # Consume the results, so that the first missing file raises.
            list(threads.map(check, delivery.files))
        return delivery

    def _read_manifest(self, fs: FileSystem, folder: str, text: bytes) -> Delivery:
        try:
            manifest = json.loads(text)
            bucket, form = str(manifest["sourceBucket"]), str(manifest["fileFormat"]).upper()
            schema, made = str(manifest["fileSchema"]), from_micros(int(manifest["creationTimestamp"]) * 1000)
            target = str(manifest["destinationBucket"]).rpartition(":")[2]
            listed = [(str(file["key"]), int(file["size"]), str(file["MD5checksum"]).lower()) for file in manifest["files"]]
        except (ValueError, KeyError, TypeError, OverflowError) as fault:
            raise Refused(f"{mask_secrets(folder)}/{_MANIFEST} is not a manifest of an inventory: {fault!r}.") from None
        if form not in ("CSV", "PARQUET"):
            raise Refused(
                f"The inventory at {mask_secrets(self.manifest)} has the format {form}, which is not supported. Let it be "
                "delivered as Parquet or CSV."
            )
        if self.path is not None and self.path.lower().startswith(("s3:", "s3a:")):
            listed_bucket = without_scheme(self.path).lstrip("/").partition("/")[0]
            if listed_bucket != bucket:
                raise Refused(
                    f"The inventory at {mask_secrets(self.manifest)} is of the bucket {bucket}, but `listing.path` is in "
                    f"{listed_bucket}. Name the inventory of that bucket."
                )
        columns = tuple(_CSV.get(name.strip(), name.strip()) for name in schema.split(",")) if form == "CSV" else ()
        # A copy on another file system keeps the files beside the deliveries.
        beside = f"{folder.rpartition('/')[0]}/data"
        if has_scheme(self.manifest):
            beside = f"{self.manifest.partition('://')[0]}://{beside.lstrip('/')}"
        files = (
            InventoryFile(
                f"s3://{target}/{key}" if is_s3(fs) else f"{beside}/{key.rpartition('/')[2]}", size, md5, form, columns
            )
            for key, size, md5 in listed
        )
        return Delivery(bucket, made, tuple(files))

    @contextmanager
    def _copied(self, file: InventoryFile) -> Iterator[IO[bytes]]:
        fs, path = open_file_system(file.place)
        digest, size = hashlib.md5(usedforsecurity=False), 0
        with tempfile.TemporaryFile() as copy:
            with self._refusing(), fs.open(path, "rb") as source:
                for piece in iter(partial(source.read, _PIECE), b""):
                    digest.update(piece)
                    size += len(piece)
                    copy.write(piece)
            if (size, digest.hexdigest()) != (file.size, file.md5):
                raise Refused(
                    f"{mask_secrets(file.place)} is not the file that its manifest names: it has {size} bytes and the MD5 "
                    f"{digest.hexdigest()}; expected {file.size} and {file.md5}. Wait for the next delivery."
                )
            copy.seek(0)
            yield copy

    def _rows(self, file: InventoryFile, copy: IO[bytes]) -> Iterator[pa.RecordBatch]:
        where = mask_secrets(file.place)
        root = without_scheme(self.path).lstrip("/").partition("/")[2].strip("/") if self.path else ""
        try:
            for batch in _csv_batches(file, copy) if file.form == "CSV" else _parquet_batches(copy):
                there = batch.schema.names
                if missing := next((name for name in ("key", "last_modified_date") if name not in there), None):
                    raise Refused(
                        f"The inventory {where} has no {missing}. Choose `Last modified` among the fields of the inventory"
                        " (the key is always there)."
                    )
                roles = {role: name for role, name in _ROLES.items() if name in there}
                yield objects_of(_below(batch, f"{root}/" if root else ""), roles, True, where)
        except (pa.ArrowException, EOFError, gzip.BadGzipFile) as fault:
            [line, *_] = str(fault).splitlines() or [type(fault).__name__]
            raise Refused(f"The inventory {where} can't be read: {line}.") from None

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except OSError as fault:
            where = mask_secrets(self.manifest)
            raise Refused(f"The inventory at {where} can't be read: {fault or type(fault).__name__}.") from fault


def _parquet_batches(copy: IO[bytes]) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(copy) as file:
        names = [name for name in (*_ROLES.values(), *_FILTERS) if name in file.schema_arrow.names]
        yield from file.iter_batches(_ROWS, columns=names)


def _csv_batches(file: InventoryFile, copy: IO[bytes]) -> Iterator[pa.RecordBatch]:
    read = pa_csv.ReadOptions(column_names=list(file.columns), block_size=8 * _PIECE)
    wanted = [name for name in (*_ROLES.values(), *_FILTERS) if name in file.columns]
    types = {name: pa.string() for name in wanted} | {name: pa.bool_() for name in _FILTERS} | {"size": pa.int64()}
    # Empty fields are null, whatever their type.
    convert = pa_csv.ConvertOptions(column_types=types, include_columns=wanted, null_values=[""], strings_can_be_null=True)
    with gzip.open(copy) as lines:
        # Arrow rejects an empty file.
        if not lines.peek(1):
            return
        with pa_csv.open_csv(lines, read, convert_options=convert) as batches:
            for batch in batches:
                # Keys of CSV are URL-encoded; most escape nothing but slashes.
                keys = pc.replace_substring_regex(batch["key"], "%2[Ff]", "/")
                written = pc.match_substring_regex(keys, r"[%+]")
                if pc.any(written).as_py():
                    texts = [unquote_plus(key, errors="strict") for key in keys.filter(written).to_pylist()]
                    keys = pc.replace_with_mask(keys, written, pa.array(texts, pa.string()))
                yield batch.set_column(batch.schema.get_field_index("key"), "key", keys)


def _below(batch: pa.RecordBatch, prefix: str) -> pa.RecordBatch:
    # the latest versions of objects below the root, with keys relative to it; the root's own placeholder is dropped
    for name, dropped in (("is_latest", False), ("is_delete_marker", True)):
        if name in batch.schema.names:
            batch = batch.filter(pc.fill_null(pc.not_equal(batch[name], dropped), True))
    if not prefix:
        return batch
    batch = batch.filter(pc.starts_with(batch["key"], prefix))
    keys = pc.utf8_slice_codeunits(batch["key"], len(prefix))
    batch = batch.set_column(batch.schema.get_field_index("key"), "key", keys)
    return batch.filter(pc.not_equal(keys, ""))

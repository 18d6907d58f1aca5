"""Lists objects below a prefix of a bucket, on S3 or a compatible server. It uses S3's own requests: fsspec's driver hides
folder placeholders, which are objects. A share is a range of keys; the ranges are complete wherever they are split. Times are
whole seconds, the precision of an answer about one object."""

import errno
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa

from retention_assets.clock import now
from retention_assets.errors import Refused
from retention_assets.frames.log import INSTANT
from retention_assets.settings.urls import mask_secrets
from retention_assets.sql.retry import RetryPolicy, retry
from retention_assets.stores.objects.conditions import NO_VERSION, tagged_conditions
from retention_assets.stores.objects.naming import SEPARATOR, first_level_datasets
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.objects.tables import objects_batch
from retention_assets.stores.places import IDENTITY
from retention_assets.stores.places.file_systems import FileSystem, open_file_system, server_time

Answer = Mapping[str, Any]

_LASTING = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
# servers that do not support versioning
_UNKNOWN = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}


def _may_pass(error: Exception) -> bool:
    return isinstance(error, OSError) and not isinstance(error, _LASTING) and error.errno not in _UNKNOWN


# Busy stores answer 503 SlowDown or 500 InternalError for a while.
PATIENCE = RetryPolicy(_may_pass, attempts=8, pause=0.5, longest=30)
PAGE = 1_000
_AT_ONCE = 16
# most requests for finding splits, and candidate prefixes per share
_PROBES, _SPLITS = 400, 8
# keys asked for per batch of results
_ASKED = 10_000
# A page of the listing is worth its request if it answers at least this many keys.
_DENSE = 8
# single requests before a page is tried again
_SPARSE = 64
_LAST = "\U0010ffff"
_DOTS = {".", ".."}


@dataclass(frozen=True)
class KeyRange:
    """Keys after one and up to another (with the prefix); None is open."""

    after: str | None
    up_to: str | None
    versions: bool


@dataclass(frozen=True)
class _Found:
    key: str
    size: int
    created_at: datetime
    etag: str | None
    version: str | None

    @classmethod
    def of(cls, key: str, said: Answer, size: str = "Size") -> "_Found":
        etag = str(said.get("ETag") or "").strip('"') or None
        return cls(key, said[size], said["LastModified"].replace(microsecond=0), etag, said.get("VersionId"))


@dataclass(frozen=True)
class _Page:
    """Some objects, and the last key covered; None at the end."""

    objects: Sequence[_Found]
    last: str | None


@dataclass(frozen=True)
class S3Objects:
    place: str

    def begin(self) -> datetime:
        """The server's time, in whole seconds."""
        try:
            return retry(lambda: server_time(self.place), PATIENCE) or now()
        except OSError as fault:
            raise self.refusal(fault) from fault

    def shares(self, wanted: int) -> Sequence[KeyRange]:
        """Split the keys into ranges at prefixes that were sampled."""
        bucket = self._bucket()
        versions = bucket.keeps_versions()
        splits: list[str | None] = [*bucket.splits(wanted)] if wanted > 1 else []
        ends = zip([None, *splits], [*splits, None], strict=True)
        return [KeyRange(after, up_to, versions) for after, up_to in ends]

    def read(self, share: KeyRange) -> Iterator[pa.RecordBatch]:
        """Objects of a range, page by page. Only latest versions count; a key whose latest is a delete marker is left out."""
        bucket = self._bucket()
        for page in bucket.pages(share.after, share.up_to, share.versions):
            if page.objects:
                yield self._batch(bucket, page.objects)

    def find(self, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Objects present now under the given keys, by one request each, or by a page of the listing where that answers more
        keys."""
        bucket = self._bucket()
        wanted = sorted({bucket.prefix + key for key in keys if key and key != IDENTITY})
        versions = bool(wanted) and bucket.keeps_versions()
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            for at in range(0, len(wanted), _ASKED):
                some = wanted[at : at + _ASKED]
                found: list[_Found] = []
                head = partial(bucket.head, versions=versions)
                while some:
                    alone = len(some)
                    # In versioned buckets the key marker follows the server's own order, so no pages there.
                    if len(some) >= _DENSE and not versions:
                        page = next(bucket.pages(_just_before(some[0]), some[-1], False))
                        known = {one.key: one for one in page.objects}
                        told = [key for key in some if page.last is None or key <= page.last]
                        found += [known[key] for key in told if key in known]
                        some = some[len(told) :]
                        # A sparse page is probably followed by more, so ask for some keys one by one before the next page.
                        alone = _SPARSE if len(told) < _DENSE else 0
                    found += [one for one in threads.map(head, some[:alone]) if one is not None]
                    some = some[alone:]
                if found:
                    yield self._batch(bucket, found)

    def distinct_names(self, settings: ObjectsSettings) -> list[str] | None:
        return first_level_datasets(settings, lambda: self._bucket().first_level())

    def _batch(self, bucket: "_Bucket", found: Sequence[_Found]) -> pa.RecordBatch:
        versions = pa.array([one.version for one in found], pa.string())
        columns = {
            "size": pa.array([one.size for one in found], pa.int64()),
            "created_at": pa.array([one.created_at for one in found], INSTANT),
            "condition": tagged_conditions(versions, pa.array([one.etag for one in found], pa.string())),
        }
        begin = len(bucket.prefix)
        return objects_batch([one.key[begin:] for one in found], mask_secrets(self.place), columns)

    def _bucket(self) -> "_Bucket":
        fs, path = open_file_system(self.place)
        name, _, key = path.partition(SEPARATOR)
        return _Bucket(self, fs, name, f"{key.rstrip(SEPARATOR)}{SEPARATOR}" if key.strip(SEPARATOR) else "")

    def refusal(self, fault: Exception) -> Refused:
        return Refused(
            f"{mask_secrets(self.place)} can't be listed: {fault or type(fault).__name__}. Look at the bucket's name, its"
            " permissions (s3:ListBucket, s3:ListBucketVersions, s3:GetObject) and that the server is up."
        )


@dataclass(frozen=True)
class _Bucket:
    """Requests to one bucket; keys include the prefix."""

    listing: S3Objects
    fs: FileSystem
    name: str
    prefix: str

    def keeps_versions(self) -> bool:
        """Tell whether the bucket ever kept versions. False if that may not be asked: then ETags tell objects apart."""
        try:
            return self._ask_again("get_bucket_versioning").get("Status") is not None
        except OSError as fault:
            if isinstance(fault, PermissionError) or fault.errno in _UNKNOWN:
                return False
            raise self.listing.refusal(fault) from fault

    def pages(self, after: str | None, up_to: str | None, versions: bool) -> Iterator[_Page]:
        for page in self._version_pages(after) if versions else self._key_pages(after):
            is_last = page.last is None or (up_to is not None and page.last >= up_to)
            # The placeholder of the root itself is not below it.
            yield _Page(
                [
                    one
                    for one in page.objects
                    if _is_between(after, one.key, up_to) and one.key != self.prefix and not self._is_ours(one.key)
                ],
                None if is_last else page.last,
            )
            if is_last:
                return

    def head(self, key: str, versions: bool) -> _Found | None:
        if not _DOTS.isdisjoint(key.split(SEPARATOR)):
            # HTTP clients may normalize the dots, which addresses another object; a listing sends the key as text.
            found = (one for page in self.pages(_just_before(key), key, versions) for one in page.objects)
            return next((one for one in found if one.key == key), None)
        try:
            said = self._ask_again("head_object", Key=key)
            # Some servers omit the version id `null`.
            return _Found.of(key, {"VersionId": NO_VERSION, **said} if versions else said, "ContentLength")
        except FileNotFoundError:
            return None
        except OSError as fault:
            raise self.listing.refusal(fault) from fault

    def first_level(self) -> Iterator[str]:
        """Prefixes up to the first separator (included), and keys without one."""
        more: dict[str, str] = {}
        while True:
            page = self._ask("list_objects_v2", Prefix=self.prefix, Delimiter=SEPARATOR, **more)
            yield from (one["Prefix"][len(self.prefix) :] for one in page.get("CommonPrefixes", ()))
            keys = (one["Key"] for one in page.get("Contents", ()))
            yield from (key[len(self.prefix) :] for key in keys if key != self.prefix and not self._is_ours(key))
            if not page.get("IsTruncated"):
                return
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def splits(self, wanted: int) -> list[str]:
        """Keys at which to split the listing into this many parts; none if one page holds everything."""
        asked = 1
        if not self._ask("list_objects_v2", Prefix=self.prefix, MaxKeys=PAGE).get("IsTruncated"):
            return []
        open_, found = [self.prefix], set[str]()
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            while open_ and asked + len(open_) < _PROBES and len(open_) + len(found) < wanted * _SPLITS:
                below: list[str] = []
                for prefix, (longer, requests) in zip(open_, threads.map(self._longer, open_), strict=True):
                    asked += requests
                    found |= set() if longer else {prefix}
                    below += longer
                open_ = below
        edges = sorted({*open_, *found} - {self.prefix})
        return sorted({edges[len(edges) * number // wanted] for number in range(1, wanted)}) if edges else []

    def _longer(self, prefix: str) -> tuple[list[str], int]:
        """Longer prefixes below a prefix, by separators or else by single characters, and the number of requests made. Empty if
        one page holds all keys."""
        page = self._ask("list_objects_v2", Prefix=prefix, Delimiter=SEPARATOR, MaxKeys=PAGE)
        folders = [one["Prefix"] for one in page.get("CommonPrefixes", ())]
        if not page.get("IsTruncated"):
            return folders, 1
        seen = sorted([*folders, *(one["Key"] for one in page.get("Contents", ()))])
        common, requests = _common(seen[0], seen[-1]), 2
        if len(common) > len(prefix) and self._next(prefix, common + _LAST) is None:
            prefix = common
        found: list[str] = []
        after = prefix
        while (key := self._next(prefix, after)) is not None and requests < _PROBES // 4:
            requests += 1
            found.append(key[: len(prefix) + 1])
            after = found[-1] + _LAST
        return found, requests

    def _next(self, prefix: str, after: str) -> str | None:
        page = self._ask("list_objects_v2", Prefix=prefix, StartAfter=after, MaxKeys=1)
        return next((str(one["Key"]) for one in page.get("Contents", ())), None)

    def _key_pages(self, after: str | None) -> Iterator[_Page]:
        more = {"StartAfter": after} if after is not None else {}
        while True:
            answer = self._ask("list_objects_v2", Prefix=self.prefix, MaxKeys=PAGE, **more)
            found = [_Found.of(one["Key"], one) for one in answer.get("Contents", ())]
            if not answer.get("IsTruncated"):
                yield _Page(found, None)
                return
            yield _Page(found, found[-1].key if found else after or "")
            more = {"ContinuationToken": answer["NextContinuationToken"]}

    def _version_pages(self, after: str | None) -> Iterator[_Page]:
        more = {"KeyMarker": after} if after is not None else {}
        while True:
            answer = self._ask("list_object_versions", Prefix=self.prefix, MaxKeys=PAGE, **more)
            found = [_Found.of(one["Key"], one) for one in answer.get("Versions", ()) if one["IsLatest"]]
            if not answer.get("IsTruncated"):
                yield _Page(found, None)
                return
            yield _Page(found, answer["NextKeyMarker"])
            more = {"KeyMarker": answer["NextKeyMarker"]}
            if version := answer.get("NextVersionIdMarker"):
                more["VersionIdMarker"] = version

    def _is_ours(self, key: str) -> bool:
        return key == self.prefix + IDENTITY

    def _ask(self, request: str, **said: Any) -> Answer:
        try:
            return self._ask_again(request, **said)
        except OSError as fault:
            raise self.listing.refusal(fault) from fault

    def _ask_again(self, request: str, **said: Any) -> Answer:
        answer: Answer = retry(lambda: self.fs.call_s3(request, Bucket=self.name, **said), PATIENCE)
        return answer


def _common(one: str, other: str) -> str:
    length = next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:length]


def _is_between(after: str | None, key: str, up_to: str | None) -> bool:
    """Tell whether a key is in a range. Needed because some servers include the key to start after."""
    return (after is None or key > after) and (up_to is None or key <= up_to)


def _just_before(key: str) -> str:
    """A string shortly before a key, with few strings between the two."""
    number = ord(key[-1])
    if number == 0:
        return key[:-1]
    # U+D800 to U+DFFF are surrogates, not characters.
    return key[:-1] + chr(0xD7FF if number == 0xE000 else number - 1) + _LAST

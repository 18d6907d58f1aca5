"""The objects below a prefix of a bucket, on S3 or on what speaks like it.

Belongs here: listing by ranges of keys, the versions of a bucket that keeps them, and asking for single keys. By S3's own
requests: a driver that makes folders of keys hides the objects that stand for folders, and those are objects.
Does not belong here: other object stores (remote.py), and deleting (../delete_s3.py).

A share is a range of keys: all ranges together leave nothing out, whatever was guessed of where many keys are. Times are whole
seconds, for that is all that the answer to a question about one object says.
"""

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
from retention_assets.stores.files.file_systems import FileSystem, open_file_system, server_time
from retention_assets.stores.files.paths import IDENTITY
from retention_assets.stores.objects.conditions import NO_VERSION, tagged_conditions
from retention_assets.stores.objects.listings.batches import BATCH, objects_batch
from retention_assets.stores.objects.listings.pacing import Pace
from retention_assets.stores.objects.naming import SEPARATOR, first_level_datasets
from retention_assets.stores.objects.settings import ObjectsSettings

Answer = Mapping[str, Any]

_LASTING = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
# A server that cannot say anything about versions.
_UNKNOWN = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}


def _may_pass(error: Exception) -> bool:
    return isinstance(error, OSError) and not isinstance(error, _LASTING) and error.errno not in _UNKNOWN


# A store that is busy says so for a while: 503 SlowDown, 500 InternalError.
PATIENCE = RetryPolicy(_may_pass, attempts=8, pause=0.5, longest=30)
PAGE = 1_000
_AT_ONCE = 16
# So many requests are made at most to find where to split, and so many beginnings of keys for each share.
_PROBES, _SPLITS = 400, 8
# So many keys are asked for before what was found of them is handed on.
_ASKED = 10_000
# A page that says as much about keys that are asked for saves so many single questions.
_DENSE = 8
# So many single questions are asked before a page is tried again.
_SPARSE = 64
_LAST = "\U0010ffff"
_DOTS = {".", ".."}


@dataclass(frozen=True)
class KeyRange:
    """The keys after one and up to another, as the bucket has them; to the ends where there is none."""

    after: str | None
    up_to: str | None
    versions: bool
    of: int


@dataclass(frozen=True)
class _Found:
    """An object as an answer of a server has it."""

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
    """Some objects, and the last key that was looked at; none where nothing follows."""

    objects: Sequence[_Found]
    last: str | None


@dataclass(frozen=True)
class S3Objects:
    """A bucket, or what begins with a prefix in it."""

    place: str
    rate: int = 0

    def begin(self) -> datetime:
        """What the server says, to the second."""
        try:
            return retry(lambda: server_time(self.place), PATIENCE) or now()
        except OSError as fault:
            raise self.refusal(fault) from fault

    def shares(self, wanted: int) -> Sequence[KeyRange]:
        """Ranges of keys, split where beginnings of keys were found."""
        bucket = self._bucket()
        versions = bucket.keeps_versions()
        splits: list[str | None] = [*bucket.splits(wanted)] if wanted > 1 else []
        ends = zip([None, *splits], [*splits, None], strict=True)
        return [KeyRange(after, up_to, versions, len(splits) + 1) for after, up_to in ends]

    def read(self, share: KeyRange) -> Iterator[pa.RecordBatch]:
        """The objects of a range, page by page; of versions the latest, unless that is a deletion."""
        bucket, pace, found = self._bucket(), Pace.of_share(self.rate, share.of), list[_Found]()
        for page in bucket.pages(share.after, share.up_to, share.versions):
            pace.take(len(page.objects))
            found += page.objects
            if len(found) >= BATCH:
                yield self._batch(bucket, found)
                found = []
        if found:
            yield self._batch(bucket, found)

    def find(self, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Of some keys those that are there now: one question for each, or a page of the listing where that says more."""
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
                    # Of a bucket that keeps versions a page begins where its server thinks that a text stands among keys.
                    if len(some) >= _DENSE and not versions:
                        page = next(bucket.pages(_just_before(some[0]), some[-1], False))
                        known = {one.key: one for one in page.objects}
                        told = [key for key in some if page.last is None or key <= page.last]
                        found += [known[key] for key in told if key in known]
                        some = some[len(told) :]
                        # Where a page says little so do the next ones, most likely, but not all that come.
                        alone = _SPARSE if len(told) < _DENSE else 0
                    found += [one for one in threads.map(head, some[:alone]) if one is not None]
                    some = some[alone:]
                if found:
                    yield self._batch(bucket, found)

    def distinct_names(self, settings: ObjectsSettings) -> list[str] | None:
        """The datasets, where the first part of each key tells them: by a listing that stops at separators."""
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
        """What to say of a request that failed."""
        return Refused(
            f"{mask_secrets(self.place)} can't be listed: {fault or type(fault).__name__}. Look at the bucket's name, its"
            " permissions (s3:ListBucket, s3:ListBucketVersions, s3:GetObject) and that the server is up."
        )


@dataclass(frozen=True)
class _Bucket:
    """The requests to one bucket; every key is the bucket's own, with the prefix."""

    listing: S3Objects
    fs: FileSystem
    name: str
    prefix: str

    def keeps_versions(self) -> bool:
        """Whether it has ever kept versions. Where nobody may ask, objects are told apart by their ETags."""
        try:
            return self._ask_again("get_bucket_versioning").get("Status") is not None
        except OSError as fault:
            if isinstance(fault, PermissionError) or fault.errno in _UNKNOWN:
                return False
            raise self.listing.refusal(fault) from fault

    def pages(self, after: str | None, up_to: str | None, versions: bool) -> Iterator[_Page]:
        """The objects after one key and up to another, some at a time."""
        for page in self._version_pages(after) if versions else self._key_pages(after):
            is_last = page.last is None or (up_to is not None and page.last >= up_to)
            # What stands for the root itself is not below it.
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
        """One object; none if it is not there."""
        if not _DOTS.isdisjoint(key.split(SEPARATOR)):
            # On its way such an address may become that of another object; as the end of a range it is a text.
            found = (one for page in self.pages(_just_before(key), key, versions) for one in page.objects)
            return next((one for one in found if one.key == key), None)
        try:
            said = self._ask_again("head_object", Key=key)
            # Not every server says of such a bucket that an object has no version of its own.
            return _Found.of(key, {"VersionId": NO_VERSION, **said} if versions else said, "ContentLength")
        except FileNotFoundError:
            return None
        except OSError as fault:
            raise self.listing.refusal(fault) from fault

    def first_level(self) -> Iterator[str]:
        """What follows the prefix up to the first separator, which is at its end, and the keys that have none."""
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
        """Keys at which the listing may be split into so many parts: none where one page has it all."""
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
        """How keys go on after a beginning, and how many requests it took: by separators, or else by single letters.

        Nothing where one page has them all.
        """
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
        """The next key after a text, if there is one with that beginning."""
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
        """Whether a key is that of the file by which a root is known, which is no object of anybody's."""
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
    """What two keys begin with."""
    length = next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:length]


def _is_between(after: str | None, key: str, up_to: str | None) -> bool:
    """Whether a key is in a range. Some servers begin with the very key that they are to begin after."""
    return (after is None or key > after) and (up_to is None or key <= up_to)


def _just_before(key: str) -> str:
    """A text before a key, with little between the two."""
    number = ord(key[-1])
    if number == 0:
        return key[:-1]
    # Between these two there are no characters.
    return key[:-1] + chr(0xD7FF if number == 0xE000 else number - 1) + _LAST

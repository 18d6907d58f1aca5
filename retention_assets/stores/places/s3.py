"""Places in buckets of S3 or a compatible server.

It makes S3's own requests: fsspec's driver ignores errors of single keys in a bulk deletion, takes names with * for patterns
and hides the objects that stand for folders. In a versioned bucket exactly the version is deleted that was planned. Elsewhere
the request names the ETag, with which AWS spares a changed object; other servers may ignore that condition, and then only the
look right before the request protects what was just written anew.
"""

import errno
import json
import os
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from typing import Any, NamedTuple

from retention_assets.clock import now
from retention_assets.errors import Refused, Withheld, quote
from retention_assets.outcomes import Order, Outcome
from retention_assets.policy.durations import Duration
from retention_assets.settings.places import mask_secrets
from retention_assets.sql.retry import RetryPolicy, retry
from retention_assets.stores.places.file_systems import FileSystem, open_file_system, server_time, without_retries
from retention_assets.stores.places.fsspec import FOLDER_PATIENCE, LASTING, check_not_empty, time_in_ns
from retention_assets.stores.places.protocol import (
    ANOTHER,
    IDENTITY,
    NO_VERSION,
    SEPARATOR,
    TRASH,
    DeletionPace,
    DueObject,
    Entry,
    Folder,
    FolderChanged,
    FolderCheck,
    FolderNote,
    ObjectCheck,
    Place,
    RemovedFolder,
    check_origin,
)
from retention_assets.stores.protocol import Permit, SweptTarget, error_text

Answer = Mapping[str, Any]
# an object, and why it failed or was spared
Result = tuple[DueObject, Outcome, str | None]
# what is deleted for an object now, or its outcome and the reason
Verdict = DueObject | tuple[Outcome, str | None]
Look = Callable[[Sequence[DueObject]], Iterator[tuple[DueObject, Verdict]]]
# outcome of an object by that of its request, and the server's answer; None if another look has to tell
Settle = Callable[[DueObject, Outcome, Answer], Outcome | None]

PAGE = KEYS_PER_REQUEST = 1_000
# requests that list objects, and their versions, with the key of the answer
_LISTINGS = {False: ("list_objects_v2", "Contents"), True: ("list_object_versions", "Versions")}
_AT_ONCE = 16
# most requests for finding splits, and candidate prefixes per share
_PROBES, _SPLITS = 400, 8
# keys asked for at once
_ASKED = 10_000
# A page of the listing is worth its request if it answers at least this many keys.
_DENSE = 8
# single requests before a page is tried again
_SPARSE = 64
# enough to see whether there is anything beside the root itself
_FEW = 10
_SECOND = 1_000_000_000
_LAST = "\U0010ffff"
_DOTS = {".", ".."}
# status of a bucket whose versioning may not be asked for
_UNTOLD = "untold"
# servers that do not support versioning
_UNKNOWN = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}
# XML 1.0 can't carry these: a bulk deletion with one such key is refused whole, and a carriage return comes back changed
_NOT_IN_XML = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]")
_TOO_FAST = {"SlowDown", "ServiceUnavailable", "503", "TooManyRequests", "RequestLimitExceeded"}
_PASSING = {"", *_TOO_FAST, "InternalError", "OperationAborted", "RequestTimeout", "ConditionalRequestConflict", "500"}
_GONE = {"NoSuchKey", "NoSuchVersion", "NotFound", "404"}
_CHANGED = {"PreconditionFailed", "412"}
_NOT_THERE = (Outcome.DELETED, Outcome.ALREADY_GONE)
# modules whose exceptions mean that a server was not reached
_DRIVERS = {"aiobotocore", "aiohttp", "asyncio", "botocore", "urllib3"}


class _PassingFault(Exception):
    """Some keys of a request were refused for a transient reason."""


# Busy stores answer 503 SlowDown or 500 InternalError for a while.
PATIENCE = RetryPolicy(
    lambda fault: isinstance(fault, OSError) and not isinstance(fault, LASTING) and fault.errno not in _UNKNOWN,
    attempts=8, pause=0.5, longest=30,
)  # fmt: skip
DELETE_PATIENCE = RetryPolicy(lambda fault: isinstance(fault, _PassingFault), attempts=6, pause=0.2, growth=2, longest=5)


@dataclass(frozen=True)
class KeyRange:
    """Keys after one and up to another (with the prefix); None is open."""

    after: str | None
    up_to: str | None
    versions: bool


class _Page(NamedTuple):
    """Some objects, and the last key covered; None at the end."""

    entries: list[Entry]
    last: str | None


@dataclass(frozen=True)
class S3Place(Place):
    """Objects below a prefix. A share is a range of keys; the ranges are complete wherever they are split."""

    location: str
    # deleting a folder deletes every version of what is in it
    delete_versions: bool = False

    def clock(self) -> datetime:
        """Time of the server, in whole seconds."""
        with self._refusing():
            return retry(lambda: server_time(self.location), PATIENCE) or now()

    def shares(self, wanted: int) -> Sequence[KeyRange]:
        """Split the keys into ranges at prefixes that were sampled."""
        with self._refusing():
            bucket = self._bucket()
            versions = bucket.keeps_versions()
            splits = bucket.splits(wanted) if wanted > 1 else []
        ends = zip([None, *splits], [*splits, None], strict=True)
        return [KeyRange(after, up_to, versions) for after, up_to in ends]

    def entries(self, share: KeyRange) -> Iterator[Entry]:
        """List a range, page by page. Only latest versions count; a key whose latest is a delete marker is left out."""
        with self._refusing():
            for page in self._bucket().pages(share.after, share.up_to, share.versions):
                yield from page.entries

    def find(self, keys: Sequence[str]) -> Iterator[Entry]:
        """Ask for each key by a request, or by a page of the listing where that answers more keys."""
        with self._refusing(), ThreadPoolExecutor(_AT_ONCE) as threads:
            bucket = self._bucket()
            left = sorted({key for key in keys if not _is_own(key)})
            versions = bool(left) and bucket.keeps_versions()
            head = partial(bucket.head, versions=versions)
            while left:
                singly = _ASKED
                # In versioned buckets the key marker follows the server's own order, so no pages there.
                if len(left) >= _DENSE and not versions:
                    page = next(bucket.pages(_just_before(bucket.prefix + left[0]), bucket.prefix + left[-1], versions=False))
                    listed = {entry.key: entry for entry in page.entries}
                    count = len(left) if page.last is None else bisect_right(left, page.last, key=bucket.prefix.__add__)
                    covered, left = left[:count], left[count:]
                    yield from (listed[key] for key in covered if key in listed)
                    # A sparse page is probably followed by more, so ask for some keys one by one before the next page.
                    singly = _SPARSE if len(covered) < _DENSE else 0
                yield from filter(None, threads.map(head, left[:singly]))
                left = left[singly:]

    def names_in(self, folder: Folder = ()) -> Iterator[str]:
        with self._refusing():
            bucket = self._bucket(folder)
            for page in bucket.answers("list_objects_v2", Prefix=bucket.prefix, Delimiter=SEPARATOR):
                names = [item["Prefix"][len(bucket.prefix) :] for item in page.get("CommonPrefixes", ())]
                names += (bucket.key_of(item) for item in page.get("Contents", ()))
                yield from (name for name in names if not _is_own(name))

    def delete(
        self, objects: Sequence[DueObject], check: ObjectCheck, permit: Permit, pace: DeletionPace, parallelism: int
    ) -> list[SweptTarget]:
        """Delete objects, a thousand per request. A look precedes each request, also one that is repeated."""
        bucket = self._bucket()
        present: dict[str, Entry] = {}

        def look(wanted: Sequence[DueObject]) -> Iterator[tuple[DueObject, Verdict]]:
            entries = {entry.key: entry for entry in self.find([due.key for due in wanted])}
            present.update(entries)
            for due in wanted:
                why = check(entry) if (entry := entries.get(due.key)) else None
                yield due, (Outcome.ALREADY_GONE, None) if entry is None else (Outcome.SPARED, why) if why else due

        requests = [_Request(bucket, part, permit, look, pace) for part in _parts(objects)]
        return _swept(_sent(requests, parallelism), present)

    def may_keep(self, key: str, version: str | None) -> bool:
        try:
            if version is None:
                return self._versioning is not None
            return self._bucket().stacks(key)[key].find(version) is not None
        except Exception:  # noqa: BLE001 - drivers have exceptions of their own, and who can't look does not know
            return True

    def check_root(self) -> None:
        check_not_empty(self, self.location)

    def has(self, folder: Folder) -> bool:
        """Tell whether anything is in a folder; an entry for the folder itself and a root's own files don't count."""
        bucket = self._bucket(folder, FOLDER_PATIENCE)
        # where every version goes, versions alone may be left below a root
        request, kind = _LISTINGS[self._deletes_versions]
        answer = bucket.ask(request, Prefix=bucket.prefix, MaxKeys=_FEW)
        return any(not _is_own(bucket.key_of(item)) for item in answer.get(kind, ())) or bool(answer.get("IsTruncated"))

    @cached_property
    def _versioning(self) -> str | None:
        return self._bucket(patience=FOLDER_PATIENCE).versioning()

    @property
    def _deletes_versions(self) -> bool:
        return self._versioning is not None and self.delete_versions

    @property
    def may_hide(self) -> bool:
        return self._versioning is not None and not self.delete_versions

    def measure(self, folder: Folder) -> FolderNote | None:
        files = self._bucket(folder, FOLDER_PATIENCE).files(self._deletes_versions)
        return self._note_of(files) if files else None

    def delete_tree(self, folder: Folder, permit: Permit, check: FolderCheck) -> RemovedFolder | None:
        """Delete everything below a folder, with every version if asked for.

        Where a bucket keeps versions, a plain deletion deletes nothing: bytes still readable are counted apart from bytes gone.
        """
        bucket = self._bucket(folder, FOLDER_PATIENCE)
        files = bucket.files(self._deletes_versions)
        if files:
            check(self._note_of(files))
        is_marked = False
        for part in _parts(_due(files)):
            results = _Request(bucket, part, permit).send()
            _check_done(bucket, results, *_NOT_THERE, Outcome.HIDDEN)
            is_marked |= any(outcome is Outcome.HIDDEN for _, outcome, _ in results)

        def check_none_left() -> None:
            if left := bucket.files(self._deletes_versions):
                raise OSError(f"{len(left)} of {len(files)} places stay: {bucket.prefix}{min(file.key for file in left)}")

        if files:
            retry(check_none_left, FOLDER_PATIENCE)
        size = sum(file.size or 0 for file in files)
        hidden = self._hidden_bytes(bucket, size if is_marked else None) if self.may_hide else None
        if hidden is not None:
            return RemovedFolder(0, hidden)
        return RemovedFolder(size) if files else None

    def _note_of(self, files: Sequence[Entry]) -> FolderNote:
        is_kept = self._versioning == "Enabled" and not self._deletes_versions
        freed = 0 if is_kept else sum(file.size or 0 for file in files)
        return FolderNote.of_files(freed, ((file.size or 0, file.time) for file in files))

    def _hidden_bytes(self, bucket: "_Bucket", otherwise: int | None) -> int | None:
        try:
            versions = [file for file in bucket.files(versions=True) if file.size is not None]
        except OSError as fault:
            if isinstance(fault, PermissionError) or fault.errno in _UNKNOWN:
                return otherwise
            raise
        return sum(file.size or 0 for file in versions) if versions else None

    def undo_fault(self) -> str | None:
        bucket = self._bucket(patience=FOLDER_PATIENCE)
        with self._refusing():
            status = bucket.versioning()
        state = {"Suspended": "suspended", _UNTOLD: "unknown (grant s3:GetBucketVersioning)"}.get(status or "", "off")
        fault = f"The versioning of the bucket {bucket.name} is {state}. Turn on versioning, or leave `undo` out."
        return None if status == "Enabled" else fault

    def lifecycle_warnings(self, undo: Duration) -> list[str]:
        bucket = self._bucket(patience=FOLDER_PATIENCE)
        try:
            rules = bucket.ask("get_bucket_lifecycle_configuration").get("Rules", ())
        except Exception as fault:  # noqa: BLE001 - drivers have exceptions of their own
            unread = (
                f"The lifecycle rules of the bucket {bucket.name} can't be read ({error_text(fault)}). One that deletes "
                f"noncurrent versions sooner than `undo: {undo}` shortens it. Grant s3:GetLifecycleConfiguration."
            )
            return [] if _code_of(fault) == "NoSuchLifecycleConfiguration" else [unread]
        warnings = []
        for rule in rules:
            scope, expiration = rule.get("Filter", {}), rule.get("NoncurrentVersionExpiration", {})
            start = rule.get("Prefix") or scope.get("Prefix") or scope.get("And", {}).get("Prefix", "")
            overlaps = start.startswith(bucket.prefix) or bucket.prefix.startswith(start)
            days = Duration(days=expiration.get("NoncurrentDays", 0))
            if rule["Status"] == "Enabled" and expiration and overlaps and days.length < undo.length:
                warnings.append(
                    f"The lifecycle rule {rule.get('ID', 'without a name')} of the bucket {bucket.name} deletes noncurrent "
                    f"versions after {days.words()}, sooner than `undo: {undo}`. Lengthen the rule, or shorten `undo`."
                )
        return warnings

    def carry_out(
        self, order: Order, due: Sequence[DueObject], check: ObjectCheck, permit: Permit, pace: DeletionPace, parallelism: int
    ) -> list[SweptTarget]:
        if order is Order.SET_ASIDE and (refusal := self.undo_fault()):
            raise Refused(refusal)
        trash = _Trash(self._bucket(), permit, check, pace)
        results = trash.carry_out(order, due, parallelism)
        if order is Order.DELETE_ASIDE:
            # over nothing, a marker may stay
            gone = {key for (key, *_), outcome, _ in results if outcome is Outcome.DELETED} & trash.noted.keys()
            trash.carry_out(order, [DueObject(key, trash.noted[key]) for key in gone], parallelism)
        return _swept(results, trash.present)

    def carry_out_tree(
        self, order: Order, folder: Folder, aside: str, permit: Permit, check: FolderCheck
    ) -> RemovedFolder | None:
        if order is Order.SET_ASIDE and (refusal := self.undo_fault()):
            raise Refused(refusal)
        root, manifest = self._bucket(patience=FOLDER_PATIENCE), f"{TRASH}/{aside}.json"
        trash = _FolderTrash(self._bucket(folder, FOLDER_PATIENCE), permit, root=root, manifest=manifest, folder=folder)
        trash.read()
        if order is not Order.DELETE_ASIDE:
            check_origin(trash.folder, folder)
        trash.bucket = self._bucket(trash.folder, FOLDER_PATIENCE)
        if not trash.is_listed and order is not Order.DELETE_ASIDE:
            trash.list_present(self._deletes_versions)
        if files := [*trash.current, *trash.older]:
            check(self._note_of(files))
            return {Order.SET_ASIDE: trash.hide, Order.RESTORE: trash.show}.get(order, trash.delete)()
        if order is Order.RESTORE:
            raise Refused(f"{trash.bucket.prefix} is empty, and the trash has no {manifest}.")
        return None

    def _bucket(self, folder: Folder = (), patience: RetryPolicy | None = None) -> "_Bucket":
        fs, path = open_file_system(self.location)
        name, _, key = path.partition(SEPARATOR)
        prefix = SEPARATOR.join((*filter(None, [key.rstrip(SEPARATOR)]), *folder, ""))
        return _Bucket(fs, name, prefix, patience or PATIENCE)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except OSError as fault:
            raise Refused(
                f"{mask_secrets(self.location)} can't be listed: {fault or type(fault).__name__}. Check the bucket's name, "
                "its permissions (s3:ListBucket, s3:ListBucketVersions, s3:GetObject) and that the server is up."
            ) from fault


@dataclass(frozen=True)
class _Bucket:
    """Requests to one bucket. Keys of entries are below the prefix."""

    fs: FileSystem
    name: str
    prefix: str
    patience: RetryPolicy

    def ask(self, request: str, **facts: Any) -> Answer:
        answer: Answer = retry(lambda: self.fs.call_s3(request, Bucket=self.name, **facts), self.patience)
        return answer

    def answers(self, request: str, first: Mapping[str, str] | None = None, **facts: Any) -> Iterator[Answer]:
        """Every page of an answer. What is only for the first page is not asked again."""
        more = first or {}
        while True:
            answer = self.ask(request, **facts, **more)
            keys = {item["Key"] for kind in ("Versions", "DeleteMarkers") for item in answer.get(kind, ())}
            if keys and answer.get("NextKeyMarker", "") not in {"", *keys}:
                # A Ceph does not encode this one, but the client decodes it: it may be another key, even an earlier one.
                answer = {**answer, "NextKeyMarker": max(keys)}
            yield answer
            if not answer.get("IsTruncated"):
                return
            if token := answer.get("NextContinuationToken"):
                more = {"ContinuationToken": token}
                continue
            more = {"KeyMarker": answer["NextKeyMarker"]}
            if version := answer.get("NextVersionIdMarker"):
                more["VersionIdMarker"] = version

    def key_of(self, item: Answer) -> str:
        return str(item["Key"])[len(self.prefix) :]

    def versioning(self) -> str | None:
        """Status of versioning; None for a bucket that never kept versions."""
        try:
            return self.ask("get_bucket_versioning").get("Status")
        except OSError as fault:
            if isinstance(fault, PermissionError) or fault.errno in _UNKNOWN:
                return _UNTOLD
            raise

    def keeps_versions(self) -> bool:
        """Tell whether the bucket ever kept versions. False if that may not be asked: then ETags tell objects apart."""
        return self.versioning() not in (None, _UNTOLD)

    def files(self, versions: bool) -> list[Entry]:
        """Everything below the prefix, or every version of it; delete markers have no size."""
        if versions:
            return [entry for stack in self.stacks().values() for entry in (*stack.versions, *stack.markers)]
        pages = self.answers("list_objects_v2", Prefix=self.prefix, MaxKeys=PAGE)
        return [self._entry(item, grain=1) for page in pages for item in page.get("Contents", ())]

    def stacks(self, *keys: str) -> "_Stacks":
        """Return what is kept under some keys, and what is listed with them; without keys, everything."""
        stacks: _Stacks = defaultdict(_Stack)
        common, grain = os.path.commonprefix(keys), _SECOND if len(keys) == 1 else 1  # noqa: RUF071 - keys are no paths
        for page in self.answers("list_object_versions", Prefix=f"{self.prefix}{common}", MaxKeys=PAGE):
            for item in (*page.get("Versions", ()), *page.get("DeleteMarkers", ())):
                stack, entry = stacks[self.key_of(item)], self._entry({"Size": None, **item}, grain=grain)
                (stack.markers if entry.size is None else stack.versions).append(entry)
                stack.is_hidden |= entry.size is None and item["IsLatest"]
            if len(keys) == 1 and stacks.keys() - {common}:
                break
        return stacks

    def marker_over(self, key: str, version: str | None, stack: "_Stack") -> str | None:
        """Return the newest delete marker of a key, if it lies directly above a version."""
        if not (stack.is_hidden and stack.newest == version):
            return None
        marker, whole = stack.markers[0].version, self.prefix + key
        if len(stack.markers) == 1:
            return marker
        # an answer does not order markers and versions among each other
        below = self.ask("list_object_versions", Prefix=whole, KeyMarker=whole, VersionIdMarker=marker, MaxKeys=1)
        return marker if any(item["VersionId"] == version for item in below.get("Versions", ())) else None

    def pages(self, after: str | None, up_to: str | None, versions: bool) -> Iterator[_Page]:
        """Objects after a key and up to another, both with the prefix."""
        request, kind = _LISTINGS[versions]
        first = {} if after is None else {"KeyMarker" if versions else "StartAfter": after}
        for answer in self.answers(request, first, Prefix=self.prefix, MaxKeys=PAGE):
            items, last = answer.get(kind, ()), None
            if answer.get("IsTruncated"):
                last = answer["NextKeyMarker"] if versions else items[-1]["Key"] if items else after or ""
            entries = [self._entry(item) for item in items if not versions or item["IsLatest"]]
            is_last = last is None or (up_to is not None and last >= up_to)
            yield _Page([entry for entry in entries if self._is_between(after, entry.key, up_to)], None if is_last else last)
            if is_last:
                return

    def _is_between(self, after: str | None, key: str, up_to: str | None) -> bool:
        # The placeholder of the root itself is not below it. Some servers include the key to start after.
        whole = self.prefix + key
        return not _is_own(key) and (after is None or whole > after) and (up_to is None or whole <= up_to)

    def head(self, key: str, versions: bool) -> Entry | None:
        whole = self.prefix + key
        if not _DOTS.isdisjoint(whole.split(SEPARATOR)):
            # HTTP clients may normalize the dots, which addresses another object; a listing sends the key as text.
            listed = (entry for page in self.pages(_just_before(whole), whole, versions) for entry in page.entries)
            return next((entry for entry in listed if entry.key == key), None)
        try:
            answer = self.ask("head_object", Key=whole)
        except FileNotFoundError:
            return None
        # Some servers omit the version id `null`.
        return self._entry({"Key": whole, **({"VersionId": NO_VERSION} if versions else {}), **answer}, size="ContentLength")

    def splits(self, wanted: int) -> list[str]:
        """Keys at which to split the listing into this many parts; none if one page holds everything."""
        asked = 1
        if not self.ask("list_objects_v2", Prefix=self.prefix, MaxKeys=PAGE).get("IsTruncated"):
            return []
        open_, whole = [self.prefix], set[str]()
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            while open_ and asked + len(open_) < _PROBES and len(open_) + len(whole) < wanted * _SPLITS:
                below: list[str] = []
                for prefix, (longer, requests) in zip(open_, threads.map(self._longer, open_), strict=True):
                    asked += requests
                    whole |= set() if longer else {prefix}
                    below += longer
                open_ = below
        edges = sorted({*open_, *whole} - {self.prefix})
        return sorted({edges[len(edges) * number // wanted] for number in range(1, wanted)}) if edges else []

    def _longer(self, prefix: str) -> tuple[list[str], int]:
        # longer prefixes, by separators or else by single characters, and the number of requests made; none if one page has all
        page = self.ask("list_objects_v2", Prefix=prefix, Delimiter=SEPARATOR, MaxKeys=PAGE)
        folders = [item["Prefix"] for item in page.get("CommonPrefixes", ())]
        if not page.get("IsTruncated"):
            return folders, 1
        names = sorted([*folders, *(item["Key"] for item in page.get("Contents", ()))])
        common, requests = os.path.commonprefix([names[0], names[-1]]), 2  # noqa: RUF071 - keys are no paths
        if len(common) > len(prefix) and self._next(prefix, common + _LAST) is None:
            prefix = common
        longer: list[str] = []
        after = prefix
        while (key := self._next(prefix, after)) is not None and requests < _PROBES // 4:
            requests += 1
            longer.append(key[: len(prefix) + 1])
            after = longer[-1] + _LAST
        return longer, requests

    def _next(self, prefix: str, after: str) -> str | None:
        page = self.ask("list_objects_v2", Prefix=prefix, StartAfter=after, MaxKeys=1)
        return next((str(item["Key"]) for item in page.get("Contents", ())), None)

    def _entry(self, item: Answer, size: str = "Size", grain: int = _SECOND) -> Entry:
        # times are whole seconds, the precision of an answer about one object, unless only listings are compared
        time = time_in_ns(item.get("LastModified"))
        etag = str(item.get("ETag") or "").strip('"') or None
        return Entry(
            self.key_of(item), item[size], time if time is None else time // grain * grain, item.get("VersionId"), etag=etag
        )


@dataclass
class _Stack:
    """Everything a bucket keeps under a key; versions and markers each the newest first. Markers have no size."""

    versions: list[Entry] = field(default_factory=list)
    markers: list[Entry] = field(default_factory=list)
    # a marker is the newest of all
    is_hidden: bool = False

    @property
    def newest(self) -> str | None:
        return self.versions[0].version if self.versions else ""

    def shows(self, version: str | None) -> bool:
        return not self.is_hidden and self.newest == version

    def find(self, version: str | None) -> Entry | None:
        return next((entry for entry in (*self.versions, *self.markers) if entry.version == version), None)


# empty for a key of which nothing is kept
_Stacks = defaultdict[str, _Stack]


@dataclass
class _Trash:
    """Versions behind delete markers."""

    bucket: _Bucket
    permit: Permit
    check: ObjectCheck = lambda _: None
    pace: DeletionPace | None = None
    # delete markers by key: over versions that are set aside, and those of them that this call placed
    noted: dict[str, str] = field(default_factory=dict)
    placed: dict[str, str | None] = field(default_factory=dict)
    # versions that were hidden or deleted, by key
    present: dict[str, Entry] = field(default_factory=dict)

    def carry_out(self, order: Order, objects: Sequence[DueObject], parallelism: int = 1) -> list[Result]:
        look, settle = partial(self._look, order), partial(self._settle, order)
        requests = [_Request(self.bucket, part, self.permit, look, self.pace, settle) for part in _parts(objects)]
        return _sent(requests, parallelism)

    def _stacks(self, keys: Sequence[str]) -> _Stacks:
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            read = zip(keys, threads.map(self.bucket.stacks, keys), strict=True)
            return defaultdict(_Stack, {key: stacks[key] for key, stacks in read})

    def _look(self, order: Order, wanted: Sequence[DueObject]) -> Iterator[tuple[DueObject, Verdict]]:
        stacks = self._stacks(list({due.key for due in wanted}))
        judge = {Order.SET_ASIDE: self._judge_hiding, Order.RESTORE: self._judge_showing}.get(order, self._judge_deleting)
        for due in wanted:
            stack = stacks[due.key]
            # without a version the newest that fits is meant
            fits = due.version or next((entry.version for entry in stack.versions if not self.check(entry)), None)
            yield due, judge(due._replace(version=fits), stack)

    def _judge_hiding(self, due: DueObject, stack: _Stack) -> Verdict:
        if stack.is_hidden and stack.newest == due.version:
            self.present[due.key], self.noted[due.key] = stack.versions[0], str(stack.markers[0].version)
            return Outcome.SET_ASIDE, None
        if (marker := self.placed.get(due.key)) and stack.find(marker):
            # it hides a version that was written after the look
            return DueObject(due.key, marker)
        if stack.shows(due.version):
            if due.key in self.placed:
                return Outcome.FAILED, "its delete marker was removed at once"
            why = self.check(stack.versions[0])
            return (Outcome.SPARED, why) if why else DueObject(due.key)
        is_replaced = stack.find(due.version) or (stack.versions and not stack.is_hidden)
        return (Outcome.SPARED, ANOTHER) if is_replaced else (Outcome.ALREADY_GONE, None)

    def _judge_showing(self, due: DueObject, stack: _Stack) -> Verdict:
        entry, marker = stack.find(due.version), self.bucket.marker_over(due.key, due.version, stack)
        if entry is None:
            return Outcome.FAILED, f"its version {due.version} is gone"
        if why := self.check(entry):
            return Outcome.FAILED, why
        if marker and self.noted.get(due.key, marker) == marker:
            return DueObject(due.key, marker)
        if stack.shows(due.version):
            return Outcome.RESTORED, None
        latest = f"delete marker {stack.markers[0].version}" if stack.is_hidden else f"version {stack.versions[0].version}"
        return Outcome.FAILED, f"the {latest} is newer"

    def _judge_deleting(self, due: DueObject, stack: _Stack) -> Verdict:
        entry = stack.find(due.version)
        # a marker stays while it hides a version that stays
        if entry is None or (stack.is_hidden and stack.versions and entry == stack.markers[0]):
            # the answer to the first request may have been lost
            seen = self.present.get(due.key)
            return Outcome.DELETED if seen and seen.version == due.version else Outcome.ALREADY_GONE, None
        if entry in stack.markers:
            return due
        if why := "it is in sight again" if stack.shows(due.version) else self.check(entry):
            return Outcome.SPARED, why
        self.present[due.key] = entry
        if due.key not in self.noted and (marker := self.bucket.marker_over(due.key, due.version, stack)):
            self.noted[due.key] = marker
        return due

    def _settle(self, order: Order, due: DueObject, outcome: Outcome, answer: Answer) -> Outcome | None:
        if order is Order.SET_ASIDE and outcome is not Outcome.FAILED:
            self.placed[due.key] = answer.get("DeleteMarkerVersionId")
            return None
        if outcome is Outcome.FAILED and due.key in self.placed:
            # its marker may hide another version
            return Outcome.WITHHELD
        return Outcome.RESTORED if order is Order.RESTORE else outcome


@dataclass(kw_only=True)
class _FolderTrash(_Trash):
    """A folder behind delete markers, listed in a manifest in the trash of its root. It is hidden or shown whole."""

    root: _Bucket
    manifest: str
    folder: Folder
    # what was in sight; every other version and marker, if these go too
    current: Sequence[Entry] = ()
    older: Sequence[Entry] = ()
    is_listed: bool = False

    def read(self) -> None:
        """Read the manifest if there is one, also if a lifecycle rule has hidden it."""
        if versions := self.root.stacks(self.manifest)[self.manifest].versions:
            place = f"{self.root.name}/{self.root.prefix}{self.manifest}"
            # without `start` the driver asks for the size of what is in sight
            text = self.root.fs.cat_file(place, version_id=versions[0].version, start=0)
            self.noted, current, older, *folder = json.loads(text)
            self.is_listed = True
            self.current, self.older = ([Entry(*file) for file in part] for part in (current, older))
            self.folder = tuple(*folder) or self.folder

    def list_present(self, is_every: bool) -> None:
        stacks = self.bucket.stacks().values()
        self.current = [stack.versions[0] for stack in stacks if not stack.is_hidden]
        if is_every:
            self.older = [file for stack in stacks for file in (*stack.versions[not stack.is_hidden :], *stack.markers)]

    def write(self) -> None:
        self.permit()
        body = json.dumps([self.noted, self.current, self.older, self.folder]).encode()
        self.root.fs.call_s3("put_object", Bucket=self.root.name, Key=self.root.prefix + self.manifest, Body=body)

    def remove(self) -> None:
        stack = self.root.stacks(self.manifest)[self.manifest]
        request = _Request(self.root, _due([*stack.versions, *stack.markers]), self.permit)
        _check_done(self.root, request.send(), *_NOT_THERE)

    def carry_out(self, order: Order, objects: Sequence[DueObject], parallelism: int = 1) -> list[Result]:
        settled = [(due, *verdict) for due, verdict in self._look(order, objects) if not isinstance(verdict, DueObject)]
        if any(outcome not in (_NOT_THERE if order.deletes else (order.done,)) for _, outcome, _ in settled):
            return settled
        return super().carry_out(order, objects, parallelism)

    def _stacks(self, keys: Sequence[str]) -> _Stacks:
        return self.bucket.stacks(*keys)

    def hide(self) -> RemovedFolder:
        if not self.is_listed:
            # first, so that a killed call can be finished
            self.write()
        try:
            _check_done(self.bucket, self.carry_out(Order.SET_ASIDE, _due(self.current)), Outcome.SET_ASIDE)
            if visible := self.bucket.files(versions=False):
                raise FolderChanged(f"{quote(self.bucket.prefix + visible[0].key, 200)} was written since it was planned.")
            self.write()
        except Withheld:
            raise
        except Exception as fault:
            try:
                self._bring_back([file for file in self.current if file.key in self.present])
            except Exception as second:
                raise Withheld(f"{error_text(fault)} A part of it stays hidden for now: {error_text(second)}") from second
            raise
        return RemovedFolder(sum(file.size or 0 for file in (*self.current, *self.older)))

    def show(self) -> RemovedFolder:
        if self.is_listed:
            visible = {file.key for file in self.bucket.files(versions=False)}
            if strange := visible - {file.key for file in self.current}:
                raise Refused(f"{quote(self.bucket.prefix + min(strange), 200)} was written in its place. Move it away first.")
            self._bring_back(self.current)
        return RemovedFolder(0)

    def _bring_back(self, files: Sequence[Entry]) -> None:
        results = self.carry_out(Order.RESTORE, _due(files))
        try:
            _check_done(self.bucket, results, Outcome.RESTORED)
            self.remove()
        except OSError as fault:
            if any(outcome is Outcome.RESTORED for _, outcome, _ in results):
                raise Withheld(f"A part of it is back: {error_text(fault)}") from fault
            raise

    def delete(self) -> RemovedFolder | None:
        """Delete the versions, then the markers, so that nothing comes into sight."""
        sizes = {due: file.size for file in (*self.current, *self.older) for due in _due([file])}
        results = self.carry_out(Order.DELETE_ASIDE, [due for due, size in sizes.items() if size is not None])
        _check_done(self.bucket, results, *_NOT_THERE)
        markers = [due for due, size in sizes.items() if size is None] + [DueObject(*noted) for noted in self.noted.items()]
        _check_done(self.bucket, self.carry_out(Order.DELETE_ASIDE, markers), *_NOT_THERE)
        self.remove()
        gone = [sizes[due] or 0 for due, outcome, _ in results if outcome is Outcome.DELETED]
        return RemovedFolder(sum(gone)) if gone else None


class _Request:
    """A request to delete objects, repeated for those that were refused for a transient reason."""

    def __init__(
        self,
        bucket: _Bucket,
        objects: Sequence[DueObject],
        permit: Permit,
        look: Look | None = None,
        pace: DeletionPace | None = None,
        settle: Settle | None = None,
    ) -> None:
        self.bucket = replace(bucket, fs=without_retries(bucket.fs, os.getpid()))
        self.permit, self.pace, self.settle = permit, pace or DeletionPace(0), settle
        self.look: Look = look or (lambda wanted: ((due, due) for due in wanted))
        self.left = {(due.key, due.version): due for due in objects}
        self.results: list[Result] = []
        # more may be done than is known
        self.is_unsure = False

    def send(self) -> list[Result]:
        """Return the outcome of each object. Raises nothing: a failure becomes the outcome of all remaining objects."""
        try:
            retry(self._attempt, DELETE_PATIENCE)
        except Withheld as fault:
            self._end([(due, Outcome.WITHHELD, str(fault)) for due in self.left.values()])
        except Exception as fault:  # noqa: BLE001 - drivers have exceptions of their own
            error = str(fault) if isinstance(fault, _PassingFault) else error_text(fault)
            outcome = Outcome.WITHHELD if self.settle and self.is_unsure else Outcome.FAILED
            self._end([(due, outcome, error) for due in self.left.values()])
        return self.results

    def _end(self, results: Sequence[Result]) -> None:
        self.results += results
        for due, _, _ in results:
            del self.left[due.key, due.version]

    def _attempt(self) -> None:
        self.pace.wait(len(self.left))
        going: dict[tuple[str, str | None], DueObject] = {}
        names = []
        for due, verdict in self.look(list(self.left.values())):
            if isinstance(verdict, DueObject):
                going[verdict.key, verdict.version] = due
                names.append(self._name(verdict))
            else:
                self._end([(due, *verdict)])
        if not going:
            return
        # inside the repeated function, so that each attempt asks again
        self.permit()
        try:
            if _NOT_IN_XML.search(names[0]["Key"]):
                answer = self._delete_alone(names[0])
            else:
                objects = {"Objects": names, "Quiet": False}
                answer = self.bucket.fs.call_s3("delete_objects", Bucket=self.bucket.name, Delete=objects)
        except Exception as fault:
            if not _may_pass(fault):
                raise
            raise self._again({_code_of(fault) or type(fault).__name__}) from fault
        items = (item for kind in ("Deleted", "Errors") for item in answer.get(kind, ()))
        answers, codes = {name: item for item in items for name in self._named(item, going)}, set[str]()
        for name, due in going.items():
            item = answers.get(name, {"Code": ""})
            outcome, error = _outcome(name, item)
            if item.get("Code") in _PASSING:
                codes.add(item["Code"])
            elif settled := self.settle(due, outcome, item) if self.settle else outcome:
                self._end([(due, settled, error)])
        if codes:
            raise self._again(codes)
        if self.left:
            # without a pause: nothing was refused
            self.is_unsure = True
            self._attempt()

    def _again(self, codes: set[str]) -> _PassingFault:
        self.is_unsure = True
        if _TOO_FAST & codes:
            self.pace.halve()
        return _PassingFault(f"the store refused it repeatedly: {', '.join(sorted(codes)).strip(', ') or 'no reason given'}")

    def _name(self, due: DueObject) -> dict[str, str]:
        name = {"Key": self.bucket.prefix + due.key}
        if due.version is not None:
            return {**name, "VersionId": due.version}
        return {**name, "ETag": due.etag} if due.etag else name

    def _named(self, answer: Answer, going: Mapping[tuple[str, str | None], DueObject]) -> list[tuple[str, str | None]]:
        # some servers leave versions out of an answer
        key = self.bucket.key_of(answer)
        for version in (answer.get("VersionId"), None):
            if (key, version) in going:
                return [(key, version)]
        return [name for name in going if name[0] == key]

    def _delete_alone(self, name: Mapping[str, str]) -> Answer:
        if not _DOTS.isdisjoint(name["Key"].split(SEPARATOR)):
            # on its way such an address may turn into that of another object
            raise PermissionError("it cannot be named in a request: remove it by hand")
        given = {fact: value for fact, value in name.items() if fact != "ETag"}
        if "ETag" in name:
            # The header needs quotes around the ETag, the XML list has none.
            given["IfMatch"] = f'"{name["ETag"]}"'
        try:
            answer = self.bucket.fs.call_s3("delete_object", Bucket=self.bucket.name, **given)
        except OSError as fault:
            if (code := _code_of(fault)) in _GONE | _CHANGED:
                return {"Errors": [{"Key": name["Key"], "Code": code}]}
            raise
        marker = {"DeleteMarker": answer.get("DeleteMarker"), "DeleteMarkerVersionId": answer.get("VersionId")}
        return {"Deleted": [{"Key": name["Key"], **marker}]}


def _outcome(name: tuple[str, str | None], answer: Answer) -> tuple[Outcome, str | None]:
    if (code := answer.get("Code")) is None:
        # The bucket keeps versions and none was named: the object is hidden, but still readable.
        return (Outcome.HIDDEN if answer.get("DeleteMarker") and name[1] is None else Outcome.DELETED), None
    if code in _GONE:
        return Outcome.ALREADY_GONE, None
    if code in _CHANGED:
        return Outcome.SPARED, ANOTHER
    return Outcome.FAILED, ": ".join(filter(None, (code, answer.get("Message"))))


def _due(entries: Sequence[Entry]) -> list[DueObject]:
    return [DueObject(entry.key, entry.version) for entry in entries]


def _parts(objects: Sequence[DueObject]) -> list[Sequence[DueObject]]:
    # keys that XML can't hold go alone
    together = [due for due in objects if not _NOT_IN_XML.search(due.key)]
    parts: list[Sequence[DueObject]] = [
        together[at : at + KEYS_PER_REQUEST] for at in range(0, len(together), KEYS_PER_REQUEST)
    ]
    return parts + [[due] for due in objects if _NOT_IN_XML.search(due.key)]


def _sent(requests: Sequence[_Request], parallelism: int) -> list[Result]:
    with ThreadPoolExecutor(max(1, min(parallelism, len(requests)))) as threads:
        return [result for part in threads.map(_Request.send, requests) for result in part]


def _swept(results: Sequence[Result], present: Mapping[str, Entry]) -> list[SweptTarget]:
    swept = []
    for due, outcome, error in results:
        size = present[due.key].size or 0 if due.key in present else 0
        freed = size if outcome in (Outcome.DELETED, Outcome.SET_ASIDE) else 0
        if outcome is Outcome.FAILED:
            error = f"{quote(due.key, 200)} stays: {error}"
        swept.append(SweptTarget(due.key, outcome, freed, error, size if outcome is Outcome.HIDDEN else 0))
    return swept


def _check_done(bucket: _Bucket, results: Sequence[Result], *done: Outcome) -> None:
    if stays := [result for result in results if result[1] not in done]:
        due, outcome, error = next((result for result in stays if result[1] is Outcome.WITHHELD), stays[0])
        if outcome is Outcome.WITHHELD:
            raise Withheld(error)
        message = f"{len(stays)} of {len(results)} objects stay: {quote(bucket.prefix + due.key, 200)}: {error or 'it is gone'}"
        raise OSError(message) if outcome is Outcome.FAILED else FolderChanged(message)


def _is_own(key: str) -> bool:
    # the placeholder of a folder itself, the file that identifies a root, and the lists of what is set aside
    return key in ("", IDENTITY) or key.startswith(f"{TRASH}{SEPARATOR}")


def _code_of(fault: Exception) -> str:
    # the driver keeps the response behind its own exception
    answer = getattr(fault.__cause__, "response", None) or {}
    return str(answer.get("Error", {}).get("Code", ""))


def _may_pass(fault: Exception) -> bool:
    if code := _code_of(fault):
        return code in _PASSING
    return not isinstance(fault, FileNotFoundError | PermissionError) and (
        isinstance(fault, OSError) or type(fault).__module__.partition(".")[0] in _DRIVERS
    )


def _just_before(key: str) -> str:
    # with few strings between the two
    number = ord(key[-1])
    if number == 0:
        return key[:-1]
    # U+D800 to U+DFFF are surrogates, not characters.
    return key[:-1] + chr(0xD7FF if number == 0xE000 else number - 1) + _LAST

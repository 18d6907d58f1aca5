"""Places in buckets of S3 or a compatible server.

It makes S3's own requests: fsspec's driver ignores errors of single keys in a bulk deletion, takes names with * for patterns
and hides the objects that stand for folders. In a versioned bucket exactly the version is deleted that was planned. Elsewhere
the request names the ETag, with which AWS spares a changed object; other servers may ignore that condition, and then only the
look right before the request protects what was just written anew.
"""

import errno
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from typing import Any, NamedTuple

from retention_assets.clock import now
from retention_assets.errors import Refused, Withheld, quote
from retention_assets.outcomes import Outcome
from retention_assets.settings.places import mask_secrets
from retention_assets.sql.retry import RetryPolicy, retry
from retention_assets.stores.places.file_systems import FileSystem, open_file_system, server_time, without_retries
from retention_assets.stores.places.fsspec import FOLDER_PATIENCE, LASTING, check_not_empty, time_in_ns
from retention_assets.stores.places.protocol import (
    ANOTHER,
    IDENTITY,
    NO_VERSION,
    SEPARATOR,
    DeletionPace,
    DueObject,
    Entry,
    Folder,
    FolderCheck,
    FolderNote,
    ObjectCheck,
    RemovedFolder,
)
from retention_assets.stores.protocol import Permit, SweptTarget, error_text

Answer = Mapping[str, Any]
# an object, and why it failed or was spared
Result = tuple[DueObject, Outcome, str | None]
Look = Callable[[Sequence[DueObject]], Iterator[Result]]

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
_PASSING = {*_TOO_FAST, "InternalError", "OperationAborted", "RequestTimeout", "ConditionalRequestConflict", "500"}
_GONE = {"NoSuchKey", "NoSuchVersion", "NotFound", "404"}
_CHANGED = {"PreconditionFailed", "412"}
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
class S3Place:
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
            left = sorted({key for key in keys if key and key != IDENTITY})
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
                yield from (item["Prefix"][len(bucket.prefix) :] for item in page.get("CommonPrefixes", ()))
                keys = (bucket.key_of(item) for item in page.get("Contents", ()))
                yield from (key for key in keys if key not in ("", IDENTITY))

    def delete(
        self, objects: Sequence[DueObject], check: ObjectCheck, permit: Permit, pace: DeletionPace, parallelism: int
    ) -> list[SweptTarget]:
        """Delete objects, a thousand per request. A look precedes each request, also one that is repeated."""
        bucket = self._bucket(retries=False)
        present: dict[str, Entry] = {}

        def look(wanted: Sequence[DueObject]) -> Iterator[Result]:
            entries = {entry.key: entry for entry in self.find([due.key for due in wanted])}
            present.update(entries)
            for due in wanted:
                if due.key not in entries:
                    yield due, Outcome.ALREADY_GONE, None
                elif why := check(entries[due.key]):
                    yield due, Outcome.SPARED, why

        requests = [_Request(bucket, part, permit, look, pace) for part in _parts(objects)]
        with ThreadPoolExecutor(max(1, min(parallelism, len(requests)))) as threads:
            results = [result for part in threads.map(_Request.send, requests) for result in part]
        swept = []
        for due, outcome, error in results:
            size = present[due.key].size or 0 if due.key in present else 0
            freed, hidden = size if outcome is Outcome.DELETED else 0, size if outcome is Outcome.HIDDEN else 0
            if outcome is Outcome.FAILED:
                error = f"{quote(due.key, 200)} stays: {error}"
            swept.append(SweptTarget(due.key, outcome, freed, error, hidden))
        return swept

    def may_keep(self, key: str, version: str | None) -> bool:
        if version is None:
            return self._may_keep_versions
        bucket = self._bucket()
        try:
            bucket.fs.call_s3("head_object", Bucket=bucket.name, Key=bucket.prefix + key, VersionId=version)
        except FileNotFoundError:
            return False
        except Exception as fault:  # noqa: BLE001 - drivers have exceptions of their own, and who can't look does not know
            return not (isinstance(fault, OSError) and _code_of(fault) in _GONE)
        return True

    @cached_property
    def _may_keep_versions(self) -> bool:
        try:
            return self._bucket().versioning() is not None
        except Exception:  # noqa: BLE001 - as above
            return True

    def check_root(self) -> None:
        check_not_empty(self, self.location)

    def has(self, folder: Folder) -> bool:
        """Tell whether anything is in a folder; an entry for the folder itself and a root's identity file don't count."""
        bucket = self._bucket(folder, FOLDER_PATIENCE)
        # where every version goes, versions alone may be left below a root
        request, kind = _LISTINGS[self._deletes_versions]
        answer = bucket.ask(request, Prefix=bucket.prefix, MaxKeys=_FEW)
        return any(bucket.key_of(item) not in ("", IDENTITY) for item in answer.get(kind, ())) or bool(
            answer.get("IsTruncated")
        )

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
        deleting = self._bucket(folder, retries=False)
        for part in _parts([DueObject(file.key, file.version) for file in files]):
            results = _Request(deleting, part, permit).send()
            if withheld := next((error for _, outcome, error in results if outcome is Outcome.WITHHELD), None):
                raise Withheld(withheld)
            if failed := [(due, error) for due, outcome, error in results if outcome is Outcome.FAILED]:
                due, error = failed[0]
                raise OSError(f"{len(failed)} of {len(part)} objects stay: {quote(bucket.prefix + due.key, 200)}: {error}")
            is_marked = is_marked or any(outcome is Outcome.HIDDEN for _, outcome, _ in results)

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
            versions = bucket.files(versions=True, markers=False)
        except OSError as fault:
            if isinstance(fault, PermissionError) or fault.errno in _UNKNOWN:
                return otherwise
            raise
        return sum(file.size or 0 for file in versions) if versions else None

    def _bucket(self, folder: Folder = (), patience: RetryPolicy | None = None, retries: bool = True) -> "_Bucket":
        fs, path = open_file_system(self.location)
        name, _, key = path.partition(SEPARATOR)
        prefix = SEPARATOR.join((*filter(None, [key.rstrip(SEPARATOR)]), *folder, ""))
        return _Bucket(fs if retries else without_retries(fs, os.getpid()), name, prefix, patience or PATIENCE)

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

    def files(self, versions: bool, markers: bool = True) -> list[Entry]:
        """Everything below the prefix, or every version of it; delete markers have no bytes."""
        request, kind = _LISTINGS[versions]
        entries: list[Entry] = []
        for page in self.answers(request, Prefix=self.prefix, MaxKeys=PAGE):
            entries += [self._entry(item, grain=1) for item in page.get(kind, ())]
            hiding = page.get("DeleteMarkers", ()) if versions and markers else ()
            entries += [self._entry({**item, "Size": 0}, grain=1) for item in hiding]
        return entries

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
        return key not in ("", IDENTITY) and (after is None or whole > after) and (up_to is None or whole <= up_to)

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


class _Request:
    """A request to delete objects, repeated for those that were refused for a transient reason."""

    def __init__(
        self,
        bucket: _Bucket,
        objects: Sequence[DueObject],
        permit: Permit,
        look: Look | None = None,
        pace: DeletionPace | None = None,
    ) -> None:
        self.bucket, self.permit, self.look, self.pace = bucket, permit, look, pace or DeletionPace(0)
        self.left = {(due.key, due.version): due for due in objects}
        self.results: list[Result] = []

    def send(self) -> list[Result]:
        """Return the outcome of each object. Raises nothing: a failure becomes the outcome of all remaining objects."""
        try:
            retry(self._attempt, DELETE_PATIENCE)
        except Withheld as fault:
            self._end([(due, Outcome.WITHHELD, str(fault)) for due in self.left.values()])
        except Exception as fault:  # noqa: BLE001 - drivers have exceptions of their own
            error = str(fault) if isinstance(fault, _PassingFault) else error_text(fault)
            self._end([(due, Outcome.FAILED, error) for due in self.left.values()])
        return self.results

    def _end(self, results: Sequence[Result]) -> None:
        self.results += results
        for due, _, _ in results:
            del self.left[due.key, due.version]

    def _attempt(self) -> None:
        self.pace.wait(len(self.left))
        if self.look is not None:
            self._end(list(self.look(list(self.left.values()))))
        if not self.left:
            return
        # inside the repeated function, so that each attempt asks again
        self.permit()
        names = [self._name(due) for due in self.left.values()]
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
        errors = {due: error for error in answer.get("Errors", ()) for due in self._named(error)}
        deleted = {due: result for result in answer.get("Deleted", ()) for due in self._named(result) if due not in errors}
        self._end([(due, *_outcome(due, result)) for due, result in deleted.items()])
        self._end([(due, *_refusal(error)) for due, error in errors.items() if error["Code"] not in _PASSING])
        if self.left:
            raise self._again({errors[due]["Code"] for due in self.left.values() if due in errors})

    def _again(self, codes: set[str]) -> _PassingFault:
        if _TOO_FAST & codes:
            self.pace.halve()
        return _PassingFault(f"the store refused it repeatedly: {', '.join(sorted(codes)) or 'no reason given'}")

    def _name(self, due: DueObject) -> dict[str, str]:
        name = {"Key": self.bucket.prefix + due.key}
        if due.version is not None:
            return {**name, "VersionId": due.version}
        return {**name, "ETag": due.etag} if due.etag else name

    def _named(self, answer: Answer) -> list[DueObject]:
        # some servers leave versions out of an answer
        key = self.bucket.key_of(answer)
        for version in (answer.get("VersionId"), None):
            if due := self.left.get((key, version)):
                return [due]
        return [due for due in self.left.values() if due.key == key]

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
        return {"Deleted": [{"Key": name["Key"], "DeleteMarker": answer.get("DeleteMarker")}]}


def _outcome(due: DueObject, answer: Answer) -> tuple[Outcome, None]:
    # The bucket keeps versions and none was named: the object is hidden, but still readable.
    return (Outcome.HIDDEN if answer.get("DeleteMarker") and due.version is None else Outcome.DELETED), None


def _refusal(error: Answer) -> tuple[Outcome, str | None]:
    code = error["Code"]
    if code in _GONE:
        return Outcome.ALREADY_GONE, None
    if code in _CHANGED:
        return Outcome.SPARED, ANOTHER
    return Outcome.FAILED, ": ".join(filter(None, (code, error.get("Message"))))


def _parts(objects: Sequence[DueObject]) -> list[Sequence[DueObject]]:
    # keys that XML can't hold go alone
    together = [due for due in objects if not _NOT_IN_XML.search(due.key)]
    parts: list[Sequence[DueObject]] = [
        together[at : at + KEYS_PER_REQUEST] for at in range(0, len(together), KEYS_PER_REQUEST)
    ]
    return parts + [[due] for due in objects if _NOT_IN_XML.search(due.key)]


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

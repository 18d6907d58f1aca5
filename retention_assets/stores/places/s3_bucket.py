"""Requests that read a bucket: pages of its listing, versions and delete markers, single objects, splits of its keys."""

import errno
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from retention_assets.sql.retry import RetryPolicy, retry
from retention_assets.stores.places.file_systems import FileSystem
from retention_assets.stores.places.fsspec import LASTING, time_in_ns
from retention_assets.stores.places.protocol import IDENTITY, NO_VERSION, SEPARATOR, TRASH, Entry

Answer = Mapping[str, Any]

PAGE = 1_000
# requests that list objects, and their versions, with the key of the answer
LISTINGS = {False: ("list_objects_v2", "Contents"), True: ("list_object_versions", "Versions")}
AT_ONCE = 16
# most requests for finding splits, and candidate prefixes per share
_PROBES, _SPLITS = 400, 8
_SECOND = 1_000_000_000
_LAST = "\U0010ffff"
DOTS = {".", ".."}
# status of a bucket whose versioning may not be asked for
UNTOLD = "untold"
# servers that do not support versioning
UNSUPPORTED = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}

# Busy stores answer 503 SlowDown or 500 InternalError for a while.
PATIENCE = RetryPolicy(
    lambda fault: isinstance(fault, OSError) and not isinstance(fault, LASTING) and fault.errno not in UNSUPPORTED,
    attempts=8, pause=0.5, longest=30,
)  # fmt: skip


class Page(NamedTuple):
    """Some objects, and the last key covered; None at the end."""

    entries: list[Entry]
    last: str | None


@dataclass(frozen=True)
class Bucket:
    """Requests to one bucket. Keys of entries are below the prefix."""

    fs: FileSystem
    name: str
    prefix: str
    patience: RetryPolicy

    def ask(self, request: str, **facts: Any) -> Answer:
        answer: Answer = retry(lambda: self.fs.call_s3(request, Bucket=self.name, **facts), self.patience)
        return answer

    def answers(self, request: str, first: Mapping[str, str] | None = None, **facts: Any) -> Iterator[Answer]:
        """Yield the pages of an answer. Facts in `first` are sent for the first page only."""
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
            if isinstance(fault, PermissionError) or fault.errno in UNSUPPORTED:
                return UNTOLD
            raise

    def keeps_versions(self) -> bool:
        """Tell whether the bucket ever kept versions. False if that may not be asked: then ETags tell objects apart."""
        return self.versioning() not in (None, UNTOLD)

    def files(self, versions: bool) -> list[Entry]:
        """Everything below the prefix, or every version of it; delete markers have no size."""
        if versions:
            return [entry for stack in self.stacks().values() for entry in (*stack.versions, *stack.markers)]
        pages = self.answers("list_objects_v2", Prefix=self.prefix, MaxKeys=PAGE)
        return [self._entry(item, grain=1) for page in pages for item in page.get("Contents", ())]

    def stacks(self, *keys: str) -> "Stacks":
        """Return what is kept under some keys, and what is listed with them; without keys, everything."""
        stacks: Stacks = defaultdict(Stack)
        common, grain = os.path.commonprefix(keys), _SECOND if len(keys) == 1 else 1  # noqa: RUF071 - keys are no paths
        for page in self.answers("list_object_versions", Prefix=f"{self.prefix}{common}", MaxKeys=PAGE):
            for item in (*page.get("Versions", ()), *page.get("DeleteMarkers", ())):
                stack, entry = stacks[self.key_of(item)], self._entry({"Size": None, **item}, grain=grain)
                (stack.markers if entry.size is None else stack.versions).append(entry)
                stack.is_hidden |= entry.size is None and item["IsLatest"]
            if len(keys) == 1 and stacks.keys() - {common}:
                break
        return stacks

    def marker_over(self, key: str, version: str | None, stack: "Stack") -> str | None:
        """Return the newest delete marker of a key, if it lies directly above a version."""
        if not (stack.is_hidden and stack.newest == version):
            return None
        marker, whole = stack.markers[0].version, self.prefix + key
        if len(stack.markers) == 1:
            return marker
        # an answer lists markers and versions apart, without their common order
        next_entries = self.ask("list_object_versions", Prefix=whole, KeyMarker=whole, VersionIdMarker=marker, MaxKeys=1)
        return marker if any(item["VersionId"] == version for item in next_entries.get("Versions", ())) else None

    def pages(self, after: str | None, up_to: str | None, versions: bool) -> Iterator[Page]:
        """Objects after a key and up to another, both with the prefix."""
        request, kind = LISTINGS[versions]
        first = {} if after is None else {"KeyMarker" if versions else "StartAfter": after}
        for answer in self.answers(request, first, Prefix=self.prefix, MaxKeys=PAGE):
            items, last = answer.get(kind, ()), None
            if answer.get("IsTruncated"):
                last_listed = items[-1]["Key"] if items else after or ""
                last = answer["NextKeyMarker"] if versions else last_listed
            entries = [self._entry(item) for item in items if not versions or item["IsLatest"]]
            is_last = last is None or (up_to is not None and last >= up_to)
            covered = [entry for entry in entries if self._is_between(after, entry.key, up_to)]
            yield Page(covered, None if is_last else last)
            if is_last:
                return

    def _is_between(self, after: str | None, key: str, up_to: str | None) -> bool:
        # The placeholder of the root itself is not below it. Some servers include the key to start after.
        whole = self.prefix + key
        return not is_own(key) and (after is None or whole > after) and (up_to is None or whole <= up_to)

    def head(self, key: str, versions: bool) -> Entry | None:
        whole = self.prefix + key
        if not DOTS.isdisjoint(whole.split(SEPARATOR)):
            # HTTP clients may normalize the dots, which addresses another object; a listing sends the key as text.
            listed = (entry for page in self.pages(just_before(whole), whole, versions) for entry in page.entries)
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
        with ThreadPoolExecutor(AT_ONCE) as threads:
            while open_ and asked + len(open_) < _PROBES and len(open_) + len(whole) < wanted * _SPLITS:
                next_prefixes: list[str] = []
                for prefix, (longer, requests) in zip(open_, threads.map(self._longer, open_), strict=True):
                    asked += requests
                    whole |= set() if longer else {prefix}
                    next_prefixes += longer
                open_ = next_prefixes
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
class Stack:
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
Stacks = defaultdict[str, Stack]


def is_own(key: str) -> bool:
    # the placeholder of a folder itself, the file that identifies a root, and the lists of what is set aside
    return key in ("", IDENTITY) or key.startswith(f"{TRASH}{SEPARATOR}")


def code_of(fault: Exception) -> str:
    # the driver keeps the response behind its own exception
    answer = getattr(fault.__cause__, "response", None) or {}
    return str(answer.get("Error", {}).get("Code", ""))


def just_before(key: str) -> str:
    # a string before the key with few others between the two
    number = ord(key[-1])
    if number == 0:
        return key[:-1]
    # U+D800 to U+DFFF are surrogates, not characters.
    return key[:-1] + chr(0xD7FF if number == 0xE000 else number - 1) + _LAST

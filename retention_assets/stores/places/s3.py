"""Places in buckets of S3 or a compatible server.

It makes S3's own requests: fsspec's driver ignores errors of single keys in a bulk deletion, takes names with * for patterns
and hides the objects that stand for folders. In a versioned bucket exactly the version is deleted that was planned. Elsewhere
the request names the ETag, with which AWS spares a changed object; other servers may ignore that condition, and then only the
look right before the request protects what was just written anew.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial

from retention_assets.clock import now
from retention_assets.errors import Refused, quote
from retention_assets.outcomes import Order, Outcome
from retention_assets.policy.durations import Duration
from retention_assets.settings.places import mask_secrets
from retention_assets.sql.retry import RetryPolicy, retry
from retention_assets.stores.places import fsspec
from retention_assets.stores.places.delete_s3 import DeleteRequest, Result, Verdict, check_done, due_of, parts_of, send_all
from retention_assets.stores.places.file_systems import open_file_system, server_time
from retention_assets.stores.places.fsspec import check_not_empty
from retention_assets.stores.places.protocol import (
    SEPARATOR,
    TRASH,
    DeletionPace,
    DueObject,
    Entry,
    Folder,
    FolderCheck,
    FolderNote,
    ObjectCheck,
    Place,
    RemovedFolder,
    check_origin,
)
from retention_assets.stores.places.s3_bucket import (
    AT_ONCE,
    LISTINGS,
    PATIENCE,
    UNSUPPORTED,
    UNTOLD,
    Bucket,
    code_of,
    is_own,
    just_before,
)
from retention_assets.stores.places.s3_trash import NOT_THERE, FolderTrash, VersionTrash
from retention_assets.stores.protocol import Permit, SweptTarget, error_text

# keys asked for at once
_ASKED = 10_000
# A page of the listing is worth its request if it answers at least this many keys.
_DENSE = 8
# single requests before a page is tried again
_SPARSE = 64
# keys that show whether there is anything beside the root itself
_FEW = 10


@dataclass(frozen=True)
class KeyRange:
    """Keys after one and up to another, both with the prefix. None: from the first, or to the last."""

    after: str | None
    up_to: str | None
    versions: bool


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
        with self._refusing(), ThreadPoolExecutor(AT_ONCE) as threads:
            bucket = self._bucket()
            rest = sorted({key for key in keys if not is_own(key)})
            versions = bool(rest) and bucket.keeps_versions()
            head = partial(bucket.head, versions=versions)
            while rest:
                singly = _ASKED
                # In versioned buckets the key marker follows the server's own order, so no pages there.
                if len(rest) >= _DENSE and not versions:
                    page = next(bucket.pages(just_before(bucket.prefix + rest[0]), bucket.prefix + rest[-1], versions=False))
                    listed = {entry.key: entry for entry in page.entries}
                    count = len(rest) if page.last is None else bisect_right(rest, page.last, key=bucket.prefix.__add__)
                    covered, rest = rest[:count], rest[count:]
                    yield from (listed[key] for key in covered if key in listed)
                    # A sparse page is probably followed by more, so ask for some keys one by one before the next page.
                    singly = _SPARSE if len(covered) < _DENSE else 0
                yield from filter(None, threads.map(head, rest[:singly]))
                rest = rest[singly:]

    def names_in(self, folder: Folder = ()) -> Iterator[str]:
        with self._refusing():
            bucket = self._bucket(folder)
            for page in bucket.answers("list_objects_v2", Prefix=bucket.prefix, Delimiter=SEPARATOR):
                names = [item["Prefix"][len(bucket.prefix) :] for item in page.get("CommonPrefixes", ())]
                names += (bucket.key_of(item) for item in page.get("Contents", ()))
                yield from (name for name in names if not is_own(name))

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
                entry = entries.get(due.key)
                why = check(entry) if entry else None
                present_verdict: Verdict = (Outcome.SPARED, why) if why else due
                yield due, present_verdict if entry else (Outcome.ALREADY_GONE, None)

        requests = [DeleteRequest(bucket, part, permit, look, pace) for part in parts_of(objects)]
        return _swept(send_all(requests, parallelism), present)

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
        bucket = self._bucket(folder, fsspec.FOLDER_PATIENCE)
        # if every version is to be deleted, a root may have nothing but versions
        request, kind = LISTINGS[self._deletes_versions]
        answer = bucket.ask(request, Prefix=bucket.prefix, MaxKeys=_FEW)
        return any(not is_own(bucket.key_of(item)) for item in answer.get(kind, ())) or bool(answer.get("IsTruncated"))

    @cached_property
    def _versioning(self) -> str | None:
        return self._bucket(patience=fsspec.FOLDER_PATIENCE).versioning()

    @property
    def _deletes_versions(self) -> bool:
        return self._versioning is not None and self.delete_versions

    @property
    def may_hide(self) -> bool:
        return self._versioning is not None and not self.delete_versions

    def measure(self, folder: Folder) -> FolderNote | None:
        files = self._bucket(folder, fsspec.FOLDER_PATIENCE).files(self._deletes_versions)
        return self._note_of(files) if files else None

    def delete_tree(self, folder: Folder, permit: Permit, check: FolderCheck) -> RemovedFolder | None:
        """Delete everything below a folder, with every version if asked for.

        Where a bucket keeps versions, a plain deletion deletes nothing: bytes still readable are counted apart from bytes gone.
        """
        bucket = self._bucket(folder, fsspec.FOLDER_PATIENCE)
        files = bucket.files(self._deletes_versions)
        if files:
            check(self._note_of(files))
        is_marked = False
        for part in parts_of(due_of(files)):
            results = DeleteRequest(bucket, part, permit).send()
            check_done(bucket, results, *NOT_THERE, Outcome.HIDDEN)
            is_marked |= any(outcome is Outcome.HIDDEN for _, outcome, _ in results)

        def check_none_left() -> None:
            if staying := bucket.files(self._deletes_versions):
                raise OSError(f"{len(staying)} of {len(files)} places stay: {bucket.prefix}{min(file.key for file in staying)}")

        if files:
            retry(check_none_left, fsspec.FOLDER_PATIENCE)
        size = sum(file.size or 0 for file in files)
        hidden = self._hidden_bytes(bucket, size if is_marked else None) if self.may_hide else None
        if hidden is not None:
            return RemovedFolder(0, hidden)
        return RemovedFolder(size) if files else None

    def _note_of(self, files: Sequence[Entry]) -> FolderNote:
        is_kept = self._versioning == "Enabled" and not self._deletes_versions
        freed = 0 if is_kept else sum(file.size or 0 for file in files)
        return FolderNote.of_files(freed, ((file.size or 0, file.time) for file in files))

    def _hidden_bytes(self, bucket: "Bucket", otherwise: int | None) -> int | None:
        try:
            versions = [file for file in bucket.files(versions=True) if file.size is not None]
        except OSError as fault:
            if isinstance(fault, PermissionError) or fault.errno in UNSUPPORTED:
                return otherwise
            raise
        return sum(file.size or 0 for file in versions) if versions else None

    def undo_fault(self) -> str | None:
        bucket = self._bucket(patience=fsspec.FOLDER_PATIENCE)
        with self._refusing():
            status = bucket.versioning()
        state = {"Suspended": "suspended", UNTOLD: "unknown (grant s3:GetBucketVersioning)"}.get(status or "", "off")
        fault = f"The versioning of the bucket {bucket.name} is {state}. Turn on versioning, or leave `undo` out."
        return None if status == "Enabled" else fault

    def lifecycle_warnings(self, undo: Duration) -> list[str]:
        bucket = self._bucket(patience=fsspec.FOLDER_PATIENCE)
        try:
            rules = bucket.ask("get_bucket_lifecycle_configuration").get("Rules", ())
        except Exception as fault:  # noqa: BLE001 - drivers have exceptions of their own
            unread = (
                f"The lifecycle rules of the bucket {bucket.name} can't be read ({error_text(fault)}). One that deletes "
                f"noncurrent versions sooner than `undo: {undo}` shortens it. Grant s3:GetLifecycleConfiguration."
            )
            return [] if code_of(fault) == "NoSuchLifecycleConfiguration" else [unread]
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
        trash = VersionTrash(self._bucket(), permit, check, pace)
        results = trash.carry_out(order, due, parallelism)
        if order is Order.DELETE_ASIDE:
            # Delete the markers of deleted versions, too. It does no harm if one stays: it hides nothing.
            keys = {key for (key, *_), outcome, _ in results if outcome is Outcome.DELETED} & trash.noted.keys()
            trash.carry_out(order, [DueObject(key, trash.noted[key]) for key in keys], parallelism)
        return _swept(results, trash.present)

    def carry_out_tree(
        self, order: Order, folder: Folder, aside: str, permit: Permit, check: FolderCheck
    ) -> RemovedFolder | None:
        if order is Order.SET_ASIDE and (refusal := self.undo_fault()):
            raise Refused(refusal)
        root, manifest = self._bucket(patience=fsspec.FOLDER_PATIENCE), f"{TRASH}/{aside}.json"
        trash = FolderTrash(self._bucket(folder, fsspec.FOLDER_PATIENCE), permit, root=root, manifest=manifest, folder=folder)
        trash.read()
        if order is not Order.DELETE_ASIDE:
            check_origin(trash.folder, folder)
        trash.bucket = self._bucket(trash.folder, fsspec.FOLDER_PATIENCE)
        if not trash.is_listed and order is not Order.DELETE_ASIDE:
            trash.list_present(self._deletes_versions)
        if files := [*trash.current, *trash.older]:
            check(self._note_of(files))
            return {Order.SET_ASIDE: trash.hide, Order.RESTORE: trash.show}.get(order, trash.delete)()
        if order is Order.RESTORE:
            raise Refused(f"{trash.bucket.prefix} is empty, and the trash has no {manifest}.")
        return None

    def _bucket(self, folder: Folder = (), patience: RetryPolicy | None = None) -> "Bucket":
        fs, path = open_file_system(self.location)
        name, _, key = path.partition(SEPARATOR)
        prefix = SEPARATOR.join((*filter(None, [key.rstrip(SEPARATOR)]), *folder, ""))
        return Bucket(fs, name, prefix, patience or PATIENCE)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except OSError as fault:
            raise Refused(
                f"{mask_secrets(self.location)} can't be listed: {fault or type(fault).__name__}. Check the bucket's name, "
                "its permissions (s3:ListBucket, s3:ListBucketVersions, s3:GetObject) and that the server is up."
            ) from fault


def _swept(results: Sequence[Result], present: Mapping[str, Entry]) -> list[SweptTarget]:
    swept = []
    for due, outcome, error in results:
        size = present[due.key].size or 0 if due.key in present else 0
        freed = size if outcome in (Outcome.DELETED, Outcome.SET_ASIDE) else 0
        if outcome is Outcome.FAILED:
            error = f"{quote(due.key, 200)} stays: {error}"
        swept.append(SweptTarget(due.key, outcome, freed, error, size if outcome is Outcome.HIDDEN else 0))
    return swept

"""Deleting the folder of one transaction from S3, or from what speaks like it, and every version of it where that is asked for.

Belongs here: the one function that deletes a `files` store's data on S3, by S3's own requests: s3fs reads no error of a single
key in a bulk deletion, takes names with * for patterns, and hides the objects that stand for folders. Where a bucket keeps
versions, a deletion deletes nothing: what can still be read is told apart from what is gone.
Does not belong here: other file systems (delete_remote.py), and which folder it is to be (paths.py).
"""

import errno
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from retention_assets.errors import quote
from retention_assets.stores.files.delete_remote import Removed, time_in_ns, with_patience
from retention_assets.stores.files.file_systems import FileSystem
from retention_assets.stores.files.folder_notes import FolderCheck, FolderNote, accept_any
from retention_assets.stores.files.paths import IDENTITY
from retention_assets.stores.protocol import Permit

Request = Callable[..., Mapping[str, Any]]

_KEYS_PER_REQUEST = 1000
# Enough to see whether there is anything beside the root itself.
_SOME = 10
_PASSING = {"InternalError", "OperationAborted", "RequestTimeout", "ServiceUnavailable", "SlowDown"}
# XML 1.0 can't carry these, so that a bulk deletion with one such key is refused whole; a carriage return comes back as another
# sign.
NOT_IN_XML = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]")
# A server that cannot say anything about versions.
_UNKNOWN = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}


class StoredObject(NamedTuple):
    """A key, or a version of one. A marker hides the versions before it and has no bytes."""

    key: str
    size: int
    version: str | None = None
    marker: bool = False
    modified: datetime | None = None


class VersionRules(NamedTuple):
    """What a sweep has to know of versions: whether the bucket may have any, and whether every version goes."""

    may_exist: bool
    enabled: bool
    delete: bool


def version_rules(fs: FileSystem, root: str, delete: bool) -> VersionRules:
    """Ask a bucket whether it keeps versions. Where nobody may ask, it may."""
    bucket = fs.split_path(root)[0]
    try:
        status = with_patience(lambda: fs.call_s3("get_bucket_versioning", Bucket=bucket)).get("Status")
    except OSError as fault:
        if isinstance(fault, PermissionError) or fault.errno in _UNKNOWN:
            return VersionRules(True, False, delete)
        raise
    return VersionRules(status is not None, status == "Enabled", delete and status is not None)


def measure(fs: FileSystem, folder: str, rules: VersionRules) -> FolderNote | None:
    """A folder as it is now, or None if nothing is there."""
    found = with_patience(lambda: _list(fs, folder, rules.delete))
    return _note_of(found, rules) if found else None


def _note_of(objects: Sequence[StoredObject], rules: VersionRules) -> FolderNote:
    freed = 0 if rules.enabled and not rules.delete else sum(one.size for one in objects)
    return FolderNote.of_files(freed, ((one.size, time_in_ns(one.modified)) for one in objects))


def is_empty(fs: FileSystem, root: str, rules: VersionRules) -> bool:
    """Whether nothing at all is below a root; what stands for the root itself, or says which one it is, is nothing."""
    bucket, key, _ = fs.split_path(root)
    prefix = f"{key}/" if key else ""
    # Where every version goes, what is left of a root may be versions alone.
    request, kind = ("list_object_versions", "Versions") if rules.delete else ("list_objects_v2", "Contents")
    found = with_patience(lambda: fs.call_s3(request, Bucket=bucket, Prefix=prefix, MaxKeys=_SOME))
    nothing = (prefix, prefix + IDENTITY)
    return not any(one["Key"] not in nothing for one in found.get(kind, ())) and not found.get("IsTruncated")


def remove_folder(
    fs: FileSystem, folder: str, permit: Permit, rules: VersionRules, check: FolderCheck = accept_any
) -> Removed | None:
    """Remove everything below a folder, and every version where that is asked for; None if nothing was there.

    Raises OSError, FolderChanged or Withheld when anything stays. What is gone by then is gone; the next call removes the rest.
    """
    found = with_patience(lambda: _list(fs, folder, rules.delete))
    if found:
        check(_note_of(found, rules))
    marked = _delete(fs, fs.split_path(folder)[0], found, permit)
    if found:
        with_patience(lambda: _check_none_left(fs, folder, len(found), rules.delete))
    size = sum(one.size for one in found)
    hidden = _hidden_bytes(fs, folder, size if marked else None) if rules.may_exist and not rules.delete else None
    if hidden is not None:
        return Removed(0, hidden)
    return Removed(size) if found else None


def _hidden_bytes(fs: FileSystem, folder: str, otherwise: int | None) -> int | None:
    """The bytes of the versions that can still be read, None where there is none; `otherwise` where nobody may list them."""
    try:
        found = [one for one in with_patience(lambda: _list(fs, folder, True)) if not one.marker]
    except OSError as fault:
        if isinstance(fault, PermissionError) or fault.errno in _UNKNOWN:
            return otherwise
        raise
    return sum(one.size for one in found) if found else None


def _list(fs: FileSystem, folder: str, versions: bool) -> list[StoredObject]:
    bucket, key, _ = fs.split_path(folder)
    return list((_list_versions if versions else _list_keys)(fs.call_s3, bucket, f"{key}/"))


def _list_keys(request: Request, bucket: str, prefix: str) -> Iterator[StoredObject]:
    """Every key that begins with a prefix, the objects that stand for folders among them, with its size."""
    more: dict[str, str] = {}
    while True:
        page = request("list_objects_v2", Bucket=bucket, Prefix=prefix, **more)
        yield from (
            StoredObject(found["Key"], found["Size"], modified=found["LastModified"]) for found in page.get("Contents", ())
        )
        if not page.get("IsTruncated"):
            return
        more = {"ContinuationToken": page["NextContinuationToken"]}


def _list_versions(request: Request, bucket: str, prefix: str) -> Iterator[StoredObject]:
    """Every version of these keys, and every marker."""
    more: dict[str, str] = {}
    while True:
        page = request("list_object_versions", Bucket=bucket, Prefix=prefix, **more)
        for one in page.get("Versions", ()):
            yield StoredObject(one["Key"], one["Size"], one["VersionId"], modified=one.get("LastModified"))
        for one in page.get("DeleteMarkers", ()):
            yield StoredObject(one["Key"], 0, one["VersionId"], True, one.get("LastModified"))
        if not page.get("IsTruncated"):
            return
        more = {"KeyMarker": page["NextKeyMarker"]}
        if version := page.get("NextVersionIdMarker"):
            more["VersionIdMarker"] = version


def _check_none_left(fs: FileSystem, folder: str, there: int, versions: bool) -> None:
    """Raises OSError when anything is still listed."""
    if left := _list(fs, folder, versions):
        raise OSError(f"{len(left)} of {there} places stay: {min(left).key}")


def _delete(fs: FileSystem, bucket: str, objects: Sequence[StoredObject], permit: Permit) -> bool:
    """Delete objects, those that a bulk deletion cannot name each by a request of its own; whether any was only marked."""
    alone = [one for one in objects if NOT_IN_XML.search(one.key)]
    together = [one for one in objects if not NOT_IN_XML.search(one.key)]
    marked = False
    for first in range(0, len(together), _KEYS_PER_REQUEST):
        marked |= _delete_together(fs, bucket, together[first : first + _KEYS_PER_REQUEST], permit)
    for one in alone:
        marked |= _delete_alone(fs, bucket, one, permit)
    return marked


def _delete_together(fs: FileSystem, bucket: str, objects: Sequence[StoredObject], permit: Permit) -> bool:
    """Delete up to a thousand objects in one request, and those that failed once more. Raises OSError when any stays."""
    left, marked = [_name_of(one) for one in objects], False

    def delete() -> None:
        nonlocal left, marked
        # Here, so that it is asked again before each request that is made again.
        permit()
        answer = fs.call_s3("delete_objects", Bucket=bucket, Delete={"Objects": left, "Quiet": False})
        errors = answer.get("Errors", ())
        # That of a version: the version is gone.
        marked |= any(one.get("DeleteMarker") for one in answer.get("Deleted", ()))
        failed = {(error["Key"], error.get("VersionId")) for error in errors}
        left = [one for one in left if {(one["Key"], one.get("VersionId")), (one["Key"], None)} & failed]
        if errors:
            first = next((error for error in errors if error["Code"] not in _PASSING), errors[0])
            kind = OSError if first["Code"] in _PASSING else PermissionError
            text = f"{len(errors)} of {len(objects)} objects stay: {first['Key']}: {first['Code']}: {first.get('Message', '')}"
            raise kind(text.rstrip(": "))

    with_patience(delete)
    return marked


def _delete_alone(fs: FileSystem, bucket: str, one: StoredObject, permit: Permit) -> bool:
    if not {".", ".."}.isdisjoint(one.key.split("/")):
        # On its way such an address may become that of another object.
        raise PermissionError(f"the object {quote(one.key, 200)} cannot be named in a request: remove it by hand")

    def delete() -> Mapping[str, Any]:
        permit()
        answer: Mapping[str, Any] = fs.call_s3("delete_object", Bucket=bucket, **_name_of(one))
        return answer

    try:
        answer = with_patience(delete)
    except OSError as fault:
        raise OSError(f"the object {quote(one.key, 200)} stays: {fault}") from fault
    return bool(answer.get("DeleteMarker")) and one.version is None


def _name_of(one: StoredObject) -> dict[str, str]:
    return {"Key": one.key} | ({"VersionId": one.version} if one.version is not None else {})

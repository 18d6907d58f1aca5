"""Deletes the folder of one transaction from S3 or a compatible server, with every version where the settings ask for it.

It makes S3's own requests, because s3fs ignores errors of single keys in a bulk deletion, takes names with * for patterns and
hides the objects that stand for folders. Where a bucket keeps versions, a plain deletion deletes nothing: bytes still readable
are counted apart from bytes gone.
"""

import errno
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from retention_assets.errors import quote
from retention_assets.stores.files.delete_remote import Removed, time_in_ns, with_patience
from retention_assets.stores.files.folder_notes import FolderCheck, FolderNote, accept_any
from retention_assets.stores.places import IDENTITY
from retention_assets.stores.places.file_systems import FileSystem
from retention_assets.stores.protocol import Permit

Request = Callable[..., Mapping[str, Any]]

_KEYS_PER_REQUEST = 1000
# enough to see whether there is anything beside the root itself
_SOME = 10
_PASSING = {"InternalError", "OperationAborted", "RequestTimeout", "ServiceUnavailable", "SlowDown"}
# XML 1.0 can't carry these: a bulk deletion with one such key is refused whole, and a carriage return comes back changed
NOT_IN_XML = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]")
# a server that knows nothing of versions
_UNKNOWN = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}


class StoredObject(NamedTuple):
    """A key, or a version of one. A delete marker hides the versions before it and has no bytes."""

    key: str
    size: int
    version: str | None = None
    marker: bool = False
    modified: datetime | None = None


class VersionRules(NamedTuple):
    """Rules for versions: the bucket may have any, and every version is deleted."""

    may_exist: bool
    enabled: bool
    delete: bool


def version_rules(fs: FileSystem, root: str, delete: bool) -> VersionRules:
    """Ask a bucket whether it keeps versions; if that may not be asked, assume it does."""
    bucket = fs.split_path(root)[0]
    try:
        status = with_patience(lambda: fs.call_s3("get_bucket_versioning", Bucket=bucket)).get("Status")
    except OSError as fault:
        if isinstance(fault, PermissionError) or fault.errno in _UNKNOWN:
            return VersionRules(True, False, delete)
        raise
    return VersionRules(status is not None, status == "Enabled", delete and status is not None)


def measure(fs: FileSystem, folder: str, rules: VersionRules) -> FolderNote | None:
    found = with_patience(lambda: _list(fs, folder, rules.delete))
    return _note_of(found, rules) if found else None


def _note_of(objects: Sequence[StoredObject], rules: VersionRules) -> FolderNote:
    freed = 0 if rules.enabled and not rules.delete else sum(one.size for one in objects)
    return FolderNote.of_files(freed, ((one.size, time_in_ns(one.modified)) for one in objects))


def is_empty(fs: FileSystem, root: str, rules: VersionRules) -> bool:
    """Tell whether nothing is below a root; an entry for the root itself and its identity file don't count."""
    bucket, key, _ = fs.split_path(root)
    prefix = f"{key}/" if key else ""
    # where every version goes, versions alone may be left below a root
    request, kind = ("list_object_versions", "Versions") if rules.delete else ("list_objects_v2", "Contents")
    found = with_patience(lambda: fs.call_s3(request, Bucket=bucket, Prefix=prefix, MaxKeys=_SOME))
    nothing = (prefix, prefix + IDENTITY)
    return not any(one["Key"] not in nothing for one in found.get(kind, ())) and not found.get("IsTruncated")


def remove_folder(
    fs: FileSystem, folder: str, permit: Permit, rules: VersionRules, check: FolderCheck = accept_any
) -> Removed | None:
    """Remove everything below a folder, with every version if asked for; None if nothing was there.

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
    """Count the bytes of versions still readable; None without versions, `otherwise` where listing them is forbidden."""
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
    """Delete objects, one request each for keys that a bulk deletion can't name; True if any was only marked as deleted."""
    alone = [one for one in objects if NOT_IN_XML.search(one.key)]
    together = [one for one in objects if not NOT_IN_XML.search(one.key)]
    marked = False
    for first in range(0, len(together), _KEYS_PER_REQUEST):
        marked |= _delete_together(fs, bucket, together[first : first + _KEYS_PER_REQUEST], permit)
    for one in alone:
        marked |= _delete_alone(fs, bucket, one, permit)
    return marked


def _delete_together(fs: FileSystem, bucket: str, objects: Sequence[StoredObject], permit: Permit) -> bool:
    """Delete up to 1000 objects in one request and retry those that failed. Raises OSError when any stays."""
    left, marked = [_name_of(one) for one in objects], False

    def delete() -> None:
        nonlocal left, marked
        # inside the retried function, so that each attempt asks again
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
        # on its way such an address may turn into that of another object
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

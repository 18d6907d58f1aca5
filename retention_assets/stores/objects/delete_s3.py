"""Deletes objects from S3 or a compatible server, a thousand per request, each under its condition.

In a versioned bucket exactly the planned version is deleted, by its id. Elsewhere the request names the ETag, with which AWS
spares a changed object. Other servers may ignore that condition: then only the look right before the request (delete.py)
protects what was just written anew.
"""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Self

from retention_assets.errors import Withheld, quote
from retention_assets.outcomes import Outcome
from retention_assets.sql.retry import RetryPolicy, retry
from retention_assets.stores.files.delete_s3 import NOT_IN_XML
from retention_assets.stores.objects.conditions import ANOTHER
from retention_assets.stores.objects.notes import Look, PlannedObject, already_gone
from retention_assets.stores.places.file_systems import FileSystem
from retention_assets.stores.places.pace import DeletionPace
from retention_assets.stores.protocol import Permit, SweptTarget, error_text

KEYS_PER_REQUEST = 1_000
_TOO_FAST = {"SlowDown", "ServiceUnavailable", "503", "TooManyRequests", "RequestLimitExceeded"}
_PASSING = {*_TOO_FAST, "InternalError", "OperationAborted", "RequestTimeout", "ConditionalRequestConflict", "500"}
_GONE = {"NoSuchKey", "NoSuchVersion", "NotFound", "404"}
_CHANGED = {"PreconditionFailed", "412"}
# modules whose exceptions mean that a server was not reached
_DRIVERS = {"aiobotocore", "aiohttp", "asyncio", "botocore", "urllib3"}


class _PassingFault(Exception):
    """Some keys of a request were refused for a transient reason."""


PATIENCE = RetryPolicy(lambda fault: isinstance(fault, _PassingFault), attempts=6, pause=0.2, growth=2, longest=5)


def delete_keys(
    fs: FileSystem,
    root: str,
    objects: Sequence[PlannedObject],
    look: Look,
    parallelism: int,
    permit: Permit,
    pace: DeletionPace,
) -> list[SweptTarget]:
    """Delete objects below a root (in the file system's notation), one outcome for each. A look precedes each request."""
    fs = _without_retries(fs, os.getpid())
    place = _Versions.of(fs, root)
    alone = [one for one in objects if NOT_IN_XML.search(one.key)]
    together = [one for one in objects if not NOT_IN_XML.search(one.key)]
    parts = [together[at : at + KEYS_PER_REQUEST] for at in range(0, len(together), KEYS_PER_REQUEST)]
    requests = [_Request(place, part, look, permit, pace) for part in [*parts, *([one] for one in alone)]]
    with ThreadPoolExecutor(max(1, min(parallelism, len(requests)))) as threads:
        return [one for some in threads.map(_Request.send, requests) for one in some]


def not_kept(fs: FileSystem, root: str, gone: Sequence[PlannedObject]) -> list[PlannedObject]:
    """Drop objects that the bucket still has in some version."""
    place = _Versions.of(fs, root)
    return [one for one in gone if not place.is_kept(one)]


@dataclass(frozen=True)
class _Versions:
    fs: FileSystem
    bucket: str
    prefix: str

    @classmethod
    def of(cls, fs: FileSystem, root: str) -> Self:
        bucket, prefix, _ = fs.split_path(root)
        return cls(fs, bucket, f"{prefix.rstrip('/')}/" if prefix else "")

    def is_kept(self, one: PlannedObject) -> bool:
        """Tell whether the bucket has, or may have, a version of an object that is not listed."""
        version = _version_of(one)
        if version is None:
            return self._may_be_kept
        try:
            self.fs.call_s3("head_object", Bucket=self.bucket, Key=self.prefix + one.key, VersionId=version)
        except FileNotFoundError:
            return False
        except Exception as fault:  # noqa: BLE001 - drivers have exceptions of their own, and who can't look does not know
            return not (isinstance(fault, OSError) and _code_of(fault) in _GONE)
        return True

    @cached_property
    def _may_be_kept(self) -> bool:
        try:
            return self.fs.call_s3("get_bucket_versioning", Bucket=self.bucket).get("Status") is not None
        except Exception:  # noqa: BLE001 - as above
            return True


class _Request:
    """One request, repeated for the keys that were refused for a transient reason."""

    def __init__(
        self, place: _Versions, objects: Sequence[PlannedObject], look: Look, permit: Permit, pace: DeletionPace
    ) -> None:
        self.place, self.look, self.permit, self.pace = place, look, permit, pace
        self.fs, self.bucket, self.prefix = place.fs, place.bucket, place.prefix
        self.left = {self.prefix + one.key: one for one in objects}
        self.found: list[SweptTarget] = []

    def send(self) -> list[SweptTarget]:
        """Return the outcome of each object. Raises nothing: a failure becomes the outcome of all remaining objects."""
        try:
            retry(self._attempt, PATIENCE)
        except Withheld as fault:
            self._say_of_rest(Outcome.WITHHELD, str(fault))
        except Exception as fault:  # noqa: BLE001 - drivers have exceptions of their own
            self._say_of_rest(Outcome.FAILED, error_text(fault) if not isinstance(fault, _PassingFault) else str(fault))
        return self.found

    def _say_of_rest(self, outcome: Outcome, why: str) -> None:
        self.found += [SweptTarget(one.key, outcome, error=why) for one in self.left.values()]

    def _attempt(self) -> None:
        self.pace.wait(len(self.left))
        seen = self.look(list(self.left.values()))
        self.found += [*seen.spared, *map(self._say_gone, seen.gone)]
        self.left = {self.prefix + one.key: one for one in seen.same}
        if not self.left:
            return
        self.permit()
        names = [_name_of(key, one) for key, one in self.left.items()]
        try:
            # Keys that XML cannot hold are sent alone.
            alone = NOT_IN_XML.search(names[0]["Key"]) is not None
            answer = self._delete_alone(names[0]) if alone else self._delete_together(names)
        except Exception as fault:
            if not _may_pass(fault):
                raise
            code = _code_of(fault) or type(fault).__name__
            if code in _TOO_FAST:
                self.pace.halve()
            raise _PassingFault(f"the store refused it again and again: {code}") from fault
        errors = {one["Key"]: one for one in answer.get("Errors", ())}
        for one in answer.get("Deleted", ()):
            if one["Key"] not in errors and one["Key"] in self.left:
                self._say_deleted(self.left.pop(one["Key"]), one)
        for key in [key for key, one in errors.items() if key in self.left and one["Code"] not in _PASSING]:
            self._say_refused(self.left.pop(key), errors[key])
        if self.left:
            self._try_again(errors)

    def _delete_together(self, names: Sequence[Mapping[str, str]]) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.fs.call_s3(
            "delete_objects", Bucket=self.bucket, Delete={"Objects": list(names), "Quiet": False}
        )
        return found

    def _delete_alone(self, name: Mapping[str, str]) -> Mapping[str, Any]:
        if not {".", ".."}.isdisjoint(name["Key"].split("/")):
            # HTTP clients may normalize the dots, which addresses another object.
            raise PermissionError(f"the object {quote(name['Key'], 200)} cannot be named in a request: remove it by hand")
        given = {fact: value for fact, value in name.items() if fact != "ETag"}
        if "ETag" in name:
            # The header needs quotes around the ETag, the XML list has none.
            given["IfMatch"] = f'"{name["ETag"]}"'
        try:
            answer = self.fs.call_s3("delete_object", Bucket=self.bucket, **given)
        except OSError as fault:
            if (code := _code_of(fault)) in _GONE | _CHANGED:
                return {"Errors": [{"Key": name["Key"], "Code": code}]}
            raise
        marked = bool(answer.get("DeleteMarker")) and "VersionId" not in name
        return {"Deleted": [{"Key": name["Key"], "DeleteMarker": marked}]}

    def _say_deleted(self, one: PlannedObject, answer: Mapping[str, Any]) -> None:
        if answer.get("DeleteMarker") and not _version_of(one):
            # The bucket keeps versions and none was recorded: the object is hidden, but still readable.
            self.found.append(SweptTarget(one.key, Outcome.HIDDEN, bytes_hidden=one.size))
        else:
            self.found.append(SweptTarget(one.key, Outcome.DELETED, one.size))

    def _say_gone(self, one: PlannedObject) -> SweptTarget:
        is_freed = one.freed_before and not self.place.is_kept(one)
        return already_gone(one) if is_freed else SweptTarget(one.key, Outcome.ALREADY_GONE)

    def _say_refused(self, one: PlannedObject, error: Mapping[str, Any]) -> None:
        code = error["Code"]
        if code in _GONE:
            self.found.append(self._say_gone(one))
        elif code in _CHANGED:
            self.found.append(SweptTarget(one.key, Outcome.SPARED, error=ANOTHER))
        else:
            why = ": ".join(part for part in (code, error.get("Message", "")) if part)
            self.found.append(SweptTarget(one.key, Outcome.FAILED, error=f"{quote(one.key, 200)} stays: {why}"))

    def _try_again(self, errors: Mapping[str, Mapping[str, Any]]) -> None:
        codes = sorted({errors[key]["Code"] for key in self.left if key in errors})
        if _TOO_FAST.intersection(codes):
            self.pace.halve()
        raise _PassingFault(f"the store refused it again and again: {', '.join(codes) or 'it said nothing of it'}")


def _name_of(key: str, one: PlannedObject) -> dict[str, str]:
    if version := _version_of(one):
        return {"Key": key, "VersionId": version}
    etag = one.condition.etag if one.condition else None
    return {"Key": key, **({"ETag": etag} if etag else {})}


def _version_of(one: PlannedObject) -> str | None:
    return one.condition.version if one.condition else None


def _code_of(fault: Exception) -> str:
    """Code of a failed request; the driver keeps the response behind its own exception."""
    answer = getattr(fault.__cause__, "response", None) or {}
    return str(answer.get("Error", {}).get("Code", ""))


def _may_pass(fault: Exception) -> bool:
    if code := _code_of(fault):
        return code in _PASSING
    lasting = isinstance(fault, FileNotFoundError | PermissionError)
    return not lasting and (isinstance(fault, OSError) or type(fault).__module__.partition(".")[0] in _DRIVERS)


@lru_cache(maxsize=8)
def _without_retries(fs: FileSystem, process: int) -> FileSystem:  # noqa: ARG001 - a connection is of one process
    """Copy of the file system without the driver's own retries, which would hide the server's requests to slow down."""
    own = type(fs)(*fs.storage_args, **{**fs.storage_options, "skip_instance_cache": True})
    own.retries = 1
    return own

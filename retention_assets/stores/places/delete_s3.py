"""Requests that delete objects of a bucket, a thousand each, repeated for those that were refused for a transient reason."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from retention_assets.errors import Withheld, quote
from retention_assets.outcomes import Outcome
from retention_assets.sql.retry import RetryPolicy, retry
from retention_assets.stores.places.file_systems import without_retries
from retention_assets.stores.places.protocol import ANOTHER, SEPARATOR, DeletionPace, DueObject, Entry, FolderChanged
from retention_assets.stores.places.s3_bucket import DOTS, Answer, Bucket, code_of
from retention_assets.stores.protocol import Permit, error_text

# an object, and why it failed or was spared
Result = tuple[DueObject, Outcome, str | None]
# what a request names to delete an object, or the outcome without a request, and the reason
Verdict = DueObject | tuple[Outcome, str | None]
Look = Callable[[Sequence[DueObject]], Iterator[tuple[DueObject, Verdict]]]
# turns the outcome of a request and the server's answer into that of the object; None if another look has to tell
Settle = Callable[[DueObject, Outcome, Answer], Outcome | None]
KEYS_PER_REQUEST = 1_000
# XML 1.0 can't carry these: a bulk deletion with one such key is refused whole, and a carriage return comes back changed
_NOT_IN_XML = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]")
_TOO_FAST = {"SlowDown", "ServiceUnavailable", "503", "TooManyRequests", "RequestLimitExceeded"}
_PASSING = {"", *_TOO_FAST, "InternalError", "OperationAborted", "RequestTimeout", "ConditionalRequestConflict", "500"}
_GONE = {"NoSuchKey", "NoSuchVersion", "NotFound", "404"}
_CHANGED = {"PreconditionFailed", "412"}
# modules whose exceptions mean that a server was not reached
_DRIVERS = {"aiobotocore", "aiohttp", "asyncio", "botocore", "urllib3"}


class _PassingFault(Exception):
    """Refusal of some keys of a bulk request, for a reason that passes: they are sent again."""


DELETE_PATIENCE = RetryPolicy(lambda fault: isinstance(fault, _PassingFault), attempts=6, pause=0.2, growth=2, longest=5)


class DeleteRequest:
    """A request to delete objects, repeated for those that were refused for a transient reason."""

    def __init__(
        self,
        bucket: Bucket,
        objects: Sequence[DueObject],
        permit: Permit,
        look: Look | None = None,
        pace: DeletionPace | None = None,
        settle: Settle | None = None,
    ) -> None:
        self.bucket = replace(bucket, fs=without_retries(bucket.fs, os.getpid()))
        self.permit, self.pace, self.settle = permit, pace or DeletionPace(0), settle
        self.look: Look = look or (lambda wanted: ((due, due) for due in wanted))
        self.remaining = {(due.key, due.version): due for due in objects}
        self.results: list[Result] = []
        # more may be done than is known
        self.is_unsure = False

    def send(self) -> list[Result]:
        """Return the outcome of each object. Raises nothing: a failure becomes the outcome of all remaining objects."""
        try:
            retry(self._attempt, DELETE_PATIENCE)
        except Withheld as fault:
            self._end([(due, Outcome.WITHHELD, str(fault)) for due in self.remaining.values()])
        except Exception as fault:  # noqa: BLE001 - drivers have exceptions of their own
            error = str(fault) if isinstance(fault, _PassingFault) else error_text(fault)
            outcome = Outcome.WITHHELD if self.settle and self.is_unsure else Outcome.FAILED
            self._end([(due, outcome, error) for due in self.remaining.values()])
        return self.results

    def _end(self, results: Sequence[Result]) -> None:
        self.results += results
        for due, _, _ in results:
            del self.remaining[due.key, due.version]

    def _attempt(self) -> None:
        self.pace.wait(len(self.remaining))
        sent: dict[tuple[str, str | None], DueObject] = {}
        names = []
        for due, verdict in self.look(list(self.remaining.values())):
            if isinstance(verdict, DueObject):
                sent[verdict.key, verdict.version] = due
                names.append(self._name(verdict))
            else:
                self._end([(due, *verdict)])
        if not sent:
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
            raise self._again({code_of(fault) or type(fault).__name__}) from fault
        items = (item for kind in ("Deleted", "Errors") for item in answer.get(kind, ()))
        answers, codes = {name: item for item in items for name in self._named(item, sent)}, set[str]()
        for name, due in sent.items():
            item = answers.get(name, {"Code": ""})
            outcome, error = _outcome(name, item)
            if item.get("Code") in _PASSING:
                codes.add(item["Code"])
            elif settled := self.settle(due, outcome, item) if self.settle else outcome:
                self._end([(due, settled, error)])
        if codes:
            raise self._again(codes)
        if self.remaining:
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

    def _named(self, answer: Answer, sent: Mapping[tuple[str, str | None], DueObject]) -> list[tuple[str, str | None]]:
        # some servers leave versions out of an answer
        key = self.bucket.key_of(answer)
        for version in (answer.get("VersionId"), None):
            if (key, version) in sent:
                return [(key, version)]
        return [name for name in sent if name[0] == key]

    def _delete_alone(self, name: Mapping[str, str]) -> Answer:
        if not DOTS.isdisjoint(name["Key"].split(SEPARATOR)):
            # on its way such an address may turn into that of another object
            raise PermissionError("it cannot be named in a request: remove it by hand")
        given = {fact: value for fact, value in name.items() if fact != "ETag"}
        if "ETag" in name:
            # The header needs quotes around the ETag, the XML list has none.
            given["IfMatch"] = f'"{name["ETag"]}"'
        try:
            answer = self.bucket.fs.call_s3("delete_object", Bucket=self.bucket.name, **given)
        except OSError as fault:
            if (code := code_of(fault)) in _GONE | _CHANGED:
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


def due_of(entries: Sequence[Entry]) -> list[DueObject]:
    return [DueObject(entry.key, entry.version) for entry in entries]


def parts_of(objects: Sequence[DueObject]) -> list[Sequence[DueObject]]:
    # keys that XML can't hold go alone
    together = [due for due in objects if not _NOT_IN_XML.search(due.key)]
    starts = range(0, len(together), KEYS_PER_REQUEST)
    parts: list[Sequence[DueObject]] = [together[start : start + KEYS_PER_REQUEST] for start in starts]
    return parts + [[due] for due in objects if _NOT_IN_XML.search(due.key)]


def send_all(requests: Sequence[DeleteRequest], parallelism: int) -> list[Result]:
    with ThreadPoolExecutor(max(1, min(parallelism, len(requests)))) as threads:
        return [result for part in threads.map(DeleteRequest.send, requests) for result in part]


def check_done(bucket: Bucket, results: Sequence[Result], *done: Outcome) -> None:
    if stays := [result for result in results if result[1] not in done]:
        due, outcome, error = next((result for result in stays if result[1] is Outcome.WITHHELD), stays[0])
        if outcome is Outcome.WITHHELD:
            raise Withheld(error)
        message = f"{len(stays)} of {len(results)} objects stay: {quote(bucket.prefix + due.key, 200)}: {error or 'it is gone'}"
        raise OSError(message) if outcome is Outcome.FAILED else FolderChanged(message)


def _may_pass(fault: Exception) -> bool:
    if code := code_of(fault):
        return code in _PASSING
    return not isinstance(fault, FileNotFoundError | PermissionError) and (
        isinstance(fault, OSError) or type(fault).__module__.partition(".")[0] in _DRIVERS
    )

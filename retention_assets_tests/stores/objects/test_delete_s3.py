"""Deleting objects from S3: many in one request, each under its condition and with an outcome of its own."""

import hashlib
import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from s3fs import S3FileSystem  # type: ignore[import-untyped]

from retention_assets.clock import now
from retention_assets.errors import Withheld
from retention_assets.outcomes import Order, Outcome
from retention_assets.stores.places import delete_s3
from retention_assets.stores.places.file_systems import open_file_system
from retention_assets.stores.protocol import Remains, SweptTarget
from retention_assets_tests.stores.contract import DRAWN
from retention_assets_tests.stores.files.environments import S3, error
from retention_assets_tests.stores.objects.environments import OLD, S3Objects
from retention_assets_tests.stores.objects.sweeps import begun, planned, swept
from retention_assets_tests.sweep.cycle import Cycle

NUMBERS, YEAR = itertools.count(), timedelta(days=365)
ALL = ("a/one", "a/two", "a/three")


def deletions(bucket: S3Objects, answer: Callable[[bytes], tuple[str, str] | None]) -> list[bytes]:
    bodies: list[bytes] = []

    def fault(method: str, place: str, body: bytes) -> tuple[str, str] | None:
        if method != "POST" or "delete" not in place:
            return None
        bodies.append(body)
        return answer(body)

    bucket.s3.faults.append(fault)
    return bodies


def test_a_request_names_the_etag_and_the_store_spares_what_changes_at_the_last_moment(bucket: S3Objects) -> None:
    """After the look, and before the request comes to the server."""
    store = bucket.store()
    targets = planned(store, *ALL)

    def changed(body: bytes) -> tuple[str, str]:
        bucket.put("a/one", b"written anew")
        bucket.take("a/two")
        return bucket.s3.deletes(body, {})

    bodies = deletions(bucket, changed)
    assert swept(store, targets) == {
        "a/one": SweptTarget("a/one", Outcome.SPARED, error="another object now"),
        "a/two": SweptTarget("a/two", Outcome.ALREADY_GONE),
        "a/three": SweptTarget("a/three", Outcome.DELETED, len("a/three")),
    }
    assert bucket.data() == {"a/one": b"written anew"}
    assert len(bodies) == 1


def test_a_key_of_which_an_answer_says_both_was_not_deleted(bucket: S3Objects) -> None:
    store = bucket.store()
    targets = planned(store, "a/one")

    def both(body: bytes) -> tuple[str, str]:
        status, said = bucket.s3.deletes(body, {"blobs/a/one": "AccessDenied"})
        return status, said.replace("<DeleteResult>", "<DeleteResult><Deleted><Key>blobs/a/one</Key></Deleted>")

    deletions(bucket, both)
    result = swept(store, targets)["a/one"]
    assert (result.outcome, "AccessDenied: told to" in (result.error or ""), len(bucket.data())) == (Outcome.FAILED, True, 3)


@pytest.mark.parametrize("whole", [True, False], ids=["the request", "one key"])
def test_who_is_told_to_slow_down_goes_on_at_half_the_rate(bucket: S3Objects, whole: bool) -> None:
    store = bucket.store(rates={"delete": 100_000})
    targets, answers = planned(store, *ALL), itertools.count()

    def busy(body: bytes) -> tuple[str, str]:
        if next(answers) >= 2:
            return bucket.s3.deletes(body, {})
        return error("503 Slow Down", "SlowDown") if whole else bucket.s3.deletes(body, {"blobs/a/one": "SlowDown"})

    bodies = deletions(bucket, busy)
    assert {one.outcome for one in swept(store, targets).values()} == {Outcome.DELETED}
    assert (len(bodies), store._pace.rate) == (3, 25_000)
    # Only what is left is asked for again.
    assert [body.count(b"<Key>") for body in bodies] == ([3, 3, 3] if whole else [3, 1, 1])


def test_before_a_request_is_made_again_it_is_looked_again(bucket: S3Objects) -> None:
    """Meanwhile somebody may have written another object, and this server takes no notice of conditions."""
    store = bucket.store()
    targets, answers = planned(store, *ALL), itertools.count()

    def busy(_: bytes) -> tuple[str, str] | None:
        if next(answers):
            return None
        bucket.put("a/one", b"a/one", OLD + timedelta(days=1))
        return error("503 Slow Down", "SlowDown")

    deletions(bucket, busy)
    found = swept(store, targets)
    assert [found[key].outcome for key in ALL] == [Outcome.SPARED, Outcome.DELETED, Outcome.DELETED]
    assert bucket.data().keys() == {"a/one"}


def test_what_is_refused_again_and_again_fails_and_says_why(bucket: S3Objects) -> None:
    store = bucket.store()
    targets = planned(store, *ALL)
    bodies = deletions(bucket, lambda body: bucket.s3.deletes(body, {"blobs/a/one": "InternalError"}))
    found = swept(store, targets)
    assert (found["a/one"].outcome, found["a/two"].outcome) == (Outcome.FAILED, Outcome.DELETED)
    assert "InternalError" in (found["a/one"].error or "")
    assert len(bodies) == delete_s3.DELETE_PATIENCE.attempts


def test_many_are_deleted_request_by_request_and_withheld_from_the_one_that_is_not_permitted(
    bucket: S3Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delete_s3, "KEYS_PER_REQUEST", 2)
    for number in range(3):
        bucket.put(f"a/{number}", b"x")
    asked = itertools.count()

    def permit() -> None:
        if next(asked) >= 3:
            raise Withheld("no more")

    store = bucket.store()
    found = swept(store, planned(store, *ALL, "a/0", "a/1", "a/2"), parallelism=1, permit=permit)
    assert [found[key].outcome for key in (*ALL, "a/0", "a/1", "a/2")] == [Outcome.DELETED] * 4 + [Outcome.WITHHELD] * 2
    assert bucket.data().keys() == {"a/1", "a/2"}


def test_such_a_request_names_the_etag_as_well(bucket: S3Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.put("a/\x01", b"odd")
    store, given = bucket.store(), list[dict[str, Any]]()
    call = S3FileSystem.call_s3

    def noted(self: Any, method: str, **facts: Any) -> Any:
        if method == "delete_object":
            given.append(facts)
        return call(self, method, **facts)

    targets = planned(store, "a/\x01")
    monkeypatch.setattr(S3FileSystem, "call_s3", noted)
    assert swept(store, targets)["a/\x01"].outcome is Outcome.DELETED
    assert [one["IfMatch"] for one in given] == [f'"{hashlib.md5(b"odd").hexdigest()}"']


def opened(bucket: S3Objects) -> tuple[Any, str]:
    return open_file_system(bucket.listing["path"])


class Versioned(S3Objects):
    """A bucket that keeps versions, with an object that was written twice."""

    def __init__(self, folder: Path, s3: S3) -> None:
        super().__init__(folder, s3)
        self.client: Any = boto3.client("s3", endpoint_url=s3.environment["AWS_ENDPOINT_URL"])
        # One of its own for each test: this server forgets none that kept versions.
        self.name = f"deleted{next(NUMBERS)}"
        self.client.create_bucket(Bucket=self.name)
        self.client.put_bucket_versioning(Bucket=self.name, VersioningConfiguration={"Status": "Enabled"})
        self.client.put_object(Bucket=self.name, Key="blobs/a/one", Body=b"older")
        self.client.put_object(Bucket=self.name, Key="blobs/a/one", Body=b"a/one")

    @property
    def listing(self) -> dict[str, Any]:
        return {"path": f"s3://{self.name}/blobs/"}

    def versions(self) -> tuple[list[bytes], int]:
        found = self.client.list_object_versions(Bucket=self.name)
        bodies = [
            self.client.get_object(Bucket=self.name, Key=one["Key"], VersionId=one["VersionId"])["Body"].read()
            for one in found.get("Versions", ())
        ]
        return sorted(bodies), len(found.get("DeleteMarkers", ()))


@pytest.fixture
def versioned(tmp_path: Path, s3: S3) -> Versioned:
    return Versioned(tmp_path, s3)


def test_of_a_bucket_with_versions_the_very_version_is_gone_for_good(versioned: Versioned) -> None:
    store = versioned.store()
    assert swept(store, planned(store, "a/one")) == {"a/one": SweptTarget("a/one", Outcome.DELETED, len("a/one"))}
    assert versioned.versions() == ([b"older"], 0)


def test_the_very_version_is_set_aside_and_comes_back_or_goes(versioned: Versioned) -> None:
    store, before = versioned.store(), versioned.versions()
    targets = [replace(target, aside="1/2") for target in planned(store, "a/one")]
    for _ in range(2):
        assert store.carry_out(Order.SET_ASIDE, "blobs/a", targets, 1) == [
            SweptTarget("a/one", Outcome.SET_ASIDE, len("a/one"))
        ]
        assert [result.outcome for result in store.carry_out(Order.RESTORE, "blobs/a", targets, 1)] == [Outcome.RESTORED]
        assert versioned.versions() == before
    store.carry_out(Order.SET_ASIDE, "blobs/a", targets, 1)
    assert store.wanted_again("blobs/a", ["a/one"]) == {}
    versioned.refers("a/one")
    assert store.wanted_again("blobs/a", ["a/one"]).keys() == {"a/one"}
    assert store.carry_out(Order.DELETE_ASIDE, "blobs/a", targets, 1) == [SweptTarget("a/one", Outcome.DELETED, len("a/one"))]
    assert versioned.versions() == ([b"older"], 1)


def test_a_newer_version_is_another_object_and_both_stay(versioned: Versioned) -> None:
    store = versioned.store()
    targets = planned(store, "a/one")
    versioned.client.put_object(Bucket=versioned.name, Key="blobs/a/one", Body=b"a/one")
    assert swept(store, targets)["a/one"].outcome is Outcome.SPARED
    assert versioned.versions() == ([b"a/one", b"a/one", b"older"], 0)


def test_what_is_deleted_without_its_version_is_only_hidden(versioned: Versioned) -> None:
    store = versioned.store(delete={"condition": "none"})
    found = swept(store, planned(store, "a/one"))
    assert found == {"a/one": SweptTarget("a/one", Outcome.HIDDEN, bytes_hidden=len("a/one"))}
    assert versioned.versions() == ([b"a/one", b"older"], 1)


@pytest.mark.parametrize("how", ["its version is deleted", "it is hidden", "nobody may look"])
def test_of_a_bucket_with_versions_a_killed_sweep_has_freed_what_is_there_no_more(versioned: Versioned, how: str) -> None:
    store = versioned.store()
    targets = begun(planned(store, "a/one"))
    [latest] = [
        one["VersionId"] for one in versioned.client.list_object_versions(Bucket=versioned.name)["Versions"] if one["IsLatest"]
    ]
    versioned.client.delete_object(Bucket=versioned.name, Key="blobs/a/one")
    if how != "it is hidden":
        versioned.client.delete_object(Bucket=versioned.name, Key="blobs/a/one", VersionId=latest)

    def denied(method: str, place: str, _: bytes) -> tuple[str, str] | None:
        return error("403 Forbidden", "AccessDenied") if method == "GET" and "?versions" in place else None

    if how == "nobody may look":
        versioned.s3.faults.append(denied)
    freed = len("a/one") if how == "its version is deleted" else 0
    assert store.remains("blobs/a", targets) == {"a/one": Remains.FREED if freed else Remains.NOTHING}
    assert swept(store, targets) == {"a/one": SweptTarget("a/one", Outcome.ALREADY_GONE, freed)}


@pytest.mark.parametrize(("place", "denied", "freed"), [("versioned", "", 0), ("bucket", "", 5), ("bucket", "versioning", 0)])
def test_what_was_noted_without_its_version_is_freed_where_none_are_kept(
    place: str, denied: str, freed: int, request: pytest.FixtureRequest
) -> None:
    objects: S3Objects = request.getfixturevalue(place)
    store = objects.store(delete={"condition": "none"})
    targets = begun(planned(store, "a/one"))
    fs, root = opened(objects)
    fs.rm_file(f"{root}/a/one")
    objects.s3.faults.append(lambda _, at, __: error("403 Forbidden", "AccessDenied") if denied and denied in at else None)
    assert store.remains("blobs/a", targets) == {"a/one": Remains.FREED if freed else Remains.NOTHING}
    assert swept(store, targets) == {"a/one": SweptTarget("a/one", Outcome.ALREADY_GONE, freed)}


def test_the_rate_is_divided_among_those_who_sweep_side_by_side(bucket: S3Objects) -> None:
    store = bucket.store(rates={"delete": 3000})
    part = store.among(4)
    assert (store._pace.rate, part._pace.rate, store.among(1)) == (3000, 750, store)


def test_an_object_that_a_restored_bucket_has_with_another_time_goes_again_and_other_bytes_stay(
    bucket: S3Objects, tmp_path: Path
) -> None:
    cycle = Cycle(bucket, f"sqlite:///{tmp_path}/ledger.db", tmp_path / "settings", drawing=DRAWN)
    cycle.sweeps()
    left, (one, two, *_) = cycle.data(), cycle.due
    # it is as old as it was
    cycle.says(cycle.policy.replace("older_than: 1d", "older_than: 3200d"))
    # too young to be judged, and then old enough
    for at, fate in (
        (now(), ([], {one: "It was written so lately that its store does not judge it yet."})),
        (OLD + YEAR, ([one], {})),
    ):
        bucket.put(one, cycle.before[one], at)
        bucket.put(two, b"." * len(cycle.before[two]), at)
        assert cycle.replays(plan=True) == cycle.replays() == fate
    assert (cycle.data().keys() - left.keys(), cycle.verified()) == ({two}, ())

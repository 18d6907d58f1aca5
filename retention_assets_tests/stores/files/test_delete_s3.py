"""Deleting on S3: versions that a deletion only hides, and keys that a bulk deletion cannot name."""

import itertools
import json
import xml.etree.ElementTree as xml
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest

from retention_assets.outcomes import Order, Outcome
from retention_assets.stores.files import FilesSettings
from retention_assets.stores.files.store import FilesStore
from retention_assets.stores.protocol import Remains, SweptTarget, Target
from retention_assets_tests.stores.files.environments import S3, S3Files, error
from retention_assets_tests.stores.files.sweeps import filled, swept
from retention_assets_tests.sweep.lakes import DUE, Lake

SIZE = len("lake/a T1")
NUMBERS = itertools.count()


class Bucket:
    """A bucket with versions, seen without the store, and a lake in it."""

    def __init__(self, s3: S3) -> None:
        self.client: Any = boto3.client("s3", endpoint_url=s3.environment["AWS_ENDPOINT_URL"])
        # One of its own for each test: this server forgets none that kept versions.
        self.name = f"versioned{next(NUMBERS)}"
        self.client.create_bucket(Bucket=self.name)
        self.s3 = s3
        self.keep("Enabled")

    def keep(self, status: str) -> None:
        self.client.put_bucket_versioning(Bucket=self.name, VersioningConfiguration={"Status": status})

    def put(self, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=key, Body=content)

    def versions(self, prefix: str = "data/a/T1/") -> list[int]:
        pages = self.client.get_paginator("list_object_versions").paginate(Bucket=self.name, Prefix=prefix)
        return sorted(one["Size"] for page in pages for one in page.get("Versions", ()))

    def markers(self) -> int:
        pages = self.client.get_paginator("list_object_versions").paginate(Bucket=self.name, Prefix="data/a/T1/")
        return sum(len(page.get("DeleteMarkers", ())) for page in pages)

    def store(self, versions: str = "keep") -> FilesStore:
        places = {"log": "s3://lake/log", "data": f"s3://{self.name}/data/{{dataset}}/{{transaction}}"}
        return FilesStore(FilesSettings.model_validate({"name": "lake", "versions": versions, **places}))


@pytest.fixture
def bucket(s3: S3) -> Bucket:
    """T1 with an older version of its file, and T10 beside it; the log is in another bucket."""
    filled(S3Files(s3))
    bucket = Bucket(s3)
    bucket.put("data/a/T1/part.parquet", b"older version")
    bucket.put("data/a/T1/part.parquet", b"lake/a T1")
    bucket.put("data/a/T10/part.parquet", b"lake/a T10")
    return bucket


HIDDEN = SweptTarget("T1", Outcome.HIDDEN, bytes_hidden=SIZE + len("older version"))


def test_what_a_bucket_with_versions_keeps_is_hidden_and_not_deleted(bucket: Bucket) -> None:
    [prepared] = bucket.store().prepare("lake/a", ["T1"])
    assert swept(bucket.store(), "lake/a", "T1") == [HIDDEN]
    assert prepared.bytes == 0
    assert bucket.versions() == [SIZE, len("older version")]
    # Nor is it gone for whoever comes again.
    assert swept(bucket.store(), "lake/a", "T1") == [HIDDEN]


@pytest.mark.parametrize("hidden_before", [False, True])
def test_with_versions_delete_every_version_and_marker_goes_and_nothing_beside(bucket: Bucket, hidden_before: bool) -> None:
    if hidden_before:
        swept(bucket.store(), "lake/a", "T1")
    store = bucket.store("delete")
    [prepared] = store.prepare("lake/a", ["T1"])
    assert prepared.bytes == SIZE + len("older version")
    assert swept(store, "lake/a", "T1") == [SweptTarget("T1", Outcome.DELETED, SIZE + len("older version"))]
    assert (bucket.versions(), bucket.markers()) == ([], 0)
    assert bucket.versions("data/a/T10/") == [len("lake/a T10")]
    assert swept(store, "lake/a", "T1") == [SweptTarget("T1", Outcome.ALREADY_GONE)]


def test_a_root_in_which_all_is_hidden_is_not_empty_for_whoever_deletes_versions(bucket: Bucket) -> None:
    swept(bucket.store(), "lake/a", "T1", "T10")
    assert "is empty" in str(swept(bucket.store(), "lake/a", "T1")[0].error)
    assert [one.outcome for one in swept(bucket.store("delete"), "lake/a", "T1", "T10")] == [Outcome.DELETED] * 2
    assert bucket.versions("data/") == []


def test_what_is_set_aside_comes_back_or_goes_with_its_bytes(bucket: Bucket) -> None:
    store = bucket.store()
    target = Target("T1", store.prepare("lake/a", ["T1"])[0].note, aside="1/2")
    for _ in range(2):
        assert store.carry_out(Order.SET_ASIDE, "lake/a", [target], 1) == [SweptTarget("T1", Outcome.SET_ASIDE, SIZE)]
        assert [result.outcome for result in store.carry_out(Order.RESTORE, "lake/a", [target], 1)] == [Outcome.RESTORED]
    store.carry_out(Order.SET_ASIDE, "lake/a", [target], 1)
    assert store.carry_out(Order.DELETE_ASIDE, "lake/a", [target], 1) == [SweptTarget("T1", Outcome.DELETED, SIZE)]
    assert bucket.versions() == [len("older version")]


def suspended(method: str, place: str, _: bytes) -> tuple[str, str] | None:
    """What a bucket says whose versioning was suspended. This server would then forget the old versions, which S3 does not."""
    if method != "GET" or "versioning" not in place:
        return None
    return "200 OK", "<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>"


def test_where_versioning_is_suspended_old_versions_are_hidden(bucket: Bucket) -> None:
    bucket.s3.faults.append(suspended)
    [prepared] = bucket.store().prepare("lake/a", ["T1"])
    assert swept(bucket.store(), "lake/a", "T1") == [HIDDEN]
    assert prepared.bytes == SIZE


@pytest.mark.parametrize(("versions", "left"), [("keep", Remains.NOTHING), ("delete", Remains.FREED)])
def test_what_is_gone_has_freed_its_bytes_where_no_version_can_stay(bucket: Bucket, versions: str, left: Remains) -> None:
    bucket.keep("Suspended")
    store = bucket.store(versions)
    [prepared] = store.prepare("lake/a", ["T1"])
    swept(store, "lake/a", "T1")
    assert store.remains("lake/a", [Target("T1", prepared.note)]) == {"T1": left}


def test_where_versioning_is_suspended_what_has_no_old_version_is_deleted(s3: S3) -> None:
    environment = filled(S3Files(s3))
    s3.faults.append(suspended)
    assert swept(environment.store(), "lake/a", "T1") == [SweptTarget("T1", Outcome.DELETED, SIZE)]


def deny(*words: str) -> Any:
    def denied(method: str, place: str, _: bytes) -> tuple[str, str] | None:
        asked = method == "GET" and any(word in place for word in words)
        return error("403 Forbidden", "AccessDenied") if asked else None

    return denied


def test_where_nobody_may_ask_and_nothing_is_kept_it_is_deleted(s3: S3) -> None:
    environment = filled(S3Files(s3))
    s3.faults.append(deny("versioning", "versions"))
    assert swept(environment.store(), "lake/a", "T1") == [SweptTarget("T1", Outcome.DELETED, SIZE)]


def test_where_the_bucket_does_not_say_whether_it_keeps_versions_they_are_looked_for(bucket: Bucket) -> None:
    bucket.s3.faults.append(deny("versioning"))
    assert swept(bucket.store(), "lake/a", "T1") == [HIDDEN]


def test_where_versions_may_not_be_listed_versions_delete_fails_and_nothing_goes(bucket: Bucket) -> None:
    bucket.s3.faults.append(deny("versions"))
    [found] = swept(bucket.store("delete"), "lake/a", "T1")
    assert (found.outcome, found.bytes) == (Outcome.FAILED, 0)
    bucket.s3.faults.clear()
    assert (len(bucket.versions()), bucket.markers()) == (2, 0)


def test_a_bucket_that_never_kept_versions_is_asked_once_for_a_whole_batch(s3: S3) -> None:
    environment, asked = filled(S3Files(s3)), list[str]()
    s3.faults.append(lambda _, place, __: asked.append(place) if "version" in place else None)
    store = FilesStore(environment.settings.model_copy(update={"versions": "delete"}))
    assert [one.outcome for one in swept(store, "lake/a", "T1", "T2")] == [Outcome.DELETED] * 2
    assert len(asked) == 1


def test_versions_are_deleted_page_by_page_and_all_of_them(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(7):
        bucket.put(f"data/a/T1/{number % 3}", b"x" * number)
    monkeypatch.setattr("retention_assets.stores.places.delete_s3.KEYS_PER_REQUEST", 4)
    monkeypatch.setattr("retention_assets.stores.places.s3_bucket.PAGE", 2)
    [found] = swept(bucket.store("delete"), "lake/a", "T1")
    assert (found.outcome, found.bytes) == (Outcome.DELETED, SIZE + len("older version") + sum(range(7)))
    assert (bucket.versions(), bucket.markers()) == ([], 0)


def test_the_token_of_a_dataset_is_another_once_versions_are_deleted(bucket: Bucket) -> None:
    """So that the loop judges anew what was only hidden."""
    before, after = (bucket.store(how).tokens(["lake/a"]) for how in ("keep", "delete"))
    assert before.keys() == after.keys() == {"lake/a"}
    assert before != after


def strict(method: str, place: str, body: bytes) -> tuple[str, str] | None:
    """A bulk deletion that is no XML is refused whole, as S3 does."""
    if method != "POST" or "delete" not in place:
        return None
    try:
        xml.fromstring(body)
    except xml.ParseError:
        return error("400 Bad Request", "MalformedXML")
    return None


CONTROLS = ["\x01", "a\x02b", "\x1f", "a\tb", "a\rb", "a\nb", "\x7f", "\x85", "\ufffe", "é\x03 'q\"&<"]


@pytest.mark.parametrize("key", CONTROLS)
def test_a_key_with_a_control_character_goes_and_keeps_no_other(s3: S3, key: str) -> None:
    environment = filled(S3Files(s3))
    environment.put("lake/a", "T1", key, b"xyz")
    before = {place for place in environment.everything() if not place.startswith("data/a/T1/")}
    s3.faults.append(strict)
    assert swept(environment.store(), "lake/a", "T1") == [SweptTarget("T1", Outcome.DELETED, SIZE + 3)]
    assert environment.everything().keys() == before


def test_a_key_that_the_server_refuses_fails_alone_and_is_named(s3: S3) -> None:
    environment = filled(S3Files(s3))
    environment.put("lake/a", "T1", "a\x02b", b"xyz")
    s3.faults.append(lambda method, _, __: error("403 Forbidden", "AccessDenied") if method == "DELETE" else None)
    first, second = swept(environment.store(), "lake/a", "T1", "T2")
    assert (first.outcome, second.outcome) == (Outcome.FAILED, Outcome.DELETED)
    assert "objects stay: 'data/a/T1/a\\x02b'" in str(first.error)
    assert environment.owned("lake/a", "T1") == {"data/a/T1/a\x02b"}


def test_a_key_whose_address_could_become_anothers_stays_and_is_named(s3: S3) -> None:
    environment = filled(S3Files(s3))
    environment.put("lake/a", "T1", "../T10/\x01", b"due")
    environment.put("lake/a", "T10", "\x01", b"live")
    [found] = swept(environment.store(), "lake/a", "T1")
    assert found.outcome is Outcome.FAILED
    assert "cannot be named in a request" in str(found.error)
    assert environment.everything()["data/a/T10/\x01"] == b"live"


def test_a_version_of_a_key_with_a_control_character_is_deleted_by_its_name(bucket: Bucket) -> None:
    """This server cannot list such keys with their versions, so that answer is made here."""
    key, asked = "data/a/T1/%01", list[str]()

    def lists(method: str, place: str, _: bytes) -> tuple[str, str] | None:
        if method == "DELETE":
            asked.append(place)
            return "204 No Content", ""
        if "versions" not in place or "T1" not in place:
            return None
        found = f"<Version><Key>{key}</Key><VersionId>v1</VersionId><Size>3</Size></Version>" if not asked else ""
        body = f"<EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>{found}"
        return "200 OK", f"<ListVersionsResult>{body}</ListVersionsResult>"

    bucket.s3.faults.append(lists)
    assert swept(bucket.store("delete"), "lake/a", "T1") == [SweptTarget("T1", Outcome.DELETED, 3)]
    assert asked == [f"/{bucket.name}/data/a/T1/\x01?versionId=v1"]


@pytest.mark.parametrize("key", ["\x01", "plain"])
def test_where_nobody_may_ask_the_answer_for_each_kind_of_key_tells(s3: S3, key: str) -> None:
    filled(S3Files(s3))
    bucket = Bucket(s3)
    bucket.put(f"data/a/T1/{key}", b"xyz")
    s3.faults.append(deny("versioning", "versions"))
    assert swept(bucket.store(), "lake/a", "T1") == [SweptTarget("T1", Outcome.HIDDEN, bytes_hidden=3)]


LIMITED = (
    "{name: old, datasets: {include: ['lake/*']}, select: {older_than: 30d}, limits: {transactions: 2},"
    " sweep: {every: 0s, batch: 2}}"
)
AGAIN = DUE + timedelta(days=1)


def says(lake: Lake, **store: Any) -> None:
    file = lake.folder / "retention.yaml"
    settings = json.loads(file.read_text())
    settings["stores"][0].update(store)
    file.write_text(json.dumps(settings))


def test_what_a_bucket_only_hid_is_marked_again_and_deleted_once_versions_are(tmp_path: Path, bucket: Bucket) -> None:
    lake = Lake(tmp_path, policies=LIMITED).has("main: T1:SNAPSHOT@90d - T2:SNAPSHOT@80d - T3:SNAPSHOT@1d")
    for name in ("T1", "T2", "T3"):
        bucket.put(f"cycle/d/{name}/part", name.encode() * 5)
    says(lake, data=f"s3://{bucket.name}/cycle/{{dataset}}/{{transaction}}")

    assert lake.marks() == 2
    [first] = lake.sweeps().values()
    assert (first.outcomes, first.bytes_freed, first.bytes_hidden) == ({Outcome.HIDDEN: 2}, 0, 20)
    assert lake.statuses() == {"T1": "SWEPT", "T2": "SWEPT"}
    report = lake.report()
    assert [report[name] for name in ("to_delete", "deleted", "hidden", "bytes_freed", "bytes_hidden")] == [2, 0, 2, 0, 20]
    # Beside the root's own file, by which it is known again.
    assert bucket.versions("cycle/d/") == [10] * 3
    # As long as its store hides, it is over.
    assert lake.marks(DUE) == 0
    says(lake, versions="delete")
    assert lake.marks(AGAIN) == 2
    assert lake.marks(AGAIN) == 0
    [second] = lake.sweeps(AGAIN + timedelta(days=7)).values()
    assert (second.outcomes, second.bytes_freed, second.bytes_hidden) == ({Outcome.DELETED: 2}, 20, 0)
    assert bucket.versions("cycle/d/") == bucket.versions("cycle/d/T3/") == [10]
    assert lake.marks(AGAIN + timedelta(days=8)) == 0
    assert lake.verified() == ()

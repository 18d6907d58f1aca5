"""Listing a bucket: by ranges of keys that leave nothing out, with versions and without, on a server that is busy."""

import itertools
import json
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest

from retention_assets.clock import now
from retention_assets.errors import Refused
from retention_assets.stores.places import s3_bucket
from retention_assets_tests.rounds import rounds
from retention_assets_tests.stores.files.environments import S3, error
from retention_assets_tests.stores.objects.listings.listed import found, listed, listing_of

NUMBERS = itertools.count()
PLACE = {"path": "s3://lake/blobs/"}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retention_assets.stores.places.s3.PATIENCE", replace(s3_bucket.PATIENCE, pause=0))


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_bucket, "PAGE", 9)


@pytest.fixture
def versioned(s3: S3) -> tuple[Any, str]:
    """A client, and a bucket that keeps versions, with two versions of one object and one that is hidden."""
    client = boto3.client("s3", endpoint_url=s3.environment["AWS_ENDPOINT_URL"])
    name = f"objects{next(NUMBERS)}"
    client.create_bucket(Bucket=name)
    client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    for key, body in (("blobs/a", b"old"), ("blobs/a", b"newer"), ("blobs/b", b"b"), ("blobs/hidden", b"x")):
        client.put_object(Bucket=name, Key=key, Body=body)
    client.delete_object(Bucket=name, Key="blobs/hidden")
    return client, name


def test_keys_are_those_below_the_root_to_the_byte(s3: S3) -> None:
    keys = ["a", "r1/b c+d%25é", "r1/x//y", "r1/folder/", "..", "deep/er/z\n"]
    for key in ["blobs/", "other/a", "blobs-2/a", "blobs/.retention-store", *(f"blobs/{key}" for key in keys)]:
        s3.put(key, b"12")
    rows = listed(listing_of(PLACE))
    assert rows.keys() == set(keys)
    assert rows["a"]["size"] == 2
    assert rows["a"]["condition"] == '{"etag":"c20ad4d76fe97759aa27a0c99bff6710"}'
    assert rows["a"]["created_at"] <= now()
    assert found(listing_of(PLACE), ["a", "r1/x//y", "gone", "", ".retention-store"]) == {
        key: rows[key] for key in ("a", "r1/x//y")
    }


def test_keys_with_dots_are_not_those_without(s3: S3) -> None:
    s3.put("blobs/b", b"other")
    listing = listing_of(PLACE)
    assert found(listing, ["a/../b", "./b", "b"]).keys() == {"b"}
    s3.put("blobs/a/../b", b"1")
    # By an address it might be that of another on its way.
    s3.faults.append(lambda method, _, __: error("404 Not Found", "NoSuchKey") if method == "HEAD" else None)
    assert found(listing, ["a/../b"])["a/../b"]["size"] == 1


def test_times_are_those_that_a_question_about_one_object_gets(s3: S3) -> None:
    entry = "<Contents><Key>blobs/a</Key><Size>1</Size><LastModified>2026-11-20T01:02:03.456Z</LastModified></Contents>"
    page = f"<ListBucketResult><IsTruncated>false</IsTruncated>{entry}</ListBucketResult>"
    s3.faults.append(lambda _, place, __: ("200 OK", page) if "list-type" in place else None)
    [row] = listed(listing_of(PLACE)).values()
    # A header of HTTP has whole seconds.
    assert row["created_at"] == datetime(2026, 11, 20, 1, 2, 3, tzinfo=UTC)


def test_without_a_prefix_the_bucket_is_the_root(s3: S3) -> None:
    s3.put("a/b", b"")
    assert listed(listing_of({"path": "s3://lake"})).keys() == {"a/b"}


def test_of_versions_the_latest_is_the_object_and_a_hidden_one_is_none(versioned: tuple[Any, str]) -> None:
    client, name = versioned
    listing = listing_of({"path": f"s3://{name}/blobs"})
    latest = client.head_object(Bucket=name, Key="blobs/a")["VersionId"]
    rows = listed(listing)
    assert rows.keys() == {"a", "b"}
    assert (rows["a"]["size"], json.loads(rows["a"]["condition"])) == (5, {"version": latest})
    assert found(listing, ["a", "hidden", "b"]) == rows
    # So many that a page would answer them, but without versions.
    assert found(listing, ["a", "b", *(f"none{number}" for number in range(10))]) == rows


def test_a_version_that_says_nothing_is_noted_with_the_etag(versioned: tuple[Any, str]) -> None:
    client, name = versioned
    client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Suspended"})
    client.put_object(Bucket=name, Key="blobs/late", Body=b"1")
    listing = listing_of({"path": f"s3://{name}/blobs"})
    row = listed(listing)["late"]
    assert json.loads(row["condition"]) == {"version": "null", "etag": "c4ca4238a0b923820dcc509a6f75849b"}
    assert found(listing, ["late"]) == {"late": row}


@pytest.mark.parametrize("denied", ["403 Forbidden", "501 Not Implemented"])
def test_who_may_not_ask_for_versions_tells_objects_apart_by_etags(s3: S3, denied: str) -> None:
    s3.put("blobs/a", b"1")
    code = "AccessDenied" if denied.startswith("403") else "NotImplemented"
    s3.faults.append(lambda _, place, __: error(denied, code) if "versioning" in place else None)
    assert json.loads(listed(listing_of(PLACE))["a"]["condition"]).keys() == {"etag"}


SHAPES = {
    "folders": lambda number: f"r{number % 5}/{number:03d}",
    "one folder": lambda number: f"r/x{number:03x}",
    "a long beginning": lambda number: f"events-of-2026/part-{number:05d}.parquet",
    "one huge folder among small ones": lambda number: f"{number}" if number < 20 else f"huge/{number % 16:x}/{number}",
    "hashes": lambda number: f"{number * 2654435761 % 2**32:08x}",
    "letters beyond ASCII": lambda number: f"{chr(0x1F600 + number % 20)}{chr(0xE000 + number)}",
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.usefixtures("small_pages")
def test_ranges_overlap_nowhere_and_leave_nothing_out(s3: S3, shape: str) -> None:
    keys = {SHAPES[shape](number) for number in range(60)}
    for key in keys:
        s3.put(f"blobs/{key}", b"")
    listing = listing_of(PLACE)
    ranges = listing.shares(4)
    assert len(ranges) == 4
    parts = [{key for batch in listing.read(one) for key in batch["key"].to_pylist()} for one in ranges]
    assert set().union(*parts) == keys
    assert sum(map(len, parts)) == len(keys)
    # Each has something to do.
    assert min(map(len, parts)) > 0


@pytest.mark.usefixtures("small_pages")
def test_ranges_hold_for_keys_that_come_later_and_for_versions(versioned: tuple[Any, str]) -> None:
    client, name = versioned
    for number in range(30):
        client.put_object(Bucket=name, Key=f"blobs/r{number % 3}/{number}", Body=b"")
    listing = listing_of({"path": f"s3://{name}/blobs"})
    ranges = listing.shares(3)
    assert len(ranges) == 3
    later = {"0", "r1/00", "zzz"}
    for key in later:
        client.put_object(Bucket=name, Key=f"blobs/{key}", Body=b"")
    keys = [key for one in ranges for batch in listing.read(one) for key in batch["key"].to_pylist()]
    assert sorted(keys) == sorted({"a", "b", *later, *(f"r{number % 3}/{number}" for number in range(30))})


@pytest.mark.usefixtures("small_pages")
def test_any_keys_and_any_number_of_shares(s3: S3) -> None:
    choose = random.Random(7)
    for _ in range(rounds(1)):
        s3.empty()
        keys = {"".join(choose.choices("ab/é\U0001f600", k=choose.randint(1, 6))) for _ in range(choose.randint(0, 60))}
        for key in keys:
            s3.put(f"blobs/{key}", b"")
        listing = listing_of(PLACE)
        for wanted in (1, 6):
            assert listed(listing, wanted).keys() == keys
        asked = [*choose.sample(sorted(keys), len(keys) // 2), "none", "ab/none"]
        assert found(listing, asked).keys() == keys & set(asked)


@pytest.mark.usefixtures("small_pages")
def test_many_keys_are_asked_for_by_pages_and_few_by_their_names(s3: S3) -> None:
    for number in range(40):
        s3.put(f"blobs/{number:02d}", b"")
    asked: list[str] = []
    s3.faults.append(lambda method, place, _: asked.append(method) if "blobs" in place else None)
    assert len(found(listing_of(PLACE), [f"{number:02d}" for number in range(40)])) == 40
    assert len(asked) < 20
    asked.clear()
    assert len(found(listing_of(PLACE), ["00", "39"])) == 2
    assert asked == ["HEAD", "HEAD"]


@pytest.mark.usefixtures("small_pages")
def test_after_keys_that_lie_far_apart_pages_are_tried_again(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retention_assets.stores.places.s3._SPARSE", 3)
    for number in range(60):
        s3.put(f"blobs/{number:02d}", b"")
    asked: list[str] = []
    s3.faults.append(lambda method, place, _: asked.append(method) if "blobs" in place else None)
    keys = ["00", "20", *(f"{number:02d}" for number in range(30, 60))]
    assert found(listing_of(PLACE), keys).keys() == {*keys}
    assert 3 <= asked.count("HEAD") < 8
    assert len(asked) < 12


def test_a_busy_server_is_asked_again(s3: S3) -> None:
    s3.put("blobs/a", b"")
    answers = [error("503 Slow Down", "SlowDown"), error("500 Internal Server Error", "InternalError")]
    s3.faults.append(lambda _, place, __: answers.pop() if answers and "list-type" in place else None)
    assert listed(listing_of(PLACE)).keys() == {"a"}
    assert answers == []


def test_a_server_that_does_not_say_whether_it_keeps_versions_lists_nothing(s3: S3) -> None:
    """An object would be deleted under its ETag, and so only be hidden."""
    s3.put("blobs/a", b"1")
    s3.faults.append(
        lambda _, place, __: error("500 Internal Server Error", "InternalError") if "versioning" in place else None
    )
    with pytest.raises(Refused, match="s3://lake/blobs/ can't be listed"):
        listed(listing_of(PLACE))


def test_what_can_not_be_listed_fails_with_its_name(s3: S3) -> None:
    with pytest.raises(Refused, match=r"s3://nowhere/x can't be listed: .*s3:ListBucket"):
        listed(listing_of({"path": "s3://nowhere/x"}))
    s3.faults.append(lambda _, place, __: error("403 Forbidden", "AccessDenied") if "list-type" in place else None)
    with pytest.raises(Refused, match="s3://lake/blobs/ can't be listed"):
        listed(listing_of(PLACE))
    with pytest.raises(Refused, match="s3://nowhere/x can't be listed"):
        listing_of({"path": "s3://nowhere/x"}).begin()


@pytest.mark.usefixtures("small_pages")
def test_a_page_that_fails_in_the_middle_fails_the_share(s3: S3) -> None:
    for number in range(30):
        s3.put(f"blobs/{number:02d}", b"")
    s3.faults.append(lambda _, place, __: error("403 Forbidden", "AccessDenied") if "continuation" in place else None)
    with pytest.raises(Refused, match="can't be listed"):
        listed(listing_of(PLACE))


def test_the_clock_is_the_server_s(s3: S3) -> None:
    listing = listing_of(PLACE)
    at = listing.begin()
    assert at.microsecond == 0
    assert timedelta(0) <= now() - at < timedelta(minutes=1)

"""Inventories of a bucket, written as S3 Inventory writes them: the newest complete one, and what it names."""

import gzip
import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets.errors import Refused
from retention_assets_tests.stores.files.environments import S3
from retention_assets_tests.stores.objects.listings.listed import found, listed, listing_of, settings_of

AT = datetime(2026, 11, 20, 1, 2, 3, 456000, UTC)
NAMES = ("Bucket", "Key", "VersionId", "IsLatest", "IsDeleteMarker", "Size", "LastModifiedDate", "ETag", "StorageClass")
SNAKE = ("bucket", "key", "version_id", "is_latest", "is_delete_marker", "size", "last_modified_date", "e_tag", "storage_class")
WHOLE = AT.replace(microsecond=0)
Row = dict[str, Any]


def row(key: str, **more: Any) -> Row:
    given = {"Bucket": "media", "Key": key, "VersionId": None, "IsLatest": True, "IsDeleteMarker": False, "Size": 1}
    return {**given, "LastModifiedDate": AT, "ETag": f"e-{key}", "StorageClass": "STANDARD", **more}


def as_csv(rows: list[Row], names: tuple[str, ...]) -> bytes:
    def text(name: str, value: Any) -> str:
        if value is None:
            return '""'
        if isinstance(value, bool):
            return f'"{str(value).lower()}"'
        if isinstance(value, datetime):
            return f'"{value.strftime("%Y-%m-%dT%H:%M:%S.456Z")}"'
        return f'"{quote_plus(value, safe="/") if name == "Key" else value}"'

    return gzip.compress("".join(",".join(text(name, one[name]) for name in names) + "\n" for one in rows).encode())


def as_parquet(rows: list[Row], names: tuple[str, ...]) -> bytes:
    types = {
        "IsLatest": pa.bool_(),
        "IsDeleteMarker": pa.bool_(),
        "Size": pa.int64(),
        "LastModifiedDate": pa.timestamp("ms", "UTC"),
    }
    schema = pa.schema([(SNAKE[NAMES.index(name)], types.get(name, pa.string())) for name in names])
    made = io.BytesIO()
    pq.write_table(
        pa.Table.from_pylist([{SNAKE[NAMES.index(name)]: one[name] for name in names} for one in rows], schema), made
    )
    return made.getvalue()


FORMS: dict[str, Callable[[list[Row], tuple[str, ...]], bytes]] = {"CSV": as_csv, "Parquet": as_parquet}


@dataclass
class Deliveries:
    """Where inventories are delivered, below a prefix: `put` writes a file."""

    place: str
    put: Callable[[str, bytes], object]
    names: tuple[str, ...] = NAMES
    files: dict[str, bytes] = field(default_factory=dict)

    def write(self, key: str, content: bytes) -> None:
        self.files[key] = content
        self.put(key, content)

    def deliver(self, day: int, *parts: list[Row], form: str = "CSV", **said: Any) -> str:
        made = datetime(2026, 11, day, tzinfo=UTC)
        files = []
        for number, rows in enumerate(parts):
            content = FORMS.get(form, as_csv)(rows, self.names)
            key = f"inv/media/all/data/{day}-{number}.{'csv.gz' if form == 'CSV' else 'parquet'}"
            self.write(key, content)
            files.append({"key": key, "size": len(content), "MD5checksum": hashlib.md5(content).hexdigest()})
        schema = ", ".join(self.names) if form == "CSV" else "message s3.inventory { required binary bucket (UTF8); }"
        manifest = {
            "sourceBucket": "media", "destinationBucket": "arn:aws:s3:::lake", "version": "2016-11-30", "fileFormat": form,
            "creationTimestamp": str(int(made.timestamp() * 1000)), "fileSchema": schema, "files": files, **said,
        }  # fmt: skip
        folder = f"inv/media/all/2026-11-{day:02d}T00-00Z"
        content = json.dumps(manifest).encode()
        self.write(f"{folder}/manifest.json", content)
        self.write(f"{folder}/manifest.checksum", hashlib.md5(content).hexdigest().encode() + b"\n")
        return folder

    @property
    def listing(self) -> dict[str, Any]:
        return {"inventory": {"manifest": f"{self.place}/inv/media/all/"}}


@pytest.fixture
def local(tmp_path: Path) -> Deliveries:
    def put(key: str, content: bytes) -> None:
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(content)

    return Deliveries(str(tmp_path), put)


@pytest.fixture(params=["a folder", "a bucket"])
def deliveries(request: pytest.FixtureRequest) -> Deliveries:
    if request.param == "a folder":
        return request.getfixturevalue("local")  # type: ignore[no-any-return]
    s3: S3 = request.getfixturevalue("s3")
    return Deliveries("s3://lake", s3.put)


HOSTILE = ["a b", "a+b", "a%2Fb", "é/ü", 'q"uo,te', "x\ny", "%25", "plain/key"]


@pytest.mark.parametrize("form", FORMS)
def test_an_inventory_names_the_latest_versions(deliveries: Deliveries, form: str) -> None:
    deliveries.deliver(
        20,
        [row("a", VersionId="v2"), row("a", VersionId="v1", IsLatest=False), row("gone", VersionId="v3", IsDeleteMarker=True)],
        [row("b"), row("old", VersionId="null", Size=None)],
        form=form,
    )
    listing = listing_of(deliveries.listing)
    assert listing.begin() == datetime(2026, 11, 20, tzinfo=UTC)
    plain = {"realm": None, "kind": None, "size": 1, "created_at": WHOLE}
    assert listed(listing, 5) == {
        "a": {**plain, "condition": '{"version":"v2"}'},
        "b": {**plain, "condition": '{"etag":"e-b"}'},
        "old": {**plain, "size": None, "condition": '{"version":"null","etag":"e-old"}'},
    }


@pytest.mark.parametrize("form", FORMS)
def test_keys_are_what_they_are_in_the_bucket(local: Deliveries, form: str) -> None:
    local.deliver(20, [row(key, ETag="e") for key in HOSTILE], form=form)
    assert listed(listing_of(local.listing)).keys() == set(HOSTILE)


@pytest.mark.parametrize("form", FORMS)
def test_without_fields_about_versions_every_row_is_an_object(local: Deliveries, form: str) -> None:
    local.names = ("Bucket", "Key", "Size", "LastModifiedDate")
    local.deliver(20, [row("a"), row("b")], form=form)
    rows = listed(listing_of(local.listing))
    assert {key: one["condition"] for key, one in rows.items()} == {"a": None, "b": None}


@pytest.mark.parametrize("path", ["s3://media/blobs", "s3://media/blobs/"])
def test_keys_are_those_below_the_path(local: Deliveries, path: str) -> None:
    local.deliver(20, [row(key) for key in ("blobs/a", "blobs/é/b", "blobs/", "blobs-2/x", "other")])
    assert listed(listing_of({**local.listing, "path": path})).keys() == {"a", "é/b"}


def test_objects_are_asked_of_the_bucket(s3: S3) -> None:
    deliveries = Deliveries("s3://lake", s3.put)
    deliveries.deliver(20, [row("blobs/a", Bucket="lake"), row("blobs/gone", Bucket="lake")], sourceBucket="lake")
    s3.put("blobs/a", b"123")
    listing = listing_of({**deliveries.listing, "path": "s3://lake/blobs"})
    assert listed(listing).keys() == {"a", "gone"}
    assert {key: one["size"] for key, one in found(listing, ["a", "gone"]).items()} == {"a": 3}
    with pytest.raises(Refused, match=r"kind inventory .*Set `listing\.path`"):
        listing_of(deliveries.listing).find(["a"])


# Of the files of the newest delivery: which one changes, and what becomes of it.
INCOMPLETE: dict[str, tuple[str, bytes | None]] = {
    "no checksum": ("2026-11-20T00-00Z/manifest.checksum", None),
    "no manifest": ("2026-11-20T00-00Z/manifest.json", None),
    "another manifest": ("2026-11-20T00-00Z/manifest.json", b"{}"),
    "a file is missing": ("data/20-1.csv.gz", None),
    "a file is cut": ("data/20-1.csv.gz", b"x"),
}


@pytest.mark.parametrize("case", INCOMPLETE)
def test_the_newest_complete_delivery_counts(local: Deliveries, tmp_path: Path, case: str) -> None:
    local.deliver(20, [row("new")], [row("newer")])
    name, content = INCOMPLETE[case]
    file = tmp_path / "inv/media/all" / name
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(Refused, match=r"no complete inventory at .* The newest one is not complete: 2026-11-20T00-00Z: "):
        listing_of(local.listing).begin()
    local.deliver(19, [row("old")])
    local.deliver(18, [row("older")])
    listing = listing_of(local.listing)
    assert listing.begin() == datetime(2026, 11, 19, tzinfo=UTC)
    assert listed(listing).keys() == {"old"}


def test_one_manifest_may_be_named(local: Deliveries) -> None:
    folder = local.deliver(19, [row("old")])
    local.deliver(20, [row("new")])
    listing = {"inventory": {"manifest": f"{local.place}/{folder}/manifest.json"}}
    assert listed(listing_of(listing)).keys() == {"old"}


def test_no_delivery_at_all_is_refused(local: Deliveries) -> None:
    with pytest.raises(Refused, match="There is no complete inventory at"):
        listing_of(local.listing).begin()


def test_a_file_with_another_content_fails_the_share(local: Deliveries, tmp_path: Path) -> None:
    local.deliver(20, [row("a")])
    [key] = [key for key in local.files if "/data/" in key]
    content = bytearray(local.files[key])
    content[4] ^= 1
    (tmp_path / key).write_bytes(content)
    listing = listing_of(local.listing)
    with pytest.raises(Refused, match=r"20-0\.csv\.gz is not the file that its manifest names"):
        listed(listing)


def test_a_file_that_goes_meanwhile_fails_the_share(local: Deliveries, tmp_path: Path) -> None:
    local.deliver(20, [row("a")])
    listing = listing_of(local.listing)
    [share] = listing.shares(1)
    (tmp_path / "inv/media/all/data/20-0.csv.gz").unlink()
    with pytest.raises(Refused, match="can't be read"):
        list(listing.read(share))


REFUSED: tuple[tuple[str, dict[str, Any], tuple[str, ...], str | None, str], ...] = (
    ("ORC", {"form": "ORC"}, NAMES, None, "has the format ORC, which is not supported"),
    ("no time", {}, ("Bucket", "Key", "Size"), None, "has no last_modified_date. Choose `Last modified`"),
    ("another bucket", {}, NAMES, "s3://others/blobs", "is of the bucket media, but `listing.path` is in others"),
    ("no files", {"files": None}, NAMES, None, "is not a manifest of an inventory"),
)


@pytest.mark.parametrize(
    ("said", "names", "path", "expected"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_what_can_not_be_used_is_refused(
    local: Deliveries, said: dict[str, Any], names: tuple[str, ...], path: str | None, expected: str
) -> None:
    local.names = names
    local.deliver(20, [row("a")], **said)
    with pytest.raises(Refused, match=expected):
        listed(listing_of({**local.listing, **({"path": path} if path else {})}))


def test_an_empty_file_lists_nothing(local: Deliveries) -> None:
    local.deliver(20, [], [row("a")])
    assert listed(listing_of(local.listing)).keys() == {"a"}


@pytest.mark.parametrize("wanted", [1, 2, 9])
def test_shares_are_files(local: Deliveries, wanted: int) -> None:
    local.deliver(20, *([row(f"{number}")] for number in range(5)))
    listing = listing_of(local.listing)
    assert len(listing.shares(wanted)) == min(wanted, 5)
    assert len(listed(listing, wanted)) == 5
    assert listing.distinct_names(settings_of(local.listing)) == ["blobs/blobs"]

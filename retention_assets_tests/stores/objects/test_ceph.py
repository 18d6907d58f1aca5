"""Objects in a real object store: a Ceph of one node, from the listing to the deletion."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3  # type: ignore[import-untyped]
import pytest

from retention_assets.outcomes import Outcome
from retention_assets.stores.objects import ObjectsSettings
from retention_assets.stores.objects.store import ObjectsStore
from retention_assets_tests.ceph import forget_connections
from retention_assets_tests.stores.objects.environments import read_some, write_lines
from retention_assets_tests.stores.objects.sweeps import planned, swept

pytestmark = pytest.mark.cluster

KEYS = ["a", "b", "deep/c", "deep/", "é 'q\" +&", *(f"many/{number:05d}" for number in range(1_010))]

# A listing has a thousand in a page.
FEW = KEYS[:40]


class Bucket:
    """A bucket of its own, and a file of references."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        # Not by the session that all share, which remembers the keys of an earlier server.
        self.client: Any = boto3.Session().client("s3", endpoint_url=environ["AWS_ENDPOINT_URL"])
        self.name, self.refs = f"b{uuid4().hex}", folder / "refs.jsonl"
        self.client.create_bucket(Bucket=self.name)
        self.refers("a")

    def refers(self, *keys: str) -> None:
        write_lines(self.refs, *({"object": key} for key in keys))

    def keeps_versions(self) -> None:
        self.client.put_bucket_versioning(Bucket=self.name, VersioningConfiguration={"Status": "Enabled"})

    def put(self, *keys: str, content: bytes = b"x") -> None:
        with ThreadPoolExecutor(8) as threads:
            places = (*(f"root/{key}" for key in keys), "rootless")
            list(threads.map(lambda place: self.client.put_object(Bucket=self.name, Key=place, Body=content), places))

    def left(self) -> set[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name)
        return {one["Key"] for page in pages for one in page.get("Contents", ())}

    def store(self) -> ObjectsStore:
        given = {"name": "o", "listing": {"path": f"s3://{self.name}/root"}, "references": [{"lines": str(self.refs)}]}
        return ObjectsStore(ObjectsSettings.model_validate(given))


@pytest.fixture
def bucket(tmp_path: Path, ceph: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    for name, value in ceph.items():
        monkeypatch.setenv(name, value)
    forget_connections()
    yield Bucket(tmp_path, ceph)
    forget_connections()


@pytest.mark.parametrize("versions", [False, True], ids=["plain", "versions"])
def test_a_listing_in_shares_has_every_key_once(bucket: Bucket, versions: bool) -> None:
    if versions:
        bucket.keeps_versions()
    bucket.put(*KEYS)
    bucket.put("a", content=b"newer")
    listing = bucket.store().listing
    for wanted in (1, 7):
        batches = [batch for share in listing.shares(wanted) for batch in listing.read(share)]
        assert sorted(key for batch in batches for key in batch["key"].to_pylist()) == sorted(KEYS)


@pytest.mark.parametrize("versions", [False, True], ids=["plain", "versions"])
def test_objects_go_that_are_what_was_planned_and_nothing_else(bucket: Bucket, versions: bool) -> None:
    if versions:
        bucket.keeps_versions()
    bucket.put(*FEW)
    store, mine = bucket.store(), [key for key in FEW if key not in ("a", "deep/")]
    targets = planned(store, *mine, dataset="o/o")
    bucket.put("b", content=b"another one")
    found = swept(store, targets, dataset="o/o")
    assert {key: one.outcome for key, one in found.items() if one.outcome is not Outcome.DELETED} == {"b": Outcome.SPARED}
    assert bucket.left() == {"root/a", "root/b", "root/deep/", "rootless"}
    assert {one.outcome for one in swept(store, targets, dataset="o/o").values()} == {Outcome.ALREADY_GONE, Outcome.SPARED}


def test_who_is_needed_by_the_second_look_is_named(bucket: Bucket) -> None:
    bucket.put("a", "b")
    rows = read_some(bucket.store(), {"o/o": ["a", "b", "gone"]}).to_pylist()
    said = {row["transaction"]: dict(row["attributes"]) for row in rows if row["transaction"]}
    assert {key: one["referenced"] for key, one in said.items()} == {"a": "true", "b": "false"} or said["b"]["class"] == "young"
    assert said["a"]["witness"].endswith("refs.jsonl")

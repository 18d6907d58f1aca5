"""What tests of the objects store share: environments of three objects each, on a disk, in a bucket, and in a table."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from retention_assets_tests.stores.files.environments import S3
from retention_assets_tests.stores.objects.cycle import ObjectsCycle
from retention_assets_tests.stores.objects.environments import LocalObjects, Objects, S3Objects, SqlObjects

KEYS = ("a/one", "a/two", "a/three")


AnyObjects = TypeVar("AnyObjects", bound=Objects)


def filled(objects: AnyObjects) -> AnyObjects:
    for key in KEYS:
        objects.put(key, key.encode())
    return objects


@pytest.fixture
def folder(tmp_path: Path) -> LocalObjects:
    return filled(LocalObjects(tmp_path))


@pytest.fixture
def bucket(tmp_path: Path, s3: S3) -> S3Objects:
    return filled(S3Objects(tmp_path, s3))


@pytest.fixture
def table(tmp_path: Path, store_url: str) -> Iterator[SqlObjects]:
    (tmp_path / "table").mkdir()
    objects = filled(SqlObjects(tmp_path / "table", store_url, pooled=True))
    yield objects
    objects.close()


@pytest.fixture(params=["folder", "bucket", "sqlite"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param != "sqlite":
        found: Objects = request.getfixturevalue(request.param)
        return found
    (tmp_path / "objs.db").touch()
    return filled(SqlObjects(tmp_path, f"sqlite:///{tmp_path}/objs.db"))


@pytest.fixture
def cycle(folder: LocalObjects) -> ObjectsCycle:
    return ObjectsCycle(folder)

"""Listing any other place that a driver knows, on fsspec's memory."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import fsspec  # type: ignore[import-untyped]
import pytest

from retention_assets.errors import Refused
from retention_assets.stores.objects.listings import PathObjects
from retention_assets_tests.stores.objects.listings.listed import found, listed, listing_of

PLACE = {"path": "memory://lake/blobs"}


@pytest.fixture
def memory() -> Iterator[Any]:
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]
    yield fs
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]


@pytest.fixture
def filled(memory: Any) -> Any:
    for key in ("blobs/r1/a", "blobs/r1/b/c", "blobs/r2/d", "blobs/file", "blobs/.retention-store", "other/x"):
        memory.pipe_file(f"/lake/{key}", b"12")
    return memory


def test_a_root_that_is_not_there_refuses_the_listing(memory: Any) -> None:
    memory.pipe_file("/lake/other", b"")
    with pytest.raises(Refused, match="memory://lake/blobs does not exist"):
        listed(listing_of(PLACE))


@pytest.mark.parametrize(
    "said",
    [
        {"LastModified": "2026-01-01T00:00:00Z"}, {"mtime": 1767225600.0}, {"updated": datetime(2026, 1, 1)},  # noqa: DTZ001
        {"mtime": datetime(2025, 12, 31, 19, tzinfo=timezone(timedelta(hours=-5)))},
    ],
)  # fmt: skip
def test_times_are_found_under_the_names_of_drivers(filled: Any, monkeypatch: pytest.MonkeyPatch, said: dict[str, Any]) -> None:
    answer = filled.find

    def find(path: str, **more: Any) -> Any:
        entries = answer(path, **more)
        known = {name: {"name": name, "size": 2, "type": "file", "generation": 7, **said} for name in entries}
        return {**known, f"{path}/link": {"name": f"{path}/link", "size": 2, "type": "link"}}

    monkeypatch.setattr(filled, "find", find)
    rows = listed(PathObjects("memory://lake/blobs"))
    assert "r1/link" not in rows
    row = rows["r1/a"]
    assert row["created_at"] == datetime(2026, 1, 1, tzinfo=UTC)
    assert row["condition"] == '{"generation":"7"}'


@pytest.mark.parametrize("name", ["etag", "ETag"])
def test_an_object_is_known_again_by_its_etag_where_there_is_one(
    filled: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    info = filled.info
    monkeypatch.setattr(filled, "info", lambda path: {**info(path), name: '"x"'})
    assert found(listing_of(PLACE), ["r1/a"])["r1/a"]["condition"] == '{"etag":"x"}'


def test_a_driver_that_names_what_is_elsewhere_is_not_believed(filled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filled, "ls", lambda *_, **__: [{"name": "/lake/other/x", "size": 1, "type": "file", "mtime": 1}])
    with pytest.raises(Refused, match="names '/lake/other/x' among files below /lake/blobs/"):
        listed(listing_of(PLACE))


@pytest.mark.parametrize("said", [{}, {"mtime": "yesterday"}, {"mtime": 1e30}])
def test_without_a_time_the_listing_is_refused(filled: Any, monkeypatch: pytest.MonkeyPatch, said: dict[str, Any]) -> None:
    found = [{"name": "/lake/blobs/x", "size": 1, "type": "file", **said}]
    monkeypatch.setattr(filled, "ls", lambda *_, **__: found)
    with pytest.raises(Refused, match="gives no time for 'x'"):
        listed(listing_of(PLACE))

"""Deleting objects from other file systems that fsspec knows, here from one in memory."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]

from retention_assets.errors import Withheld
from retention_assets.outcomes import Outcome
from retention_assets.stores.protocol import Remains, SweptTarget
from retention_assets_tests.stores.objects.environments import OLD, Objects
from retention_assets_tests.stores.objects.sweeps import begun, planned, swept


class InMemory(Objects):
    @property
    def listing(self) -> dict[str, Any]:
        return {"path": "memory://blobs"}

    def put(self, key: str, content: bytes, created_at: datetime = OLD) -> None:
        MemoryFileSystem().pipe_file(f"/blobs/{key}", content)
        MemoryFileSystem.store[f"/blobs/{key}"].created = created_at

    def take(self, key: str) -> None:
        MemoryFileSystem().rm_file(f"/blobs/{key}")

    def data(self) -> dict[str, bytes]:
        return {key.removeprefix("/blobs/"): found.getvalue() for key, found in MemoryFileSystem.store.items()}

    def broken(self, dataset: str, transaction: str) -> Any:
        raise NotImplementedError


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[InMemory]:
    MemoryFileSystem.store.clear()
    objects = InMemory(tmp_path)
    for key in ("a/one", "a/two", "a/*"):
        objects.put(key, key.encode())
    yield objects
    MemoryFileSystem.store.clear()


def test_what_is_as_it_was_planned_goes_and_a_star_is_no_pattern(memory: InMemory) -> None:
    store = memory.store()
    targets = planned(store, "a/*", "a/one", "a/gone")
    memory.put("a/one", b"anew", OLD + timedelta(days=1))
    assert swept(store, targets) == {
        "a/*": SweptTarget("a/*", Outcome.DELETED, len("a/*")),
        "a/one": SweptTarget("a/one", Outcome.SPARED, error="another object now"),
        "a/gone": SweptTarget("a/gone", Outcome.ALREADY_GONE),
    }
    assert memory.data().keys() == {"a/one", "a/two"}
    # Such a place may keep what is deleted.
    assert store.remains("blobs/a", begun(targets))["a/*"] is Remains.NOTHING
    assert swept(store, begun(targets))["a/*"] == SweptTarget("a/*", Outcome.ALREADY_GONE)


def test_each_object_is_looked_at_then_permitted_and_then_goes(memory: InMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a look took: the permit is that of the moment."""
    store, happened, find, remove = memory.store(), list[str](), MemoryFileSystem.info, MemoryFileSystem.rm_file
    targets = planned(store, "a/one", "a/two")

    def look(self: Any, place: str, **more: Any) -> Any:
        happened.append("look")
        return find(self, place, **more)

    def permit() -> None:
        happened.append("permit")
        if happened.count("permit") > 2:
            raise Withheld("no more")

    def gone(self: Any, place: str) -> None:
        happened.append("delete")
        remove(self, place)

    monkeypatch.setattr(MemoryFileSystem, "info", look)
    monkeypatch.setattr(MemoryFileSystem, "rm_file", gone)
    found = swept(store, targets, parallelism=1, permit=permit)
    assert [found[key].outcome for key in ("a/one", "a/two")] == [Outcome.DELETED, Outcome.WITHHELD]
    # It is looked whether the first is gone.
    assert happened == ["permit", "look", "permit", "delete", "look", "look", "permit"]


def test_nothing_goes_from_what_only_passes_on_another_place(memory: InMemory) -> None:
    """A copy of it would go, or more than the object."""
    targets = planned(memory.store(), "a/one")
    found = swept(memory.store(listing={"path": "simplecache::memory://blobs"}), targets)["a/one"]
    assert found.outcome is Outcome.FAILED
    assert memory.data().keys() == {"a/one", "a/two", "a/*"}
    assert "Name the file system directly" in (found.error or "")


def test_what_a_driver_raises_is_said_of_that_object_alone(memory: InMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    real = MemoryFileSystem.rm_file

    def stubborn(self: Any, place: str) -> None:
        if place.endswith("one"):
            raise PermissionError("not this one")
        real(self, place)

    monkeypatch.setattr(MemoryFileSystem, "rm_file", stubborn)
    store = memory.store()
    found = swept(store, planned(store, "a/one", "a/two"))
    assert (found["a/one"].outcome, found["a/two"].outcome) == (Outcome.FAILED, Outcome.DELETED)
    assert "not this one" in (found["a/one"].error or "")


def test_a_driver_that_only_says_that_it_deleted_is_not_believed(memory: InMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryFileSystem, "rm_file", lambda *_: None)
    store = memory.store()
    assert swept(store, planned(store, "a/one"))["a/one"].outcome is Outcome.FAILED

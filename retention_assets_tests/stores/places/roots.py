"""A root of each kind of place, which is filled and looked at without the place."""

import posixpath
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]

from retention_assets.outcomes import Outcome
from retention_assets.stores.places import DeletionPace, DueObject, Entry, FolderNote, Place, open_place
from retention_assets.stores.protocol import Permit, always
from retention_assets_tests.stores.files.environments import S3


def accepts(_: FolderNote) -> None:
    pass


class Root(ABC):
    location: str

    @property
    def place(self) -> Place:
        return open_place(self.location)

    def has(self, *keys: str) -> "Root":
        for key in keys:
            self.put(key, key.encode())
        return self

    @abstractmethod
    def put(self, key: str, content: bytes) -> None:
        """Write an object."""

    @abstractmethod
    def keys(self) -> set[str]:
        """Return what is there."""

    def listed(self, wanted: int = 1) -> dict[str, Entry]:
        entries = [entry for share in self.place.shares(wanted) for entry in self.place.entries(share)]
        assert len(entries) == len({entry.key for entry in entries})
        return {entry.key: entry for entry in entries}

    def deleted(self, *keys: str, spared: str = "", permit: Permit = always, parallelism: int = 1) -> dict[str, Outcome]:
        """Delete objects but for one that a check speaks for; return their outcomes."""
        due = [DueObject(key) for key in keys]
        results = self.place.delete(
            due, lambda entry: "needed" if entry.key == spared else None, permit, DeletionPace(0), parallelism
        )
        return {result.transaction: result.outcome for result in results}


class LocalRoot(Root):
    def __init__(self, root: Path) -> None:
        root.mkdir()
        self.location, self.root = str(root), root

    def put(self, key: str, content: bytes) -> None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def keys(self) -> set[str]:
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file()}


class S3Root(Root):
    def __init__(self, s3: S3) -> None:
        self.s3, self.location = s3, "s3://lake/root"

    def put(self, key: str, content: bytes) -> None:
        self.s3.put(f"root/{key}", content)

    def keys(self) -> set[str]:
        return {key.removeprefix("root/") for key in self.s3.objects() if key.startswith("root/")}


class Resolving(MemoryFileSystem):  # type: ignore[misc]
    def info(self, path: str, **more: Any) -> Any:
        return super().info(posixpath.normpath(path), **more)

    def rm_file(self, path: str) -> None:
        super().rm_file(posixpath.normpath(path))


class MemoryRoot(Root):
    location = "memory://place"

    def __init__(self) -> None:
        self.fs = Resolving()
        self.empty()

    def put(self, key: str, content: bytes) -> None:
        # folders that are there by themselves, and so have to be empty to go
        self.fs.makedirs(posixpath.dirname(f"/place/{key}"), exist_ok=True)
        self.fs.pipe_file(f"/place/{key}", content)

    def keys(self) -> set[str]:
        return {key.removeprefix("/place/") for key in self.fs.store}

    def empty(self) -> None:
        self.fs.store.clear()
        self.fs.pseudo_dirs[:] = [""]

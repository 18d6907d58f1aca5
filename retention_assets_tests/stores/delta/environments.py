"""Environments of the store's tests: tables on a disk, and copies of them in a bucket."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retention_assets.frames import sound_log
from retention_assets.outcomes import Outcome
from retention_assets.stores.delta import KIND, DeltaSettings
from retention_assets.stores.protocol import SweptTarget, Target
from retention_assets_tests.histories import history
from retention_assets_tests.stores.contract import DRAWN, Environment
from retention_assets_tests.stores.delta.tables import Table, Unreadable, file_uris, files, rows, versions
from retention_assets_tests.stores.files.environments import S3
from retention_assets_tests.stores.iceberg.tables import undeletable
from retention_assets_tests.stores.places.test_delete_markers import NUMBERS, client_of

LOG = "_delta_log"


def open_tables(folder: Path | str, **settings: object) -> Any:
    return open_globs(f"{folder}/*", **settings)


def open_globs(*globs: str, **settings: object) -> Any:
    return KIND.open(DeltaSettings.model_validate({"name": "lh", "tables": [*globs], **settings}))


@dataclass(frozen=True)
class Swept:
    """What a sweep answered by version, and the files that it took, by their names in the table."""

    answers: Mapping[int, SweptTarget]
    gone: set[str]
    # what was not swept
    kept: set[int]

    def outcomes(self) -> dict[int, Outcome]:
        return {number: answer.outcome for number, answer in self.answers.items()}


def keep(folder: Path, *retained: int, meanwhile: Callable[[], object] = lambda: None, **settings: Any) -> Swept:
    """Sweep all versions of a table but these, and see that its log is as it was but for announcements."""
    store, dataset, before = open_tables(folder.parent, **settings), f"lh/{folder.name}", files(folder)
    log = sound_log(store.read([dataset]))
    assert log.datasets["fault"].to_pylist() == [None]
    # a version without files of its own is kept with the one before it
    bases: dict[int, list[int]] = {}
    for row in log.transactions.to_pylist():
        number = int(row["transaction"])
        bases.setdefault(number if row["type"] == "SNAPSHOT" else max(bases), []).append(number)
    kept = {base for base, numbers in bases.items() if not {*numbers}.isdisjoint(retained)}
    going = [str(number) for number in bases if number not in kept]
    notes = {prepared.transaction: prepared for prepared in store.prepare(dataset, going)}
    meanwhile()
    answers = store.sweep(dataset, [Target(name, notes[name].note) for name in going], 2)
    after = files(folder)
    assert {name: after.get(name) for name in before if name.startswith(LOG)} == {
        name: held for name, held in before.items() if name.startswith(LOG)
    }
    assert all(after[name] == before[name] for name in before.keys() & after.keys())
    return Swept({int(answer.transaction): answer for answer in answers}, before.keys() - after.keys(), kept)


class LocalTables(Environment):
    datasets: tuple[str, ...] = ("lh/t1", "lh/t2", "lh/t3")
    recounts = False
    made_together = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "tables"

    def store(self) -> Any:
        return open_tables(self.folder)

    def write(self, dataset: str, drawing: str) -> dict[str, str]:
        drawn = history(drawing, dataset=dataset).transactions
        table = Table(self._table(dataset), 0)
        return {row["transaction"]: str(table.overwrite(number) if number else 0) for number, row in enumerate(drawn)}

    def commit(self, dataset: str) -> str:
        return str(Table.open(self._table(dataset)).overwrite(99))

    def everything(self) -> dict[str, bytes]:
        return {str(file.relative_to(self.folder)): file.read_bytes() for file in self.folder.rglob("*") if file.is_file()}

    def data(self) -> dict[str, bytes]:
        return {name: held for name, held in self.everything().items() if name.partition("/")[2][:1] not in "._"}

    def owned(self, dataset: str, transaction: str) -> set[str]:
        needed = {number: self._needed(dataset, number) for number in versions(self._table(dataset))}
        return needed.pop(int(transaction)).difference(*needed.values())

    def reached(self, dataset: str, transaction: str) -> set[str]:
        return self._needed(dataset, int(transaction))

    def reads(self) -> dict[str, object]:
        folder, found = self._table(self.datasets[0]), dict[str, object]()
        for number in versions(folder) if folder.exists() else ():
            with suppress(Unreadable):
                found[str(number)] = rows(folder, number)
        return found

    def occupy(self, dataset: str, transaction: str) -> None:
        for name in self.owned(dataset, transaction):
            self._put(name, b"something else")

    def make_again(self, dataset: str, transaction: str) -> None:  # noqa: ARG002 - a version is made again with its table
        self.drop(dataset)
        self.write(dataset, DRAWN)

    def drop(self, dataset: str) -> None:
        for path in self._table(dataset).iterdir():
            if path.name != ".retention-trash":
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def trash(self) -> set[str]:
        return {name for name in self.everything() if name.partition("/")[2].startswith(".retention-trash/")}

    def _put(self, name: str, content: bytes) -> None:
        (self.folder / name).write_bytes(content)

    @contextmanager
    def broken(self, dataset: str, transaction: str) -> Iterator[None]:
        with undeletable(*(str(self.folder / name) for name in self.owned(dataset, transaction))):
            yield

    def _table(self, dataset: str) -> Path:
        return self.folder / dataset.rpartition("/")[2]

    def _needed(self, dataset: str, number: int) -> set[str]:
        return {str(Path(place).relative_to(self.folder)) for place in file_uris(self._table(dataset), number)}


class SharedTables(LocalTables):
    """A table whose versions share files in every way: appended to, deleted from, restored. It pins versions 1 and 4 itself."""

    datasets = LocalTables.datasets[:1]
    pinned = (1, 4)

    def write(self, dataset: str, drawing: str) -> dict[str, str]:
        drawn = [row["transaction"] for row in history(drawing, dataset=dataset).transactions]
        table = Table(self._table(dataset), *range(4), partitioned=True)
        for number in range(1, len(drawn) + len(self.pinned)):
            steps = (
                lambda number=number: table.restore(number - 4),
                lambda number=number: table.append(*range(4 * number, 4 * number + 4)),
                lambda number=number: table.overwrite(*range(4 * number, 4 * number + 4)),
                lambda number=number: table.delete(f"id = {4 * number - 1}"),
            )
            steps[number % 4]()
        table.set_properties({"retention.keep_versions": ",".join(map(str, self.pinned))})
        names = [*drawn, *(f"more {number}" for number in range(table.version + 1 - len(drawn)))]
        return {name: str(number) for number, name in enumerate(names)}


class VersionedTables(LocalTables):
    """Tables in a bucket that keeps versions."""

    has_clock = True

    def __init__(self, folder: Path, endpoint: str) -> None:
        super().__init__(folder)
        self.client, self.bucket = client_of(endpoint), f"delta{next(NUMBERS)}"
        self._read: dict[str, bytes] = {}
        self.client.create_bucket(Bucket=self.bucket)
        self.client.put_bucket_versioning(Bucket=self.bucket, VersioningConfiguration={"Status": "Enabled"})

    def store(self) -> Any:
        return open_tables(f"s3://{self.bucket}/tables")

    def write(self, dataset: str, drawing: str) -> dict[str, str]:
        ids = super().write(dataset, drawing)
        for name, content in LocalTables.everything(self).items():
            if name.startswith(dataset.rpartition("/")[2]):
                self._put(name, content)
        return ids

    def commit(self, dataset: str) -> str:
        before = LocalTables.everything(self).keys()
        number = super().commit(dataset)
        for name, content in LocalTables.everything(self).items():
            if name not in before:
                self._put(name, content)
        return number

    def everything(self) -> dict[str, bytes]:
        page = self.client.list_objects_v2(Bucket=self.bucket)
        return {
            item["Key"].removeprefix("tables/"): self._content(item["Key"], item["ETag"]) for item in page.get("Contents", ())
        }

    def _content(self, key: str, etag: str) -> bytes:
        # An ETag says what is in an object, so each content is read once.
        if etag not in self._read:
            self._read[etag] = self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        return self._read[etag]

    def _put(self, name: str, content: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=f"tables/{name}", Body=content)

    @contextmanager
    def broken(self, dataset: str, transaction: str) -> Iterator[None]:
        # only asked in the contract that all stores pass
        raise NotImplementedError


class S3Tables(LocalTables):
    """Tables written on a disk, and put into a bucket; the log of the disk is that of the bucket but for announcements."""

    has_clock = True

    def __init__(self, folder: Path, s3: S3) -> None:
        super().__init__(folder)
        # what is known of conditions is known of a place
        self.s3, self.root = s3, f"tables{next(NUMBERS)}"

    def store(self) -> Any:
        return self.open()

    def open(self, **settings: object) -> Any:
        return open_tables(f"s3://{self.s3.bucket}/{self.root}", **settings)

    def write(self, dataset: str, drawing: str) -> dict[str, str]:
        ids = super().write(dataset, drawing)
        self._upload()
        return ids

    def commit(self, dataset: str) -> str:
        number = super().commit(dataset)
        self._upload()
        return number

    def everything(self) -> dict[str, bytes]:
        return {key.removeprefix(f"{self.root}/"): held for key, held in self.s3.objects().items()}

    @contextmanager
    def broken(self, dataset: str, transaction: str) -> Iterator[None]:
        keys = [f"{self.root}/{name}" for name in self.owned(dataset, transaction)]

        def denied(method: str, query: str, body: bytes) -> tuple[str, str] | None:
            if method != "POST" or "delete" not in query:
                return None
            return self.s3.deletes(body, dict.fromkeys(keys, "AccessDenied"))

        self.s3.faults.append(denied)
        yield
        self.s3.faults.remove(denied)

    def _upload(self) -> None:
        there = self.s3.objects()
        for name, content in LocalTables.everything(self).items():
            if f"{self.root}/{name}" not in there:
                self.s3.put(f"{self.root}/{name}", content)

"""Environments for the objects store: a folder of this machine, a bucket of an S3 on loopback, and a table of a database."""

import json
import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    MetaData,
    String,
    Table,
    create_engine,
    delete,
    insert,
    make_url,
    select,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.pool import NullPool, QueuePool
from sqlalchemy.types import Text, TypeEngine

from retention_assets.policy import Hold
from retention_assets.stores.objects import ObjectsSettings
from retention_assets.stores.objects.store import ObjectsStore
from retention_assets.stores.protocol import Only, Store
from retention_assets_tests.histories import history
from retention_assets_tests.stores.contract import Environment
from retention_assets_tests.stores.files.environments import S3, not_unlinking
from retention_assets_tests.stores.records.environments import DRIVERS, refusing

# Older than any test asks for, also by the real clock of a disk or a server.
OLD = datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)


def read_some(
    store: Store, wanted: Mapping[str, Sequence[str]], purging: Sequence[str] = (), holds: Sequence[Hold] = ()
) -> pa.Table:
    return store.read(list(wanted), Only(wanted, purging, holds))


def write_lines(file: Path, *rows: Mapping[str, Any], count: int | None = None) -> Path:
    """References or edges in a file that is whole at any moment, or has another count than it says."""
    file.parent.mkdir(parents=True, exist_ok=True)
    last = {"complete": True, "count": len(rows) if count is None else count}
    new = file.with_name("new")
    new.write_text("".join(f"{json.dumps(row)}\n" for row in (*rows, last)))
    return new.replace(file)


class Objects(Environment):
    """A store of objects whose first part names their dataset. Where they are is the environment's own."""

    datasets = ("blobs/a", "blobs/b", "blobs/c")
    independent = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.refers()

    @property
    @abstractmethod
    def listing(self) -> dict[str, Any]:
        """Of the settings, as somebody writes it."""

    @abstractmethod
    def put(self, key: str, content: bytes, created_at: datetime = OLD) -> None:
        """An object."""

    @abstractmethod
    def take(self, key: str) -> None:
        """No such object any more."""

    def settings(self, **changes: Any) -> dict[str, Any]:
        references = [{"lines": str(self.folder / "refs" / "*.jsonl")}]
        return {
            "name": "blobs", "kind": "objects", "listing": self.listing, "dataset": "{0}", "references": references, **changes,
        }  # fmt: skip

    def store(self, **changes: Any) -> ObjectsStore:
        return ObjectsStore(ObjectsSettings.model_validate(self.settings(**changes), context={"folder": str(self.folder)}))

    def refers(self, *objects: str, name: str = "a", **more: str) -> None:
        write_lines(self.folder / "refs" / f"{name}.jsonl", *({"object": one, **more} for one in objects))

    def write(self, dataset: str, drawing: str) -> dict[str, str]:
        """Every transaction that is drawn is an object, in the folder of its dataset."""
        part = dataset.partition("/")[2]
        names = [row["transaction"] for row in history(drawing, dataset=dataset).transactions]
        for number, name in enumerate(names):
            self.put(f"{part}/{name}", f"{dataset} {name}".encode(), OLD + timedelta(days=number))
        return {name: f"{part}/{name}" for name in names}

    def commit(self, dataset: str) -> str:
        key = f"{dataset.partition('/')[2]}/T99"
        self.put(key, b"one more", OLD + timedelta(days=99))
        return key

    def owned(self, dataset: str, transaction: str) -> set[str]:  # noqa: ARG002 - the contract's
        return {transaction} & self.data().keys()

    def occupy(self, dataset: str, transaction: str) -> None:  # noqa: ARG002 - the contract's
        self.put(transaction, b"other bytes", OLD + timedelta(days=50))

    def make_again(self, dataset: str, transaction: str) -> None:
        self.occupy(dataset, transaction)

    def drop(self, dataset: str) -> None:
        for key in self.data():
            if key.startswith(f"{dataset.partition('/')[2]}/"):
                self.take(key)

    def everything(self) -> dict[str, bytes]:
        return self.data()


class LocalObjects(Objects):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.root = folder / "objects"
        self.root.mkdir()

    @property
    def listing(self) -> dict[str, Any]:
        return {"path": str(self.root)}

    def put(self, key: str, content: bytes, created_at: datetime = OLD) -> None:
        file = self.root / key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        os.utime(file, (created_at.timestamp(), created_at.timestamp()))

    def take(self, key: str) -> None:
        (self.root / key).unlink()

    def data(self) -> dict[str, bytes]:
        everything = self.everything().items()
        return {key: content for key, content in everything if not key.startswith((".retention-store", ".retention-trash/"))}

    def everything(self) -> dict[str, bytes]:
        return {str(file.relative_to(self.root)): file.read_bytes() for file in self.root.rglob("*") if file.is_file()}

    def trash(self) -> set[str]:
        return {place for place in self.everything() if place.startswith(".retention-trash/")}

    @contextmanager
    def broken(self, dataset: str, transaction: str) -> Iterator[None]:  # noqa: ARG002 - the contract's
        """It cannot be unlinked. Permissions would not do: the tests may run as root."""
        with not_unlinking(lambda path: path == str(self.root / transaction)):
            yield


class S3Objects(Objects):
    has_clock = True

    def __init__(self, folder: Path, s3: S3) -> None:
        super().__init__(folder)
        self.s3 = s3

    @property
    def listing(self) -> dict[str, Any]:
        return {"path": f"s3://{self.s3.bucket}/blobs/"}

    def put(self, key: str, content: bytes, created_at: datetime = OLD) -> None:
        self.s3.put(f"blobs/{key}", content)
        self.s3.dates(f"blobs/{key}", created_at)

    def take(self, key: str) -> None:
        self.s3.take(f"blobs/{key}")

    def data(self) -> dict[str, bytes]:
        return {key.removeprefix("blobs/"): content for key, content in self.s3.objects().items()}

    @contextmanager
    def broken(self, dataset: str, transaction: str) -> Iterator[None]:  # noqa: ARG002 - the contract's
        """Its deletion is denied, and everything else in the same request is done."""
        key = f"blobs/{transaction}"

        def denied(method: str, query: str, body: bytes) -> tuple[str, str] | None:
            return self.s3.deletes(body, {key: "AccessDenied"}) if method == "POST" and "delete" in query else None

        self.s3.faults.append(denied)
        yield
        self.s3.faults.remove(denied)


class SqlObjects(Objects):
    """A table. What a row weighs says one of its columns."""

    def __init__(self, folder: Path, url: str, pooled: bool = False, key: TypeEngine[Any] | None = None) -> None:
        super().__init__(folder)
        self.url = url
        self.dialect = make_url(url).get_backend_name()
        self.has_clock = self.dialect != "sqlite"
        # Connections to a server are kept until `close`: one takes as long as the statements for which it is made.
        pool = QueuePool if pooled and self.has_clock else NullPool
        self.engine = create_engine(make_url(url).set(drivername=DRIVERS[self.dialect]), poolclass=pool)
        kinds: dict[str, TypeEngine[Any]] = {
            "postgresql": DateTime(timezone=True), "mysql": mysql.DATETIME(fsp=6), "sqlite": Text(),
        }  # fmt: skip
        columns: list[Column[Any]] = [
            # without a key of the table it may be null
            Column("id", String(60), primary_key=True) if key is None else Column("id", key),
            Column("made", kinds[self.dialect]),
            Column("weight", BigInteger),
        ]
        self.table = Table("objs", MetaData(), *columns, Column("tenant", String(40)), Column("type", String(20)))
        self.table.metadata.create_all(self.engine)

    def fill(self, *rows: Mapping[str, Any], made: datetime = OLD) -> None:
        """Rows that are alike but for what is given."""
        given = {"made": self._at(made), "weight": 1, "tenant": None, "type": None}
        with self.engine.begin() as connection:
            connection.execute(insert(self.table), [{**given, **row} for row in rows])

    def _at(self, instant: datetime) -> Any:
        if self.dialect == "postgresql":
            return instant
        plain = instant.replace(tzinfo=None)
        return plain.isoformat(sep=" ") if self.dialect == "sqlite" else plain

    @property
    def listing(self) -> dict[str, Any]:
        return {"sql": {"url": self.url, "table": "objs", "key": "id", "created_at": "made", "size": "weight"}}

    def put(self, key: str, content: bytes, created_at: datetime = OLD) -> None:
        self.take(key)
        self.fill({"id": key, "weight": len(content)}, made=created_at)

    def take(self, key: str) -> None:
        with self.engine.begin() as connection:
            connection.execute(delete(self.table).where(self.table.c.id == key))

    def data(self) -> dict[str, bytes]:
        with self.engine.connect() as connection:
            return {row.id: b"x" * row.weight for row in connection.execute(select(self.table))}

    def close(self) -> None:
        self.store().close()
        self.engine.dispose()

    def broken(self, dataset: str, transaction: str) -> AbstractContextManager[None]:  # noqa: ARG002 - the contract's
        return refusing(self.engine, "objs", f"OLD.id = '{transaction}'")

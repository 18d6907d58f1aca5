"""DataHub's table in a database of its own: for the contract, and with DataHub's files, a ledger and settings for whole cycles."""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import text

from retention_assets.policy import parse_duration, parse_instant
from retention_assets.settings.places import Url
from retention_assets.sql.foreign import ForeignDatabase
from retention_assets.stores.aspects import AspectsSettings
from retention_assets.stores.aspects.store import AspectsStore
from retention_assets_tests.histories import AS_OF, history
from retention_assets_tests.stores.contract import Environment
from retention_assets_tests.stores.records.environments import refusing
from retention_assets_tests.sweep.datasets import SettingsFolder

STORE = "meta"
TABLE = "metadata_aspect_v2"
_TEXT = {"sqlite": "text", "postgresql": "text", "mysql": "longtext"}
_TIME = {"sqlite": "datetime", "postgresql": "timestamp(6)", "mysql": "datetime(6)"}


class Table:
    def __init__(self, url: str, name: str = TABLE) -> None:
        self.database, self.url, self.name = ForeignDatabase(Url(url), STORE), url, name
        kind, time = _TEXT[self.database.dialect], _TIME[self.database.dialect]
        self.do(
            f"CREATE TABLE {name} (urn varchar(500) NOT NULL, aspect varchar(200) NOT NULL, version bigint NOT NULL,"
            f" metadata {kind} NOT NULL, systemmetadata {kind}, createdon {time} NOT NULL, createdby varchar(255) NOT NULL,"
            " createdfor varchar(255), CONSTRAINT pk_metadata_aspect_v2 PRIMARY KEY (urn, aspect, version))"
        )

    def store(self, **settings: Any) -> AspectsStore:
        given = {"name": STORE, "kind": "aspects", "url": self.url, "table": self.name, **settings}
        return AspectsStore(AspectsSettings.model_validate(given))

    def do(self, statement: str, **values: Any) -> None:
        self.database.write(lambda connection: connection.execute(text(statement), values))

    def add(self, urn: str, aspect: str, version: int, at: datetime, metadata: str = "{}") -> None:
        self.add_all([(urn, aspect, version, at, metadata)])

    def add_all(self, rows: Sequence[tuple[str, str, int, datetime, str]]) -> None:
        statement = text(
            f"INSERT INTO {self.name} (urn, aspect, version, metadata, createdon, createdby)"
            " VALUES (:urn, :aspect, :version, :metadata, :at, 'urn:li:corpuser:datahub')"
        )
        values = [
            {"urn": urn, "aspect": aspect, "version": version, "metadata": metadata, "at": self._time(at)}
            for urn, aspect, version, at, metadata in rows
        ]
        self.database.write(lambda connection: connection.execute(statement, values))

    def _time(self, at: datetime) -> Any:
        naive = at.astimezone(UTC).replace(tzinfo=None)
        return naive.isoformat(sep=" ", timespec="microseconds") if self.database.dialect == "sqlite" else naive

    def chain(self, urn: str, aspect: str, ages: Mapping[int, int]) -> None:
        self.add_all([(urn, aspect, version, AS_OF - timedelta(days=age), f"{urn} {version}") for version, age in ages.items()])

    def mistime(self, urn: str, aspect: str, version: int, literal: str) -> None:
        # MariaDB takes a day 0 from those who ask for it.
        lenient = "SET STATEMENT sql_mode = '' FOR " if self.database.dialect == "mysql" else ""
        self.do(
            f"{lenient}UPDATE {self.name} SET createdon = {literal} WHERE urn = :urn AND aspect = :aspect AND version = {version}",
            urn=urn, aspect=aspect,
        )  # fmt: skip

    def trade(self, urn: str, aspect: str, one: int, other: int) -> None:
        for old, new in ((one, -1), (other, one), (-1, other)):
            self.do(
                f"UPDATE {self.name} SET version = {new} WHERE urn = :urn AND aspect = :aspect AND version = {old}",
                urn=urn, aspect=aspect,
            )  # fmt: skip

    def versions(self, urn: str, aspect: str) -> set[int]:
        return {version for found, of, version in self.rows() if (found, of) == (urn, aspect)}

    def rows(self) -> dict[tuple[str, str, int], tuple[Any, ...]]:
        # Not as a writer, who would wait for a sweep that is in the middle of a transaction.
        with self.database.reading() as connection:
            found = connection.execute(text(f"SELECT urn, aspect, version, metadata, createdon, createdby FROM {self.name}"))
            return {(row.urn, row.aspect, row.version): tuple(row) for row in found}

    def ingest(self, urn: str, aspect: str, at: datetime, metadata: str) -> None:
        """What DataHub does with a new value: the current row becomes the newest of the history, and is overwritten."""
        newest = max(self.versions(urn, aspect), default=0)
        self.do(
            f"INSERT INTO {self.name} (urn, aspect, version, metadata, createdon, createdby) SELECT urn, aspect, {newest + 1},"
            f" metadata, createdon, createdby FROM {self.name} WHERE urn = :urn AND aspect = :aspect AND version = 0",
            urn=urn, aspect=aspect,
        )  # fmt: skip
        self.do(
            f"UPDATE {self.name} SET metadata = :metadata, createdon = :at WHERE urn = :urn AND aspect = :aspect AND version = 0",
            urn=urn, aspect=aspect, metadata=metadata, at=self._time(at),
        )  # fmt: skip

    def roll_back(self, urn: str, aspect: str) -> None:
        """What DataHub does when it takes an ingestion back: the newest of the history becomes the current row again."""
        newest = max(self.versions(urn, aspect))
        for condition in ("version = 0", f"version = {newest}"):
            if condition != "version = 0":
                self.do(
                    f"INSERT INTO {self.name} (urn, aspect, version, metadata, createdon, createdby) SELECT urn, aspect, 0,"
                    f" metadata, createdon, createdby FROM {self.name} WHERE urn = :urn AND aspect = :aspect AND {condition}",
                    urn=urn, aspect=aspect,
                )  # fmt: skip
            self.do(f"DELETE FROM {self.name} WHERE urn = :urn AND aspect = :aspect AND {condition}", urn=urn, aspect=aspect)


class Aspects(Environment):
    """Three aspects of one entity, the history of each the versions of one urn called `main`'s."""

    datasets = (f"{STORE}/dataset.ownership", f"{STORE}/dataset.schemaMetadata", f"{STORE}/dataset.status")
    urn = "urn:li:dataset:(urn:li:dataPlatform:hive,main,PROD)"
    branch = urn

    def __init__(self, url: str) -> None:
        self.table = Table(url)
        self.has_clock = not url.startswith("sqlite")

    def store(self) -> AspectsStore:
        return self.table.store()

    def write(self, dataset: str, drawing: str) -> dict[str, str]:
        rows = history(drawing).transactions
        versions = [*range(1, len(rows)), 0]
        self.table.add_all(
            [
                (
                    self.urn,
                    self._aspect(dataset),
                    version,
                    parse_instant(row["closed_at"]),
                    json.dumps({"of": dataset, "is": row["transaction"]}),
                )
                for row, version in zip(rows, versions, strict=True)
            ]
        )
        return {row["transaction"]: f"{self.urn}@{version}" for row, version in zip(rows, versions, strict=True)}

    def commit(self, dataset: str) -> str:
        self.table.ingest(self.urn, self._aspect(dataset), AS_OF, '{"is": "new"}')
        return f"{self.urn}@0"

    def make_again(self, dataset: str, transaction: str) -> None:
        aspect, version = self._aspect(dataset), int(transaction.rpartition("@")[2])
        before = self.table.rows().get((self.urn, aspect, version))
        self.table.do(f"DELETE FROM {self.table.name} WHERE aspect = :aspect AND version = {version}", aspect=aspect)
        # but for its time it is what it was
        self.table.add(self.urn, aspect, version, AS_OF - timedelta(days=400), before[3] if before else "{}")

    def drop(self, dataset: str) -> None:
        self.table.do(f"DELETE FROM {self.table.name} WHERE aspect = :aspect", aspect=self._aspect(dataset))

    def data(self) -> dict[str, bytes]:
        return {f"{aspect} {urn}@{version}": row[3].encode() for (urn, aspect, version), row in self.table.rows().items()}

    def everything(self) -> dict[str, bytes]:
        return {repr(key): repr(row).encode() for key, row in self.table.rows().items()}

    def owned(self, dataset: str, transaction: str) -> set[str]:
        return {f"{self._aspect(dataset)} {transaction}"}

    def broken(self, dataset: str, transaction: str) -> AbstractContextManager[None]:  # noqa: ARG002 - the contract's
        condition = f"OLD.urn = '{self.urn}' AND OLD.version = {transaction.rpartition('@')[2]}"
        return refusing(self.table.database.engine, self.table.name, condition)

    def _aspect(self, dataset: str) -> str:
        return dataset.partition(".")[2]


class DataHub(SettingsFolder):
    def __init__(self, folder: Path, tables: Mapping[str, Table], ledger_url: str = "", **settings: Mapping[str, Any]) -> None:
        folder.mkdir()
        self.folder, self.tables = folder, tables
        stores = [
            {
                "name": name,
                "kind": "aspects",
                "url": table.url.replace("$", "$$"),
                "table": table.name,
                **settings.get(name, {}),
            }
            for name, table in tables.items()
        ]
        self.writes(*stores, ledger=ledger_url or f"sqlite:///{folder}/ledger.db")

    @property
    def settings_file(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}.yaml")

    def retains(self, file: str, entries: Sequence[Mapping[str, Any]]) -> None:
        (self.folder / "policies" / f"{file}.yaml").write_text(json.dumps(list(entries)))


def entry(entity: str, aspect: str, kept: str, **more: Any) -> dict[str, Any]:
    """One entry: `v3` keeps so many versions, `t30d` so long, `v3+t30d` both, `-` everything."""
    retention: dict[str, Any] = {}
    for part in kept.split("+"):
        if part == "-":
            retention["indefinite"] = {}
        elif part[0] == "v":
            retention["version"] = {"maxVersions": int(part[1:])}
        else:
            length = parse_duration(part[1:]).after(AS_OF) - AS_OF
            retention["time"] = {"maxAgeInSeconds": int(length.total_seconds())}
    return {"entity": entity, "aspect": aspect, "config": {"retention": retention}, **more}

"""Environments for the records store: units of work with rows in child tables, in any of the databases."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.pool import NullPool, QueuePool
from sqlalchemy.types import TypeEngine

from retention_assets.settings.places import Url
from retention_assets.stores.records import RecordsSettings
from retention_assets.stores.records.store import RecordsStore
from retention_assets_tests.histories import history
from retention_assets_tests.stores.contract import Environment

DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
TIMES = ("opened", "closed", "archived", "expires")
# Who reads a message has seen the sentence before.
TOLD_TO = "told to fail"


@contextmanager
def refusing(engine: sa.Engine, table: str, condition: str) -> Iterator[None]:
    """While open, the database raises where a row is deleted for which a condition about OLD is true."""
    made = {
        "sqlite": [
            f"CREATE TRIGGER broken BEFORE DELETE ON {table} WHEN {condition} BEGIN SELECT RAISE(ABORT, '{TOLD_TO}'); END"
        ],
        "postgresql": [
            f"CREATE OR REPLACE FUNCTION broken() RETURNS trigger AS $$ BEGIN IF {condition} THEN RAISE '{TOLD_TO}'; END IF;"
            " RETURN OLD; END $$ LANGUAGE plpgsql",
            f"CREATE TRIGGER broken BEFORE DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION broken()",
        ],
        "mysql": [
            f"CREATE TRIGGER broken BEFORE DELETE ON {table} FOR EACH ROW IF {condition} THEN"
            f" SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{TOLD_TO}'; END IF"
        ],
    }[engine.dialect.name]
    with engine.begin() as connection:
        for statement in made:
            connection.execute(sa.text(statement.replace(":", r"\:")))
    try:
        yield
    finally:
        with engine.begin() as connection:
            connection.execute(sa.text(f"DROP TRIGGER broken{f' ON {table}' if engine.dialect.name == 'postgresql' else ''}"))


@dataclass
class Units:
    """A root table and its children. Every unit of work has two rows in each child."""

    url: str
    root: str = "unit_of_work"
    children: tuple[str, ...] = ("summary", "process_object")
    store_name: str = "ods"
    key: TypeEngine[Any] = field(default_factory=lambda: sa.String(60))
    # Of the children; that of the root if none.
    child_key: TypeEngine[Any] | None = None
    ttl: dict[str, Any] | None = None
    indexed: bool = True
    # Whether connections to a server are kept until `close`: one takes as long as the statements for which it is made.
    pooled: bool = False

    def __post_init__(self) -> None:
        parsed = sa.make_url(self.url)
        self.dialect = parsed.get_backend_name()
        pool = QueuePool if self.pooled and self.dialect != "sqlite" else NullPool
        self.engine: sa.Engine = sa.create_engine(parsed.set(drivername=DRIVERS[self.dialect]), poolclass=pool)
        times: dict[str, TypeEngine[Any]] = {
            "postgresql": sa.DateTime(timezone=True), "mysql": mysql.DATETIME(fsp=6), "sqlite": sa.Text(),
        }  # fmt: skip
        made = sa.MetaData()
        columns: list[sa.Column[Any]] = [sa.Column(name, times[self.dialect]) for name in TIMES]
        self.tables = {
            self.root: sa.Table(
                self.root,
                made,
                sa.Column("id", self.key, primary_key=True, autoincrement=False),
                *columns,
                sa.Column("kind", sa.String(40)),
            )
        }
        for name in self.children:
            owner = sa.Column("unit", self.child_key or self.key, nullable=False)
            own: list[sa.Column[Any]] = [
                sa.Column("n", sa.Integer, primary_key=True),
                owner,
                sa.Column("content", sa.String(40)),
                sa.Column("expires", times[self.dialect]),
            ]
            self.tables[name] = sa.Table(name, made, *own, *([sa.Index(f"ix_{name}", owner)] if self.indexed else []))
        made.create_all(self.engine)
        self._rows = 0

    def has(self, *units: Any, opened: str = "2021-05-16", closed: str | None = "2021-05-16", **others: Any) -> "Units":
        """Units of work that began and ended on some days; two rows of each in every child."""
        times = {"opened": opened, "closed": closed, **{name: others.get(name) for name in ("archived", "expires")}}
        with self.engine.begin() as connection:
            row = {**{name: self.at(time) for name, time in times.items()}, "kind": others.get("kind")}
            connection.execute(sa.insert(self.tables[self.root]), [{"id": unit, **row} for unit in units])
            for name in self.children:
                rows = []
                for unit in units:
                    for part in ("first", "second"):
                        self._rows += 1
                        rows.append({"n": self._rows, "unit": unit, "content": part, "expires": row["expires"]})
                connection.execute(sa.insert(self.tables[name]), rows)
        return self

    def at(self, time: str | None) -> Any:
        if time is None or self.dialect == "sqlite":
            return time
        found = datetime.fromisoformat(time)
        found = found if found.tzinfo else found.replace(tzinfo=UTC)
        return found if self.dialect == "postgresql" else found.astimezone(UTC).replace(tzinfo=None)

    def becomes(self, unit: Any, **values: str | None) -> "Units":
        table = self.tables[self.root]
        written = {name: self.at(value) if name in TIMES else value for name, value in values.items()}
        with self.engine.begin() as connection:
            connection.execute(sa.update(table).where(table.c.id == unit).values(**written))
        return self

    def loses(self, table: str, unit: Any) -> "Units":
        found = self.tables[table]
        with self.engine.begin() as connection:
            connection.execute(sa.delete(found).where((found.c.id if table == self.root else found.c.unit) == unit))
        return self

    def there(self, table: str | None = None) -> list[str]:
        found = self.tables[table or self.root]
        column = found.c.id if found.name == self.root else found.c.unit
        with self.engine.connect() as connection:
            return sorted(str(one) for one in connection.execute(sa.select(column)).scalars())

    def whole(self, *units: Any) -> bool:
        twice = sorted(str(unit) for unit in units for _ in range(2))
        return self.there() == sorted(map(str, units)) and all(self.there(name) == twice for name in self.children)

    def expires(self, unit: Any) -> set[str | None]:
        found: set[str | None] = set()
        with self.engine.connect() as connection:
            for name, table in self.tables.items():
                mine = (table.c.id if name == self.root else table.c.unit) == unit
                found |= {_shown(time) for time in connection.execute(sa.select(table.c.expires).where(mine)).scalars()}
        return found

    def broken(self, unit: Any, table: str | None = None) -> AbstractContextManager[None]:
        name = table or self.children[-1]
        column = "id" if name == self.root else "unit"
        return refusing(self.engine, self.quoted(name), f"OLD.{column} = '{str(unit).replace(chr(39), chr(39) * 2)}'")

    def quoted(self, name: str) -> str:
        return self.engine.dialect.identifier_preparer.quote(name)

    @property
    def settings(self) -> dict[str, Any]:
        root = {
            "table": self.root,
            "key": "id",
            "opened_at": "opened",
            "closed_at": "closed",
            "archived_at": "archived",
            "type": "kind",
        }
        children = [{"table": name, "key": "unit"} for name in self.children]
        ttl = {"ttl": {"column": "expires", **self.ttl}} if self.ttl else {}
        return {"name": self.store_name, "kind": "records", "url": self.url, "root": root, "children": children, **ttl}

    def store(self, **parts: Any) -> RecordsStore:
        return RecordsStore(RecordsSettings.model_validate({**self.settings, "url": Url(self.url), **parts}))

    def do(self, *statements: str) -> None:
        with self.engine.begin() as connection:
            for statement in statements:
                connection.execute(sa.text(statement.replace(":", r"\:")))

    @cached_property
    def opened(self) -> RecordsStore:
        return self.store()

    def close(self) -> None:
        self.opened.close()
        self.engine.dispose()

    @property
    def dataset(self) -> str:
        return f"{self.store_name}/{self.root}"

    def everything(self) -> dict[str, bytes]:
        with self.engine.connect() as connection:
            return {
                f"{name}/{row[1] if name != self.root else row[0]}/{row[0]}": repr(tuple(row)).encode()
                for name, table in self.tables.items()
                for row in connection.execute(sa.select(table))
            }


def _shown(time: Any) -> str | None:
    if time is None or isinstance(time, str):
        return time
    return str((time.astimezone(UTC) if time.tzinfo else time).replace(tzinfo=None).isoformat(sep=" "))


class Records(Environment):
    """One store, which has one dataset, of independent transactions."""

    datasets = ("ods/unit_of_work",)
    independent = True

    def __init__(self, url: str, pooled: bool = False) -> None:
        self.units = Units(url, pooled=pooled)
        self.has_clock = not url.startswith("sqlite")

    def store(self) -> RecordsStore:
        return self.units.store()

    def write(self, dataset: str, drawing: str) -> dict[str, str]:
        names = [row["transaction"] for row in history(drawing, dataset=dataset).transactions]
        for day, name in enumerate(names, 1):
            self.units.has(name, opened=f"2021-05-{day:02}", closed=f"2021-05-{day:02}")
        return {name: name for name in names}

    def commit(self, dataset: str) -> str:  # noqa: ARG002 - the contract's
        self.units.has("T99", opened="2021-06-01", closed="2021-06-02")
        return "T99"

    def make_again(self, dataset: str, transaction: str) -> None:  # noqa: ARG002 - the contract's
        for table in (*self.units.children, self.units.root):
            self.units.loses(table, transaction)
        self.units.has(transaction, opened="2021-07-01", closed="2021-07-02")

    def drop(self, dataset: str) -> None:  # noqa: ARG002 - the contract's
        self.units.do(*(f"DELETE FROM {table}" for table in (*self.units.children, self.units.root)))

    def data(self) -> dict[str, bytes]:
        return dict.fromkeys(self.everything(), b"")

    def everything(self) -> dict[str, bytes]:
        return self.units.everything()

    def owned(self, dataset: str, transaction: str) -> set[str]:  # noqa: ARG002 - the contract's
        return {place for place in self.everything() if place.split("/")[1] == transaction}

    @contextmanager
    def broken(self, dataset: str, transaction: str) -> Iterator[None]:  # noqa: ARG002 - the contract's
        with self.units.broken(transaction):
            yield

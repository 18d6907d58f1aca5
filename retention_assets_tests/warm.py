"""What thousands of tests would begin anew, begun once per program: the compiled statements of SQLAlchemy, DuckDB, small logs of
the same text, what `ssl` and ADBC read for each connection, and those of Dagster's definitions that only names tell apart.

Belongs here: what answers the same however often it is begun, and costs more than what tests do with it.
Does not belong here: anything that a test could see the state of. New ledgers are made in ledger/templates.py.
"""

import atexit
import re
import ssl
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark import java_gateway
from pyspark.core import context
from sqlalchemy import URL, Engine, create_engine
from sqlalchemy.util import LRUCache

from retention_assets import exchange
from retention_assets.sql import streams
from retention_assets.stores.files import log_files

# Bytes of a log that is kept with its lines, and places that mean nothing more than a place to any reader.
_SMALL, _PLAIN = 20_000, re.compile(r"[\w/.-]+", re.ASCII)
# What is made once is kept, as much of it as a few tests ask for.
_NEWEST = 200
# What one dialect may have been told, or learns from its server, of which the text of a statement depends.
_LEARNED = (
    "name", "driver", "server_version_info", "paramstyle", "is_mariadb", "label_length", "_json_serializer", "_json_deserializer",
    "insert_returning", "update_returning", "delete_returning", "use_insertmanyvalues", "supports_sane_rowcount",
)  # fmt: skip


class Statements(LRUCache[Any, Any]):
    """Compiled statements of all engines: those of two whose dialects are alike are the same.

    An engine keeps its own for itself. One lives as long as a test, and would compile each statement for one call.
    """

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(_alike(key), default)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(_alike(key), value)


def _alike(key: Any) -> Any:
    dialect, *rest = key
    return (type(dialect), *(getattr(dialect, name, None) for name in _LEARNED), *rest)


def keep_warm(patch: pytest.MonkeyPatch) -> None:
    _share_statements(patch)
    _share_duckdb(patch)
    _share_logs(patch)
    _trust_nobody(patch)
    _share_adbc(patch)
    _start_java_in_checkout(patch)


def _share_statements(patch: pytest.MonkeyPatch) -> None:
    """By the attribute in which an engine keeps its own: what options an engine has is read off its `__init__`."""
    statements = Statements(3000)
    patch.setattr(Engine, "_compiled_cache", property(lambda _: statements, lambda *_: None), raising=False)


def _share_duckdb(patch: pytest.MonkeyPatch) -> None:
    """A connection to one empty database in memory instead of a database each: what is temporary is of the connection alone."""
    base, connect = duckdb.connect(), duckdb.connect

    def connect_again(*arguments: Any, **options: Any) -> Any:
        return connect(*arguments, **options) if arguments or options else base.cursor()

    patch.setattr(duckdb, "connect", connect_again)


def _share_logs(patch: pytest.MonkeyPatch) -> None:
    """Small files of one name and text have the same lines: a store of files reads them once.

    A refusal names its file, and is said anew. What reads a file is tested where it is, and is not touched.
    """

    @lru_cache(500)
    def read_once(text: bytes, name: str, datasets: tuple[str, ...] | None, file: Unseen) -> pa.Table:
        return exchange.read_file(file.path, datasets)

    def read_again(file: Path, datasets: Collection[str] | None = None) -> pa.Table:
        try:
            text = file.read_bytes() if _PLAIN.fullmatch(str(file)) and file.stat().st_size <= _SMALL else None
        except OSError:
            # The reader says what is wrong with it.
            text = None
        if text is None:
            return exchange.read_file(file, datasets)
        return read_once(text, file.name, None if datasets is None else tuple(datasets), Unseen(file))

    patch.setattr(log_files, "read_file", read_again)


@dataclass(frozen=True, eq=False)
class Unseen:
    path: Path

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unseen)

    def __hash__(self) -> int:
        return 0


def _trust_nobody(patch: pytest.MonkeyPatch) -> None:
    """No server of a test has a certificate, and PyMySQL reads those of all the world for each connection, also of a socket."""
    patch.setattr(ssl.SSLContext, "load_default_certs", lambda *_: None)


def _share_adbc(patch: pytest.MonkeyPatch) -> None:
    """A store of a test has a schema of its own; what ADBC reads before its first connection is the same for all of a server."""
    make = streams.adbc_connection

    @cache
    def engine_of(server: URL) -> Engine:
        engine = create_engine(server)
        atexit.register(engine.dispose)
        return engine

    def connect(engine: Engine, anew: bool = False) -> Any:
        given = dict(engine.url.query)
        schema = re.fullmatch(r"-csearch_path=(\w+)", str(given.pop("options", "")))
        if schema is None:
            return make(engine, anew)
        connection = make(engine_of(engine.url.set(query=given)), anew)
        with connection.cursor() as cursor:
            cursor.execute(f"SET search_path = {schema[1]}")
        return connection

    patch.setattr(streams, "adbc_connection", connect)


def _start_java_in_checkout(patch: pytest.MonkeyPatch) -> None:
    """Workers of Spark start in the folder of its Java, which outlives the folder of the test that starts it."""
    launch: Callable[..., Any] = vars(java_gateway)["launch_gateway"]

    def launch_here(conf: object = None, popen_kwargs: Mapping[str, Any] | None = None) -> Any:
        return launch(conf, {"cwd": Path(__file__).parents[1], **(popen_kwargs or {})})

    # for a session, and for a command that starts Java while it reads
    for place in (context, java_gateway):
        patch.setattr(place, "launch_gateway", launch_here)


def share_jobs(patch: pytest.MonkeyPatch) -> None:
    """Definitions are new at each call; what of them is called the same and told the same is made once. So are the engines of
    Dagster's files: it makes one for each thing that it asks them.
    """
    # Here alone: it takes seconds to import, which most tests do without.
    from dagster._core.storage.event_log.sqlite import sqlite_event_log
    from dagster._core.storage.runs.sqlite import sqlite_run_storage

    from retention_assets.dagster import build, jobs

    patch.setattr(jobs, "_operation_job", cache(jobs._operation_job))
    patch.setattr(build, "chain", _made_once(vars(build)["chain"]))
    for module in (sqlite_event_log, sqlite_run_storage):
        patch.setattr(module, "create_engine", _made_once(module.create_engine))


def _made_once(make: Callable[..., Any]) -> Callable[..., Any]:
    """By all that is said of what is to be made: the newest ones of these."""
    # With what was said: a name of it may hold an address, which nothing else has while it is kept.
    made: dict[str, tuple[Any, Any]] = {}

    def make_once(*arguments: Any, **options: Any) -> Any:
        said = repr((arguments, options))
        if said not in made:
            while len(made) >= _NEWEST:
                del made[next(iter(made))]
            made[said] = make(*arguments, **options), (arguments, options)
        return made[said][0]

    return make_once

"""What thousands of tests would begin anew, begun once per program: the compiled statements of SQLAlchemy, DuckDB, what `ssl`
reads for each connection, and those of Dagster's definitions that only names tell apart.

Belongs here: what answers the same however often it is begun, and costs more than what tests do with it.
Does not belong here: anything that a test could see the state of. New ledgers are made in ledger/templates.py.
"""

import ssl
from functools import cache
from typing import Any

import duckdb
import pytest
from sqlalchemy import Engine
from sqlalchemy.util import LRUCache

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
        """One that was compiled for a dialect like this."""
        return super().get(_alike(key), default)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(_alike(key), value)


def _alike(key: Any) -> Any:
    dialect, *rest = key
    return (type(dialect), *(getattr(dialect, name, None) for name in _LEARNED), *rest)


def keep_warm(patch: pytest.MonkeyPatch) -> None:
    """For as long as the patch."""
    _share_statements(patch)
    _share_duckdb(patch)
    _trust_nobody(patch)


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


def _trust_nobody(patch: pytest.MonkeyPatch) -> None:
    """No server of a test has a certificate, and PyMySQL reads those of all the world for each connection, also of a socket."""
    patch.setattr(ssl.SSLContext, "load_default_certs", lambda *_: None)


def share_jobs(patch: pytest.MonkeyPatch) -> None:
    """Definitions are new at each call; jobs and checks of the same names in them are the same ones."""
    # Here alone: it takes seconds to import, which most tests do without.
    from retention_assets.dagster import build

    for name in ("jobs", "operation_jobs", "partition_jobs", "asset_checks"):
        patch.setattr(build, name, cache(getattr(build, name)))

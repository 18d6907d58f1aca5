"""Ledgers that have a row of every kind, one on a file and one on a server. Each test undoes what it did."""

from collections.abc import Iterator

import pytest
from sqlalchemy import event

from retention_assets.ledger import Ledger, open_ledger
from retention_assets_tests.databases import new_schema
from retention_assets_tests.ledger.audit.test_edits import build


@pytest.fixture(scope="session")
def on_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """A SQLite file that has everything; each test undoes what it did. Whoever writes past the ledger minds no foreign keys."""
    with open_ledger(f"sqlite:///{tmp_path_factory.mktemp('built') / 'ledger.db'}") as ledger:
        assert build(ledger).verify().faults == ()
        event.listen(ledger.database.engine, "checkout", lambda driver, *_: driver.execute("PRAGMA foreign_keys = OFF"))
        yield ledger


@pytest.fixture(scope="session")
def on_server(server: str) -> Iterator[Ledger]:
    """The same on PostgreSQL; each test undoes what it did."""
    with open_ledger(new_schema(server)) as ledger:
        assert build(ledger).verify().faults == ()
        yield ledger

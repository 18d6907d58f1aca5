"""The ledger of a test, on both databases."""

from collections.abc import Iterator

import pytest

from retention_assets.ledger import Ledger, open_ledger
from retention_assets.ledger import ledger as opening
from retention_assets.ledger.ledger import create_tables


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with open_ledger(url) as opened:
        yield opened


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledgers of this test are created as everywhere else, not by a record of it."""
    monkeypatch.setattr(opening, "create_tables", create_tables)

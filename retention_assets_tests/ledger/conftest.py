"""The ledger of a test, on both databases."""

from collections.abc import Iterator

import pytest

from retention_assets.ledger import Ledger, migrations, open_ledger
from retention_assets.ledger.migrations import migrate


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    """An empty ledger."""
    with open_ledger(url) as opened:
        yield opened


@pytest.fixture
def migrated(monkeypatch: pytest.MonkeyPatch) -> None:
    """By Alembic, each time: for tests of migrations, also of those of other releases."""
    monkeypatch.setattr(migrations, "migrate", migrate)

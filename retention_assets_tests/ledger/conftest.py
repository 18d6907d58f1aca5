"""The ledger of a test, on both databases."""

from collections.abc import Iterator

import pytest

from retention_assets.ledger import Ledger, open_ledger


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    """An empty ledger."""
    with open_ledger(url) as opened:
        yield opened

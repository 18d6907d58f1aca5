"""What tests of stores share: units of work in each database that a store can be in."""

from collections.abc import Iterator

import pytest

from retention_assets_tests.stores.records_worlds import Units


@pytest.fixture
def units(store_url: str) -> Iterator[Units]:
    """Without expiry."""
    world = Units(store_url)
    yield world
    world.store().close()

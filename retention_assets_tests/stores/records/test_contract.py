"""The contract of every store, for units of work in each kind of database."""

from collections.abc import Iterator

import pytest

from retention_assets_tests.stores.contract import Contract
from retention_assets_tests.stores.records.environments import Records


class TestRecordsStore(Contract):
    @pytest.fixture
    def environment(self, store_url: str) -> Iterator[Records]:
        environment = Records(store_url, pooled=True)
        yield environment
        environment.units.close()

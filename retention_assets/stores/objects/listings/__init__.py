"""Listings: which objects there are, share by share, so that many tasks can list at once.

Belongs here: what every kind of listing answers, and opening one from its settings.
Does not belong here: any kind (its own module), and what a realm, a kind or a dataset is of a key (../naming.py).
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol

import pyarrow as pa

from retention_assets.stores.objects.settings import ObjectsSettings


class ObjectListing(Protocol):
    """A listing. It travels to tasks as a value, and so do its shares; what it keeps open it opens where it is used."""

    def begin(self) -> datetime:
        """As of when what is listed from now on is known: the store's own clock, or when a finished listing was made."""

    def shares(self, wanted: int) -> Sequence[Any]:
        """The listing in about so many parts that do not overlap and leave nothing out; small values."""

    def read(self, share: Any) -> Iterator[pa.RecordBatch]:
        """The objects of a share, as `tables.OBJECTS`. Realm and kind are filled where a column says them, and null elsewhere.

        Whatever keeps it from listing all of the share raises.
        """

    def find(self, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Of some keys those that are there now, as `tables.OBJECTS`, asked of the place itself and not of a finished list."""


def open_listing(settings: ObjectsSettings) -> ObjectListing:
    """The listing of a store."""
    raise NotImplementedError

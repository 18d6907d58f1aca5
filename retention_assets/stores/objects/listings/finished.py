"""A list that was finished before it is read, and the place of the objects that it lists.

Belongs here: which of the two answers what. A list says what there was; what is there now only the place says.
Does not belong here: reading any kind of list.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import pyarrow as pa

from retention_assets.errors import Refused
from retention_assets.stores.objects.naming import constant_dataset
from retention_assets.stores.objects.settings import ObjectsSettings


class ObjectList(Protocol):
    """A list of objects that somebody else has made."""

    def begin(self) -> datetime:
        """When it was made."""

    def shares(self, wanted: int) -> Sequence[Any]:
        """The list in about so many parts."""

    def read(self, share: Any) -> Iterator[pa.RecordBatch]:
        """The objects of a part."""


class ObjectPlace(Protocol):
    """Where objects are."""

    def find(self, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Of some keys those that are there now."""


@dataclass(frozen=True)
class FinishedListing:
    """A list of objects, and their place where the settings name it. `kind` is what the settings call the list."""

    kind: str
    listed: ObjectList
    place: ObjectPlace | None

    def begin(self) -> datetime:
        """When the list was made."""
        return self.listed.begin()

    def shares(self, wanted: int) -> Sequence[Any]:
        """The list in about so many parts."""
        return self.listed.shares(wanted)

    def read(self, share: Any) -> Iterator[pa.RecordBatch]:
        """The objects of a part of the list."""
        return self.listed.read(share)

    def find(self, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Asked of the place. Raises Refused where the settings name none."""
        if self.place is None:
            raise Refused(
                f"Where the objects are that the listing of kind {self.kind} names is not known, so that none can be looked at"
                " or deleted. Set `listing.path` to the folder or prefix that holds them."
            )
        return self.place.find(keys)

    def distinct_names(self, settings: ObjectsSettings) -> list[str] | None:
        """The one dataset, if there is one: others show only as the list is read."""
        constant = constant_dataset(settings)
        return None if constant is None else [constant]

"""A list that was finished before it is read, and the place of the objects that it lists.

Belongs here: which of the two answers what. A list says what there was; what is there now only the place says.
Does not belong here: reading any kind of list.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused
from retention_assets.stores.objects.naming import constant_dataset
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.objects.tables import OBJECTS

# What of an object a list alone may know.
_SAID = ("realm", "kind")


class ObjectList(Protocol):
    """A list of objects that somebody else has made."""

    @property
    def is_fixed(self) -> bool:
        """Whether a part that is read once more has the same rows in the same order, or else raises, and reading is cheap."""

    def begin(self) -> datetime:
        """When it was made."""

    def shares(self, wanted: int) -> Sequence[Any]:
        """The list in about so many parts."""

    def read(self, share: Any, columns: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The objects of a part; some of their columns, or all. Those that are left out may be null."""


class ObjectPlace(Protocol):
    """Where objects are."""

    def find(self, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Of some keys those that are there now."""


@dataclass(frozen=True)
class FinishedListing:
    """A list of objects, and their place where the settings name it. `kind` is what the settings call the list; `derived`
    says whether the list alone knows realms or kinds.
    """

    kind: str
    listed: ObjectList
    place: ObjectPlace | None
    derived: bool = False

    def begin(self) -> datetime:
        """When the list was made."""
        return self.listed.begin()

    def shares(self, wanted: int) -> Sequence[Any]:
        """The list in about so many parts."""
        return self.listed.shares(wanted)

    def read(self, share: Any) -> Iterator[pa.RecordBatch]:
        """The objects of a part of the list."""
        return self.listed.read(share)

    @property
    def is_fixed(self) -> bool:
        """Whether the list, once it has begun, may be read as often as one likes."""
        return self.listed.is_fixed

    def read_some(self, share: Any, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of the objects of a part; the others may be null."""
        return self.listed.read(share, columns)

    def find(self, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Asked of the place; of a realm or kind that columns say, the list is read once more.

        What the list does not name then is none of its objects. Raises Refused where the settings name no place.
        """
        if self.place is None:
            raise Refused(
                f"Where the objects are that the listing of kind {self.kind} names is not known, so that none can be looked at"
                " or deleted. Set `listing.path` to the folder or prefix that holds them."
            )
        found = self.place.find(keys)
        return self._derive(found) if self.derived else found

    def _derive(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Objects of the place with what the list says of them: those of one key in two realms twice."""
        found = pa.Table.from_batches(batches, OBJECTS).combine_chunks()
        if not len(found):
            return
        [keys] = found["key"].chunks
        self.listed.begin()
        for share in self.listed.shares(1):
            for batch in self.listed.read(share, _SAID):
                at = pc.index_in(batch["key"], value_set=keys)
                if at.null_count == len(at):
                    continue
                named = batch.filter(pc.is_valid(at))
                for known in found.take(at.drop_null()).combine_chunks().to_batches():
                    columns = {name: named[name] if name in _SAID else known[name] for name in OBJECTS.names}
                    yield pa.record_batch(columns, schema=OBJECTS)

    def distinct_names(self, settings: ObjectsSettings) -> list[str] | None:
        """The one dataset, if there is one: others show only as the list is read."""
        constant = constant_dataset(settings)
        return None if constant is None else [constant]

"""A list that was finished before it is read, and the place of its objects: only the place knows what exists now."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused
from retention_assets.stores.objects.naming import constant_dataset
from retention_assets.stores.objects.references.rounds import Pace
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.objects.tables import OBJECTS

# columns that only a list knows
_SAID = ("realm", "kind")


class ObjectList(Protocol):
    """A list of objects that somebody else made."""

    def begin(self) -> datetime:
        """Time at which the list was made."""

    def shares(self, wanted: int) -> Sequence[Any]:
        """Split the list into about this many parts."""

    def read(self, share: Any, columns: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Objects of a part, with all columns or some. Columns that are left out may be null."""


class ObjectPlace(Protocol):
    def find(self, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Objects present now under the given keys."""


P = TypeVar("P")


def packed(parts: Iterable[P], weight: Callable[[P], int], shares: int) -> list[tuple[P, ...]]:
    """Pack parts into this many shares of about equal weight; heavy parts should come first."""
    packs: list[list[P]] = [[] for _ in range(max(1, shares))]
    weights = [0] * len(packs)
    for part in parts:
        least = weights.index(min(weights))
        packs[least].append(part)
        weights[least] += weight(part)
    return [tuple(pack) for pack in packs]


@dataclass(frozen=True)
class FinishedListing:
    """A finished list, and the place of its objects if the settings name it. `kind` is the list's name in the settings; with
    `derived`, only the list knows realms or kinds."""

    kind: str
    listed: ObjectList
    place: ObjectPlace | None
    derived: bool = False
    # objects of the list read per second; 0 is unlimited
    rate: float = 0

    def begin(self) -> datetime:
        return self.listed.begin()

    def shares(self, wanted: int) -> Sequence[Any]:
        return self.listed.shares(wanted)

    def read(self, share: Any) -> Iterator[pa.RecordBatch]:
        return self.listed.read(share)

    def find(self, keys: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Ask the place; with `derived`, read the list again for realms and kinds and drop what it does not name. Raises
        Refused if the settings name no place."""
        if self.place is None:
            raise Refused(
                f"Where the objects are that the listing of kind {self.kind} names is not known, so that none can be looked at"
                " or deleted. Set `listing.path` to the folder or prefix that holds them."
            )
        found = self.place.find(keys)
        return self._derive(found) if self.derived else found

    def _derive(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Add realms and kinds from the list; a key in two realms gives two rows."""
        found = pa.Table.from_batches(batches, OBJECTS).combine_chunks()
        if not len(found):
            return
        [keys] = found["key"].chunks
        self.listed.begin()
        pace = Pace(self.rate)
        for share in self.listed.shares(1):
            for batch in self.listed.read(share, _SAID):
                pace.take(len(batch))
                at = pc.index_in(batch["key"], value_set=keys)
                if at.null_count == len(at):
                    continue
                named = batch.filter(pc.is_valid(at))
                for known in found.take(at.drop_null()).combine_chunks().to_batches():
                    columns = {name: named[name] if name in _SAID else known[name] for name in OBJECTS.names}
                    yield pa.record_batch(columns, schema=OBJECTS)

    def distinct_names(self, settings: ObjectsSettings) -> list[str] | None:
        constant = constant_dataset(settings)
        return None if constant is None else [constant]

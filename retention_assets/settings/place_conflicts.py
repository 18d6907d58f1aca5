"""Places that may not lie in each other: nobody's ledger, log or data lies where somebody else deletes.

Belongs here: who claims which place, which claims are at odds, and the sentence about it. It is asked when settings are read,
and again before each part of a sweep: a link that was made meanwhile leads elsewhere.
Does not belong here: what a place is (places.py).
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from retention_assets.errors import InvalidValue
from retention_assets.settings.places import place_of
from retention_assets.settings.urls import mask_secrets
from retention_assets.stores.settings import StoreSettings


@dataclass(frozen=True)
class Claim:
    """A place of the settings by its key; of a store or of retention itself, and whether its owner deletes below it."""

    key: str
    text: str
    store: StoreSettings | None = None
    deletes: bool = False

    @property
    def words(self) -> str:
        """What it is, and where."""
        return f"{self.key} ({mask_secrets(''.join(self.text))})"


@dataclass(frozen=True)
class PlaceConflict:
    """Two claims of which the first deletes where the second is."""

    outer: Claim
    inner: Claim

    @property
    def stores(self) -> frozenset[str]:
        """The names of the stores that it is about."""
        return frozenset(claim.store.name for claim in (self.outer, self.inner) if claim.store)

    @property
    def what(self) -> str:
        """What is wrong, with both keys."""
        one, other = self.outer.store, self.inner.store
        keys = f"{self.inner.words} lies in {self.outer.words}"
        if one and other and one is not other and self.inner.key.endswith(f".{other.reach}"):
            return f"gives the stores {one.name} and {other.name} data that lies in one folder: {keys}"
        return f"has one place in another where it could be deleted: {keys}"

    @property
    def remedy(self) -> str:
        """What to do."""
        if len(self.stores) == 2:
            return "Put the data of one of them elsewhere, or keep both histories in one log."
        return f"Move {self.inner.key} out of it, or give {self.outer.key} a folder that holds nothing else."

    def as_invalid_value(self) -> InvalidValue:
        """As what is wrong with settings."""
        key = "stores" if self.stores else self.outer.key
        return InvalidValue(self.what, "a folder of its own for each", self.remedy, key=key)


def conflicts_of(claims: Sequence[Claim]) -> Iterator[PlaceConflict]:
    """Every claim that lies where another's owner deletes."""
    places = [(claim, place_of("".join(claim.text))) for claim in claims]
    for (outer, above), (inner, below) in itertools.permutations(places, 2):
        if outer.deletes and not _may_hold(outer, inner) and above.holds(below):
            yield PlaceConflict(outer, inner)


def guarded_places(store: StoreSettings, claims: Sequence[Claim]) -> tuple[str, ...]:
    """The places of retention and of other stores that a removal of a store stops at, whatever leads it there."""
    outer = next((claim for claim in claims if claim.store is store and claim.deletes), None)
    mine = (claim for claim in claims if claim.store is not store)
    return tuple("".join(claim.text) for claim in mine if outer and not _may_hold(outer, claim))


def _may_hold(outer: Claim, inner: Claim) -> bool:
    """A store may keep its own log in its data; and some kinds are told of another store, and of its data alone."""
    one, other = outer.store, inner.store
    if one is None or other is None:
        return False
    if one.name in other.refers_to or other.name in one.refers_to:
        return inner.key.endswith(f".{other.reach}")
    return one is other or one.may_hold(other)

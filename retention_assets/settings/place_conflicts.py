"""Conflicts of places: no ledger, log or data may be where somebody else deletes. Asked again before each part of a sweep."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from retention_assets.errors import InvalidValue
from retention_assets.settings.places import place_of
from retention_assets.settings.urls import mask_secrets
from retention_assets.stores.settings import StoreSettings


@dataclass(frozen=True)
class Claim:
    """A place by its settings key; its store (None: retention itself), and if its owner deletes below it."""

    key: str
    text: str
    store: StoreSettings | None = None
    deletes: bool = False

    @property
    def words(self) -> str:
        return f"{self.key} ({mask_secrets(''.join(self.text))})"


@dataclass(frozen=True)
class PlaceConflict:
    """Two claims: the owner of the first deletes where the second is."""

    outer: Claim
    inner: Claim

    @property
    def stores(self) -> frozenset[str]:
        return frozenset(claim.store.name for claim in (self.outer, self.inner) if claim.store)

    @property
    def what(self) -> str:
        one, other = self.outer.store, self.inner.store
        keys = f"{self.inner.words} lies in {self.outer.words}"
        if one and other and one is not other and self.inner.key.endswith(f".{other.reach}"):
            return f"gives the stores {one.name} and {other.name} data that lies in one folder: {keys}"
        return f"has one place in another where it could be deleted: {keys}"

    @property
    def remedy(self) -> str:
        if len(self.stores) == 2:
            return "Put the data of one of them elsewhere, or keep both histories in one log."
        return f"Move {self.inner.key} out of it, or give {self.outer.key} a folder that holds nothing else."

    def as_invalid_value(self) -> InvalidValue:
        key = "stores" if self.stores else self.outer.key
        return InvalidValue(self.what, "a folder of its own for each", self.remedy, key=key)


def conflicts_of(claims: Sequence[Claim]) -> Iterator[PlaceConflict]:
    places = [(claim, place_of("".join(claim.text))) for claim in claims]
    for (outer, above), (inner, below) in itertools.permutations(places, 2):
        if outer.deletes and not _may_hold(outer, inner) and above.holds(below):
            yield PlaceConflict(outer, inner)


def guarded_places(store: StoreSettings, claims: Sequence[Claim]) -> tuple[str, ...]:
    """Places of retention and of other stores that a deletion of this store must never enter, by whatever link."""
    outer = next((claim for claim in claims if claim.store is store and claim.deletes), None)
    mine = (claim for claim in claims if claim.store is not store)
    return tuple("".join(claim.text) for claim in mine if outer and not _may_hold(outer, claim))


def _may_hold(outer: Claim, inner: Claim) -> bool:
    """A store may keep its log in its data; some kinds may refer to another store, but only to its data."""
    one, other = outer.store, inner.store
    if one is None or other is None:
        return False
    if one.name in other.refers_to or other.name in one.refers_to:
        return inner.key.endswith(f".{other.reach}")
    return one is other or one.may_hold(other)

"""Compares where the data of a dataset is with where its plan was made, and asks what is left of a begun sweep.

Settings may change between a killed sweep and the one that finishes it: what is recorded for one place would be deleted in
another. Such a store is refused.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused
from retention_assets.ledger.places import StorePlace
from retention_assets.stores.protocol import LocatedStore, Remains, Store, Target, call_store, is_same_place


def find_place(store: Store, dataset: str, claim: bool = False) -> str | None:
    """Return where a store has a dataset's data now, if it can tell. `claim` leaves an identity there."""
    return call_store(store, lambda: store.place(dataset, claim) if isinstance(store, LocatedStore) else None)


def check_places(store: Store, dataset: str, planned: set[str | None]) -> None:
    """Raise Refused if the plan was made for other places than the present one."""
    noted = sorted(place for place in planned if place is not None)
    present = find_place(store, dataset) if noted else None
    other = next((place for place in noted if present is not None and not is_same_place(place, present)), None)
    if other is None:
        return
    raise Refused(
        f"what was planned of {dataset} is in another place than the one to which the settings lead. Then: {other}. Now:"
        f" {present}. Nothing is deleted there. Point the settings of the store back to the first and run again. If that is"
        f" gone for good, place a hold on {dataset} (`retention hold`) and run once more: it spares what was begun."
    )


def marked_elsewhere(places: Sequence[StorePlace], marks: pa.Table) -> dict[int, str]:
    """Return the marks made while their store's data was elsewhere, each with why it is spared."""
    by_store: dict[str, list[StorePlace]] = {}
    for row in places:
        by_store.setdefault(row.store, []).append(row)
    found: dict[int, str] = {}
    for store, mine in by_store.items():
        for row, following in pairwise(mine):
            if is_same_place(row.place, mine[-1].place):
                continue
            begun = pc.and_(pc.greater_equal(marks["id"], row.first_mark), pc.less(marks["id"], following.first_mark))
            ids = marks.filter(pc.and_(begun, pc.starts_with(marks["dataset"].cast(pa.string()), f"{store}/")))["id"]
            why = f"It was marked when the data of {store} was at {row.place}, and now that is at {mine[-1].place}."
            found |= dict.fromkeys(ids.to_pylist(), why)
    return found


def remains_of(store: Store, dataset: str, begun: pa.Table) -> dict[int, Remains]:
    """Return what is left of each mark on which a sweep had begun (rows of `Sweeps.left`)."""
    rows: list[Mapping[str, Any]] = begun.to_pylist()
    present = find_place(store, dataset) if rows else None
    here = [row for row in rows if row["place"] is None or (present is not None and is_same_place(row["place"], present))]
    targets = [
        Target(row["transaction"], row["note"], place_known=row["place"] is not None, begun_earlier=True) for row in here
    ]
    found: Mapping[str, Remains] = {}
    if targets and isinstance(store, LocatedStore):
        found = call_store(store, lambda: store.remains(dataset, targets))
    known = {row["id"]: found.get(row["transaction"], Remains.UNKNOWN) for row in here}
    return {row["id"]: known.get(row["id"], Remains.UNKNOWN) for row in rows}

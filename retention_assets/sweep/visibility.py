"""Raises the visibility mark before a sweep deletes: from that instant on a history is whole without what goes."""

from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import flags, keys_of
from retention_assets.frames.views.branch_views import view_ends
from retention_assets.ledger import Ledger
from retention_assets.ledger.protections import Raise

_WHY = "what was current before is swept"


def hide_swept(ledger: Ledger, holder: str, rows: pa.Table, going: pa.Table, as_of: datetime) -> None:
    """Raise the marks of datasets past every instant that needs some of these transactions, before any of them goes."""
    whole = oldest_whole_instants(rows, view_ends(rows, as_of), going)
    if whole:
        ledger.visibility.raise_to({name: Raise(at, _WHY) for name, at in whole.items()}, holder)


def oldest_whole_instants(rows: pa.Table, views: pa.Table, going: pa.Table) -> dict[str, datetime]:
    """Return, by dataset, the instant from which nothing current needs any of the transactions; without those that no state
    ever needed.

    `views` are the `view_ends` of the rows. For what is in a latest view, which only a policy that says so may take, the newest
    transaction of its dataset is the bound: what is current is always visible.
    """
    if views["view"].null_count == len(views):
        return {}
    mine = flags(pc.is_in(keys_of(rows), value_set=keys_of(going))) & flags(pc.is_valid(views["view"]))
    if not mine.any():
        return {}
    names = rows["dataset"].cast(pa.string())
    bounds = [pa.table({"dataset": names, "at": views["superseded_at"]}).filter(pa.array(mine))]
    if (latest := mine & flags(pc.equal(views["view"], 0))).any():
        here = pc.is_in(names, value_set=pc.unique(names.filter(pa.array(latest))))
        committed = pc.and_(here, pc.equal(rows["status"].cast(pa.string()), "COMMITTED"))
        bounds.append(pa.table({"dataset": names, "at": rows["closed_at"]}).filter(committed))
    newest = pa.concat_tables(bounds).group_by("dataset").aggregate([("at", "max")])
    return {row["dataset"]: row["at_max"] for row in newest.to_pylist() if row["at_max"] is not None}

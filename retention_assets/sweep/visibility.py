"""What readers are told before a sweep deletes: from when on a history is whole without that which goes.

Belongs here: that instant, and raising the visibility mark to it.
Does not belong here: how far settings raise it (evaluation/visibility.py).
"""

from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import flags
from retention_assets.frames.views.branch_views import branch_views
from retention_assets.ledger import Ledger
from retention_assets.ledger.leases import Lease

_WHY = "what was current before is swept"


def hide_swept(ledger: Ledger, lease: Lease, rows: pa.Table, transactions: Sequence[str], as_of: datetime) -> None:
    """Raise the mark of a dataset past every instant that needs some of its transactions, before any of them goes."""
    whole = oldest_whole_instant(rows, branch_views(rows, as_of), transactions)
    if whole is not None:
        ledger.visibility.raise_to(lease.dataset, whole, lease.holder, _WHY)


def oldest_whole_instant(rows: pa.Table, views: pa.Table, transactions: Sequence[str]) -> datetime | None:
    """From when on nothing that is current needs any of some transactions; none where no state ever needed one of them.

    `views` are the `branch_views` of the rows of one dataset. Of what is in a latest view, which only a policy may take that
    says so, the newest transaction is the bound: what is current is always visible.
    """
    mine = flags(pc.is_in(rows["transaction"], pa.array(transactions, pa.string()))) & flags(pc.is_valid(views["view"]))
    bounds = [pc.max(views["superseded_at"].filter(pa.array(mine))).as_py()]
    if (mine & flags(pc.equal(views["view"], 0))).any():
        committed = pc.equal(rows["status"].cast(pa.string()), "COMMITTED")
        bounds.append(pc.max(rows["closed_at"].filter(committed)).as_py())
    newest: datetime | None = max((one for one in bounds if one is not None), default=None)
    return newest

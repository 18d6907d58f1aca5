"""A lease that is kept alive while somebody sweeps.

Belongs here: the heartbeat, in a thread of its own. Does not belong here: what a lease is (ledger/leases.py).
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlalchemy.exc import SQLAlchemyError

from retention_assets.errors import Refused
from retention_assets.ledger import Ledger
from retention_assets.ledger.leases import SECONDS, Lease

# Several beats fit into the life of a lease, so that one that comes late does no harm.
_BEATS = 4


@contextmanager
def hold_lease(ledger: Ledger, dataset: str, holder: str, seconds: float = SECONDS) -> Iterator[Lease]:
    """The lease of a dataset, refused with who has it; given up at the end, however it comes."""
    lease = ledger.leases.take(dataset, holder, seconds)
    over = threading.Event()

    def beats() -> None:
        while not over.wait(seconds / _BEATS):
            try:
                ledger.leases.beat(lease, seconds)
            except Refused:
                # Lost: every write of the sweep is fenced and says so itself.
                return
            except SQLAlchemyError:
                # The database may be back before the lease ends.
                continue

    heart = threading.Thread(target=beats, name=f"lease of {dataset}", daemon=True)
    heart.start()
    try:
        yield lease
    finally:
        over.set()
        heart.join()
        # A lease that can't be given up ends by itself, and what the sweep itself raised must not be hidden by this.
        with suppress(SQLAlchemyError):
            ledger.leases.give_up(lease)

"""A lease that is kept alive while somebody sweeps, and the permit that tells whether it still is.

Belongs here: the heartbeat, in a thread of its own, and what becomes of the lease when the ledger can't be written any more.
Does not belong here: what a lease is (ledger/leases.py), and what a permit is (permit.py).
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import OperationalError, SQLAlchemyError

from retention_assets.clock import moment
from retention_assets.errors import Refused
from retention_assets.ledger import Ledger
from retention_assets.ledger.database import unwritable
from retention_assets.ledger.leases import SECONDS, Lease
from retention_assets.sweep.permit import SweepPermit

# So many fit into the life of a lease: one every five seconds, which is how long a hold may go unnoticed in the middle of a
# batch. A beat is one small write, so that this costs a ledger nothing. A permit outlives eleven that are missed.
_BEATS = 24


class LedgerFailed(Refused):
    """The ledger can't be written any more. Nothing can go on, since nothing could be recorded."""


@contextmanager
def hold_lease(
    ledger: Ledger, dataset: str, holder: str, seconds: float = SECONDS, permit: SweepPermit | None = None
) -> Iterator[Lease]:
    """The lease of a dataset, refused with who has it; given up at the end, however it comes.

    The permit is good from the beginning to the end, and no longer than the lease.
    """
    permit = permit or SweepPermit()
    sent = moment()
    try:
        lease = ledger.leases.take(dataset, holder, seconds)
    except OperationalError as fault:
        raise LedgerFailed(unwritable(fault)) from fault
    permit.confirm(lease, sent, seconds)
    permit.watch(ledger.file.watch())
    over = threading.Event()

    def beats() -> None:
        while not over.wait(seconds / _BEATS):
            sent = moment()
            try:
                permit.confirm(ledger.leases.beat(lease, seconds), sent, seconds)
            except Refused as fault:
                # Lost: every write of the sweep is fenced and says so itself, and its permit ends at once.
                permit.end(str(fault).rstrip("."))
                return
            except SQLAlchemyError:
                # The database may be back before the lease ends. The permit ends earlier, by itself.
                continue

    heart = threading.Thread(target=beats, name=f"lease of {dataset}", daemon=True)
    heart.start()
    given_up = False
    try:
        try:
            yield lease
        finally:
            permit.end("the sweep is over")
            over.set()
            heart.join()
            # What the sweep itself raised must not be hidden by this.
            given_up = _give_up(ledger, lease)
    except OperationalError as fault:
        late = "" if given_up else f" The lease of {dataset} could not be given up: it ends by itself in {seconds:.0f} s."
        raise LedgerFailed(unwritable(fault) + late) from fault


def _give_up(ledger: Ledger, lease: Lease) -> bool:
    """Whether that could be written. Where it can't be, the lease ends by itself."""
    for _ in range(2):
        try:
            ledger.leases.give_up(lease)
        except SQLAlchemyError:
            continue
        return True
    return False

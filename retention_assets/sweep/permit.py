"""The permit of a sweep: whether its next irreversible act may begin at this moment.

Stores ask before each file, request and commit, on many threads. It answers from clocks and the ledger's file, never from a
database.

A program may be stopped at any instant, and for hours: its machine sleeps, its container is paused. It goes on in the middle of
a batch, while somebody else has taken the lease long ago. So a permit counts from before the last confirmed beat was sent: from
then on the ledger has kept the dataset for this sweep, for longer than the permit is good.
"""

from collections.abc import Callable

from retention_assets.clock import Moment, moment
from retention_assets.errors import Withheld
from retention_assets.ledger.leases import PERMITTED, Lease

# seconds; adjusting a clock often sets it back a little
_SLACK = 1.0


class ProtectionsChanged(Withheld):
    """Holds or realms changed after the re-check. The rest of the batch is checked again."""


class SweepPermit:
    """Refused until a lease is confirmed, and again as soon as it may be lost, or the re-check may be outdated."""

    def __init__(self, clocks: Callable[[], Moment] = moment) -> None:
        self.clocks = clocks
        self._lease: Lease | None = None
        self._sent = Moment(0, 0)
        self._good_for = 0.0
        self._ended: str | None = None
        self._protections: str | None = None
        self._changed = False
        self._ledger_fault: Callable[[], str | None] = lambda: None

    def confirm(self, lease: Lease, sent: Moment, seconds: float, rest: float | None = None) -> None:
        """Record that the ledger gave or extended the lease, which was asked for at `sent`. `rest`: seconds left, where
        somebody else extends it.
        """
        if self._lease is not None and lease.database != self._lease.database:
            self.end(f"the ledger is another database than before: {lease.database}, and it was {self._lease.database}")
        self._good_for = (seconds if rest is None else rest) - seconds * (1 - PERMITTED)
        self._sent, self._lease = sent, lease
        self.notice(lease.protections)

    def notice(self, protections: str) -> None:
        """Record the holds and realms in force: if others were checked, nothing more begins by that check."""
        self._changed |= self._protections not in (None, protections)

    def watch(self, ledger_fault: Callable[[], str | None]) -> None:
        """Also ask this: it says why writes to the ledger would be lost."""
        self._ledger_fault = ledger_fault

    def check_against(self, protections: str) -> None:
        """Set the holds and realms that the sweep goes by: a beat that brings others refuses the permit."""
        self._protections, self._changed = protections, False

    def end(self, why: str) -> None:
        self._ended = self._ended or why

    def __call__(self) -> None:
        """Return if the next act may begin; raises Withheld otherwise."""
        if (why := self.ledger_fault() or self._ended or self._late()) is not None:
            raise Withheld(f"Nothing further is deleted: {why}.")
        if self._changed:
            raise ProtectionsChanged("Holds or realms have changed since it was checked whether this may go.")

    def ledger_fault(self) -> str | None:
        fault = self._ledger_fault()
        return f"the ledger's file {fault}, so that nothing could be recorded" if fault else None

    def _late(self) -> str | None:
        # by either clock: one that was set back could hide how late it is
        if self._lease is None:
            return "no lease is held"
        present = self.clocks()
        wall, running = present.wall - self._sent.wall, present.running - self._sent.running
        if -_SLACK <= wall <= self._good_for and 0 <= running <= self._good_for:
            return None
        if wall < -_SLACK:
            return f"the clock of this machine went back by {-wall:.0f} s, so that the lease may be over"
        return (
            f"the lease of {self._lease.dataset} was last confirmed {max(wall, running):.0f} s ago, and is good for"
            f" {max(0, self._good_for):.0f} s without that. This program was stopped, the machine slept, or the ledger did not"
            " answer"
        )

"""The permit of a sweep, whether its next irreversible act may begin at this moment, and the leases that it depends on.

Stores ask before each file, request and commit, on many threads. It answers from clocks and the ledger's file, never from a
database.

A program may be stopped at any instant, and for hours: its machine sleeps, its container is paused. It goes on in the middle of
a batch, while somebody else has taken the lease long ago. So a permit counts from before the last confirmed beat was sent: from
then on the ledger has kept the dataset for this sweep, for longer than the permit is good. A heartbeat thread keeps the leases
of a share alive.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy.exc import OperationalError, SQLAlchemyError

from retention_assets.clock import Moment, moment
from retention_assets.errors import Refused, Withheld
from retention_assets.ledger import Ledger
from retention_assets.ledger.database import unwritable
from retention_assets.ledger.leases import PERMITTED, SECONDS, DatasetPart, Lease, LeaseLost

# seconds; adjusting a clock often sets it back a little
_SLACK = 1.0
# Beats in the life of a lease: one every five seconds, which is how long a hold may go unnoticed in the middle of a batch. A
# beat is one small write. A permit survives eleven missed beats.
_BEATS = 24
# seconds between looks whether an older attempt at a part has ended
_LOOK = 1.0


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
            self.end(f"the ledger is another database now: {lease.database}; it was {self._lease.database}")
        self._good_for = (seconds if rest is None else rest) - seconds * (1 - PERMITTED)
        self._sent, self._lease = sent, lease
        self.notice(lease.protections)

    def notice(self, protections: str) -> None:
        """Record the holds and realms in force: if others were checked, nothing more begins by that check."""
        self._changed |= self._protections not in (None, protections)

    def watch(self, ledger_fault: Callable[[], str | None]) -> None:
        """Also ask `ledger_fault`, which says why writes to the ledger would be lost."""
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
            raise ProtectionsChanged("Holds or realms have changed since the last check.")

    def ledger_fault(self) -> str | None:
        fault = self._ledger_fault()
        return f"the ledger's file {fault}, so nothing could be recorded" if fault else None

    def _late(self) -> str | None:
        # by either clock: one that was set back could hide how late it is
        if self._lease is None:
            return "no lease is held"
        present = self.clocks()
        wall, running = present.wall - self._sent.wall, present.running - self._sent.running
        if -_SLACK <= wall <= self._good_for and 0 <= running <= self._good_for:
            return None
        if wall < -_SLACK:
            return f"the clock of this machine went back by {-wall:.0f} s, so the lease may be over"
        return (
            f"the lease of {self._lease.dataset} was last confirmed {max(wall, running):.0f} s ago, and is good for"
            f" {max(0, self._good_for):.0f} s without that. This program was stopped, the machine slept, or the ledger did not"
            " answer"
        )


class LedgerFailed(Refused):
    """The ledger can't be written any more. Nothing may go on, since nothing could be recorded."""


class PartBegunAnew(Exception):
    """Another run of this task has taken over its part: this one must return no result."""


@dataclass(frozen=True)
class HeldLeases:
    """Leases of a share, each with its permit; and for datasets that another holder has, who and until when."""

    leases: Mapping[str, Lease]
    permits: Mapping[str, SweepPermit]
    others: Mapping[str, str]


@contextmanager
def hold_lease(ledger: Ledger, dataset: str, holder: str, seconds: float = SECONDS) -> Iterator[tuple[Lease, SweepPermit]]:
    """Hold the lease of a dataset, with its permit, and give it up in any case; refused with the name of another holder."""
    with hold_leases(ledger, [dataset], holder, seconds) as held:
        if dataset in held.others:
            raise Refused(held.others[dataset])
        yield held.leases[dataset], held.permits[dataset]


@contextmanager
def hold_leases(ledger: Ledger, datasets: Collection[str], holder: str, seconds: float = SECONDS) -> Iterator[HeldLeases]:
    """Hold the leases of those datasets that nobody else has: one heartbeat for all, and one statement a beat.

    A lost lease ends the permit of its dataset alone.
    """
    sent = moment()
    try:
        taken = ledger.leases.take(datasets, holder, seconds)
    except OperationalError as fault:
        raise LedgerFailed(unwritable(fault)) from fault
    permits = {name: SweepPermit() for name in taken.leases}
    if not taken.leases:
        yield HeldLeases({}, {}, taken.others)
        return
    ledger_fault = ledger.file.watch()
    for name, lease in taken.leases.items():
        permits[name].confirm(lease, sent, seconds)
        permits[name].watch(ledger_fault)
    alive = dict(taken.leases)

    def beat() -> bool:
        sent = moment()
        kept = ledger.leases.beat(alive.values(), seconds)
        for name, lease in kept.leases.items():
            permits[name].confirm(lease, sent, seconds)
        for name, why in kept.others.items():
            # every write under a lost lease fails by its fence
            permits[name].end(why.rstrip("."))
            del alive[name]
        return bool(alive)

    named = min(taken.leases) + (f" and {len(taken.leases) - 1} more" if len(taken.leases) > 1 else "")
    given_up = False
    try:
        try:
            with _beating(f"lease of {named}", seconds, beat, permits.values()):
                yield HeldLeases(taken.leases, permits, taken.others)
        finally:
            # its fault must not hide what the sweep raised
            given_up = _try_twice(lambda: ledger.leases.give_up(taken.leases.values()))
    except OperationalError as fault:
        late = "" if given_up else f" The lease of {named} could not be released: it ends by itself in {seconds:.0f} s."
        raise LedgerFailed(unwritable(fault) + late) from fault


@contextmanager
def hold_part(ledger: Ledger, part: DatasetPart, stop: threading.Event, seconds: float = SECONDS) -> Iterator[HeldLeases]:
    """Hold a part of a dataset under the lease that the driver extends: the permit is good while the driver does, and until
    another task begins the part anew. Raises LeaseLost where the lease is over.

    Waits for acts of an older attempt. Nothing is held if a stop comes before that.
    """
    try:
        joined = ledger.parts.join(part)
        while not ledger.parts.may_begin(joined):
            if stop.wait(_LOOK):
                yield HeldLeases({}, {}, {})
                return
        sent, permit = moment(), SweepPermit()
        try:
            now = ledger.parts.beat(joined)
        except LeaseLost as fault:
            if ledger.parts.is_newest(joined.lease):
                raise
            raise PartBegunAnew(str(fault)) from None
        permit.confirm(now.lease, sent, seconds, now.seconds)
        permit.watch(ledger.file.watch())

        def beat() -> bool:
            sent = moment()
            try:
                now = ledger.parts.beat(joined)
            except LeaseLost as fault:
                permit.end(str(fault).rstrip("."))
                return False
            permit.confirm(now.lease, sent, seconds, now.seconds)
            return True

        newest = list[bool]()
        try:
            with _beating(f"part {part.number} of {part.dataset}", seconds, beat, [permit]):
                yield HeldLeases({part.dataset: now.lease}, {part.dataset: permit}, {})
        finally:
            _try_twice(lambda: newest.append(ledger.parts.leave(now.lease)))
    except OperationalError as fault:
        raise LedgerFailed(unwritable(fault)) from fault
    if newest == [False]:
        raise PartBegunAnew(
            f"Another task has begun part {part.number} of {part.dataset} again, and finishes it; this was attempt "
            f"{now.lease.attempt}."
        )


@contextmanager
def _beating(name: str, seconds: float, beat: Callable[[], bool], permits: Collection[SweepPermit]) -> Iterator[None]:
    over = threading.Event()

    def beats() -> None:
        while not over.wait(seconds / _BEATS):
            try:
                if not beat():
                    return
            except SQLAlchemyError:
                # the database may be back before the lease ends; the permit ends earlier, by itself
                continue

    heart = threading.Thread(target=beats, name=name, daemon=True)
    heart.start()
    try:
        yield
    finally:
        for permit in permits:
            permit.end("the sweep is over")
        over.set()
        heart.join()


def _try_twice(write: Callable[[], object]) -> bool:
    # leases that could not be given up end by themselves
    for _ in range(2):
        try:
            write()
        except SQLAlchemyError:
            continue
        return True
    return False

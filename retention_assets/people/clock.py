"""Shows the times by which the clock guard goes, vouches for the present, and takes back what a wrong clock marked."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from pydantic import Field

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem
from retention_assets.ledger import Ledger
from retention_assets.ledger.clock_guard import LedgerTimes
from retention_assets.people.command import command, group
from retention_assets.people.operation import (
    AsOf,
    Flags,
    Kind,
    ReasonedRequest,
    RecordedRequest,
    Request,
    Result,
    operation,
    what_is_missing,
)
from retention_assets.policy.durations import text_of
from retention_assets.policy.sentences import count
from retention_assets.render.page import Table
from retention_assets.render.tables import CLOCK

SIMULATED = "The present, for settings with a simulated clock."


class ClockAcceptRequest(RecordedRequest):
    """Acceptance of the present, with an optional reason."""

    as_of: AsOf = Field(default=None, description=SIMULATED)
    reason: Annotated[str | None, Flags("-r", "--reason")] = Field(default=None, description="Reason for the record. Optional.")


class ClockResetRequest(ReasonedRequest):
    """Statement that an earlier clock was fast."""

    as_of: AsOf = Field(default=None, description=SIMULATED)


def _sentences(times: LedgerTimes) -> Sequence[str]:
    return [f"{name.replace('_', ' ')}: {text_of(at)}" for name, at in times.as_dict().items() if at]


@operation(Kind.ACT, "retention clock accept", "retention clock accept -r 'nothing ran over the holidays'")
def clock_accept(request: ClockAcceptRequest, environment: Environment) -> Result:
    """Accept the present if the clock guard refuses to sweep. The next run sweeps.

    Use it after a pause that no other clock confirms.
    """
    with environment.ledger() as ledger:
        ledger.clock.accept(present_of(request.as_of, ledger), request.actor, (request.reason or "").strip() or None)
        times = ledger.clock.times()
    return Result(
        headline="The present is accepted.",
        sentences=_sentences(times),
        next="`retention run` sweeps again. No mark was touched.",
        data=times.as_dict(),
    )


@operation(Kind.ACT, "retention clock reset -r 'the clock was a year ahead'")
def clock_reset(request: ClockResetRequest, environment: Environment) -> Result:
    """Take back marks with a time in the future, made by a fast clock. Swept transactions stay swept.

    The waits between batches (`sweep.every`) begin again, too. Use it if every run is refused because the newest mark is later
    than now.
    """
    with environment.existing_ledger() as ledger:
        reset = ledger.clock.reset(present_of(request.as_of, ledger), request.actor, request.reason)
        times = ledger.clock.times()
    late = [f"Too late for {reset.sweeping:,} being swept."] if reset.sweeping else []
    return Result(
        headline=f"{count(reset.unmarked, 'mark was', 'marks were')} taken back.",
        sentences=(*late, *_sentences(times)),
        next="`retention run` marks again what policies select.",
        data={"reset_to": reset.at, "unmarked": reset.unmarked, "sweeping": reset.sweeping, **vars(times)},
    )


def present_of(as_of: datetime | None, ledger: Ledger) -> datetime:
    if as_of is not None and not ledger.clock.simulated:
        expected, remedy = "nothing: the present is meant", "Correct the clock of this machine, and leave it out."
        what, value = "is for simulated clocks alone", text_of(as_of)
        raise BadInput(Problem(what, key="as_of", value=value, expected=expected, remedy=remedy))
    return ledger.clock.present(as_of)


@operation(Kind.LOOK, "retention clock")
def clock_times(request: Request, environment: Environment) -> Result:
    """Show the times that the clock guard compares: the newest mark, the newest run, the last accept."""
    with environment.ledger_if_any() as ledger:
        times = (ledger.clock.times() if ledger else LedgerTimes()).as_dict()
        return Result(
            data=times,
            tables=lambda: [Table("The clock of the ledger", CLOCK, [*times.items()])],
            notes=what_is_missing(environment, ledger),
        )


clock = group(clock_times, "clock", command(clock_accept, "accept"), command(clock_reset, "reset"))

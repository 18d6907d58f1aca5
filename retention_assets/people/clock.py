"""Shows the times by which the clock guard goes, vouches for the present, and takes back what a wrong clock marked."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import click
from pydantic import Field

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem
from retention_assets.ledger import Ledger
from retention_assets.ledger.clock_guard import ClockReset, LedgerTimes
from retention_assets.people.command import command
from retention_assets.people.common.options import FORMAT, examples
from retention_assets.people.common.output import print_json, print_tables
from retention_assets.people.common.sources import find_environment, ledger_to_read
from retention_assets.people.operation import Flags, Instant, Kind, ReasonedRequest, Request, Result, operation
from retention_assets.policy.durations import text_of
from retention_assets.render.ledger_tables import clock_table

_SIMULATED = "The present, where the settings have a simulated clock."


class ClockAcceptRequest(Request):
    """Acceptance of the present, with an optional reason."""

    as_of: Annotated[Instant | None, Flags("-t", "--as-of")] = Field(default=None, description=_SIMULATED)
    reason: Annotated[str | None, Flags("-r", "--reason")] = Field(
        default=None, description="Why: the record keeps it. May be left out."
    )


class ClockResetRequest(ReasonedRequest):
    """Statement that an earlier clock was fast."""

    as_of: Annotated[Instant | None, Flags("-t", "--as-of")] = Field(default=None, description=_SIMULATED)


class ClockAccepted(Result):
    """Times that the guard compares with from now on."""

    times: LedgerTimes

    @property
    def headline(self) -> str:
        return "The present is accepted."

    def sentences(self) -> Sequence[str]:
        return _sentences(self.times)

    @property
    def next(self) -> str:
        return "`retention run` sweeps again. No mark was touched."

    def as_dict(self) -> dict[str, Any]:
        return self.times.as_dict()


class ClockResetResult(Result):
    """Marks that were taken back, and the times that the guard compares with from now on."""

    reset: ClockReset
    times: LedgerTimes

    @property
    def headline(self) -> str:
        return f"{self.reset.unmarked:,} marks taken back."

    def sentences(self) -> Sequence[str]:
        late = [f"Too late for {self.reset.sweeping:,} that are being swept."] if self.reset.sweeping else []
        return (*late, *_sentences(self.times))

    @property
    def next(self) -> str:
        return "`retention run` marks anew what policies select."

    def as_dict(self) -> dict[str, Any]:
        return {
            "reset_to": self.reset.at, "unmarked": self.reset.unmarked, "sweeping": self.reset.sweeping, **vars(self.times)
        }  # fmt: skip


def _sentences(times: LedgerTimes) -> Sequence[str]:
    return [f"{name.replace('_', ' ')}: {text_of(at)}" for name, at in times.as_dict().items() if at]


@operation(Kind.ACT, "retention clock accept", "retention clock accept -r 'nothing ran over the holidays'")
def clock_accept(request: ClockAcceptRequest, environment: Environment) -> ClockAccepted:
    """Vouch for the present where the clock guard refuses to sweep: the next run sweeps.

    It is the way on after a pause of which no other clock is a witness.
    """
    with environment.ledger() as ledger:
        ledger.clock.accept(_present(request.as_of, ledger), request.actor, (request.reason or "").strip() or None)
        return ClockAccepted(times=ledger.clock.times())


@operation(Kind.ACT, "retention clock reset -r 'the clock was a year ahead'")
def clock_reset(request: ClockResetRequest, environment: Environment) -> ClockResetResult:
    """Take back the marks that were made later than now, by a clock that was fast. What is swept stays swept.

    What batches of sweeps wait for (`sweep.every`) begins anew as well. It is the way on where every run is refused because the
    newest mark is later than now.
    """
    with environment.existing_ledger() as ledger:
        reset = ledger.clock.reset(_present(request.as_of, ledger), request.actor, request.reason)
        return ClockResetResult(reset=reset, times=ledger.clock.times())


def _present(as_of: datetime | None, ledger: Ledger) -> datetime:
    if as_of is not None and not ledger.clock.simulated:
        raise BadInput(
            Problem(
                "is for simulated clocks alone", key="as_of", value=text_of(as_of), expected="nothing: the present is meant",
                remedy="Set the clock of this machine right, and leave it out.",
            )
        )  # fmt: skip
    return ledger.clock.present(as_of)


@examples("retention clock")
@click.group(invoke_without_command=True)
@FORMAT
@click.pass_context
def clock(context: click.Context, format_: str) -> None:
    """Show the times by which the clock guard goes: the newest mark, the newest run, when a person vouched for the clock."""
    if context.invoked_subcommand is not None:
        return
    with ledger_to_read(find_environment()) as ledger:
        times = (ledger.clock.times() if ledger else LedgerTimes()).as_dict()
    if format_ == "json":
        print_json(times)
    else:
        print_tables([clock_table(times)])


clock.add_command(command(clock_accept, "accept"))
clock.add_command(command(clock_reset, "reset"))

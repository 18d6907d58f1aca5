"""Simulate the cycle day by day on a copy, so that one sees marks come due and a sweep without waiting.

The history is what the stores have now: nothing new arrives.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused
from retention_assets.frames.log import SUMMED, Log, faults_of
from retention_assets.ledger.marks.candidates import CANDIDATES
from retention_assets.operations.amounts import NOTHING, Amount
from retention_assets.operations.rehearsal import Rehearsal, rehearse
from retention_assets.policy.durations import text_of

MOST_DAYS = 3_660
_DAY = timedelta(days=1)
_FOREVER = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class SimulationRequest:
    """Number of days, start (default: now), and datasets: globs over store/name."""

    days: int
    begin: datetime | None = None
    datasets: tuple[str, ...] = ("*",)

    def __post_init__(self) -> None:
        if not 1 <= self.days <= MOST_DAYS:
            raise BadInput(Problem("is out of range", key="days", value=str(self.days), expected=f"1 to {MOST_DAYS:,} days"))


@dataclass(frozen=True)
class SimulatedDay:
    """Events of a day: `due` is what the sweep finds at its beginning, `waiting` what is marked at its end."""

    as_of: datetime
    newly_marked: Amount = NOTHING
    due: Amount = NOTHING
    deleted: Amount = NOTHING
    spared: Amount = NOTHING
    waiting: Amount = NOTHING

    @property
    def is_quiet(self) -> bool:
        return not (self.newly_marked.transactions or self.due.transactions or self.spared.transactions)

    def as_dict(self) -> dict[str, Any]:
        amounts = {name: value.as_dict() for name, value in vars(self).items() if isinstance(value, Amount)}
        return {"date": self.as_of.date().isoformat(), "as_of": text_of(self.as_of), **amounts}


@dataclass(frozen=True)
class Simulation:
    """Simulated days, and what could not take part: refused datasets, and stores that are away."""

    days: tuple[SimulatedDay, ...]
    refused: Mapping[str, str] = field(default_factory=dict)
    away: Mapping[str, str] = field(default_factory=dict)
    # number of spared marks by reason
    reasons: Mapping[str, int] = field(default_factory=dict)

    def total(self, name: str) -> Amount:
        """Sum of one of the amounts over all days."""
        return sum((getattr(one, name) for one in self.days), NOTHING)

    def as_dict(self) -> dict[str, Any]:
        return {
            "days": [one.as_dict() for one in self.days],
            "totals": {name: self.total(name).as_dict() for name in ("newly_marked", "deleted", "spared")},
            "spared_because": dict(self.reasons),
            "refused": dict(self.refused),
            "stores_away": dict(self.away),
        }


def simulate(request: SimulationRequest, environment: Environment) -> Simulation:
    """Live through the days on a copy of the ledger that is thrown away. The stores are read, each once."""
    begin = request.begin or environment.present()
    instants = [begin + number * _DAY for number in range(request.days)]
    with rehearse(environment, request.datasets, _FOREVER, remembers=True, simulated=True) as rehearsed:
        newest = rehearsed.copy.clock.times().newest_mark_at
        if newest and begin < newest:
            raise Refused(
                f"The newest mark of the ledger is of {text_of(newest)}: a simulation begins then or later, and not at"
                f" {text_of(begin)}. Leave --from out to begin now."
            )
        logs = [(log, _swept(rehearsed.known(rehearsed.source, log))) for log in rehearsed.logs()]
        refused = {name: why for log, _ in logs for name, why in faults_of(log.datasets).items()}
        days = tuple(_live(rehearsed, logs, instants, refused))
        spared = rehearsed.copy.marks.table(statuses=["SPARED"])
        counts = {row["values"]: row["counts"] for row in pc.value_counts(spared["why"].combine_chunks()).to_pylist()}
    return Simulation(days, dict(sorted(refused.items())), rehearsed.away, dict(sorted(counts.items())))


def _live(
    rehearsed: Rehearsal, logs: Sequence[tuple[Log, pa.Table]], instants: Sequence[datetime], refused: dict[str, str]
) -> Iterator[SimulatedDay]:
    """Each day: judge and mark, then sweep what is due."""
    gone = 0
    for at in instants:
        marked = _mark(rehearsed, logs, at)
        due = _pending(rehearsed, at)
        spared_before = _amount(rehearsed.copy.marks.table(statuses=["SPARED"]))
        for result in rehearsed.sweep_copy(at):
            if result.refused:
                refused.setdefault(result.dataset, result.refused)
        recorded = rehearsed.recorded()
        deleted = sum((Amount(1, one.bytes or 0) for one in recorded[gone:]), NOTHING)
        gone = len(recorded)
        spared = _amount(rehearsed.copy.marks.table(statuses=["SPARED"]))
        yield SimulatedDay(
            as_of=at,
            newly_marked=marked,
            due=due,
            deleted=deleted,
            spared=Amount(spared.transactions - spared_before.transactions, spared.bytes - spared_before.bytes),
            waiting=_pending(rehearsed, _FOREVER),
        )


def _mark(rehearsed: Rehearsal, logs: Sequence[tuple[Log, pa.Table]], at: datetime) -> Amount:
    """Judge as of a day and mark on the copy; returns what is new."""
    rules, parts = rehearsed.rules(at), [CANDIDATES.empty_table()]
    for log, before in logs:
        known = pa.concat_tables([before, rehearsed.known(rehearsed.copy, log)])
        parts.append(rehearsed.candidates(log, known, rules, at))
    candidates = pa.concat_tables(parts)
    if len(candidates):
        rehearsed.mark(candidates, at)
    return _amount(candidates)


def _swept(known: pa.Table) -> pa.Table:
    # The copy has the open marks: what it spares can be marked again.
    return known.filter(known["swept"])


def _pending(rehearsed: Rehearsal, by: datetime) -> Amount:
    return sum((Amount(one.marks, one.bytes) for one in rehearsed.copy.pending.waiting() if one.is_due(by)), NOTHING)


def _amount(rows: pa.Table) -> Amount:
    return Amount(len(rows), int(pc.sum(rows["bytes"].cast(SUMMED)).as_py() or 0))

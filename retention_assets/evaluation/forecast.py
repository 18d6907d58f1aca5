"""Values of the forecast: days under each set of policies, summed over datasets, and its JSON (see docs/forecast.md)."""

from collections import Counter
from dataclasses import asdict, dataclass, field, fields
from datetime import date, datetime, timedelta
from typing import Any

from retention_assets.policy.durations import text_of

# name of the policies in force, beside files that are named
IN_FORCE = "today"
# most unsound datasets that are named in words
_MOST_SAID = 20


@dataclass
class ForecastDay:
    """Day after its evaluation and its sweep. `bytes` and `waiting` are what is there then; the others count that day alone."""

    date: date
    transactions: int = 0
    bytes: int = 0
    waiting: int = 0
    bytes_waiting: int = 0
    marked: int = 0
    bytes_marked: int = 0
    # marks whose grace is over when the sweep begins
    due: int = 0
    bytes_due: int = 0
    spared: int = 0
    bytes_spared: int = 0
    deleted: int = 0
    bytes_deleted: int = 0
    # Amounts, where there are prices: a month of what is there, a month of what goes that day, the requests that delete it, and
    # the charge for deleting it early.
    month: float = 0
    saved: float = 0
    requests: float = 0
    early: float = 0

    def add(self, other: "ForecastDay") -> None:
        """Add the same day of other datasets."""
        for one in fields(self):
            if one.name != "date":
                setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


MONEY = ("month", "saved", "requests", "early")
# shown by a simulation alone
_SIMULATED = {"due", "bytes_due", "bytes_spared"}


@dataclass
class ForecastDays:
    """Days under one set of policies, and what each policy marks and deletes in all of them together."""

    policies: str
    start: ForecastDay
    days: list[ForecastDay]
    datasets: int = 0
    marked: Counter[str] = field(default_factory=Counter)
    deleted: Counter[str] = field(default_factory=Counter)
    bytes_deleted: Counter[str] = field(default_factory=Counter)
    # number of spared marks by reason
    spared_because: Counter[str] = field(default_factory=Counter)

    @classmethod
    def starting(cls, policies: str, as_of: datetime, days: int) -> "ForecastDays":
        """Empty days, beginning with that of `as_of`."""
        dates = [(as_of + timedelta(days=number)).date() for number in range(days)]
        return cls(policies, ForecastDay(as_of.date()), list(map(ForecastDay, dates)))

    def total(self, name: str) -> Any:
        return sum(getattr(day, name) for day in self.days)


@dataclass
class Forecast:
    """Forecast under the policies in force (`in_force`) and under other sets (`others`)."""

    as_of: datetime
    in_force: ForecastDays
    others: tuple[ForecastDays, ...]
    currency: str | None = None
    # by dataset the fault and its place; by store the error
    refused: dict[str, dict[str, str | None]] = field(default_factory=dict)
    away: dict[str, str] = field(default_factory=dict)

    @property
    def sets(self) -> tuple[ForecastDays, ...]:
        """All of them, the present policies first."""
        return (self.in_force, *self.others)

    @property
    def stores_left_out(self) -> list[str]:
        return [f"{name} is left out: {why}" for name, why in self.away.items()]

    @property
    def datasets_left_out(self) -> list[str]:
        refused = [f"{name} is left out, because its log is not sound: {said['fault']}" for name, said in self.refused.items()]
        more = len(refused) - _MOST_SAID
        return [*refused[:_MOST_SAID], *([f"{more:,} more datasets are left out for the like."] if more > 0 else [])]

    @property
    def left_out(self) -> list[str]:
        return [*self.stores_left_out, *self.datasets_left_out]

    def as_dict(self) -> dict[str, Any]:
        found = {"as_of": text_of(self.as_of), **self._set(self.in_force), "others": [self._set(one) for one in self.others]}
        currency = {"currency": self.currency} if self.currency else {}
        return {**found, **currency, "refused": self.refused, "away": self.away}

    def _set(self, one: ForecastDays) -> dict[str, Any]:
        by_policy = {
            name: {"marked": one.marked[name], "deleted": one.deleted[name], "bytes_deleted": one.bytes_deleted[name]}
            for name in sorted(one.marked)
        }
        days = [self._day(day) for day in one.days]
        start = self._day(one.start)
        return {"policies": one.policies, "datasets": one.datasets, "start": start, "days": days, "by_policy": by_policy}

    def _day(self, day: ForecastDay) -> dict[str, Any]:
        found = {name: value for name, value in asdict(day).items() if name not in _SIMULATED} | {"date": day.date.isoformat()}
        for name in MONEY:
            amount = found.pop(name)
            found |= {name: round(amount, 6)} if self.currency else {}
        return found

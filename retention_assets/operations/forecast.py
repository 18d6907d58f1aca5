"""Forecast an environment under its policies and under others. Nothing is written."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.datasets import DatasetFilter
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Problem, Refused
from retention_assets.evaluation.coming_days import ForecastRules, ForecastTerms, MarkRule, add_forecast
from retention_assets.evaluation.forecast import IN_FORCE, Forecast, ForecastDays
from retention_assets.evaluation.rules_in_force import (
    RulesInForce,
    foreseen_rulebook,
    purges_in_force,
    read_policies,
    rules_for,
)
from retention_assets.frames.grouping import bounds_of
from retention_assets.frames.log import Log
from retention_assets.frames.soundness import sound_log
from retention_assets.ledger import Ledger
from retention_assets.ledger.marks.marking import MARK_ROWS
from retention_assets.policy.book import item_of
from retention_assets.policy.durations import LONGEST_YEARS, text_of
from retention_assets.policy.language import Policies, load_policies
from retention_assets.policy.model import Policy
from retention_assets.policy.purge import realm_of
from retention_assets.settings.model import Settings
from retention_assets.stores.iceberg.settings import IcebergSettings
from retention_assets.stores.protocol import Capabilities, Store, call_store
from retention_assets.stores.realms import read_lines
from retention_assets.stores.settings import StoreSettings

DAYS, MOST_DAYS = 90, 1_000
# transactions per batch; a longer dataset is a batch by itself
_ROWS_AT_ONCE = 100_000
_LAST_YEAR = 9_999


@dataclass(frozen=True, kw_only=True)
class ForecastRequest:
    """Number of days, start (default: now), datasets, and other policies beside today's."""

    days: int = DAYS
    as_of: datetime | None = None
    datasets: tuple[str, ...] = ("*",)
    others: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.days <= MOST_DAYS:
            raise BadInput(Problem(f"is {self.days}", key="days", expected=f"a number of days from 1 to {MOST_DAYS:,}"))


def forecast(request: ForecastRequest, environment: Environment) -> Forecast:
    """Live through the days. A store that is away, and a dataset that is not sound, is named and left out."""
    settings = environment.settings
    as_of = request.as_of or environment.present()
    if as_of.year + LONGEST_YEARS + request.days // 365 >= _LAST_YEAR:
        raise BadInput(Problem(f"is {text_of(as_of)}", key="as_of", expected="an instant after which there are years enough"))
    if not settings.stores:
        raise BadInput(Problem("the settings have no store, so there is nothing to forecast", key="stores"))
    others = [load_policies((path,)) for path in request.others]
    names = (IN_FORCE, *map(str, request.others))
    in_force, *beside = (ForecastDays.starting(name, as_of, request.days) for name in names)
    prices = settings.prices
    found = Forecast(as_of, in_force, tuple(beside), prices.currency if prices.are_set else None)
    with environment.ledger_if_any() as ledger:
        rules = _RulesOfSets(settings, ledger, as_of, others)
        for one in settings.stores:
            try:
                _forecast_store(environment, one, request, rules, found)
            except Refused as fault:
                found.away[one.name] = str(fault)
    return found


def _forecast_store(
    environment: Environment, about: StoreSettings, request: ForecastRequest, rules: "_RulesOfSets", found: Forecast
) -> None:
    store = environment.stores([about.name])[about.name]
    can = call_store(store, lambda: store.capabilities)
    terms = ForecastTerms(
        as_of=found.as_of, days=request.days, store=store.name, can=can, prices=environment.settings.prices,
        # An expired parent leaves its id behind in an Iceberg table, and what follows has no parent.
        begins_anew=isinstance(about, IcebergSettings),
    )  # fmt: skip
    names = DatasetFilter(request.datasets).select(call_store(store, store.datasets))
    for log in _logs(store, names):
        for row in log.datasets.filter(pc.is_valid(log.datasets["fault"])).to_pylist():
            found.refused[row["dataset"]] = {"fault": row["fault"], "transaction": row["fault_transaction"]}
        for part in _parts(log):
            datasets = part.datasets["dataset"].to_pylist()
            marks = rules.marks(datasets)
            for result, mine in zip(found.sets, rules.of(datasets, marks, can), strict=True):
                add_forecast(result, part, marks, mine, terms)


def _logs(store: Store, names: Sequence[str]) -> Iterator[Log]:
    """Shares as the store reads them well; small ones are joined."""
    waiting: list[pa.Table] = []
    for share in call_store(store, lambda: store.shares(names)):
        waiting.append(call_store(store, lambda share=share: read_lines(store, share)))  # type: ignore[misc]
        if sum(map(len, waiting)) >= _ROWS_AT_ONCE:
            yield sound_log(pa.concat_tables(waiting).combine_chunks())
            waiting.clear()
    if waiting:
        yield sound_log(pa.concat_tables(waiting).combine_chunks())


def _parts(log: Log) -> Iterator[Log]:
    """Batches of datasets, without those that have no transaction."""
    if not len(log.transactions):
        return
    bounds = bounds_of(log.transactions)
    begin = 0
    while begin < len(bounds) - 1:
        end = max(begin + 1, int(np.searchsorted(bounds, bounds[begin] + _ROWS_AT_ONCE, side="right")) - 1)
        rows = log.transactions.slice(bounds[begin], bounds[end] - bounds[begin])
        about = pc.is_in(log.datasets["dataset"], value_set=pc.unique(rows["dataset"].cast(pa.string())))
        yield Log(rows, log.datasets.filter(about))
        begin = end


@dataclass
class _RulesOfSets:
    """Rules of today's policies and of others, for some datasets at a time."""

    settings: Settings
    ledger: Ledger | None
    as_of: datetime
    others: Sequence[Policies]
    _versions: dict[tuple[str, int], Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rulebook = foreseen_rulebook(self.ledger, self.settings, self.as_of) if self.ledger else None
        self._files = self._rulebook.files if self._rulebook else read_policies(self.settings)
        self._purges: tuple[Policy, ...] = ()
        self._holds = self.ledger.holds.in_force(self.as_of) if self.ledger else ()
        if self.ledger:
            self._purges = purges_in_force(self.ledger, self.settings)

    def marks(self, datasets: Sequence[str]) -> pa.Table:
        """Open or swept marks of some datasets. A mark that is only hidden, and is to be marked again, is neither."""
        if self.ledger is None:
            return MARK_ROWS.empty_table()
        return self.ledger.marks.table(datasets, ("MARKED", "SWEEPING", "SWEPT"), hidden_again=self.settings.hidden_again)

    def of(self, datasets: Sequence[str], marks: pa.Table, can: Capabilities) -> Iterator[ForecastRules]:
        """Rules of today, then of the others. People's holds, purges and marks are the same under all of them."""
        made_by = self._of_marks(datasets, marks, can)
        book = self._rulebook
        mine = book.rules(datasets, self.as_of) if book else rules_for(self._files, datasets, self.settings)
        yield ForecastRules(mine, made_by)
        versions = {purge.name: 1 for purge in self._purges}
        for files in self.others:
            rules = rules_for(files, datasets, self.settings)
            theirs = RulesInForce((*self._purges, *rules.policies), (*rules.holds, *self._holds), versions=versions)
            yield ForecastRules(theirs, made_by)

    def _of_marks(self, datasets: Sequence[str], marks: pa.Table, can: Capabilities) -> dict[tuple[str, int], MarkRule]:
        versions = set(zip(*(marks[name].to_pylist() for name in ("policy", "policy_version")), strict=True))
        return {one: MarkRule.of(one[0], self._made_by(one, datasets), can) for one in sorted(versions)}

    def _made_by(self, version: tuple[str, int], datasets: Sequence[str]) -> Sequence[Policy]:
        """Policies that are no longer known justify nothing."""
        if realm_of(version[0]) is not None:
            return tuple(purge for purge in self._purges if purge.name == version[0])
        if version not in self._versions:
            assert self.ledger is not None
            stored = {one.version: one for one in self.ledger.policy_book.versions(version[0])}.get(version[1])
            self._versions[version] = item_of(stored.name, stored.content) if stored else None
        item = self._versions[version]
        if item is None or isinstance(item, Policy):
            return (item,) if item else ()
        return rules_for(Policies((), (), (item,)), datasets, self.settings).policies

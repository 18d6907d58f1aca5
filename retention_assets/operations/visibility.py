"""Raise the time before which a dataset's history is not to be read: of one dataset, or of all that the policy files name."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.environment import Environment
from retention_assets.errors import Refused
from retention_assets.evaluation.dataset_log import read_dataset
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.evaluation.visibility import ProposedRaise, VisibilityRules, propose_raises
from retention_assets.frames.log import Log
from retention_assets.frames.soundness import sound_log
from retention_assets.frames.statistics import newest_closes
from retention_assets.operations.request import Request
from retention_assets.policy.durations import Duration
from retention_assets.policy.globs import matches
from retention_assets.policy.scope import rules_reaching
from retention_assets.stores.protocol import Store, call_store
from retention_assets.stores.realms import read_lines


@dataclass(frozen=True, kw_only=True)
class AdvanceRequest(Request):
    """Time for which history stays readable, counted back from an instant. Without `log` the dataset's store is read."""

    dataset: str
    retention: Duration
    as_of: datetime
    log: Path | None = None


@dataclass(frozen=True)
class AdvanceResult:
    """Start of the readable history, and the previous start."""

    dataset: str
    visible_from: datetime
    before: datetime | None

    @property
    def raised(self) -> bool:
        return self.visible_from != self.before

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "raised": self.raised}


def advance_visibility(request: AdvanceRequest, environment: Environment) -> AdvanceResult:
    """Raise it to the instant less the retention, but never past the newest transaction; a lower value changes nothing."""
    dataset = request.dataset
    newest = _newest_close(read_dataset(environment, dataset, request.log).transactions, dataset)
    with environment.ledger() as ledger:
        before = ledger.visibility.of(dataset)
        after = ledger.visibility.advance(dataset, request.as_of, request.retention, newest, request.actor)
    return AdvanceResult(dataset, after, before)


@dataclass(frozen=True, kw_only=True)
class AdvanceByRulesRequest(Request):
    """Filter of the datasets that `visibility` in the policy files names, and an instant (default: now)."""

    datasets: tuple[str, ...] = ("*",)
    as_of: datetime | None = None


@dataclass(frozen=True)
class DatasetAdvance:
    """Start of a dataset's readable history, if anything of it was ever hidden; or the end of its entry's waiting time."""

    dataset: str
    visible_from: datetime | None
    before: datetime | None
    waits_until: datetime | None

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "raised": self.visible_from != self.before}


@dataclass(frozen=True)
class AdvanceByRulesResult:
    """Outcome for each dataset that an entry is about, and why others could not be read."""

    datasets: tuple[DatasetAdvance, ...]
    refused: Mapping[str, str]
    away: Mapping[str, str]

    def as_dict(self) -> dict[str, Any]:
        return {"datasets": [one.as_dict() for one in self.datasets], "refused": dict(self.refused), "away": dict(self.away)}


def advance_by_rules(request: AdvanceByRulesRequest, environment: Environment) -> AdvanceByRulesResult:
    """Raise the marks of all datasets that the policy files name, as an evaluation would: a new entry waits here as well."""
    refused, away = dict[str, str](), dict[str, str]()
    found: list[ProposedRaise] = []
    with environment.ledger() as ledger:
        at = ledger.clock.due_by(request.as_of)
        load_rulebook(ledger, environment.settings, request.actor, request.as_of)
        rules = VisibilityRules.of(ledger, at)
        for name, store in environment.stores().items():
            try:
                for log in _logs(store, rules, request.datasets):
                    found += propose_raises(rules, log.datasets, newest_closes(log.transactions))
                    unsound = log.datasets.filter(pc.is_valid(log.datasets["fault"])).to_pylist()
                    refused |= {row["dataset"]: row["fault"] for row in unsound}
            except Refused as fault:
                away[name] = str(fault)
        raises = {one.dataset: one.to for one in found if one.to is not None}
        before = ledger.visibility.of_all([one.dataset for one in found])
        after = {**before, **ledger.visibility.raise_all(raises, request.actor)}
    done = (
        DatasetAdvance(one.dataset, after.get(one.dataset), before.get(one.dataset), one.waits_until)
        for one in sorted(found, key=lambda one: one.dataset)
    )
    return AdvanceByRulesResult(tuple(done), refused, away)


def _logs(store: Store, rules: VisibilityRules, globs: Sequence[str]) -> Iterator[Log]:
    """Logs of the datasets of a store that some entry could be about."""
    names = [name for name in call_store(store, store.datasets) if matches(name, globs)]
    wanted = sorted({name for version in rules.versions for name in rules_reaching(names, version.rule.datasets)})
    for share in call_store(store, lambda: store.shares(wanted)) if wanted else ():
        yield sound_log(call_store(store, partial(read_lines, store, share)))


def _newest_close(rows: pa.Table, dataset: str) -> datetime:
    """Commit time of the newest transaction that readers of a dataset can see."""
    committed = rows.filter(pc.equal(rows["status"].cast(pa.string()), "COMMITTED"))
    newest: datetime | None = pc.max(committed["closed_at"]).as_py()
    if newest is None:
        raise Refused(f"Nothing of {dataset} was ever committed: there is no view to keep visible.")
    return newest

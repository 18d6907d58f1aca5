"""Result of a check for the whole environment: this run's datasets, joined with the standing violations of others.

A violation of a dataset stands until the check finds it mended, or the dataset is gone. Once a day a check looks at
everything.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property

from retention_assets.dagster.checks.queries import MOST_SHOWN, Check, CheckResult, check_result
from retention_assets.dagster.step import Step
from retention_assets.datasets import DatasetFilter, store_of
from retention_assets.evaluation.changes import Listing, list_datasets
from retention_assets.ledger.invariants import Violation
from retention_assets.ledger.violations import StandingViolation
from retention_assets.stores.protocol import error_text

# Highest age of a look at everything. Runs look at what they read or judged; anything else may have changed meanwhile.
_WHOLE_LOOK = timedelta(days=1)
# Their violations end when the dataset is gone. Violations of sweeps stay on record.
OF_PRESENT_DATASETS = frozenset({"transaction_log", "candidate_marks"})

Query = Callable[[Step, Check], CheckResult]


@dataclass(frozen=True)
class CheckScope:
    """What the checks of a step look at: the datasets that its run read or judged, or everything."""

    run: Step
    # None: everything that is published
    datasets: frozenset[str] | None

    @classmethod
    def of(cls, run: Step) -> "CheckScope":
        """As the run published them; launched alone, a check is about all that is published."""
        of_asset = run.key.path[-1] in OF_PRESENT_DATASETS
        asset = run.asset if of_asset else run.sibling("candidate_marks").to_user_string()
        with run.retention.ledger() as ledger:
            mine = [one.dataset for one in ledger.publications.by(asset, run.runs)] if of_asset else []
            published = ledger.publications.datasets(asset)
        looked_at = frozenset(run.datasets.select(mine or published))
        return cls(run, None if looked_at.issuperset(published) else looked_at)

    @cached_property
    def present(self) -> Listing:
        """What the stores list, asked once and only where something is wrong."""
        return list_datasets(self.run.retention)

    def check_everything(self, check: Check, found: CheckResult, query: Query) -> CheckResult:
        """The check of the environment: what a run found, and what was found earlier and has not been looked at since.

        `query` is how the check is asked, which it is once a day about everything.
        """
        run, about = self.run, None if found.noun == "store" else self.datasets
        is_of_present = run.key.path[-1] in OF_PRESENT_DATASETS and found.noun == "dataset"
        with run.retention.ledger() as ledger:
            last = ledger.violations.whole_look(check.name)
        is_old = last is None or last <= run.as_of - _WHOLE_LOOK
        if is_old and about is not None:
            found, about = self._whole_look(check, found, query)
        with run.retention.ledger() as ledger:
            if is_of_present:
                found = _without(found, self._gone(found.by_dataset))
            standing = ledger.violations.update(check.name, found.by_dataset, about, run.as_of, run.actor)
            if is_of_present:
                gone = self._gone(one.dataset for one in standing if one.dataset not in found.by_dataset)
                ledger.violations.end(check.name, gone, run.as_of)
                standing = [one for one in standing if one.dataset not in gone]
            if is_old and about is None:
                ledger.violations.note_whole_look(check.name, run.as_of)
        return _join(found, standing)

    def _whole_look(self, check: Check, found: CheckResult, query: Query) -> tuple[CheckResult, frozenset[str] | None]:
        """A check that could not look at everything is a violation itself; this run's violations stand."""
        run = self.run
        try:
            return query(replace(run, is_whole=True, datasets=DatasetFilter()), check), None
        except Exception as fault:  # noqa: BLE001 - whatever it was, the run has done its own work and goes on
            words = f"what this run was not about could not be checked: {error_text(fault)}"
            return _with(found, [Violation("", words)]), self.datasets

    def _gone(self, names: Iterable[str]) -> list[str]:
        mine = [name for name in names if name]
        return gone_of(mine, self.present) if mine else []


def gone_of(names: Iterable[str], present: Listing) -> list[str]:
    """The datasets that no store has any more. Of those of a store that is away nobody knows."""
    there = set(present.names)
    return [name for name in names if name and name not in there and store_of(name) not in present.away]


def standing_result(check: Check, standing: Collection[StandingViolation]) -> CheckResult:
    """The result by what stands in the ledger alone."""
    return _join(check_result((), check.expected, check.noun), standing)


def _join(result: CheckResult, standing: Collection[StandingViolation]) -> CheckResult:
    earlier = [Violation(one.dataset, one.what, one.times) for one in standing if one.dataset not in result.by_dataset]
    return replace(_with(result, earlier), since={one.dataset: one.since for one in standing})


def _with(result: CheckResult, violations: Collection[Violation]) -> CheckResult:
    by_dataset = {**result.by_dataset, **{violation.dataset: violation for violation in violations}}
    return replace(result, by_dataset=by_dataset, shown=(*result.shown, *violations)[:MOST_SHOWN])


def _without(result: CheckResult, names: Collection[str]) -> CheckResult:
    gone = set(names)
    return replace(
        result,
        by_dataset={name: violation for name, violation in result.by_dataset.items() if name not in gone},
        shown=tuple(violation for violation in result.shown if violation.dataset not in gone),
    )

"""An independent check of the marks that pass the re-check, before any of them is planned or deleted further.

It asks of the log as it is now what the blocking checks of `candidate_marks` ask: latest views and retain rules, walked
naively, and the limits of each evaluation that marked, no matter who launched the sweep or what became of those checks. It
shares no code with the re-check, so that a fault there is not repeated here. A fault found here refuses the dataset: people
have to look.
"""

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.log import Log
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.frames.verdicts.retained_marks import KeptRows, retained_marks
from retention_assets.frames.views.latest_views import needed_marks, rows_in_views, without_ended
from retention_assets.ledger import Ledger, invariants
from retention_assets.policy.model import Keeper, Policy, RetainRule

REMEDY = "Take wrong marks back (`retention unmark`); the next evaluation marks again."


class CheckedLog:
    """Facts about a log, computed once for all slices of marks. Logs are immutable, so identity suffices; the log is referenced
    weakly.
    """

    def __init__(self, log: Log, as_of: datetime, rules: Sequence[RetainRule]) -> None:
        self._log, self.as_of, self.rules = weakref.ref(log), as_of, rules
        self._retained: KeptRows = {}

    def is_of(self, log: Log, as_of: datetime, rules: Sequence[RetainRule]) -> bool:
        return self._log() is log and self.as_of == as_of and self.rules == rules

    @property
    def log(self) -> Log:
        log = self._log()
        assert log is not None
        return log

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """Number of transactions by dataset, also where only some of them were read."""
        about = self.log.datasets
        return dict(zip(about["dataset"].to_pylist(), about["transactions"].to_pylist(), strict=True))

    @cached_property
    def views(self) -> pa.Table:
        return rows_in_views(self.log.transactions)

    @cached_property
    def remaining(self) -> pa.Table:
        return rows_in_views(without_ended(self.log.transactions, self.log.datasets, self.as_of))

    def retained(self, marks: pa.Table) -> dict[str, str]:
        """Find the datasets with marks that a retain rule keeps, and say which."""
        retained = retained_marks(self.log, marks, self.rules, self.as_of, self._retained)
        return {
            dataset: f"retain rule {kept.rule} keeps {kept.transaction}, but it is marked ({kept.marks} such marks)"
            for dataset, kept in retained.items()
        }


@dataclass
class IndependentCheck:
    """The check of one sweep. Reads policy versions from the book on first need."""

    ledger: Ledger
    _policies: dict[tuple[str, int], Policy] = field(default_factory=dict)
    # versions looked up, also those that are not policies
    _looked_up: set[tuple[str, int]] = field(default_factory=set)
    _checked: CheckedLog | None = None

    def faults(
        self, log: Log, marks: pa.Table, log_is_complete: bool, as_of: datetime, keepers: Sequence[Keeper]
    ) -> dict[str, str]:
        """Return, by dataset, why none of its marks may go, in words for people."""
        if not len(marks):
            return {}
        self._load_policies(marks)
        rules = [keeper for keeper in keepers if isinstance(keeper, RetainRule)]
        if self._checked is None or not self._checked.is_of(log, as_of, rules):
            self._checked = CheckedLog(log, as_of, rules)
        checked = self._checked
        faults = {
            **self._over_limits(checked, marks, log_is_complete),
            **self._in_latest_view(checked, marks),
            **checked.retained(marks),
        }
        return {dataset: f"nothing of {dataset} is swept: {fault}. {REMEDY}" for dataset, fault in faults.items()}

    def _load_policies(self, marks: pa.Table) -> None:
        versions = set(zip(marks["policy"].to_pylist(), marks["policy_version"].to_pylist(), strict=True))
        if not self._looked_up >= versions:
            with self.ledger.database.reading() as connection:
                self._policies = invariants.policies(connection)
            self._looked_up |= versions

    def _in_latest_view(self, log: CheckedLog, marks: pa.Table) -> dict[str, str]:
        allowed = {version for version, policy in self._policies.items() if policy.latest_view}
        dropping = {version for version, policy in self._policies.items() if policy.drops_refs}
        # a transaction may have entered a latest view since it was marked: the policy says whether it may go
        versions = zip(marks["policy"].to_pylist(), marks["policy_version"].to_pylist(), strict=True)
        reasons = [Reason.LATEST_VIEW_ALLOWED if version in allowed else Reason.EXPIRED_REF for version in versions]
        codes = pa.array([reason.name for reason in reasons], pa.string())
        rows = marks.set_column(marks.column_names.index("reason"), "reason", codes)
        rows_needed = needed_marks(rows, allowed, dropping, lambda: log.views, lambda: log.remaining)
        return {
            needed["dataset"]: (
                f"{needed['transaction']} is in the latest view of branch {needed['branch']}, but policy {needed['policy']} "
                f"marked it, which it may not do ({needed['marks']} such marks)"
            )
            for needed in rows_needed.to_pylist()
        }

    def _over_limits(self, log: CheckedLog, marks: pa.Table, log_is_complete: bool) -> dict[str, str]:
        if not any(policy.limits for policy in self._policies.values()):
            return {}
        faults: dict[str, str] = {}
        with self.ledger.database.reading() as connection:
            for dataset in pc.unique(marks["dataset"]).to_pylist():
                size = log.sizes.get(dataset, 0)
                for violation in invariants.open_over_limits(connection, dataset, size, log_is_complete, self._policies):
                    faults.setdefault(dataset, violation.what)
        return faults

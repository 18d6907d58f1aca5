"""An independent check of the marks that pass the re-check, before any of them is planned or deleted further.

Belongs here: what the blocking checks of `candidate_marks` ask of a log, asked once more of the log as it is now: latest views,
walked naively, and the limits of each evaluation that marked. It does not matter who launched the sweep, whether anybody
checked the marks after they were made, or what became of a check since. It shares no code with the re-check, so
that a fault there is not repeated here.
Does not belong here: what justifies a mark (recheck.py). A fault that is found here refuses the dataset: people have to look.
"""

from dataclasses import dataclass, field
from datetime import datetime

import pyarrow as pa

from retention_assets.frames.log import Log
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.frames.views.latest_views import needed_marks, without_ended
from retention_assets.ledger import Ledger, invariants
from retention_assets.policy.model import Policy

_REMEDY = "Take back what nobody can vouch for (`retention unmark`); the next evaluation marks anew."


@dataclass
class IndependentCheck:
    """The check of one sweep: policy versions are read from the book when one turns up that is not known yet."""

    ledger: Ledger
    _policies: dict[tuple[str, int], Policy] = field(default_factory=dict)
    # Versions that were looked for, also those that are no policies of this language.
    _looked_up: set[tuple[str, int]] = field(default_factory=set)

    def fault(self, log: Log, marks: pa.Table, log_is_complete: bool, as_of: datetime) -> str | None:
        """Why none of some marks of one dataset may go, if so; in words for people."""
        if not len(marks):
            return None
        self._load_policies(marks)
        return self._in_latest_view(log, marks, as_of) or self._over_limits(log, marks, log_is_complete)

    def _load_policies(self, marks: pa.Table) -> None:
        versions = set(zip(marks["policy"].to_pylist(), marks["policy_version"].to_pylist(), strict=True))
        if not self._looked_up >= versions:
            with self.ledger.database.reading() as connection:
                self._policies = invariants.policies(connection)
            self._looked_up |= versions

    def _in_latest_view(self, log: Log, marks: pa.Table, as_of: datetime) -> str | None:
        allowed = {version for version, policy in self._policies.items() if policy.latest_view}
        dropping = {version for version, policy in self._policies.items() if policy.drops_refs}
        # A transaction may have come into a latest view since it was marked: its policy says whether it may go from there.
        versions = zip(marks["policy"].to_pylist(), marks["policy_version"].to_pylist(), strict=True)
        reasons = [Reason.LATEST_VIEW_ALLOWED if one in allowed else Reason.EXPIRED_REF for one in versions]
        said = pa.array([reason.name for reason in reasons], pa.string())
        rows = marks.set_column(marks.column_names.index("reason"), "reason", said)
        remaining = without_ended(log.transactions, log.datasets, as_of) if dropping else None
        for needed in needed_marks(log.transactions, rows, allowed, dropping, remaining).to_pylist():
            return (
                f"nothing of {needed['dataset']} is swept: {needed['transaction']} is in the latest view of branch"
                f" {needed['branch']}, and policy {needed['policy']} marked it, which may not ({needed['marks']} such marks)."
                f" {_REMEDY}"
            )
        return None

    def _over_limits(self, log: Log, marks: pa.Table, log_is_complete: bool) -> str | None:
        if not any(policy.limits for policy in self._policies.values()):
            return None
        dataset = marks["dataset"][0].as_py()
        with self.ledger.database.reading() as connection:
            for found in invariants.open_over_limits(
                connection, dataset, len(log.transactions), log_is_complete, self._policies
            ):
                return f"nothing of {dataset} is swept: {found.what}. {_REMEDY}"
        return None

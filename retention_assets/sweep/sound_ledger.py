"""Checks that the ledger alone can make before a sweep: for a sweep that is launched alone, and for a plan of one."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import starmap

from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.ledger import Ledger, invariants
from retention_assets.ledger.audit.verify import due_mark_faults, rule_faults
from retention_assets.ledger.invariants import Invariant, SweptInvariant, Violation

MARK_INVARIANTS: Mapping[str, Invariant] = {
    "mark_times_are_monotonic": invariants.mark_times,
    "marks_have_a_policy_and_a_reason": partial(invariants.policies_and_reasons, reasons=frozenset(Reason.__members__)),
}
SWEPT_INVARIANTS: Mapping[str, SweptInvariant] = {
    "nothing_is_swept_before_it_is_due": invariants.swept_before_due,
    "nothing_is_swept_without_a_mark": invariants.swept_without_mark,
}


def ledger_faults(ledger: Ledger, datasets: Sequence[str], as_of: datetime) -> Iterator[tuple[str, Violation]]:
    """Reasons to sweep none of the datasets, each with the name of its check."""
    with ledger.database.reading() as connection:
        faults: dict[str, Iterator[Violation]] = {
            **{name: invariant(connection, datasets) for name, invariant in MARK_INVARIANTS.items()},
            **{name: invariant(connection, datasets, None) for name, invariant in SWEPT_INVARIANTS.items()},
            "rules_are_as_recorded": starmap(Violation, rule_faults(connection)),
            "due_marks_are_as_recorded": starmap(Violation, due_mark_faults(connection, datasets, as_of)),
        }
        for name, violations in faults.items():
            yield from ((name, violation) for violation in violations)

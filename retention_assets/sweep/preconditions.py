"""Conditions of a whole sweep: an unchanged ledger, the brakes of stores, and what a person has confirmed.

The brake stops a sweep that would take far more than the store's largest day so far; limits of a policy are something else:
they bound what one evaluation marks.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from itertools import starmap
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from retention_assets.datasets import by_store
from retention_assets.errors import Refused
from retention_assets.frames.log import TIMES
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.ledger import Ledger, invariants
from retention_assets.ledger.audit.before_sweep import due_mark_faults, rule_faults
from retention_assets.ledger.invariants import Invariant, SweptInvariant, Violation
from retention_assets.ledger.marking import PendingSweep
from retention_assets.ledger.reports import Taken
from retention_assets.settings.sections import BrakeSettings

_DAYS = timedelta(days=30)
# days with deletions that tell what is usual
_KNOWN_DAYS = 7
_REMEDY = (
    "`retention plan --accept-large` shows it. If it is intended, run once with --accept-large, or set `accept_large: "
    "true` in the launchpad. `brake` in the settings sets the limit."
)
TAG = "retention/confirmed"
_COLUMNS = ("dataset", "transaction", *TIMES)
MARK_INVARIANTS: Mapping[str, Invariant] = {
    "mark_times_are_monotonic": invariants.mark_times,
    "marks_have_a_policy_and_a_reason": partial(invariants.policies_and_reasons, reasons=frozenset(Reason.__members__)),
}
SWEPT_INVARIANTS: Mapping[str, SweptInvariant] = {
    "nothing_is_swept_before_it_is_due": invariants.swept_before_due,
    "nothing_is_swept_without_a_mark": invariants.swept_without_mark,
}


def braked(
    ledger: Ledger,
    brake: BrakeSettings | None,
    due: Sequence[PendingSweep],
    today: date,
    rehearsed: Ledger | None = None,
) -> dict[str, str]:
    """Return, by dataset, why it may not be swept without a person's consent: its store would lose far more than usual.

    `rehearsed`: copy of the ledger in which later days were lived through.
    """
    if brake is None:
        return {}
    amounts = {row.dataset: Taken(row.marks, row.bytes) for row in due}
    faults: dict[str, str] = {}
    for store, names in by_store(amounts).items():
        first = today - _DAYS
        days = ledger.reports.taken_by_day(store, first, today)
        ahead = rehearsed.reports.taken_by_day(store, date.min, today) if rehearsed else {}
        days |= {day: sum_.plus(days.get(day, Taken())) for day, sum_ in ahead.items() if day >= first}
        taken = days.pop(today, Taken())
        for name in names:
            taken = taken.plus(amounts[name])
        fault = _unusual(taken, days, brake)
        if fault is None and brake.share is not None:
            everything = ledger.evaluations.transactions_of(store) - sum(day.transactions for day in ahead.values())
            fault = _too_large_a_share(everything, taken, brake.share)
        if fault:
            faults |= dict.fromkeys(names, f"nothing of {store} is swept: {fault}. {_REMEDY}")
    return faults


def _unusual(taken: Taken, days: Mapping[date, Taken], brake: BrakeSettings) -> str | None:
    if len(days) < _KNOWN_DAYS:
        return None
    most = Taken(max(day.transactions for day in days.values()), max(day.bytes for day in days.values()))
    if taken.transactions <= brake.usual * most.transactions and taken.bytes <= brake.usual * most.bytes:
        return None
    return (
        f"it would lose {_amount(taken)} today, more than {brake.usual:g} times the largest day of the last"
        f" {_DAYS.days} ({_amount(most)})"
    )


def _too_large_a_share(everything: int, taken: Taken, share: float) -> str | None:
    if taken.transactions <= share * everything:
        return None
    return (
        f"it would lose {taken.transactions:,} of the {everything:,} transactions that it has, more than the share of {share:g}"
    )


def _amount(taken: Taken) -> str:
    return f"{taken.transactions:,} transactions, {taken.bytes:,} bytes"


def write_confirmed(shown: pa.Table, file: Path) -> Path:
    pq.write_table(shown.select(_COLUMNS), file)
    return file


def read_confirmed(tags: Mapping[str, str]) -> pa.Table | None:
    """Read what was confirmed for a run, by its tags; None where nobody was asked."""
    if TAG not in tags:
        return None
    try:
        return pq.read_table(tags[TAG], columns=list(_COLUMNS))
    except (OSError, pa.ArrowException, KeyError) as fault:
        raise Refused(
            f"Nothing is swept: the confirmed plan of this run can't be read any more ({fault}). Launch a new run."
        ) from None


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

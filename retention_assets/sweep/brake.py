"""The brake of a store: a sweep that would take far more than the store's largest day so far takes nothing of it.

Limits of a policy are something else: they bound what one evaluation marks.
"""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta

from retention_assets.datasets import by_store
from retention_assets.ledger import Ledger
from retention_assets.ledger.marking import PendingSweep
from retention_assets.ledger.reports import Taken
from retention_assets.settings.model import BrakeSettings

_DAYS = timedelta(days=30)
# days with deletions; fewer say nothing about what is usual
_KNOWN_DAYS = 7
_REMEDY = (
    "`retention plan --accept-large` shows it. If it is meant, run once with --accept-large, or set `accept_large: true` in the"
    " launchpad; `brake` in the settings says how much is usual."
)


def braked(ledger: Ledger, brake: BrakeSettings | None, due: Sequence[PendingSweep], today: date) -> dict[str, str]:
    """Return, by dataset, why it may not be swept without a person's consent: its store would lose far more than usual."""
    if brake is None:
        return {}
    amounts = {row.dataset: Taken(row.marks, row.bytes) for row in due}
    faults: dict[str, str] = {}
    for store, names in by_store(amounts).items():
        days = ledger.reports.taken_by_day(store, today - _DAYS, today)
        taken = days.pop(today, Taken())
        for name in names:
            taken = taken.plus(amounts[name])
        fault = _unusual(taken, days, brake) or _too_large_a_share(ledger, store, taken, brake)
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


def _too_large_a_share(ledger: Ledger, store: str, taken: Taken, brake: BrakeSettings) -> str | None:
    if brake.share is None:
        return None
    everything = ledger.evaluations.transactions_of(store)
    if taken.transactions <= brake.share * everything:
        return None
    return (
        f"it would lose {taken.transactions:,} of the {everything:,} transactions that it has, more than the share of"
        f" {brake.share:g}"
    )


def _amount(taken: Taken) -> str:
    return f"{taken.transactions:,} transactions, {taken.bytes:,} bytes"

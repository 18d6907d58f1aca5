"""What people do by hand, alike in a terminal and in a launchpad: what they typed becomes a value, or its faults are named.

Belongs here: what a command and the small job of the same act would otherwise each say for themselves.
Does not belong here: options (commands), forms (dagster/operation_jobs.py), and the acts (ledger).
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from retention_assets.errors import BadInput, Problem, Refused, nearest
from retention_assets.policy.durations import text_of
from retention_assets.policy.errors import problems_of
from retention_assets.policy.globs import is_literal
from retention_assets.policy.model import Hold
from retention_assets.settings.yaml import Document


def hold_of(
    name: str | None,
    datasets: Sequence[str],
    transactions: Sequence[str],
    reason: str | None,
    owner: str,
    until: datetime | None,
    present: datetime,
) -> Hold:
    """A hold as somebody asks for it."""
    if until is not None and until <= present:
        raise BadInput(Problem("is past", key="until", value=text_of(until), expected="an instant to come"))
    typed = {
        "name": name,
        "datasets": {"include": list(datasets)},
        **({"transactions": list(transactions)} if transactions else {}),
        "reason": reason,
        "owner": owner,
        **({"until": text_of(until)} if until else {}),
    }
    try:
        return Hold.model_validate(typed)
    except ValidationError as error:
        raise BadInput(problems_of(error, Document("hold", typed, {}), Hold)) from None


def unknown_stores(placed: Hold, known: Iterable[str]) -> Iterator[str]:
    """A hold on a store that is not there holds nothing; but a team's ledger may know more stores than these settings."""
    names = list(known)
    for glob in placed.datasets.include:
        store, slash, _ = glob.partition("/")
        if slash and is_literal(store) and store not in names:
            guess = nearest(store, names)
            yield f"store '{store}' of '{glob}' is not in the settings." + (f" Did you mean {guess}?" if guess else "")


def newest_close(rows: pa.Table, dataset: str) -> datetime:
    """When the newest transaction that readers of a dataset can see was committed."""
    committed = rows.filter(pc.equal(rows["status"].cast(pa.string()), "COMMITTED"))
    newest: datetime | None = pc.max(committed["closed_at"]).as_py()
    if newest is None:
        raise Refused(
            f"Nothing of {dataset} was ever committed, or its store does not have it: there is no view to keep visible."
        )
    return newest

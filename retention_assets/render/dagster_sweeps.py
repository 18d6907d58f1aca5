"""What is shown of a sweep: what was spared at the door, and why.

Belongs here: marks that a sweep spared, as a table.
"""

from collections.abc import Sequence

import dagster as dg

from retention_assets.ledger.marks.pending import SparedGroup
from retention_assets.render.dagster_tables import MOST_SHOWN, table

_COLUMNS = {"dataset": "string", "marks": "int", "why": "string", "for_example": "string"}


def spared_metadata(spared: Sequence[SparedGroup]) -> dg.MetadataValue:
    """One row per dataset and reason, what concerns most marks first."""
    rows = sorted(spared, key=lambda one: (-one.marks, one.dataset, one.why))[:MOST_SHOWN]
    return table(
        _COLUMNS,
        ({"dataset": one.dataset, "marks": one.marks, "why": one.why, "for_example": one.transaction} for one in rows),
        {"why": "what a last look at the store found: the marks are taken off, and nothing of them was deleted"},
    )

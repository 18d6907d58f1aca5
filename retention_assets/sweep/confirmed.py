"""What a person has confirmed: the transactions that were shown before a run was let do it, as a file that bounds its sweep.

Belongs here: writing and reading that file, and the tag by which a run knows of it. It only narrows: a run whose file is gone
sweeps nothing.
Does not belong here: asking (commands/run.py), and what may go at all (recheck.py).
"""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from retention_assets.errors import Refused
from retention_assets.frames.lives import TIMES

TAG = "retention/confirmed"
_COLUMNS = ("dataset", "transaction", *TIMES)


def write_confirmed(shown: pa.Table, file: Path) -> Path:
    """Write down which transactions were shown, each with the times by which it is known again."""
    pq.write_table(shown.select(_COLUMNS), file)
    return file


def read_confirmed(tags: Mapping[str, str]) -> pa.Table | None:
    """What was confirmed for a run, by its tags; none where nobody was asked."""
    if TAG not in tags:
        return None
    try:
        return pq.read_table(tags[TAG], columns=list(_COLUMNS))
    except (OSError, pa.ArrowException, KeyError) as fault:
        raise Refused(
            f"Nothing is swept: what was confirmed for this run can't be read any more ({fault}). Launch a new run."
        ) from None

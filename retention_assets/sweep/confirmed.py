"""The file of transactions that a person has confirmed for a run; it bounds the run's sweep.

It only narrows: a run whose file is gone sweeps nothing.
"""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from retention_assets.errors import Refused
from retention_assets.frames.log import TIMES

TAG = "retention/confirmed"
_COLUMNS = ("dataset", "transaction", *TIMES)


def write_confirmed(shown: pa.Table, file: Path) -> Path:
    """Write the transactions that were shown, with the times that identify them."""
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
            f"Nothing is swept: what was confirmed for this run can't be read any more ({fault}). Launch a new run."
        ) from None

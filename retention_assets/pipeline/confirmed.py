"""Transactions that a person has confirmed at a prompt: a file, named by a tag of the run, which deletes nothing else."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention_assets.errors import Refused
from retention_assets.frames.log import TIMES
from retention_assets.pipeline.file_systems import inside, place_of

TAG = "retention/confirmed"
_COLUMNS = ("dataset", "transaction", *TIMES)


def write_confirmed(shown: pa.Table, folder: str) -> str:
    """Write into a folder that everybody who sweeps reaches; return the file."""
    file = inside(folder, "confirmed.parquet")
    files, place = place_of(file)
    files.create_dir(place.rpartition("/")[0], recursive=True)
    pq.write_table(shown.select(_COLUMNS), place, filesystem=files)
    return file


def read_confirmed(file: str, datasets: Sequence[str] | None = None) -> pa.Table:
    wanted = None if datasets is None else pc.field("dataset").isin(list(datasets))
    try:
        files, place = place_of(file)
        return pq.read_table(place, columns=list(_COLUMNS), filesystem=files, filters=wanted)
    except (OSError, pa.ArrowException, KeyError) as fault:
        raise Refused(
            f"Nothing is swept: the confirmed plan of this run can't be read any more ({fault}). Launch a new run."
        ) from None

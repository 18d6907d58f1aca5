"""The logs that commands judge and read: those of a path, or of the stores of the settings as they have them now.

Belongs here: which log is meant by what was typed, and the exit of a command that met a log that is not sound.
Does not belong here: reading lines (exchange, stores), one dataset (evaluation/dataset_log.py), and deciding what is sound
(frames/soundness.py).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from retention_assets.errors import BadInput, Problem, Refused
from retention_assets.people.common.output import ExitCode, finish, progress

if TYPE_CHECKING:
    import pyarrow as pa

    from retention_assets.environment import Environment
    from retention_assets.frames.log import Log
    from retention_assets.stores.protocol import Store


def read_all(path: Path | None, environment: "Environment") -> tuple["Log", tuple[str, ...]]:
    """The log of a path, or of all stores of the settings; and a sentence about each store that can't be read."""
    import pyarrow as pa

    from retention_assets.exchange import read_log
    from retention_assets.frames.log import LINES
    from retention_assets.frames.soundness import sound_log

    if path is not None:
        with progress(f"reading {path.name}"):
            return read_log(path), ()
    if not environment.settings.stores:
        what = "no log was named, and the settings have no log of a store"
        raise BadInput(Problem(what, remedy="Name one with --log FILE."))
    found, away = [LINES.empty_table()], list[str]()
    for one in environment.settings.stores:
        try:
            with progress(f"reading {one.name}"):
                found += [_lines_of(store) for store in environment.stores([one.name]).values()]
        except Refused as fault:
            away.append(str(fault))
    if len(found) == 1:
        raise Refused("\n".join(away))
    return sound_log(pa.concat_tables(found).combine_chunks()), tuple(away)


def _lines_of(store: "Store") -> "pa.Table":
    from retention_assets.stores.protocol import call_store
    from retention_assets.stores.realms import read_lines

    return call_store(store, lambda: read_lines(store, store.datasets()))


def read_one(path: Path | None, environment: "Environment", dataset: str) -> "Log":
    """The log of a dataset alone, of a path or of its store; refused where it is not sound."""
    from retention_assets.evaluation.dataset_log import read_dataset

    with progress(f"reading {dataset}"):
        return read_dataset(environment, dataset, path)


def read_one_if_any(path: Path | None, environment: "Environment", dataset: str) -> tuple["Log | None", tuple[str, ...]]:
    """The same; none where no path was named and no store has the dataset (any more), or where its store is away, with why."""
    from retention_assets.evaluation.dataset_log import UnsoundLog, read_if_any

    if path is not None:
        return read_one(path, environment, dataset), ()
    try:
        with progress(f"reading {dataset}"):
            return read_if_any(environment, dataset), ()
    except UnsoundLog:
        raise
    except Refused as fault:
        return None, (str(fault),)


def finish_judging(log: "Log", away: Sequence[str], *, strict: bool) -> ExitCode:
    """Whoever judged a log ends with this: what was refused, or could not be read, is no success."""
    refused = len(log.datasets) - log.datasets["fault"].null_count
    words = f"{refused} of {len(log.datasets)} datasets were refused: their logs are not sound."
    return finish(failed=away, refused=(words,) if refused else (), strict=strict)

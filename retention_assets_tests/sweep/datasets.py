"""Judging and marking without Spark, as sweeps of tests begin."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.frames import candidate_marks, new_marks, sound_log
from retention_assets.ledger import CANDIDATES, Ledger
from retention_assets.pipeline.part_frames import write_already_marked
from retention_assets.settings import Settings, load_settings
from retention_assets.stores.protocol import Store
from retention_assets_tests.histories import AS_OF

MARKED = AS_OF + timedelta(days=3 * 365)
DUE = MARKED + timedelta(days=7)


def evaluate(
    ledger: Ledger, stores: Iterable[Store], settings: Settings, as_of: datetime, warehouse: Path | None = None
) -> int:
    """Judge and mark all datasets of some stores, in one piece and without Spark; how many marks are new.

    As the asset does it, with what is marked already read from a warehouse, if one is given.
    """
    log = sound_log(pa.concat_tables([store.read(store.datasets()) for store in stores]))
    rules = load_rulebook(ledger, settings, "test").rules(log.datasets["dataset"].to_pylist(), as_of)
    again, judged = settings.hidden_again, (rules.policies, rules.holds, as_of)
    known = write_already_marked(ledger, rules.policies, log.datasets, str(warehouse), again) if warehouse else None
    marked = (known.of(log.datasets),) if known else ()
    verdicts = candidate_marks(log.transactions, log.datasets, *judged, *marked)
    marks: pa.Table = new_marks(verdicts, log.transactions, rules.policies, rules.versions)
    return ledger.marks.mark(marks.cast(CANDIDATES), as_of, "test", hidden_again=again).new


@lru_cache(64)
def settings_in(file: Path, text: bytes) -> Settings:
    """The settings of a file with this text, read once: most tests ask ten times."""
    assert file.read_bytes() == text
    return load_settings(file)

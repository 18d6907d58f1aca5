"""Ticks over very many datasets: what the evaluation loop takes to see that nothing, or little, can have changed.

Belongs here: environments of which every dataset is known to the ledger, and ticks in this Python, as the code server's. No run
is launched: what one costs is loop.py's.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import dagster as dg
import pyarrow as pa

from benchmarks.loop import Loop, instance_at
from retention_assets.clock import now
from retention_assets.definitions import build_defs
from retention_assets.environment import Environment
from retention_assets.evaluation.rules_in_force import load_rulebook, rules_digests
from retention_assets.frames.verdicts.selectors import NEXT_LOOKS
from retention_assets.ledger import CANDIDATES
from retention_assets.pipeline.read_tokens import evaluations_of
from retention_assets.settings import Settings, load_settings

if TYPE_CHECKING:
    from benchmarks.sections import Bench

_SHARE = 100


def ticks(bench: "Bench") -> None:
    """Ten times as many datasets as elsewhere, in log files of a thousand and of one: nothing to do, and one in a hundred."""
    datasets = 10 * bench.sizes.datasets
    for per_file in (1_000, 1):
        folder = bench.folder / "ticks"
        made = Loop(folder / "environment", datasets, per_file=per_file, cores=bench.sizes.cores)
        settings = load_settings(made.file)
        _judge_all(settings)
        with instance_at(folder / "home") as instance:
            tick = _ticking(settings, instance)
            # The first one reads the files, which later ones know.
            tick()
            case = f"{datasets:,} datasets, {per_file:,} in a log file"
            bench.meet("ticks", f"{case}: nothing to do", {"tick": tick}, datasets)
            made.change(range(0, datasets, _SHARE))
            bench.meet("ticks", f"{case}: files changed", {"tick": tick}, datasets, 1)
        bench.clear("ticks")


def _judge_all(settings: Settings) -> None:
    """What an evaluation leaves in the ledger of datasets in which nothing is to be marked."""
    retention, at = Environment(settings), now()
    tokens = {name: token for one in retention.stores().values() for name, token in one.tokens(one.datasets()).items()}
    names = list(tokens)
    found = pa.table([names, [at + timedelta(days=1)] * len(names), [False] * len(names)], schema=NEXT_LOOKS)
    with retention.ledger() as ledger:
        digests = rules_digests(load_rulebook(ledger, settings, "bench").rules(names, at), names, at)
        datasets = pa.table({"dataset": names, "fault": pa.nulls(len(names), pa.string())})
        ledger.marks.mark(
            CANDIDATES.empty_table(), at, "bench", evaluations=evaluations_of(datasets, tokens, digests, found, at)
        )


def _ticking(settings: Settings, instance: dg.DagsterInstance) -> Callable[[], None]:
    defs = build_defs(settings)
    sensor = defs.get_repository_def().get_sensor_def("evaluation_loop")

    def tick() -> None:
        with dg.build_sensor_context(instance=instance, definitions=defs, resources=dict(defs.resources or {})) as context:
            sensor.evaluate_tick(context)

    return tick

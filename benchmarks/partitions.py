"""What partitions cost: the five assets over a range of datasets, against a job over the same datasets as a list.

Belongs here: environments of many small datasets, Dagster instances on SQLite and PostgreSQL, and the runs. All runs read, judge
and mark the same; what the range takes longer is Dagster's own events, of which there are several for each asset and partition.
An instance on PostgreSQL needs `dagster-postgres` and `psycopg2-binary`, which nothing else does: without them it is left out.
"""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from benchmarks.ledger import postgresql
from retention_assets.dagster.jobs import STEP
from retention_assets.definitions import build_defs
from retention_assets.policy import text_of
from retention_assets.settings import load_settings
from retention_assets_tests.histories import AS_OF, history, to_lines

if TYPE_CHECKING:
    from benchmarks.measures import Contender
    from benchmarks.sections import Bench

_FEW = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@70d=10 - S4:SNAPSHOT@1d=10"
_PER_FILE = 1_000
_POLICIES = "policies: [{name: old, datasets: {include: ['lake/*']}, select: {older_than: 30d}}]\n"
_JUDGED = ("branch_views", "candidate_marks", "swept_transactions", "purge_report")
_ASSETS = ("transaction_log", *_JUDGED)
# Rounds of the smallest run: the first of them loads what the others find.
_WARM = 5
_QUIET = {"console": {"config": {"log_level": "CRITICAL"}}}


def environment(folder: Path, datasets: int, settings: dict[str, Any] | None = None) -> list[str]:
    """Many small datasets in few log files, without any bytes; their names."""
    for name in ("log", "data", "policies"):
        (folder / name).mkdir(parents=True)
    names = [f"lake/d{number:06d}" for number in range(datasets)]
    lines = to_lines([history(_FEW, dataset="lake/some")])
    for at in range(0, datasets, _PER_FILE):
        some = names[at : at + _PER_FILE]
        text = "".join(f"{line}\n".replace('"lake/some"', f'"{name}"') for name in some for line in lines)
        (folder / "log" / f"{at:06d}.jsonl").write_text(text)
    (folder / "policies" / "p.yaml").write_text(_POLICIES)
    store = {"name": "lake", "kind": "files", "log": "log", "data": "data/{dataset}/{transaction}"}
    found = {"ledger": f"sqlite:///{folder}/ledger.db", "warehouse": "warehouse", "stores": [store], **(settings or {})}
    (folder / "retention.yaml").write_text(json.dumps(found))
    return names


@contextmanager
def instance(folder: Path, url: str | None = None) -> Iterator[dg.DagsterInstance]:
    """An instance whose storage is SQLite files, as `dagster dev` has it, or a PostgreSQL; set up as docs/automation.md says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_EMIT_PARTITION_SUBSET_IN_PLANNED_EVENTS", "1")
        patch.setenv("DAGSTER_EVENT_BATCH_SIZE", "1000")
        folder.mkdir(parents=True)
        # Without the file Dagster believes that nobody has set it up, and warns.
        storage = {"storage": {"postgres": {"postgres_url": url.replace("://", "+psycopg2://", 1)}}} if url else {}
        (folder / "dagster.yaml").write_text(json.dumps({"telemetry": {"enabled": False}, **storage}))
        with dg.DagsterInstance.from_config(str(folder)) as found:
            yield found


def range_of(folder: Path, on: dg.DagsterInstance, keys: list[str]) -> None:
    """The five assets over a range of partitions, in one run."""
    config = {STEP: {"config": {"as_of": text_of(AS_OF)}}}
    job = build_defs(load_settings(folder / "retention.yaml")).resolve_implicit_global_asset_job_def()
    done = job.execute_in_process(
        run_config={"ops": config, "loggers": _QUIET},
        instance=on,
        asset_selection=[dg.AssetKey(name) for name in _ASSETS],
        tags={"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]},
    )
    assert done.success


def list_of(folder: Path, on: dg.DagsterInstance, datasets: list[str]) -> None:
    """The same step over a list."""
    job = build_defs(load_settings(folder / "retention.yaml")).resolve_job_def("delete_cycle")
    config = {STEP: {"config": {"as_of": text_of(AS_OF), "datasets": datasets}}}
    assert job.execute_in_process(run_config={"ops": config, "loggers": _QUIET}, instance=on).success


def partitions(bench: "Bench") -> None:
    """One partition, warm; 10, 1,000 and, in a full run, 10,000."""
    # The session of these runs, so that its start is nobody's.
    _ = bench.spark
    for datasets in (1, 10, max(bench.sizes.rows // 10_000, 20), max(bench.sizes.rows // 1_000, 40)):
        with _made(bench, datasets) as (folder, names, on), ExitStack() as open_:
            on.add_dynamic_partitions("datasets", names)
            contenders: dict[str, Contender] = {
                "a job over the list": partial(list_of, folder, on, ["lake/*"]),
                "a range of partitions": partial(range_of, folder, on, names),
            }
            if find_spec("dagster_postgres"):
                place = open_.enter_context(postgresql(folder / "server"))
                other = open_.enter_context(instance(folder / "dagster-postgresql", place("dagster")))
                other.add_dynamic_partitions("datasets", names)
                contenders["a range, on PostgreSQL"] = partial(range_of, folder, other, names)
            bench.meet(
                "partitions", f"five assets over {datasets:,} datasets", contenders, datasets, _WARM if datasets == 1 else 1
            )
    datasets = max(bench.sizes.rows // 100, 100)
    with _made(bench, datasets, {"partition_by": "store"}) as (folder, _, on):
        on.add_dynamic_partitions("datasets", ["lake"])
        one: dict[str, Contender] = {"one partition, the store": partial(range_of, folder, on, ["lake"])}
        bench.meet("partitions", f"five assets over {datasets:,} datasets", one, datasets, 1)


@contextmanager
def _made(
    bench: "Bench", datasets: int, settings: dict[str, Any] | None = None
) -> Iterator[tuple[Path, list[str], dg.DagsterInstance]]:
    """An environment, the names in it, and an instance; both are gone afterwards."""
    name = f"partitions-{datasets}"
    names = environment(bench.folder / name, datasets, settings)
    os.sync()
    with instance(bench.folder / name / "dagster") as on:
        yield bench.folder / name, names, on
    bench.clear(name)

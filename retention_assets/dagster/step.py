"""A step of a run: its asset, datasets, instant, ledger, warehouse and Spark session."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import PrivateAttr

from retention_assets.clock import now
from retention_assets.dagster.forms import StepConfig
from retention_assets.dagster.naming import BY_STORE, RESOURCES, Names
from retention_assets.datasets import DatasetFilter
from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Refused
from retention_assets.failures import failure_text
from retention_assets.ledger import Ledger
from retention_assets.ledger.evaluations import Publication
from retention_assets.pipeline.preflight import PreflightTask, check_cluster
from retention_assets.pipeline.spark import is_running, session_of
from retention_assets.pipeline.stage import Source
from retention_assets.pipeline.warehouse import Warehouse
from retention_assets.render.text import visible
from retention_assets.settings.reach import is_local_master
from retention_assets.settings.secrets import masked, masked_fault

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STARTING = "Starting Spark …"
# metadata of a failure: the asset that a step was making
ASSET = "asset"


class QuietSparkResource(LazyPySparkResource):
    """Spark session of a run, as Dagster's own lazy resource, without the warnings of every start."""

    _is_checked: bool = PrivateAttr(default=False)

    @property
    def is_started(self) -> bool:
        return self._spark_session is not None or is_running()

    def begin_check(self) -> bool:
        """True at the first call: the cluster is checked once in a run."""
        is_first, self._is_checked = not self._is_checked, True
        return is_first

    def _init_session(self) -> None:
        if self._spark_session is None:
            self._spark_session = session_of(self.spark_config)


Metadata = Mapping[str, Any]

UNFINISHED = [
    status
    for status in dg.DagsterRunStatus
    if status not in (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
]
# A folder of a run unknown to this instance may belong to another program that is still at work.
_FOREIGN = timedelta(days=1)


# tag with the name of whoever launched the run
ACTOR_TAG = "retention/actor"
# Dagster's tags that name who, or what, launched a run, with the prefix of the name.
_LAUNCHED_BY = {
    "dagster/user": "", "user": "", "dagster/schedule_name": "schedule ", "dagster/sensor_name": "sensor ",
}  # fmt: skip


def actor_of(run_id: str, tags: Mapping[str, str], typed: str = "") -> str:
    """Name for the record who acts. The user that Dagster knows and the run follow a name that anybody could type:
    `ann (bob@example.org, run 1a2b)`.
    """
    launched_by = next((f"{kind}{tags[tag]}" for tag, kind in _LAUNCHED_BY.items() if tags.get(tag)), None)
    first, *rest = filter(None, (typed.strip() or tags.get(ACTOR_TAG), launched_by, f"run {run_id}"))
    return f"{first} ({', '.join(rest)})" if rest else first


@dataclass(frozen=True)
class Step:
    """One step of a run. `key` is the asset that it makes; its siblings have the same prefix."""

    key: dg.AssetKey
    run: dg.DagsterRun
    instance: dg.DagsterInstance
    log: dg.DagsterLogManager
    retention: Environment
    pyspark: LazyPySparkResource
    warehouse: Warehouse
    datasets: DatasetFilter
    # Instant of judgement; `given_as_of` only where somebody gave one: a run without it reads the time again.
    as_of: datetime
    given_as_of: datetime | None = None
    # a person agreed to a sweep that takes more than usual
    accept_large: bool = False
    # somebody launched checks alone
    makes_nothing: bool = False
    # it is about everything that is published, by any run
    is_whole: bool = False

    @contextmanager
    def within_ledger(self) -> "Iterator[tuple[Self, Ledger]]":
        """Open the ledger, and yield a copy of the step that works with it."""
        with self.retention.ledger() as ledger:
            yield replace(self, retention=self.retention.within(ledger)), ledger

    @property
    def actor(self) -> str:
        return actor_of(self.run.run_id, self.run.tags)

    @property
    def asset(self) -> str:
        return self.key.to_user_string()

    @property
    def folder(self) -> str:
        return self.warehouse.folder(self.asset, self.run.run_id)

    @property
    def spark(self) -> "SparkSession":
        if isinstance(self.pyspark, QuietSparkResource) and not self.pyspark.is_started:
            self.log.info(STARTING)
        session: SparkSession = self.pyspark.spark_session
        if isinstance(self.pyspark, QuietSparkResource) and self.pyspark.begin_check():
            self._check_cluster(session)
        return session

    def _check_cluster(self, session: "SparkSession") -> None:
        settings = self.retention.settings
        if is_local_master(settings.spark.master):
            return
        key = self.sibling("preflight").to_user_string()
        with self.retention.ledger() as ledger:
            self.clean_warehouse(ledger, ["preflight"])
            task = PreflightTask(settings, ledger.id, self.warehouse.folder(key, self.run.run_id))
        check_cluster(session, task)

    @property
    def runs(self) -> list[str]:
        """This run and the one that it re-executes, whose rows come before those of others."""
        run = self.run
        return [] if self.is_whole else [id for id in (run.run_id, run.root_run_id, run.parent_run_id) if id]

    @property
    def looks_at_record(self) -> bool:
        """True for checks of all of the record: daily, and where somebody launched checks alone."""
        return self.is_whole or self.makes_nothing

    def publications(self, datasets: Iterable[str]) -> list[Publication]:
        return self.warehouse.publications(self.asset, self.run.run_id, datasets)

    def sources(self, ledger: Ledger, name: str) -> list[Source]:
        """Rows of another asset: those that this run, or the one that it re-executes, published; or else the newest."""
        return self.warehouse.sources(ledger, self.sibling(name).to_user_string(), self.runs, self.datasets)

    def clean_warehouse(self, ledger: Ledger, names: Iterable[str], kept: timedelta | None = None) -> int:
        """Remove folders of some assets that nobody will read again; return how many. Pages for people are `kept` a while.

        Nothing is removed while another run is at work: it may be reading what was published when it began.
        """
        if any(run.run_id != self.run.run_id for run in self.instance.get_runs(dg.RunsFilter(statuses=UNFINISHED))):
            return 0
        try:
            return self.warehouse.clean(
                ledger, [self.sibling(name).to_user_string() for name in names], partial(self._is_over, kept)
            )
        except Refused as fault:
            self.log.warning(f"No folder of the warehouse was removed. {fault}")
            return 0

    def _is_over(self, kept: timedelta | None, run_id: str, written: datetime | None) -> bool:
        if run_id == self.run.run_id:
            return False
        is_old = written is not None and written < now() - (kept or _FOREIGN)
        return is_old or (kept is None and self.instance.has_run(run_id))

    def sibling(self, name: str) -> dg.AssetKey:
        return dg.AssetKey([*self.key.path[:-1], name])


@dataclass(frozen=True)
class Resources:
    """Environment, Spark and warehouse of a run, under the names of its definitions."""

    retention: Environment
    pyspark: LazyPySparkResource
    warehouse: Warehouse
    names: Names

    def step(
        self, context: dg.OpExecutionContext, key: dg.AssetKey, config: StepConfig, partitions: frozenset[str] | None
    ) -> Step:
        """Make the step of an asset, about the datasets of a configuration; in a run over partitions about these alone."""
        datasets = DatasetFilter(tuple(config.datasets), partitions, self.retention.settings.partition_by == BY_STORE)
        given = config.given(partial(_made_at, context))
        context.log.addFilter(mask_and_escape)
        return Step(
            key,
            context.run,
            context.instance,
            context.log,
            self.retention,
            self.pyspark,
            self.warehouse,
            datasets,
            self.retention.instant(given),
            given,
            config.accept_large,
        )


def _made_at(context: dg.OpExecutionContext) -> datetime:
    record = context.instance.get_run_record_by_id(context.run_id)
    return record.create_timestamp.astimezone(UTC) if record else now()


def resources_in(resources: object, names: Names) -> Resources:
    return Resources(**{word: getattr(resources, names.of(word)) for word in RESOURCES}, names=names)


def mask_and_escape(record: logging.LogRecord) -> bool:
    """Filter of a log that drops nothing: it masks secrets and escapes control sequences."""
    if isinstance(record.msg, str):
        record.msg = visible(masked(record.msg))
    return True


@contextmanager
def masking_faults() -> Iterator[None]:
    """Mask secrets in errors: Dagster keeps the text of an error, its trace and its causes."""
    try:
        yield
    except Exception as fault:
        if (harmless := masked_fault(fault)) is fault:
            raise
        if isinstance(fault, dg.Failure):
            raise dg.Failure(masked(fault.description or ""), fault.metadata, allow_retries=fault.allow_retries) from harmless
        raise harmless from None


@contextmanager
def sentences_of_faults(asset: str | None = None) -> Iterator[None]:
    """Turn refusals and failures into sentences without secrets. Dagster's log keeps traces, of refusals those of assets."""
    with masking_faults():
        try:
            yield
        except Exception as fault:
            sentence = None if isinstance(fault, dg.Failure) else failure_text(fault)
            if sentence is None:
                raise
            is_refusal = isinstance(fault, Refused | BadInput)
            shown = None if is_refusal and asset is None else fault
            raise dg.Failure(sentence, {ASSET: asset} if asset else None, allow_retries=not is_refusal) from shown

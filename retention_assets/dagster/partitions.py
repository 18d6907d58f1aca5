"""`@retention_asset` makes a function an asset, with a page for each dataset and a failed partition for each refused one.

An event of a partition costs about 10 ms, so a step writes at most `_MOST_PARTITIONS`; the tables of its materialization
have the rest.
"""

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg

# There is no public way to report that a partition was to be materialized, and was not.
from retention_assets.dagster.naming import BY_STORE, Names
from retention_assets.dagster.private import planned_materialization
from retention_assets.dagster.step import Metadata, Step, sentences_of_faults
from retention_assets.datasets import by_store
from retention_assets.ledger import Ledger
from retention_assets.policy.sentences import count
from retention_assets.render.markdown import paragraph, plain
from retention_assets.render.summaries import named
from retention_assets.settings.sections import DagsterSettings

# tag of a run whose partitions get no pages
WITHOUT_PAGES = {"retention/pages": "none"}
# beyond, a step writes no events for partitions
_MOST_PARTITIONS = 1_000
_NAMED = 5
_REFUSED_JOB = "refused_datasets"
_REFUSED_IN = "retention/refused_in"
_NUMBER = re.compile(r"\d+")
# characters of a fault: more is not read, and every event carries it
_MOST_WORDS = 1_000


@dataclass(frozen=True)
class DatasetPage:
    """Page of a dataset's partition: Markdown, and numbers under names that stay.

    `refused` says why the dataset was not worked on: its partition is failed then, whatever stood there before. `idle` is a
    page about a dataset with nothing to do.
    """

    dataset: str
    summary: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    refused: str | None = None
    idle: bool = False

    @property
    def metadata(self) -> dict[str, Any]:
        return {"summary": dg.MetadataValue.md(self.summary), **self.numbers}


# from a step, its ledger and its metadata to the pages of its datasets
Pages = Callable[[Step, Ledger, Metadata], Iterable[DatasetPage]]


def partition_events(step: Step, pages: Sequence[DatasetPage]) -> Iterator[dg.AssetMaterialization | dg.AssetObservation]:
    """Events of the pages of datasets, or of their stores where these are the partitions.

    Whoever yields them yields the materialization of the step afterwards.
    """
    yield from _idle_events(step, [page for page in pages if page.idle])
    shown = [page for page in pages if not page.idle]
    if step.retention.settings.partition_by == BY_STORE:
        stores = by_store([page.dataset for page in shown])
        shown = [_of_store(store, [page for page in shown if page.dataset in names]) for store, names in stores.items()]
    shown = [page for page in shown if is_valid_key(page.dataset)]
    sound = [page for page in shown if page.refused is None]
    for page in sound if len(sound) <= _MOST_PARTITIONS else []:
        yield dg.AssetMaterialization(step.key, partition=page.dataset, metadata=page.metadata)
    yield from _refusals(step, [page for page in shown if page.refused is not None][:_MOST_PARTITIONS])


def is_valid_key(name: str) -> bool:
    """Accept the names that Dagster takes for partitions: three dots stand for a range there."""
    return "..." not in name and name.isprintable()


def published_by(step: Step, ledger: Ledger) -> list[str]:
    return [publication.dataset for publication in ledger.publications.by(step.asset, [step.run.run_id])]


def few(step: Step, datasets: Sequence[str]) -> Sequence[str]:
    """All of the datasets, or none where their partitions are too many for an event each."""
    keys = by_store(datasets) if step.retention.settings.partition_by == BY_STORE else datasets
    return datasets if len(keys) <= _MOST_PARTITIONS else []


def _idle_events(step: Step, pages: Sequence[DatasetPage]) -> Iterator[dg.AssetMaterialization]:
    # one event for each change
    valid = [page for page in pages if is_valid_key(page.dataset)][:_MOST_PARTITIONS]
    if step.retention.settings.partition_by == BY_STORE:
        return
    for page in valid:
        where = dg.AssetRecordsFilter(step.key, asset_partitions=[page.dataset])
        records = step.instance.fetch_materializations(where, limit=1).records
        before = records[0].asset_materialization if records else None
        if before is None or before.metadata.get("summary") != page.metadata["summary"]:
            yield dg.AssetMaterialization(step.key, partition=page.dataset, metadata=page.metadata)


def _of_store(store: str, pages: Sequence[DatasetPage]) -> DatasetPage:
    refused = [page for page in pages if page.refused is not None]
    numbers: dict[str, Any] = {}
    for page in pages:
        for name, value in page.numbers.items():
            if isinstance(value, int):
                numbers[name] = numbers.get(name, 0) + value
    names = [page.dataset for page in refused]
    sentences = [
        f"{count(len(pages), 'dataset')} of {store} worked on",
        f"{len(names):,} refused: {named(names)}" if names else "",
    ]
    why = refused[0].refused if refused and len(refused) == len(pages) else None
    return DatasetPage(store, paragraph(sentences), numbers, why)


def _refusals(step: Step, pages: Sequence[DatasetPage]) -> Iterator[dg.AssetObservation]:
    # Dagster calls a partition failed whose last attempt was in a run that failed. The run that found the fault goes on for
    # the other datasets, so the attempt is recorded in a run of its own, one for each change: partitions that are shown as
    # failed for the same reason stay as they are.
    new = [page for page in pages if not _is_reported(step, page)]
    if not new:
        return
    run = _failed_run(step, new)
    for page in new:
        event = planned_materialization(run.job_name, step.key, step.asset, page.dataset)
        step.instance.report_dagster_event(event, run.run_id)
        metadata = {"refused": dg.MetadataValue.md(_reason(page)), "refused_in": dg.MetadataValue.dagster_run(run.run_id)}
        yield dg.AssetObservation(step.key, partition=page.dataset, metadata=metadata)


def _is_reported(step: Step, page: DatasetPage) -> bool:
    # Reasons that differ only in numbers (a port, seconds of waiting) are the same.
    where = dg.AssetRecordsFilter(step.key, asset_partitions=[page.dataset])
    records = step.instance.fetch_observations(where, limit=1).records
    before = records[0].asset_observation.metadata.get("refused") if records and records[0].asset_observation else None
    if before is None or _NUMBER.sub("0", str(before.value)) != _NUMBER.sub("0", _reason(page)):
        return False
    materialized = step.instance.fetch_materializations(where, limit=1).records
    return not materialized or materialized[0].timestamp < records[0].timestamp


def _failed_run(step: Step, pages: Sequence[DatasetPage]) -> dg.DagsterRun:
    tags = {_REFUSED_IN: step.run.run_id, "dagster/max_retries": "0"}
    if runs := step.instance.get_runs(dg.RunsFilter(tags={_REFUSED_IN: step.run.run_id}), limit=1):
        return runs[0]
    name = Names(tuple(step.key.path[:-1])).of(_REFUSED_JOB)
    run = step.instance.add_run(dg.DagsterRun(job_name=name, status=dg.DagsterRunStatus.STARTED, tags=tags))
    # Without a start Dagster reports that the run failed to start.
    start = dg.DagsterEvent(dg.DagsterEventType.RUN_START.value, run.job_name)
    step.instance.report_dagster_event(start, run.run_id)
    faults = [f"{page.dataset} was refused: {(page.refused or '')[:_MOST_WORDS]}" for page in pages[:20]]
    more = [f"… and {len(pages) - 20:,} more."] if len(pages) > 20 else []
    step.instance.report_run_failed(run, "\n".join([*faults, *more]))
    return run


def _reason(page: DatasetPage) -> str:
    return plain((page.refused or "")[:_MOST_WORDS])


Work = Callable[[Step, Ledger], Metadata]
# root of the paths that a repository has for the package's modules
_ROOT = Path(__file__).parents[2]
# Dagster's tag for a run of a backfill
_BACKFILL = "dagster/backfill"


@dataclass(frozen=True)
class RetentionAsset:
    """An asset without a prefix: the function that does its work gives it its name and its description."""

    work: Work
    kinds: frozenset[str]
    deps: tuple[str, ...]
    partitioned: bool
    pages: Pages | None

    @property
    def name(self) -> str:
        return self.work.__name__

    def make(self, step: Step, result: type[dg.MaterializeResult[Any]] | type[dg.AssetMaterialization]) -> Iterator[Any]:
        """Do the work of a step and yield its events; `result` is the kind of the one about a whole run over a list."""
        metadata, pages = self.do(step)
        keys = step.datasets.keys
        if self.pages is None or keys is None:
            # Dagster shows the last event of an asset.
            yield from partition_events(step, pages)
            yield result(asset_key=step.key, metadata=metadata)
            return
        if pages and all(page.refused is not None for page in pages):
            why = " ".join(f"{page.dataset} is refused: {page.refused}." for page in pages[:_NAMED])
            raise dg.Failure(why, allow_retries=False)
        # Dagster writes the metadata of a result once for each partition. So each dataset's page is an event of its own, and so
        # is, as the last one, the page about all of them.
        is_single = len(keys) == 1 and not step.datasets.keys_are_stores
        own = next((page for page in pages if not page.idle), None) if is_single else None
        yield dg.MaterializeResult(asset_key=step.key, metadata=own.metadata if own else None)
        is_few = len(keys) <= _MOST_PARTITIONS
        yield from partition_events(step, [page for page in pages if page is not own and (is_few or page.refused is not None)])
        # Dagster ends a backfill at an event of a partitioned asset that names no partition, unless it is an observation.
        whole = dg.AssetObservation if _BACKFILL in step.run.tags else dg.AssetMaterialization
        yield whole(asset_key=step.key, metadata=metadata)

    def do(self, step: Step) -> tuple[Metadata, list[DatasetPage]]:
        """Do the work of a step, in a warehouse that belongs to its ledger; its metadata, and pages of single datasets."""
        with sentences_of_faults(), step.within_ledger() as (opened, ledger):
            opened.warehouse.head_file.check_owner(ledger.database)
            metadata = self.work(opened, ledger)
            if self.pages is None or WITHOUT_PAGES.items() <= step.run.tags.items():
                return metadata, []
            return metadata, list(self.pages(opened, ledger, metadata))

    def spec(
        self, names: Names, catalog: DagsterSettings, sources: Sequence[dg.AssetKey], freshness: dg.FreshnessPolicy | None
    ) -> dg.AssetSpec:
        """Describe the asset of an environment; `sources` are what it builds on besides assets like itself."""
        return dg.AssetSpec(
            names.key(self.name),
            deps=[*(names.key(name) for name in self.deps), *sources],
            description=inspect.getdoc(self.work),
            group_name=catalog.group,
            owners=list(catalog.owners),
            tags=dict(catalog.tags),
            kinds=set(self.kinds),
            metadata=_code_reference(self.work, catalog.source),
            freshness_policy=freshness,
            partitions_def=dg.DynamicPartitionsDefinition(name=names.datasets) if self.partitioned else None,
        )


def retention_asset(
    *, kinds: Collection[str], deps: Sequence[str] = (), partitioned: bool = True, pages: Pages | None = None
) -> Callable[[Work], RetentionAsset]:
    """Declare a function as the work of an asset; `pages` says what the asset shows of single datasets."""
    return lambda work: RetentionAsset(work, frozenset(kinds), tuple(deps), partitioned, pages)


def _code_reference(work: Work, source: str | None) -> dict[str, Any]:
    code = inspect.unwrap(work).__code__
    file, line = Path(code.co_filename), code.co_firstlineno
    reference = (
        dg.UrlCodeReference(url=f"{source}/{file.relative_to(_ROOT).as_posix()}#L{line}", label=file.name)
        if source
        else dg.LocalFileCodeReference(file_path=str(file), line_number=line, label=file.name)
    )
    return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[reference])}

"""`@retention_asset` makes a function an asset, with a page for each dataset.

An event of a partition costs about 10 ms, so a step writes at most `_MOST_PARTITIONS`; the tables of its materialization
have the rest.
"""

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dagster as dg

from retention_assets.dagster.naming import BY_STORE, Names
from retention_assets.dagster.step import Metadata, Step
from retention_assets.datasets import by_store
from retention_assets.ledger import Ledger
from retention_assets.policy.sentences import count
from retention_assets.render.markdown import code, paragraph, plain
from retention_assets.render.summaries import named
from retention_assets.render.text import sentence_case
from retention_assets.settings.sections import DagsterSettings

# tag of a run whose partitions get no pages
WITHOUT_PAGES = {"retention/pages": "none"}
_MOST_PARTITIONS = 1_000  # beyond, a step writes no events for partitions
_MOST_WHOLE_PAGES = 100  # beyond, the page of a day is written in full once only
_NUMBER = re.compile(r"\d+")
# characters of a fault that a page shows without a click
_MOST_WORDS = 800
_LEFT_ALONE = "It is not judged, marked or swept until this is mended. The check `log_is_sound` fails meanwhile."


@dataclass(frozen=True)
class DatasetPage:
    """Page of a dataset's partition: Markdown, and numbers under names that stay.

    `refused` says why nothing was done to the dataset. A page about a refused dataset, or an `idle` one with nothing to do,
    is written once for each change.
    """

    dataset: str
    summary: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    refused: str | None = None
    idle: bool = False

    @property
    def metadata(self) -> dict[str, Any]:
        summary = self.summary
        if self.refused is not None:
            summary = f"**Refused**: {plain(sentence_case(self.refused[:_MOST_WORDS].rstrip('.')))}. {_LEFT_ALONE}"
        # Dagster shows the page of a run's last partition as that of the asset.
        return {"summary": dg.MetadataValue.md(f"{code(self.dataset)}\n\n{summary}"), **self.numbers}


# makes the pages of datasets, from a step, its ledger and its metadata
Pages = Callable[[Step, Ledger, Metadata], Iterable[DatasetPage]]


def partition_events(
    step: Step, pages: Iterable[DatasetPage], opening: Metadata = MappingProxyType({})
) -> Iterator[dg.AssetMaterialization]:
    """Yield events with the pages of datasets, or of stores where these are the partitions; each begins with the `opening`.

    Whoever yields them yields the materialization of the step afterwards.
    """
    if step.retention.settings.partition_by == BY_STORE:
        pages = [page for page in pages if not page.idle]
        stores = by_store([page.dataset for page in pages])
        pages = [_of_store(store, [page for page in pages if page.dataset in names]) for store, names in stores.items()]
    valid = [page for page in pages if is_valid_key(page.dataset)]
    busy = [page for page in valid if not page.idle and page.refused is None]
    quiet = [page for page in valid if page.idle or page.refused is not None]
    shown = [
        *(busy if len(busy) <= _MOST_PARTITIONS else ()),
        *(page for page in quiet[:_MOST_PARTITIONS] if _is_new(step, page)),
    ]
    for page in shown:
        yield dg.AssetMaterialization(step.key, partition=page.dataset, metadata={**opening, **page.metadata})


def _is_new(step: Step, page: DatasetPage) -> bool:
    where = dg.AssetRecordsFilter(step.key, asset_partitions=[page.dataset])
    records = step.instance.fetch_materializations(where, limit=1).records
    last = records[0].asset_materialization if records else None
    entries = [last.metadata if last else {}, page.metadata]
    texts = [str(entry["summary"].value) for entry in entries if "summary" in entry]
    if page.refused is not None:
        # Faults that differ only in numbers (a port, seconds of waiting) are equal.
        texts = [_NUMBER.sub("0", text) for text in texts]
    return len(texts) < 2 or texts[0] != texts[1]


def is_valid_key(name: str) -> bool:
    """Accept the names that Dagster takes for partitions: three dots stand for a range there."""
    return "..." not in name and name.isprintable()


def published_by(step: Step, ledger: Ledger) -> list[str]:
    return [publication.dataset for publication in ledger.publications.by(step.asset, [step.run.run_id])]


def few(step: Step, datasets: Sequence[str]) -> Sequence[str]:
    """All of the datasets, or none where their partitions are too many for an event each."""
    keys = by_store(datasets) if step.retention.settings.partition_by == BY_STORE else datasets
    return datasets if len(keys) <= _MOST_PARTITIONS else []


def _of_store(store: str, pages: Sequence[DatasetPage]) -> DatasetPage:
    if pages[0].dataset == store:
        return pages[0]
    refused = [page for page in pages if page.refused is not None]
    numbers: dict[str, Any] = {}
    for page in pages:
        for name, value in page.numbers.items():
            numbers[name] = numbers.get(name, 0) + value
    names = [page.dataset for page in refused]
    sentences = [
        f"{count(len(pages), 'dataset')} of {store} worked on",
        f"{len(names):,} refused: {named(names)}" if names else "",
    ]
    return DatasetPage(store, paragraph(sentences), numbers)


def numbers_of(metadata: Metadata) -> dict[str, Any]:
    """Numbers of a page that are its own, and not Dagster's."""
    return {name: value for name, value in metadata.items() if isinstance(value, int | float) and "/" not in name}


def _lead(metadata: Metadata, summary: str, prefix: str = "") -> Metadata:
    """Sentence and numbers with which a page begins."""
    numbers = {f"{prefix}{name}": value for name, value in numbers_of(metadata).items()}
    return {summary: metadata["summary"], **numbers}


Work = Callable[[Step, Ledger], Metadata]
# root of the paths that a repository has for the package's modules
_ROOT = Path(__file__).parents[2]
# Dagster's tag for a run of a backfill
BACKFILL = "dagster/backfill"


@dataclass(frozen=True)
class RetentionAsset:
    """An asset without a prefix: the function that does its work gives it its name and its description."""

    work: Work
    kinds: frozenset[str]
    deps: tuple[str, ...]
    # makes the pages of datasets; None where all partitions share one page
    pages: Pages | None
    # its page is about the day, whichever partition made it
    is_daily: bool

    @property
    def name(self) -> str:
        return self.work.__name__

    def make(self, step: Step) -> Iterator[Any]:
        """Do the work of a step and yield its events: of partitions, then of the whole run."""
        metadata, pages = self.do(step)
        keys, is_backfill = step.datasets.keys, BACKFILL in step.run.tags
        opening = _lead(metadata, "all partitions of the run", "all: ") if is_backfill else {}
        # Dagster takes no result in a run without partitions, and in others copies its metadata to each: pages are events.
        if keys is not None and self.is_daily:
            shared, pages = metadata if len(keys) <= _MOST_WHOLE_PAGES else _lead(metadata, "summary"), []
            yield dg.MaterializeResult(asset_key=step.key, metadata=shared)
        elif keys is not None:
            own = pages[:1] if len(keys) == 1 and not step.datasets.keys_are_stores else []
            yield dg.MaterializeResult(asset_key=step.key, metadata={**opening, **(own[0].metadata if own else {})})
            pages = [page for page in pages[len(own) :] if len(keys) <= _MOST_PARTITIONS or page.refused is not None]
        yield from partition_events(step, pages, opening)
        # Dagster shows the last event of an asset as its page. It ends a backfill at an event of a partitioned asset that names
        # no partition, unless it is an observation.
        yield (dg.AssetObservation if is_backfill else dg.AssetMaterialization)(asset_key=step.key, metadata=metadata)

    def do(self, step: Step) -> tuple[Metadata, list[DatasetPage]]:
        """Do the work of a step, in a warehouse that belongs to its ledger; its metadata, and pages of single datasets."""
        with step.within_ledger() as (opened, ledger):
            opened.warehouse.head_file.check_owner(ledger.id)
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
            partitions_def=dg.DynamicPartitionsDefinition(name=names.datasets),
        )


def retention_asset(
    *, kinds: Collection[str], deps: Sequence[str] = (), pages: Pages | None = None, is_daily: bool = False
) -> Callable[[Work], RetentionAsset]:
    """Declare a function as the work of an asset; `pages` says what the asset shows of single datasets."""
    return lambda work: RetentionAsset(work, frozenset(kinds), tuple(deps), pages, is_daily)


def _code_reference(work: Work, source: str | None) -> dict[str, Any]:
    code = inspect.unwrap(work).__code__
    file, line = Path(code.co_filename), code.co_firstlineno
    reference = (
        dg.UrlCodeReference(url=f"{source}/{file.relative_to(_ROOT).as_posix()}#L{line}", label=file.name)
        if source
        else dg.LocalFileCodeReference(file_path=str(file), line_number=line, label=file.name)
    )
    return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[reference])}

"""`@retention_asset`: make a function of assets/ an asset, with what Dagster's catalog shows of it and the events of a step."""

import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from retention_assets.dagster.naming import Names
from retention_assets.dagster.partition_events import WITHOUT_PAGES, DatasetPage, Pages, all_refused, of_range, partition_events
from retention_assets.dagster.step import Metadata, Step, sentences_of_faults
from retention_assets.ledger import Ledger
from retention_assets.settings.dagster import DagsterSettings

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
        if why := all_refused(pages):
            raise dg.Failure(why, allow_retries=False)
        # Dagster writes the metadata of a result once for each partition. So each dataset's page is an event of its own, and so
        # is, as the last one, the page about all of them.
        is_single = len(keys) == 1 and not step.datasets.keys_are_stores
        own = next((page for page in pages if not page.idle), None) if is_single else None
        yield dg.MaterializeResult(asset_key=step.key, metadata=own.metadata if own else None)
        yield from partition_events(step, of_range([page for page in pages if page is not own], len(keys)))
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
            metadata=_written_in(self.work, catalog.source),
            freshness_policy=freshness,
            partitions_def=dg.DynamicPartitionsDefinition(name=names.datasets) if self.partitioned else None,
        )


def retention_asset(
    *, kinds: Collection[str], deps: Sequence[str] = (), partitioned: bool = True, pages: Pages | None = None
) -> Callable[[Work], RetentionAsset]:
    """Declare a function as the work of an asset; `pages` says what the asset shows of single datasets."""
    return lambda work: RetentionAsset(work, frozenset(kinds), tuple(deps), partitioned, pages)


def _written_in(work: Work, source: str | None) -> dict[str, Any]:
    """Link below a repository's address, or the file on this disk for developers."""
    code = inspect.unwrap(work).__code__
    file, line = Path(code.co_filename), code.co_firstlineno
    reference = (
        dg.UrlCodeReference(url=f"{source}/{file.relative_to(_ROOT).as_posix()}#L{line}", label=file.name)
        if source
        else dg.LocalFileCodeReference(file_path=str(file), line_number=line, label=file.name)
    )
    return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[reference])}

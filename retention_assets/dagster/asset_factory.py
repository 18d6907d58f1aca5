"""`@retention_asset`: turn a function of assets/ into a Dagster asset with key, partitions, resources and page."""

import inspect
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from retention_assets.dagster.naming import Names
from retention_assets.dagster.partition_events import Pages, all_refused, of_range, partition_events
from retention_assets.dagster.partitions import partitions_of
from retention_assets.dagster.run_config import AsOfConfig, DatasetsConfig
from retention_assets.dagster.step import Metadata, Step, masking_faults, resources_in
from retention_assets.failures import failure_text
from retention_assets.settings.dagster import DagsterSettings

Work = Callable[[Step], Metadata]
# root of the paths that a repository has for the package's modules
_ROOT = Path(__file__).parents[2]
# Assets hand nothing to an IO manager. Any: the declared type of dg.Nothing does not fit where it is used.
_NOTHING: Any = dg.Nothing


@dataclass(frozen=True)
class RetentionAsset:
    """An asset without a prefix. Its name and what it tells people are those of the function that does the work."""

    work: Work
    form: type[AsOfConfig] | type[DatasetsConfig] | None
    kinds: frozenset[str]
    deps: tuple[str, ...]
    partitioned: bool
    sweeps: bool
    pages: Pages | None = None

    @property
    def name(self) -> str:
        """Its name, the last part of its key."""
        return self.work.__name__

    @masking_faults()
    def do(self, step: Step) -> Metadata:
        """The work of a step, in a warehouse that belongs to its ledger.

        What keeps it from being done ends as a sentence; the trace stays in Dagster's log below it.
        """
        try:
            with step.within_ledger() as opened:
                opened.check_warehouse()
                return self.work(opened)
        except Exception as fault:
            words = None if isinstance(fault, dg.Failure) else failure_text(fault)
            if words is None:
                raise
            raise dg.Failure(words) from fault

    def asset(
        self,
        names: Names,
        catalog: DagsterSettings,
        sources: Sequence[dg.AssetKey] = (),
        freshness: dg.FreshnessPolicy | None = None,
    ) -> dg.AssetsDefinition:
        """The asset of an environment; `sources` are what it builds on besides assets like itself."""
        with warnings.catch_warnings():
            # Dagster warns that backfill policies and code references are in beta. pyproject.toml pins its release, so whoever
            # loads definitions can do nothing about it.
            warnings.simplefilter("ignore", dg.BetaWarning)
            return self._asset(names, catalog, sources, freshness)

    def _asset(
        self, names: Names, catalog: DagsterSettings, sources: Sequence[dg.AssetKey], freshness: dg.FreshnessPolicy | None
    ) -> dg.AssetsDefinition:
        form = self.form

        @dg.asset(
            key=names.key(self.name),
            deps=[*(names.key(name) for name in self.deps), *sources],
            description=inspect.getdoc(self.work),
            group_name=catalog.group,
            owners=list(catalog.owners),
            tags=dict(catalog.tags),
            kinds=set(self.kinds),
            metadata=_written_in(self.work, catalog.source),
            freshness_policy=freshness,
            config_schema=form.to_config_schema().config_type if form else None,
            required_resource_keys=names.resources,
            partitions_def=partitions_of(names) if self.partitioned else None,
            backfill_policy=dg.BackfillPolicy.single_run() if self.partitioned else None,
            pool=names.sweeps if self.sweeps else None,
            dagster_type=_NOTHING,
        )
        def asset(context: dg.AssetExecutionContext) -> Iterator[Any]:
            config = form(**context.op_execution_context.op_config) if form else None
            step = resources_in(context.resources, names).of_asset(context, config)
            metadata = self.do(step)
            if self.pages is None or not _is_of_partitions(context):
                yield dg.MaterializeResult(metadata=metadata)
                return
            with masking_faults(), step.within_ledger() as opened:
                pages = list(self.pages(opened, metadata))
            if why := all_refused(pages):
                raise dg.Failure(why, allow_retries=False)
            # Dagster writes the metadata of a result once for each partition. So each dataset's page is an event of its own,
            # and so is, as the last one, the page about all of them.
            mine = None if _is_of_many(context) else next((page for page in pages if page.of is None), None)
            yield dg.MaterializeResult(metadata=mine.metadata if mine else None)
            others = [page for page in pages if page is not mine]
            yield from partition_events(step, of_range(others, len(context.partition_keys)))
            yield dg.AssetMaterialization(asset_key=context.asset_key, metadata=metadata)

        return asset


def retention_asset(
    form: type[AsOfConfig] | type[DatasetsConfig] | None = None,
    *,
    kinds: Collection[str],
    deps: Sequence[str] = (),
    partitioned: bool = True,
    sweeps: bool = False,
    pages: Pages | None = None,
) -> Callable[[Work], RetentionAsset]:
    """Declare a function as the work of an asset: what a launch asks for, what the asset builds on, what it is, and what it
    says of single datasets.
    """
    return lambda work: RetentionAsset(work, form, frozenset(kinds), tuple(deps), partitioned, sweeps, pages)


def _is_of_partitions(context: dg.AssetExecutionContext) -> bool:
    return context.has_partition_key or context.op_execution_context.has_partition_key_range


def _is_of_many(context: dg.AssetExecutionContext) -> bool:
    op = context.op_execution_context
    return op.has_partition_key_range and len(op.partition_keys) > 1


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

"""`@retention_asset`: declare a function of assets/ as an asset, with what Dagster's catalog shows of it."""

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from retention_assets.dagster.naming import Names
from retention_assets.dagster.partition_events import Pages
from retention_assets.dagster.partitions import partitions_of
from retention_assets.dagster.step import Metadata, Step, masking_faults
from retention_assets.failures import failure_text
from retention_assets.settings.dagster import DagsterSettings

Work = Callable[[Step], Metadata]
# root of the paths that a repository has for the package's modules
_ROOT = Path(__file__).parents[2]


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

    @masking_faults()
    def do(self, step: Step) -> Metadata:
        """Do the work of a step, in a warehouse that belongs to its ledger.

        What keeps it from being done ends as a sentence; the trace stays in Dagster's log below it.
        """
        try:
            with step.within_ledger() as opened:
                opened.check_warehouse()
                return self.work(opened)
        except Exception as fault:
            sentence = None if isinstance(fault, dg.Failure) else failure_text(fault)
            if sentence is None:
                raise
            raise dg.Failure(sentence) from fault

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
            partitions_def=partitions_of(names) if self.partitioned else None,
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

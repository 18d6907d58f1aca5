"""The warehouse: where assets keep their tables, one folder per asset and run, never changed once written.

Belongs here: places, which folders hold an asset's rows of some datasets (the ledger says so, since a run published them), and
removing folders that nobody will read again.
Does not belong here: what is in a folder (stage.py).
"""

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta

import dagster as dg
import pyarrow.fs as pafs

from retention_assets.clock import now
from retention_assets.datasets import DatasetFilter
from retention_assets.ledger import Ledger
from retention_assets.ledger.publications import Publication
from retention_assets.pipeline.stage import Source, place_of

FOLDER = "folder"
# A folder of a run that this instance has never heard of may belong to another program, which may still be at work.
_FOREIGN = timedelta(days=1)
_GOING_ON = [
    status
    for status in dg.DagsterRunStatus
    if status not in (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
]


class Warehouse(dg.ConfigurableResource):  # type: ignore[type-arg]  # the resource is its own value
    """The root below which assets are written: a path, or a URI that Arrow can write to."""

    root: str

    def folder(self, asset: dg.AssetKey, run_id: str) -> str:
        """Where a run writes an asset."""
        return "/".join((self.root, *asset.path, run_id))

    def publications(self, asset: dg.AssetKey, run_id: str, datasets: Iterable[str]) -> list[Publication]:
        """That a run's folder holds an asset's rows of some datasets; whoever writes this down publishes them."""
        folder = self.folder(asset, run_id)
        return [Publication(asset.to_user_string(), name, folder, run_id) for name in datasets]

    def sources(self, ledger: Ledger, asset: dg.AssetKey, run: dg.DagsterRun, chosen: DatasetFilter) -> list[Source]:
        """Where an asset's rows are: what this run, or the one that it re-executes, published; or else the newest there are."""
        name = asset.to_user_string()
        runs = (run.run_id, run.root_run_id, run.parent_run_id)
        mine = ledger.publications.by(name, [one for one in runs if one])
        if mine and len(chosen.select(one.dataset for one in mine)) == len(mine):
            return [Source(folder) for folder in sorted({one.folder for one in mine})]
        # What was written down for more datasets than are asked for now is taken for these alone, name by name.
        folders = _folders_of(mine, chosen) or _folders_of(ledger.publications.of(name), chosen)
        if not folders:
            raise dg.Failure(f"{name} was never materialized for these datasets. Materialize it first, or run `evaluate`.")
        return [Source(folder, frozenset(datasets)) for folder, datasets in sorted(folders.items())]

    def clean(self, ledger: Ledger, instance: dg.DagsterInstance, run_id: str, assets: Collection[dg.AssetKey]) -> int:
        """Remove folders that no dataset points at any more, or that a run left without publishing them; how many.

        Nothing is removed while another run is at work: it may be reading what was published when it began.
        """
        if any(run.run_id != run_id for run in instance.get_runs(dg.RunsFilter(statuses=_GOING_ON))):
            return 0
        published = ledger.publications.folders()
        removed = 0
        for asset in assets:
            for folder, info in self._folders(asset):
                if folder not in published and self._is_over(instance, info, run_id):
                    files, place = place_of(folder)
                    files.delete_dir(place)
                    removed += 1
        return removed

    def _folders(self, asset: dg.AssetKey) -> Iterator[tuple[str, pafs.FileInfo]]:
        files, place = place_of("/".join((self.root, *asset.path)))
        for info in files.get_file_info(pafs.FileSelector(place, allow_not_found=True)):
            if info.type is pafs.FileType.Directory:
                yield self.folder(asset, info.base_name), info

    def _is_over(self, instance: dg.DagsterInstance, info: pafs.FileInfo, run_id: str) -> bool:
        if info.base_name == run_id:
            return False
        if instance.has_run(info.base_name):
            return True
        written: datetime | None = info.mtime
        return written is not None and written < now() - _FOREIGN


def _folders_of(published: Iterable[Publication], chosen: DatasetFilter) -> dict[str, set[str]]:
    """The folders of the chosen datasets, each with those of them that point at it."""
    folder_of = {one.dataset: one.folder for one in published}
    folders: dict[str, set[str]] = {}
    for dataset in chosen.select(folder_of):
        folders.setdefault(folder_of[dataset], set()).add(dataset)
    return folders

"""The warehouse: where assets keep their tables, one folder per asset and run, never changed once written.

The ledger says which folders hold an asset's rows of a dataset, since a run published them; folders that nobody will read again
are removed. An asset is named as Dagster shows its key: `team/transaction_log`.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from secrets import token_hex

import pyarrow.fs as pafs

from retention_assets.clock import now
from retention_assets.datasets import DatasetFilter
from retention_assets.errors import Refused
from retention_assets.ledger import Ledger
from retention_assets.ledger.evaluations import Publication
from retention_assets.pipeline.file_systems import inside, place_of, without_query
from retention_assets.pipeline.head_file import HeadFile
from retention_assets.pipeline.stage import Source, by_folder

FOLDER = "folder"
# beside the assets: a folder per store, with one per scan in it
SCANS = "scans"
_DRY_RUN = re.compile(r"plan-[0-9a-f]{32}")
_ABANDONED_AFTER = timedelta(days=1)


@dataclass(frozen=True)
class Warehouse:
    """The root below which assets are written: a path, or a URI that Arrow can write to."""

    root: str

    @property
    def head_file(self) -> HeadFile:
        return HeadFile(self.root)

    def folder(self, asset: str, run_id: str) -> str:
        return inside(self.root, asset, run_id)

    def scan_folder(self, store: str, scan: int) -> str:
        return inside(self.root, SCANS, store, str(scan))

    @contextmanager
    def passing_scan_folder(self, store: str) -> Iterator[str]:
        """Make a folder for a scan that nobody records: removed afterwards, or after a day if its program was killed."""
        folder = inside(self.root, SCANS, store, f"plan-{token_hex(16)}")
        try:
            yield folder
        finally:
            remove_folder(folder)

    def below(self, folder: str) -> str:
        """Shorten a folder to its path below the root."""
        return without_query(folder)[0].removeprefix(f"{without_query(self.root)[0].rstrip('/')}/")

    def publications(self, asset: str, run_id: str, datasets: Iterable[str]) -> list[Publication]:
        """Name a run's folder as that of an asset's rows of the datasets; the ledger publishes it."""
        folder = self.folder(asset, run_id)
        return [Publication(asset, name, folder, run_id) for name in datasets]

    def sources(self, ledger: Ledger, asset: str, runs: Sequence[str], chosen: DatasetFilter) -> list[Source]:
        """Return the folders of an asset's rows: those that one of the runs published, or else the newest."""
        published = ledger.publications.by(asset, runs)
        if published and len(chosen.select([publication.dataset for publication in published])) == len(published):
            return [Source(folder) for folder in sorted({publication.folder for publication in published})]
        # publications may cover more datasets than asked for: limit them
        folders = _folders_of(published, chosen) or _folders_of(ledger.publications.of(asset), chosen)
        if not folders:
            raise Refused(f"{asset} was never materialized for these datasets. Materialize it first, or run `act_evaluate`.")
        return [Source(folder, frozenset(datasets)) for folder, datasets in sorted(folders.items())]

    def clean(self, ledger: Ledger, assets: Collection[str], is_over: Callable[[str, datetime | None], bool]) -> int:
        """Remove folders of runs that are over (asked by id and time of writing) to which no dataset points; return their
        number.

        A ledger that is not the newest of this warehouse does not know what others point at: refused.
        """
        self.head_file.check(ledger.database)
        published = {_normalized(folder) for folder in ledger.publications.folders()}
        removed = 0
        for asset in assets:
            for info in self._folders(asset):
                folder = self.folder(asset, info.base_name)
                if _normalized(folder) in published:
                    continue
                files, place = place_of(folder)
                if is_over(info.base_name, info.mtime or _newest(files, place)):
                    files.delete_dir(place)
                    removed += 1
        return removed

    def clean_scans(self, ledger: Ledger, store: str, needed: Collection[int]) -> int:
        """Remove folders of a store's scans that are not needed; return their number. The caller holds the store's lease."""
        self.head_file.check(ledger.database)
        removed = 0
        for info in self._folders(f"{SCANS}/{store}"):
            name = info.base_name
            files, place = place_of(inside(self.root, SCANS, store, name))
            is_over = name.isdecimal() and int(name) not in needed
            if _DRY_RUN.fullmatch(name):
                written = info.mtime or _newest(files, place)
                is_over = written is not None and written < now() - _ABANDONED_AFTER
            if is_over:
                files.delete_dir(place)
                removed += 1
        return removed

    def _folders(self, asset: str) -> Iterator[pafs.FileInfo]:
        files, place = place_of(inside(self.root, asset))
        for info in files.get_file_info(pafs.FileSelector(place, allow_not_found=True)):
            if info.type is pafs.FileType.Directory:
                yield info


def remove_folder(folder: str) -> None:
    """Remove a folder that a run has left for its own tasks alone, if it exists."""
    files, place = place_of(folder)
    if files.get_file_info(place).type is pafs.FileType.Directory:
        files.delete_dir(place)


def _normalized(folder: str) -> str:
    # without query and repeated slashes, which don't make another folder
    return re.sub(r"(?<!:)/+", "/", without_query(folder)[0])


def _newest(files: pafs.FileSystem, place: str) -> datetime | None:
    # by its newest file: folders that are only key prefixes have no time
    infos = files.get_file_info(pafs.FileSelector(place, recursive=True))
    return max((info.mtime for info in infos if info.mtime), default=None)


def _folders_of(published: Iterable[Publication], chosen: DatasetFilter) -> dict[str, list[str]]:
    folder_of = {publication.dataset: publication.folder for publication in published}
    return by_folder({dataset: folder_of[dataset] for dataset in chosen.select(folder_of)})

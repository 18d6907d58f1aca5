"""References from a `files` store: the folder of every transaction in its logs, its log and its marker. Data in no such folder
is not referred to."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import BadInput, Refused
from retention_assets.stores.files.log import FilesLog
from retention_assets.stores.files.paths import TRANSACTION, FolderLayout
from retention_assets.stores.files.settings import FilesSettings
from retention_assets.stores.objects.references.places import ListingRoot
from retention_assets.stores.objects.references.source import ShareEnd, SourceNotWhole
from retention_assets.stores.objects.tables import REFERENCES
from retention_assets.stores.places import IDENTITY


@dataclass(frozen=True)
class TransactionFolderSource:
    """Datasets of a log as shares; the empty share stands for the log itself and the marker. The proof is the version of the
    log's files that were read."""

    label: str
    settings: FilesSettings
    root: ListingRoot
    names_folders: bool = True

    def shares(self, wanted: int) -> Sequence[tuple[str, ...]]:  # noqa: ARG002 - datasets of one file are read together
        try:
            return [(), *self._log.shares(self._log.datasets())]
        except (BadInput, OSError, Refused) as fault:
            raise self._fault(fault) from fault

    def shards_of(self, share: tuple[str, ...]) -> Sequence[str]:
        return share

    def read(self, share: tuple[str, ...]) -> Generator[pa.RecordBatch, None, ShareEnd]:
        rows = 0
        try:
            tokens = self._log.tokens(share)
            batches = [self._of_dataset(dataset) for dataset in share] if share else [self._of_store()]
        except (BadInput, OSError, Refused) as fault:
            raise self._fault(fault) from fault
        for batch in batches:
            rows += len(batch)
            yield batch
        return ShareEnd(share, rows, tokens)

    def finish(self, ends: Sequence[ShareEnd]) -> Sequence[tuple[str, ...]]:
        try:
            datasets = self._log.datasets()
            tokens = self._log.tokens(datasets)
            read = {(name, token) for end in ends for name, token in end.proof.items()}
            unread = [name for name in datasets if (name, tokens.get(name)) not in read]
            return [*([] if any(end.share == () for end in ends) else [()]), *self._log.shares(unread)]
        except (BadInput, OSError, Refused) as fault:
            raise self._fault(fault) from fault

    @property
    def _log(self) -> FilesLog:
        return FilesLog(self.settings.name, self.settings.log)

    @property
    def _layout(self) -> FolderLayout:
        return FolderLayout.of(self.settings)

    def _of_dataset(self, dataset: str) -> pa.RecordBatch:
        layout = self._layout
        below = "/".join(layout.segments).replace("{dataset}", dataset.partition("/")[2])
        before, _, after = below.partition(TRANSACTION)
        ids = pc.unique(self._log.index().transactions(dataset))
        folders = pc.binary_join_element_wise(f"{layout.root}/{before}", ids, after, "")
        return self._batch(self.root.folders(folders, self.label), f"a transaction of {dataset}")

    def _of_store(self) -> pa.RecordBatch:
        # The log may be one file, or a folder to which every sweep adds files.
        log = pa.array([self.settings.log], pa.string())
        marker = pa.array([f"{self._layout.root}/{IDENTITY}"], pa.string())
        keys = [self.root.keys(log, self.label), self.root.folders(log, self.label), self.root.keys(marker, self.label)]
        return self._batch(pa.concat_arrays(keys), "the store's own files")

    def _batch(self, keys: pa.Array, what: str) -> pa.RecordBatch:
        return pa.record_batch(
            [keys, pa.nulls(len(keys), pa.string()), pa.repeat(f"store {self.settings.name}: {what}", len(keys))],
            schema=REFERENCES,
        )

    def _fault(self, fault: Any) -> SourceNotWhole:
        return SourceNotWhole(f"{self.label} is not whole: {fault}")

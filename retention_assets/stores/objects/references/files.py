"""Files of references or edges, by a glob. The proof of wholeness: the same files are there at the end, each read to its end as
it is by then. A file that is written meanwhile is read again."""

from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from retention_assets.errors import BadInput, Refused
from retention_assets.settings.urls import mask_secrets
from retention_assets.stores.files.listing import LogFile, files_matching
from retention_assets.stores.objects.references.source import ShareEnd, SourceNotWhole


@dataclass(frozen=True)
class FileShare:
    """A file, or some of its groups of rows, of which it has `of`."""

    file: LogFile
    first: int = 0
    end: int | None = None
    of: int | None = None


@dataclass(frozen=True)
class FileSource:
    """Files of one format."""

    files: str
    schema: pa.Schema

    form: ClassVar[str]
    names_folders: ClassVar[bool] = False

    @property
    def label(self) -> str:
        return f"{self.form} {mask_secrets(self.files)}"

    def list_files(self) -> Sequence[LogFile]:
        """Files as they are now. Raises SourceNotWhole if there are none, or if they cannot be listed."""
        try:
            files = files_matching(self.files)
        except (BadInput, Refused) as fault:
            raise SourceNotWhole(f"{self.label} can't be read: {fault}") from fault
        # File systems raise their drivers' exceptions: any of them means that the files are unknown.
        except Exception as fault:
            raise SourceNotWhole(f"{self.label} can't be listed: {type(fault).__name__}: {mask_secrets(str(fault))}") from fault
        if not files:
            raise SourceNotWhole(
                f"No file matches {mask_secrets(self.files)}. Write a glob of files, such as refs/*, or look for them."
            )
        return files

    def shards_of(self, share: FileShare) -> Sequence[str]:
        return (share.file.path,)

    def read(self, share: FileShare) -> Generator[pa.RecordBatch, None, ShareEnd]:
        rows = 0
        try:
            for batch in self.batches(share):
                rows += batch.num_rows
                yield batch
        except SourceNotWhole:
            # The fault of a file that changed since may be due to a concurrent writer.
            if share.file in self.list_files():
                raise
            return ShareEnd(share, rows, proof=False)
        return ShareEnd(share, rows, proof=True)

    def finish(self, ends: Sequence[ShareEnd]) -> Sequence[FileShare]:
        """Return new and changed files, and those of which something is unread. Raises SourceNotWhole if a file is gone."""
        files = self.list_files()
        gone = sorted({end.share.file.shown for end in ends} - {file.shown for file in files})
        if gone:
            raise SourceNotWhole(
                f"{self.label} is not whole: {gone[0]} was there and is gone. Scan when the files are all there."
            )
        groups: dict[LogFile, set[int]] = {}
        whole = set()
        for share in (end.share for end in ends if end.proof):
            groups.setdefault(share.file, set()).update(range(share.first, share.end or 0))
            if share.of is None or len(groups[share.file]) == share.of:
                whole.add(share.file)
        return [FileShare(file) for file in files if file not in whole]

    @abstractmethod
    def batches(self, share: FileShare) -> Iterator[pa.RecordBatch]:
        """Rows of a share. Raises SourceNotWhole if it is not whole."""

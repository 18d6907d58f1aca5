"""Deleting the files of expired snapshots, behind the table's fence.

Belongs here: the order (data, then manifests and statistics, then the manifest list, for each snapshot), and counting what
really became free. A snapshot whose data could not all be deleted keeps its manifests and its list, so that the next sweep
finds the rest.
Does not belong here: which files. They come from reachability.py, and no remaining snapshot reaches any of them.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field

from pyiceberg.io import FileIO

from retention_assets.errors import Withheld
from retention_assets.stores.concurrency import map_concurrently
from retention_assets.stores.iceberg.fence import TableFence
from retention_assets.stores.iceberg.manifests import File
from retention_assets.stores.iceberg.reachability import OwnedFiles
from retention_assets.stores.protocol import Permit

_STAGES: tuple[Callable[[OwnedFiles], tuple[File, ...]], ...] = (
    lambda owned: owned.data,
    lambda owned: owned.manifests + owned.statistics,
    lambda owned: owned.lists,
)


@dataclass
class RemovedFiles:
    """What became of one snapshot's files."""

    bytes: int = 0
    failed: list[str] = field(default_factory=list)
    # Not the table's own to delete.
    left: list[str] = field(default_factory=list)
    # Why not all of them may go now.
    withheld: str | None = None

    @property
    def is_complete(self) -> bool:
        """Whether everything so far is gone, so that what names it may go."""
        return not self.failed and self.withheld is None


class _Undeletable(Exception):
    """A file that is there and could not be deleted."""


def delete_files_of(
    io: FileIO, fence: TableFence, owned: Mapping[str, OwnedFiles], threads: Executor, permit: Permit
) -> dict[str, RemovedFiles]:
    """Delete what each transaction owns, stage by stage for all of them together."""
    removed = {transaction: RemovedFiles() for transaction in owned}

    def attempt(work: tuple[str, File]) -> tuple[RemovedFiles, File, int | str | Withheld | None]:
        transaction, file = work
        try:
            permit()
            return removed[transaction], file, _delete_file(io, fence, file)
        except Withheld as fault:
            return removed[transaction], file, fault
        except _Undeletable as fault:
            return removed[transaction], file, str(fault)

    for stage in _STAGES:
        work = [(transaction, file) for transaction, files in owned.items() for file in stage(files)]
        for result, file, freed in map_concurrently(threads, attempt, [one for one in work if removed[one[0]].is_complete]):
            if isinstance(freed, int):
                result.bytes += freed
            elif isinstance(freed, Withheld):
                result.withheld = str(freed)
            elif freed is None:
                result.left.append(file.location)
            else:
                result.failed.append(freed)
    return removed


def _delete_file(io: FileIO, fence: TableFence, file: File) -> int | None:
    """Delete one file. The bytes that this freed, none if it was gone already, and None if it must not be deleted."""
    if not fence.encloses(file.location):
        return None
    try:
        io.delete(file.location)
    except FileNotFoundError:
        return 0
    # File systems of others raise what they like; whatever it was, the file may still be there.
    except Exception as fault:
        raise _Undeletable(f"{file.location}: {type(fault).__name__}: {fault}") from fault
    return file.bytes

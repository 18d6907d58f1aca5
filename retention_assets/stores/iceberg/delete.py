"""Deletes the files of expired snapshots inside the table's fence, and counts the bytes freed and the files left.

For each snapshot: data, then manifests and statistics, then the manifest list. If not all data could be deleted, the manifests
and the list stay, so that the next sweep finds the rest. The files come from reachability.py: no remaining snapshot reaches any
of them.

Locations are taken literally. PyIceberg cuts a path at `?` and `#`, and so would read, and delete, another file than the one
other writers named.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pyarrow.fs import FileSelector
from pyiceberg.io import PY_IO_IMPL, FileIO, InputFile, OutputFile, load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from retention_assets.errors import Withheld
from retention_assets.stores.concurrency import map_concurrently
from retention_assets.stores.iceberg.fence import TableFence, file_identity
from retention_assets.stores.iceberg.manifests import File
from retention_assets.stores.iceberg.reachability import OwnedFiles
from retention_assets.stores.protocol import Permit

# where PyIceberg ends a path
_CUTS = "?#"


class LiteralFileIO(PyArrowFileIO):
    """Arrow FileIO that takes a path as it is."""

    @staticmethod
    def parse_location(location: str, properties: Properties = EMPTY_DICT) -> tuple[str, str, str]:
        """Split into scheme, host and path, to the last character."""
        end = min((place for place in map(location.find, _CUTS) if place >= 0), default=len(location))
        scheme, host, path = PyArrowFileIO.parse_location(location[:end], properties)
        if not urlsplit(location[:end]).scheme:
            # a plain path is not cut, but normalized
            return PyArrowFileIO.parse_location(location, properties)
        return scheme, host, path + location[end:]


class ExactFileIO(FileIO):
    """The FileIO that PyIceberg would choose for each location, made literal where possible."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self._plain = {name: value for name, value in properties.items() if name != PY_IO_IMPL}
        self._by_scheme: dict[str, FileIO] = {}

    def new_input(self, location: str) -> InputFile:
        return self._io_for(location).new_input(location)

    def new_output(self, location: str) -> OutputFile:
        return self._io_for(location).new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Raises FileNotFoundError if it is not there."""
        self._io_for(location if isinstance(location, str) else location.location).delete(location)

    def list_folder(self, folder: str) -> list[str]:
        """Return the locations of what lies in a folder, as Arrow lists it; none where there is no folder."""
        scheme, host, path = LiteralFileIO.parse_location(folder)
        found = LiteralFileIO(self._plain).fs_by_scheme(scheme, host).get_file_info(FileSelector(path, allow_not_found=True))
        return [f"{folder}/{one.base_name}" for one in found]

    def is_literal(self, location: str) -> bool:
        """Tell whether a location leads to the very file that it names."""
        return not set(_CUTS) & set(location) or isinstance(self._io_for(location), LiteralFileIO)

    def _io_for(self, location: str) -> FileIO:
        scheme = location.partition(":")[0] if ":" in location else ""
        if scheme not in self._by_scheme:
            io = load_file_io(self._plain, location)
            self._by_scheme[scheme] = LiteralFileIO(self._plain) if type(io) is PyArrowFileIO else io
        return self._by_scheme[scheme]


def is_literal(io: FileIO, location: str) -> bool:
    return io.is_literal(location) if isinstance(io, ExactFileIO) else not set(_CUTS) & set(location)


_STAGES: tuple[Callable[[OwnedFiles], tuple[File, ...]], ...] = (
    lambda owned: owned.data,
    lambda owned: owned.manifests + owned.statistics,
    lambda owned: owned.lists,
)


@dataclass
class RemovedFiles:
    bytes: int = 0
    failed: list[str] = field(default_factory=list)
    # locations that are not the table's own to delete, by reason
    left: dict[str, list[str]] = field(default_factory=dict)
    # why the permit stopped the rest
    withheld: str | None = None

    @property
    def is_complete(self) -> bool:
        """True if all files of the stages so far are deleted: the files that name them may follow."""
        return not self.failed and self.withheld is None

    def add(self, more: "RemovedFiles") -> None:
        self.bytes += more.bytes
        self.failed += more.failed
        for why, locations in more.left.items():
            self.left.setdefault(why, []).extend(locations)
        self.withheld = more.withheld or self.withheld


@dataclass(frozen=True)
class Border:
    """Decides which files are a table's own: those inside its fence that no other table claims; `claims` are those tables."""

    io: FileIO
    fence: TableFence
    claims: Mapping[str, str]

    def why_left(self, location: str) -> str | None:
        """Say why a file is not to be deleted."""
        if not self.fence.encloses(location):
            return "as outside of the table's own folders"
        if not is_literal(self.io, location):
            return "as its location leads to another file"
        owner = self.claims.get(file_identity(location))
        return None if owner is None else f"as {owner} has it too"


def delete_files_of(
    border: Border, owned: Mapping[str, OwnedFiles], threads: Executor, permit: Permit
) -> dict[str, RemovedFiles]:
    """Delete what each transaction owns, stage by stage for all of them together."""
    removed = {transaction: RemovedFiles() for transaction in owned}
    for stage in _STAGES:
        work = [(name, file) for name, files in owned.items() if removed[name].is_complete for file in stage(files)]
        results = map_concurrently(threads, lambda one: _delete_file(border, one[1], permit), work)
        for (name, _), result in zip(work, results, strict=True):
            removed[name].add(result)
    return removed


def _delete_file(border: Border, file: File, permit: Permit) -> RemovedFiles:
    try:
        permit()
    except Withheld as fault:
        return RemovedFiles(withheld=str(fault))
    if (why := border.why_left(file.location)) is not None:
        return RemovedFiles(left={why: [file.location]})
    try:
        border.io.delete(file.location)
    except FileNotFoundError:
        # it was already gone
        return RemovedFiles()
    except Exception as fault:  # noqa: BLE001 - file systems raise anything; the file may still be there
        return RemovedFiles(failed=[f"{file.location}: {type(fault).__name__}: {fault}"])
    return RemovedFiles(file.bytes)

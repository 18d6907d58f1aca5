"""What is in the files of a log: the datasets they speak of, their lines, and the ids in them.

Belongs here: reading through exchange, a remote file from a copy, and remembering what was read by the file's version. A
file may hold thousands of datasets, which are asked about one by one: it is read once and cut into them.
Does not belong here: which files there are (listing.py), and what the lines mean.
"""

import itertools
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock

import numpy as np
import pyarrow as pa

from retention_assets.errors import BadInput, Problem
from retention_assets.exchange import SMALL, datasets_in, ids_in, is_plain, read_file
from retention_assets.frames.arrays import Ints, join_chunks
from retention_assets.stores.files.copies import check_copy
from retention_assets.stores.files.file_systems import is_local, open_file_system
from retention_assets.stores.files.listing import LogFile, is_settled

# Of a larger file only the ids are kept, and its lines are read for those who ask.
WHOLE_BYTES = 64 << 20
# What a process keeps of all logs together.
_KEPT_BYTES = 256 << 20
# Files up to this size are read many at a time.
_SMALL = SMALL
_AT_ONCE = 1_000
# A name, and an array of places: about this much of Python.
_PER_DATASET = 250


@dataclass(frozen=True, eq=False)
class ContentSlice:
    """Lines of a file in its order, and where those of each dataset are."""

    table: pa.Table
    rows: dict[str, Ints]
    # What it takes to keep it.
    bytes: int

    @classmethod
    def of(cls, table: pa.Table) -> "ContentSlice":
        """Find the datasets of some lines."""
        table = table.combine_chunks()
        encoded = join_chunks(table["dataset"].dictionary_encode().unify_dictionaries())
        places = np.asarray(encoded.indices, dtype=np.int64)
        order = np.argsort(places, kind="stable")
        ends = np.cumsum(np.bincount(places, minlength=len(encoded.dictionary)))[:-1]
        # Of no line at all there is one part, and no dataset.
        rows = dict(zip(encoded.dictionary.to_pylist(), np.split(order, ends) if len(order) else (), strict=True))
        return cls(table, rows, table.nbytes + order.nbytes + _PER_DATASET * len(rows))

    def lines(self, datasets: Collection[str]) -> pa.Table:
        """The lines of some datasets, in the order of the file."""
        rows = [self.rows[name] for name in datasets if name in self.rows]
        return self.table.take(np.sort(np.concatenate(rows))) if rows else self.table.slice(0, 0)


class _SliceCache:
    """The slices that were asked for last, as many as there is room for."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._slices: OrderedDict[tuple[LogFile, bool], ContentSlice] = OrderedDict()
        self._lock = Lock()

    def kept(self, file: LogFile, whole: bool) -> ContentSlice | None:
        """A slice, if it was kept."""
        key = file, whole
        with self._lock:
            if (kept := self._slices.get(key)) is not None:
                self._slices.move_to_end(key)
            return kept

    def get(self, file: LogFile, whole: bool, make: Callable[[], ContentSlice]) -> ContentSlice:
        """A slice that was kept, or a new one. Kept is only what a later version of the file cannot be mistaken for."""
        if (kept := self.kept(file, whole)) is not None:
            return kept
        key = file, whole
        stays = is_settled(file)
        made = make()
        if stays and made.bytes <= _KEPT_BYTES:
            with self._lock:
                # Another thread may have made it meanwhile.
                if key not in self._slices:
                    self._slices[key] = made
                    self._room -= made.bytes
                while self._room < 0:
                    self._room += self._slices.popitem(last=False)[1].bytes
        return made


_cache = _SliceCache(_KEPT_BYTES)


@lru_cache(maxsize=100_000)
def datasets_of(file: LogFile) -> tuple[str, ...]:
    """The names of the datasets that a file speaks of, sorted."""
    with local_copy(file) as path:
        return tuple(datasets_in(path))


def lines_of(file: LogFile, datasets: Collection[str]) -> pa.Table:
    """The lines of some datasets."""
    if file.size > WHOLE_BYTES:
        return _read(file, datasets)
    return _cache.get(file, True, lambda: ContentSlice.of(_read(file))).lines(datasets)


def lines_of_all(wanted: Mapping[LogFile, Collection[str]]) -> list[pa.Table]:
    """The lines of some datasets in each of some files, in the order of the files; small ones that are neighbours in one piece.

    To begin reading takes longer than a small file, and a log may have thousands.
    """
    found: list[pa.Table] = []
    for alike, files in itertools.groupby(wanted, _can_be_joined):
        some = list(files)
        for first in range(0, len(some), _AT_ONCE):
            mine = some[first : first + _AT_ONCE]
            together = (
                _read_together(mine, set[str]().union(*(wanted[file] for file in mine))) if alike and len(mine) > 1 else None
            )
            found += [lines_of(file, wanted[file]) for file in mine] if together is None else [together]
    return found


def _can_be_joined(file: LogFile) -> bool:
    fs, _ = open_file_system(file.log)
    return is_local(fs) and 0 < file.size <= _SMALL and is_plain(file.name)


def _read_together(files: Sequence[LogFile], datasets: Collection[str]) -> pa.Table | None:
    """The lines of some files, read as one file; None if that can't be, so that the file at fault is named."""
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "log.jsonl"
        try:
            with whole.open("wb") as stream:
                for file in files:
                    stream.write(Path(file.path).read_bytes() + b"\n")
            return read_file(whole, datasets)
        except (BadInput, OSError):
            return None


def ids_of(file: LogFile, dataset: str) -> pa.Array:
    """The ids of a dataset's transactions in a file."""
    # Of small files these are known without a database, and of very large ones nothing else is kept.
    if (kept := _cache.kept(file, True)) is not None:
        slice_ = kept
    elif SMALL < file.size <= WHOLE_BYTES:
        slice_ = _cache.get(file, True, lambda: ContentSlice.of(_read(file)))
    else:
        slice_ = _cache.get(file, False, lambda: ContentSlice.of(_of_copy(file, ids_in)))
    return (
        join_chunks(slice_.table["transaction"].take(slice_.rows[dataset]).drop_null()) if dataset in slice_.rows else _NO_IDS
    )


_NO_IDS = pa.array([], pa.string())


@contextmanager
def local_copy(file: LogFile) -> Iterator[Path]:
    """The file on this machine, a remote one as a copy. What is wrong with it is said of its own place, not of the copy's."""
    fs, _ = open_file_system(file.log)
    if is_local(fs):
        yield Path(file.path)
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / f"log-{file.name}"
        try:
            fs.get_file(file.path, str(copy))
            check_copy(fs, file, copy)
            yield copy
        except BadInput as fault:
            raise BadInput(replace(problem, file=file.shown) for problem in fault.problems) from None


def _read(file: LogFile, datasets: Collection[str] | None = None) -> pa.Table:
    return _of_copy(file, lambda path: read_file(path, datasets))


def _of_copy(file: LogFile, read: Callable[[Path], pa.Table]) -> pa.Table:
    try:
        with local_copy(file) as path:
            return read(path)
    except FileNotFoundError:
        raise BadInput(Problem("was there a moment ago and is not any more", file=file.shown, remedy="Try again.")) from None

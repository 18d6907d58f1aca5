"""Stages: one pass over a clustered log in Parquet, placed by Spark, computed by frames, written as Parquet.

Each Spark task reads whole datasets from its own Parquet parts with pyarrow, calls a frame, and writes its parts of the result.
Rows never cross between the JVM and Python; the driver gets the counts of each part, and needs as much memory for a billion
rows as for a thousand. Any other step runs in numbered tasks as well.
"""

import heapq
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.errors import PySparkAttributeError

from retention_assets.errors import Refused
from retention_assets.frames.log import DATASETS, LOG, Log
from retention_assets.pipeline.file_systems import inside, place_of, without_query

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    from pyspark.sql import SparkSession

# Starting a task costs more than judging a small part, so a task takes several; a few tasks per slot keep the slots busy to the
# end.
TASKS_PER_SLOT = 3

T = TypeVar("T")
# a task holds one part in memory; a dataset is never split, so a giant one is a part of its own
ROWS_PER_PART = 500_000
_ROW_GROUP = 1 << 20
_BATCH = 50_000
_FILTERED = ("dataset", "ordinal", "verdict", "policy")
# number of the source, and file name
_Part = tuple[int, str]
# name of the written part, rows per output, and texts of the sinks
_PartWritten = tuple[str, Mapping[str, int], Mapping[str, str]]
# from the transactions and datasets of a part to one table per output name
Frame = Callable[[pa.Table, pa.Table], Mapping[str, pa.Table]]
# sends an output of a part elsewhere; the driver gets the text if the task succeeds
Sink = Callable[[pa.Table], str]


@dataclass(frozen=True)
class SparkTasks:
    """Numbered tasks, placed by Spark."""

    spark: "SparkSession"

    @property
    def slots(self) -> int:
        """Number of tasks that run at a time. Spark Connect does not tell it: 64, for a large cluster."""
        try:
            return self.spark.sparkContext.defaultParallelism
        except PySparkAttributeError:
            return 64

    def collect(self, step: Callable[[int], Iterable[T]], count: int) -> list[T]:
        """Return what a step yields for each number below `count`, in any order. If it raises, Spark repeats the task. If Spark
        ran a task twice, the values are those of one run.
        """
        if not count:
            return []
        tasks = self.spark.range(0, count, 1, min(count, TASKS_PER_SLOT * self.slots))
        return [pickle.loads(row["value"]) for row in tasks.mapInArrow(partial(_in_task, step), "value binary").collect()]

    def run(self, step: Callable[[int], T], count: int) -> list[T]:
        """Return the results in the order of the numbers. A fault is an answer: the first one is raised as Refused."""
        answers = sorted(self.collect(partial(_answer, step), count), key=lambda answer: answer[0])
        if fault := next((fault for _, _, fault in answers if fault), None):
            raise Refused(fault)
        return [answer for _, answer, _ in answers]


def _in_task(step: Callable[[int], Iterable[Any]], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for value in step(number):
                yield pa.record_batch({"value": pa.array([pickle.dumps(value)], pa.binary())})


def _answer(step: Callable[[int], Any], number: int) -> Iterator[tuple[int, Any, str | None]]:
    # tasks that only read and judge don't need it
    from retention_assets.stores.concurrency import set_aside_what_is_loaded

    pa.set_cpu_count(1)
    set_aside_what_is_loaded()
    answer, fault = None, None
    # otherwise Spark would try again, and report a hundred lines
    try:
        answer = step(number)
    except Refused as refused:
        fault = str(refused)
    except Exception as broken:  # noqa: BLE001 - a listing and a source may be anybody's, and so may what they raise
        fault = f"{type(broken).__name__}: {' '.join(str(broken).split())}"
    yield number, answer, fault


def cut(names: Iterable[str], costs: Mapping[str, int], most: int, most_names: int | None = None) -> Iterator[tuple[str, ...]]:
    """Cut names, in their order, into groups that cost at most `most`. A name that costs more is a group by itself."""
    group: list[str] = []
    cost = 0
    for name in names:
        if group and (len(group) == most_names or cost + costs[name] > most):
            yield tuple(group)
            group, cost = [], 0
        group.append(name)
        cost += costs[name]
    if group:
        yield tuple(group)


def distribute(costs: Mapping[T, int], most: int, key: Callable[[T], Any]) -> list[list[T]]:
    """Distribute items over at most `most` groups: the most costly first, each to the cheapest group. `key` breaks ties."""
    groups: list[list[T]] = [[] for _ in range(min(most, len(costs)))]
    load = [(0, number) for number in range(len(groups))]
    for item in sorted(costs, key=lambda item: (-costs[item], key(item))):
        least, number = heapq.heappop(load)
        groups[number].append(item)
        heapq.heappush(load, (least + costs[item], number))
    return groups


@contextmanager
def repeated(name: str, seconds: float, act: Callable[[], object]) -> Iterator[None]:
    """Call `act` in a named thread at this interval until the block ends."""
    over = Event()

    def repeat() -> None:
        while not over.wait(seconds):
            act()

    thread = Thread(target=repeat, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class FolderGone(Refused, FileNotFoundError):
    """A folder of the warehouse is not there any more."""

    def __init__(self, folder: str) -> None:
        super().__init__(
            f"The folder {without_query(folder)[0]} of the warehouse is gone. If a run has just replaced it, try again. "
            "Otherwise it was deleted: restore it, or judge its datasets again with `retention run`."
        )


@dataclass(frozen=True)
class Source:
    """A folder of parts and the chosen datasets in it; all where none are named."""

    folder: str
    datasets: frozenset[str] | None = None


@dataclass(frozen=True)
class Written:
    """Result of a stage: rows per output, and texts of sinks by part, in the order of the parts.

    If Spark ran a task twice, the texts of one run.
    """

    rows: dict[str, int]
    texts: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class OutputParts:
    """An output, iterable part by part any number of times."""

    folder: str
    output: str

    def __iter__(self) -> Iterator[pa.Table]:
        files, root = place_of(self.folder)
        for info in sorted(files.get_file_info(pafs.FileSelector(f"{root}/{self.output}")), key=lambda info: info.path):
            with pq.ParquetFile(info.path, filesystem=files) as part:
                yield from (pa.Table.from_batches([batch]) for batch in part.iter_batches(_BATCH))


def write_log(log: Log, folder: str, rows_per_part: int = ROWS_PER_PART, share: int = 0) -> int:
    """Write a sound log as parts of whole datasets: `transactions/` and `datasets/`, same names. Returns the number of parts.

    `share` separates the parts of several writers into one folder.
    """
    files, root = place_of(folder)
    for name in ("transactions", "datasets"):
        files.create_dir(f"{root}/{name}", recursive=True)
    parts = 0
    for parts, (transactions, datasets) in enumerate(parts_of(log, rows_per_part), 1):
        for name, table in (("transactions", transactions), ("datasets", datasets)):
            write_part(table, f"{root}/{name}/part-{share:05d}-{parts - 1:05d}.parquet", files)
    return parts


def parts_of(log: Log, most: int) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Cut a log into parts of at most `most` rows, or of one dataset that has more."""
    counts = log.datasets["transactions"].to_pylist()
    first = row = rows = 0
    for number, count in enumerate(counts):
        if rows and rows + count > most:
            yield log.transactions.slice(row, rows), log.datasets.slice(first, number - first)
            first, row, rows = number, row + rows, 0
        rows += count
    yield log.transactions.slice(row, rows), log.datasets.slice(first)


def write_part(table: pa.Table, path: str, files: pafs.FileSystem) -> None:
    """Write one Parquet file. Only texts get dictionaries; statistics are kept where a reader filters."""
    pq.write_table(
        table,
        path,
        filesystem=files,
        compression="zstd",
        compression_level=1,
        use_dictionary=[leaf for field in table.schema for leaf in _text_leaves(field.name, field.type)],
        write_statistics=[name for name in _FILTERED if name in table.column_names],
        row_group_size=_ROW_GROUP,
    )


def write_text(text: str, path: str) -> None:
    files, place = place_of(path)
    files.create_dir(place.rpartition("/")[0], recursive=True)
    with files.open_output_stream(place) as stream:
        stream.write(text.encode())


def _text_leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    # leaves of a column that hold text, as Parquet names them
    if pa.types.is_list(kind):
        yield from _text_leaves(f"{path}.list.element", kind.value_type)
    elif pa.types.is_map(kind):
        yield from (f"{path}.key_value.key", f"{path}.key_value.value")
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _text_leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_string(kind) or pa.types.is_dictionary(kind):
        yield path


def run_stage(
    spark: "SparkSession",
    sources: Sequence[Source],
    target: str,
    outputs: Sequence[str],
    frame: Frame,
    columns: Sequence[str],
    sinks: Mapping[str, Sink] | None = None,
) -> Written:
    """Run a frame over every part of some logs. `target` gets a folder per output, with a part for each part that was read.

    An output with a sink goes there as well.
    """
    sinks = sinks or {}
    sizes = {part: size for number, source in enumerate(sources) for part, size in _parts_of(number, source)}
    into, place = place_of(target)
    for output in outputs:
        into.create_dir(f"{place}/{output}", recursive=True)
    rows, sink_texts = dict.fromkeys(outputs, 0), {output: list[str]() for output in sinks}
    if not sizes:
        return Written(rows, sink_texts)
    tasks = SparkTasks(spark)
    shares = tuple(map(tuple, distribute(sizes, TASKS_PER_SLOT * tasks.slots, lambda part: part)))
    step = _Step(tuple(sources), target, tuple(outputs), frame, tuple(columns), shares, sinks)
    for _, sizes_of_part, texts in sorted(tasks.collect(step, len(shares)), key=lambda part: part[0]):
        for output in outputs:
            rows[output] += sizes_of_part[output]
        for output, text in texts.items():
            sink_texts[output].append(text)
    return Written(rows, sink_texts)


def _parts_of(number: int, source: Source) -> Iterator[tuple[_Part, int]]:
    files, root = place_of(source.folder)
    try:
        infos = files.get_file_info(pafs.FileSelector(f"{root}/transactions"))
    except FileNotFoundError:
        raise FolderGone(source.folder) from None
    for info in infos:
        if not info.base_name.endswith(".parquet"):
            continue
        if source.datasets is not None:
            names = pq.read_table(f"{root}/datasets/{info.base_name}", filesystem=files, columns=["dataset"])["dataset"]
            if source.datasets.isdisjoint(names.to_pylist()):
                continue
        yield (number, info.base_name), info.size


@dataclass(frozen=True)
class _Step:
    """Reads parts, and writes what the frame makes of each."""

    sources: tuple[Source, ...]
    target: str
    outputs: tuple[str, ...]
    frame: Frame
    columns: tuple[str, ...]
    shares: tuple[tuple[_Part, ...], ...]
    sinks: Mapping[str, Sink]

    def __call__(self, number: int) -> Iterator[_PartWritten]:
        pa.set_cpu_count(1)
        for part in self.shares[number]:
            yield self._part(*part)

    def _part(self, number: int, name: str) -> _PartWritten:
        source = self.sources[number]
        files, root = place_of(source.folder)
        transactions = pq.read_table(
            f"{root}/transactions/{name}", filesystem=files, columns=list(self.columns), use_threads=False
        )
        datasets = pq.read_table(f"{root}/datasets/{name}", filesystem=files, use_threads=False)
        if source.datasets is not None:
            transactions, datasets = (_only(table, source.datasets) for table in (transactions, datasets))
        tables = self.frame(transactions, datasets)
        into, place = place_of(self.target)
        part = _output_part(number, name)
        for output in self.outputs:
            write_part(tables[output], f"{place}/{output}/{part}", into)
        texts = {output: sink(tables[output]) for output, sink in self.sinks.items()}
        return part, {output: len(tables[output]) for output in self.outputs}, texts


def _only(table: pa.Table, datasets: frozenset[str]) -> pa.Table:
    return table.filter(pc.is_in(table["dataset"].cast(pa.string()), pa.array(sorted(datasets), pa.string())))


def read_parts(sources: Sequence[Source], folder: str, outputs: Sequence[str]) -> Iterator[tuple[pa.Table, ...]]:
    """Yield the datasets of each part with the stage's outputs, which must be small."""
    into, place = place_of(folder)
    for number, source in enumerate(sources):
        files, root = place_of(source.folder)
        for (_, name), _ in sorted(_parts_of(number, source)):
            datasets = pq.read_table(f"{root}/datasets/{name}", filesystem=files).cast(DATASETS)
            chosen = datasets if source.datasets is None else _only(datasets, source.datasets)
            paths = (f"{place}/{output}/{_output_part(number, name)}" for output in outputs)
            yield chosen, *(pq.read_table(path, filesystem=into) for path in paths)


def by_folder(folders: Mapping[str, str]) -> dict[str, list[str]]:
    """Group datasets by the folder that holds their rows."""
    groups: dict[str, list[str]] = {}
    for dataset, folder in folders.items():
        groups.setdefault(folder, []).append(dataset)
    return groups


def read_datasets(sources: Sequence[Source]) -> pa.Table:
    tables = [DATASETS.empty_table()]
    for source in sources:
        table = read_output(source.folder, "datasets").cast(DATASETS)
        tables.append(table if source.datasets is None else _only(table, source.datasets))
    return pa.concat_tables(tables)


def read_output(
    folder: str, output: str, datasets: Sequence[str] | None = None, columns: Sequence[str] | None = None
) -> pa.Table:
    """Read an output as one table: all of it, if small, or some columns of some datasets."""
    rows_of_datasets = None if datasets is None else pc.field("dataset").isin(list(datasets))
    return parquet(inside(folder, output)).to_table(columns=None if columns is None else list(columns), filter=rows_of_datasets)


def read_transactions(sources: Sequence[Source], datasets: Sequence[str], columns: Sequence[str]) -> pa.Table:
    """Read columns of the datasets' transactions from the newest log of each. `columns` begin with `dataset`."""
    schema = pa.schema([LOG.field(name) for name in columns])
    tables = [schema.empty_table()]
    for source in sources:
        if names := sorted(set(datasets) & (source.datasets or set(datasets))):
            tables.append(read_output(source.folder, "transactions", names, columns).cast(schema))
    return pa.concat_tables(tables).unify_dictionaries()


def parquet(folder: str, schema: pa.Schema | None = None) -> "ds.Dataset":
    # imports pandas: a quarter of a second that loading definitions does not need
    import pyarrow.dataset as ds

    files, root = place_of(folder)
    try:
        return ds.dataset(root, filesystem=files, format="parquet", schema=schema)
    except FileNotFoundError:
        raise FolderGone(folder) from None


def _output_part(number: int, name: str) -> str:
    return f"from-{number:03d}-{name}"

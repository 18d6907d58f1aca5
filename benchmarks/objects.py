"""Finding what nothing refers to: a scan in Spark's tasks, beside DuckDB and Spark joining the same files by their keys.

Belongs here: environments of objects and references in Parquet, and the contenders. All of them answer how many objects nothing
refers to. The scan does more than that: it leaves the class of each object and what is unreferenced in files, and counts by
class.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention_assets.pipeline.file_systems import place_of
from retention_assets.pipeline.stage import SparkTasks
from retention_assets.stores.objects import ObjectsSettings
from retention_assets.stores.objects.folder import ScanFolder
from retention_assets.stores.objects.scan import Scan, scan_in
from retention_assets.stores.objects.scan_result import ObjectClass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from benchmarks.measures import Contender
    from benchmarks.sections import Bench

_FILES = 8
_GROUP = 1 << 17
# Of 20,000,000 objects 316,800 have no reference; 1,683,200 are too young to be judged.
_UNREFERENCED, _REFERENCED = 0.01584, 0.9
_AS_OF = "2026-03-31T12:00:00Z"
# How many objects are listed for each row of a run: of the default 10,000,000 rows 2, 20 and 50 million.
_SIZES = (0.2, 2.0, 5.0)
# Beyond this many objects the joins by keys are left out: they take minutes.
_JOINED = 20_000_000
_CUT_OFF = "2026-03-31 09:00:00+00"
_SCHEMAS = {
    "objects": pa.schema([("key", pa.string()), ("created_at", pa.timestamp("us", tz="UTC")), ("size", pa.int64())]),
    "references": pa.schema([("object", pa.string())]),
}


def environment(folder: Path, objects: int) -> int:
    """Objects and references in files; how many objects nothing refers to. Keys have 40 to 60 bytes."""
    rng = np.random.default_rng(1)
    referenced, unreferenced = int(objects * _REFERENCED), max(1, int(objects * _UNREFERENCED))
    order = rng.permutation(objects)
    places = np.empty(objects, dtype=np.int64)
    places[order] = np.arange(objects)
    for name, numbers in (("objects", rng.permutation(objects)), ("references", order[:referenced])):
        (folder / name).mkdir(parents=True)
        for file, part in enumerate(np.array_split(numbers, _FILES)):
            path = folder / name / f"part-{file}.parquet"
            with pq.ParquetWriter(path, _SCHEMAS[name], compression="snappy", use_dictionary=False) as writer:
                for begin in range(0, len(part), _GROUP):
                    some = part[begin : begin + _GROUP]
                    columns: list[pa.Array] = [_keys(some)]
                    if name == "objects":
                        columns += [
                            _times(some, places, referenced, unreferenced),
                            pa.array(rng.integers(0, 1 << 24, len(some))),
                        ]
                    writer.write_table(pa.table(columns, schema=_SCHEMAS[name]))
    return unreferenced


def _keys(numbers: npt.NDArray[np.int64]) -> pa.Array:
    """A name for each number, of which no two are alike."""
    text = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 12, "0")
    tail = pa.array(["x" * length for length in range(21)]).take(pa.array(numbers * 7919 % 21))
    return pc.binary_join_element_wise("warehouse/sales/", text, tail, ".parquet", "")


def _times(numbers: npt.NDArray[np.int64], places: npt.NDArray[np.int64], referenced: int, unreferenced: int) -> pa.Array:
    """Old enough, but for those that have no reference and are to be young."""
    young = places[numbers] >= referenced + unreferenced
    created = np.datetime64("2026-03-31T11:00", "us").astype(np.int64) - np.where(young, 0, 10**12)
    return pa.array(created).view(pa.timestamp("us", tz="UTC"))


def scan_of(folder: Path) -> Scan:
    """A scan of an environment."""
    given = {
        "name": "blobs",
        "listing": {"parquet": {"files": f"{folder}/objects/*.parquet", "as_of": _AS_OF}},
        "references": [{"parquet": f"{folder}/references/*.parquet"}],
    }
    return Scan.of(ObjectsSettings.model_validate(given))


@dataclass(frozen=True)
class Scanned:
    """Ours, in Spark's tasks."""

    spark: "SparkSession"
    folder: Path
    expected: int

    def __call__(self) -> None:
        work = self.folder / "scan"
        rmtree(work, ignore_errors=True)
        result = scan_in(SparkTasks(self.spark), scan_of(self.folder), ScanFolder(str(work), place_of))
        assert result.total(ObjectClass.UNREFERENCED)[0] == self.expected, result


def duck(folder: Path, expected: int, cores: int) -> None:
    """An anti-join of keys in DuckDB."""
    with duckdb.connect(config={"threads": cores}) as database:
        found = database.execute(
            f"SELECT count(*) FROM read_parquet('{folder}/objects/*.parquet') o ANTI JOIN"
            f" read_parquet('{folder}/references/*.parquet') r ON o.key = r.object"
            f" WHERE o.created_at <= TIMESTAMPTZ '{_CUT_OFF}'"
        ).fetchall()
    assert found == [(expected,)], found


def duck_classes(folder: Path, expected: int, cores: int) -> None:
    """What the scan leaves besides its counts, in DuckDB: the class of every object, and what is unreferenced, in files."""
    work = folder / "duckdb"
    rmtree(work, ignore_errors=True)
    work.mkdir()
    kept = ", ".join(f"CASE WHEN class = 'unreferenced' THEN {name} END AS {name}" for name in ("key", "created_at", "size"))
    with duckdb.connect(config={"threads": cores}) as database:
        database.execute(
            f"COPY (SELECT class, {kept} FROM (SELECT o.*, CASE WHEN o.created_at > TIMESTAMPTZ '{_CUT_OFF}' THEN 'young' WHEN"
            f" r.object IS NULL THEN 'unreferenced' ELSE 'referenced' END AS class FROM read_parquet('{folder}/objects/*.parquet')"
            f" o LEFT JOIN (SELECT DISTINCT object FROM read_parquet('{folder}/references/*.parquet')) r ON o.key = r.object))"
            f" TO '{work}' (FORMAT parquet, COMPRESSION uncompressed, PER_THREAD_OUTPUT)"
        )
        found = database.execute(f"SELECT count(*) FROM '{work}/*.parquet' WHERE class = 'unreferenced'").fetchall()
    assert found == [(expected,)], found


@dataclass(frozen=True)
class Joined:
    """An anti-join of keys in Spark."""

    spark: "SparkSession"
    folder: Path
    expected: int

    def __call__(self) -> None:
        objects, references = (self.spark.read.parquet(f"{self.folder}/{name}") for name in _SCHEMAS)
        old = objects.where(f"created_at <= timestamp'{_CUT_OFF}'")
        found = old.join(references, old["key"] == references["object"], "left_anti").count()
        assert found == self.expected, found


def objects(bench: "Bench") -> None:
    """The scan of 2, 20 and 50 million objects in a full run, and the joins up to 20 million."""
    for factor in _SIZES:
        count = max(1_000, int(bench.sizes.rows * factor))
        name = f"objects-{count}"
        folder = bench.folder / name
        bench.say(f"making {count:,} objects and their references")
        expected = environment(folder, count)
        contenders: dict[str, Contender] = {"scan": Scanned(bench.spark, folder, expected)}
        if count <= _JOINED:
            contenders["duckdb: anti-join"] = partial(duck, folder, expected, bench.sizes.cores)
            contenders["duckdb: classes in files"] = partial(duck_classes, folder, expected, bench.sizes.cores)
            contenders["spark: anti-join"] = Joined(bench.spark, folder, expected)
        bench.meet("objects", f"{count:,} objects", contenders, count)
        bench.clear(name)

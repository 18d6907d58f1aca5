"""The exchange format: reads JSON lines or Parquet, from a file or folder, into the lines of a log.

A fault of one line (no zone, bytes as text) refuses its dataset. Only lines without a dataset, invalid JSON or unknown keys
refuse the file.
"""

from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import BadInput, Problem, irregular
from retention_assets.exchange.compression import is_packed
from retention_assets.exchange.json_lines import KEYS, SMALL, datasets_of_json, few_ids, read_json
from retention_assets.exchange.parquet import read_parquet
from retention_assets.frames.log import LINES, Log, move_heads
from retention_assets.frames.soundness import sound_log

__all__ = [
    "ADDED", "KEYS", "SMALL", "datasets_in", "ids_in", "is_log", "is_plain", "joined_lines", "read_file", "read_lines",
    "read_log", "reading_order",
]  # fmt: skip

_PLAIN = (".jsonl", ".ndjson", ".json")
# Prefix of the files that sweeps add to a folder of logs.
ADDED = "retention-"


def read_log(path: Path) -> Log:
    return sound_log(read_lines(path))


def read_lines(path: Path) -> pa.Table:
    return joined_lines([read_file(file) for file in _files(path)])


def joined_lines(tables: Collection[pa.Table]) -> pa.Table:
    return move_heads(pa.concat_tables([LINES.empty_table(), *tables]).combine_chunks())


def read_file(file: Path, datasets: Collection[str] | None = None) -> pa.Table:
    """Lines of one file, or of some of its datasets. A fault of the file refuses it whichever datasets are asked for."""
    if file.suffix != ".parquet":
        return read_json(file, datasets)
    table = read_parquet(file)
    return table if datasets is None else table.filter(pc.is_in(table["dataset"], pa.array(datasets, pa.string())))


def datasets_in(file: Path) -> list[str]:
    if file.suffix == ".parquet":
        return sorted(pc.unique(read_parquet(file)["dataset"]).to_pylist())
    return datasets_of_json(file)


def ids_in(file: Path) -> pa.Table:
    """Dataset and transaction of each line with a transaction. Small files are not read whole."""
    ids = few_ids(file) if file.suffix != ".parquet" else None
    lines = read_file(file).select(["dataset", "transaction"]) if ids is None else ids
    return lines.filter(pc.is_valid(lines["transaction"]))


def is_log(name: str) -> bool:
    return name.endswith((*_PLAIN, ".parquet")) or (is_packed(name) and name.rpartition(".")[0].endswith(_PLAIN))


def is_plain(name: str) -> bool:
    return not is_packed(name) and not name.endswith(".parquet")


def reading_order(name: str) -> tuple[bool, str]:
    """By name, added files last: a line without a parent must not follow one that nobody wrote before it."""
    return name.startswith(ADDED), name


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        files = [_regular(file) for file in path.iterdir() if is_log(file.name) and file.exists() and not file.is_dir()]
        if files:
            return sorted(files, key=lambda file: reading_order(file.name))
        raise BadInput(Problem("holds no log", file=str(path), expected="files that end in .jsonl or .parquet"))
    if not path.exists():
        raise BadInput(
            Problem("is not there", file=str(path), expected="a log: a file of JSON lines or Parquet, or a folder of them")
        )
    return [_regular(path)]


def _regular(file: Path) -> Path:
    if not file.is_file():
        raise BadInput(irregular(str(file)))
    return file

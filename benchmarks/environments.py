"""Environments from a seed: datasets x transactions x branches x shape, as the clustered log that a stage reads.

Belongs here: making logs, all at once in arrays. The same arguments give the same log, on any machine and in any number of
batches. Ids are sixteen random hex digits, as those of real systems: ids that count from 1 would compress to nothing and
flatter everybody who reads or writes them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from retention_assets.frames import DATASETS, INSTANT, LOG, Log
from retention_assets.frames.log import ATTRIBUTES
from retention_assets.pipeline.stage import ROWS_PER_PART, write_log
from retention_assets.policy import micros

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

AS_OF = datetime(2026, 6, 1, tzinfo=UTC)
SPAN = 200 * 86_400 * 1_000_000

# What an environment of many datasets is made of, in this proportion: most histories fork now and then, few are plain.
MIX = ("forked", "forked", "interleaved", "linear", "forked", "snapshots", "forked", "interleaved", "appends", "forked")
SHAPES = ("linear", "forked", "interleaved", "snapshots", "appends")

TYPES = ("SNAPSHOT", "APPEND", "UPDATE", "DELETE")
STATUSES = ("OPEN", "COMMITTED", "ABORTED")
_TYPE_ODDS = (0.10, 0.87, 0.95)
_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class Environment:
    """How many datasets of how many transactions, with up to how many branches, of which shapes in turn."""

    datasets: int
    transactions: int
    branches: int = 4
    shapes: Sequence[str] = MIX
    seed: int = 1

    @property
    def rows(self) -> int:
        """Transactions altogether."""
        return self.datasets * self.transactions

    def logs(self) -> Iterator[Log]:
        """The log in batches of whole datasets, so that thirty million rows never are in memory together."""
        step = max(1, _AT_ONCE // self.transactions)
        for first in range(0, self.datasets, step):
            yield self.log(first, min(step, self.datasets - first))

    def log(self, first: int = 0, count: int | None = None) -> Log:
        """Some of the datasets, all when left out."""
        datasets = np.arange(first, first + (self.datasets if count is None else count))
        size = self.transactions
        shape = np.array([SHAPES.index(name) for name in self.shapes])[datasets % len(self.shapes)]
        parents = np.empty((len(datasets), size), dtype=np.int64)
        heads: list[Ints] = []
        names: list[Ints] = []
        for number in np.unique(shape):
            mine = np.flatnonzero(shape == number)
            parents[mine], tips = _grown(SHAPES[number], datasets[mine], size, self.branches, self.seed)
            heads.append((mine[:, None] * size + tips).ravel())
            names.append(np.tile(np.arange(len(tips)), len(mine)))
        at, name = np.concatenate(heads), np.concatenate(names)
        # A twentieth of the datasets has lost its last branch: what lay on it alone is unreachable.
        lost = _noise(datasets, 1, self.seed) % np.uint64(20) == 0
        kept = ~(lost[at // size] & (name == self.branches - 1) & (name > 0))
        branch_names = ["main", *(f"feature/{number:06d}" for number in range(1, self.branches))]
        sorts = np.repeat(shape, size)
        return _log_of(
            _names(datasets, "d"), datasets, size, parents.ravel(), (at[kept], name[kept], branch_names), self.seed,
            all_snapshots=sorts == SHAPES.index("snapshots"), all_appends=sorts == SHAPES.index("appends"),
        )  # fmt: skip


def comb(branches: int, length: int, seed: int = 1) -> Log:
    """One dataset whose main branch has as many steps as there are branches: at each step one leaves, `length` long."""
    size = branches * (length + 1)
    parent = np.arange(size, dtype=np.int64) - 1
    spine = np.arange(branches, dtype=np.int64) * (length + 1)
    parent[spine] = spine - (length + 1)
    parent[0] = -1
    return _tree("comb", parent, np.append(spine[-1], spine + length), seed)


def star(branches: int, length: int, seed: int = 1) -> Log:
    """One dataset in which every branch leaves at the root, `length` long."""
    parent = np.arange(branches * length + 1, dtype=np.int64) - 1
    parent[1::length] = 0
    return _tree("star", parent, np.append(0, np.arange(1, branches + 1) * length), seed)


def write(logs: Iterable[Log], folder: Path, rows_per_part: int = ROWS_PER_PART) -> int:
    """Write batches of a log as parts of one. Returns how many parts."""
    parts = 0
    for number, log in enumerate(logs):
        batch = folder / f"batch-{number}"
        written = write_log(log, str(batch), rows_per_part)
        for name in ("transactions", "datasets"):
            (folder / name).mkdir(parents=True, exist_ok=True)
            for index, part in enumerate(sorted((batch / name).iterdir())):
                part.rename(folder / name / f"part-{parts + index:05d}.parquet")
            (batch / name).rmdir()
        batch.rmdir()
        parts += written
    return parts


def _grown(shape: str, datasets: Ints, size: int, branches: int, seed: int) -> tuple[Ints, Ints]:
    """The parents of datasets of one shape, and the ordinals of their heads, the first of them main's."""
    parents = np.tile(np.arange(size, dtype=np.int64) - 1, (len(datasets), 1))
    side = min(size // 20, size // (2 * branches))
    if shape not in ("forked", "interleaved") or branches < 2 or side < 1:
        return parents, np.array([size - 1])
    draws = np.stack([_noise(datasets, 10 + number, seed) for number in range(branches - 1)], axis=1)
    if shape == "forked":
        # Side branches leave somewhere along main and are written after it, one after the other.
        trunk = size - side * (branches - 1)
        starts = trunk + side * np.arange(branches - 1)
        parents[:, starts] = (draws % np.uint64(trunk)).astype(np.int64)
        return parents, np.append(trunk - 1, starts + side - 1)
    # All branches grow at once: their transactions take turns in the log.
    tail = np.arange(size - side * branches, size)
    parents[:, tail] = tail - branches
    first = tail[:branches]
    parents[:, first[1:]] = (draws % np.uint64(first[0])).astype(np.int64)
    parents[:, first[0]] = first[0] - 1
    return parents, tail[-branches:]


def _tree(name: str, parent: Ints, heads: Ints, seed: int) -> Log:
    names = ["main", *(f"feature/{number:06d}" for number in range(1, len(heads)))]
    none = np.zeros(len(parent), dtype=bool)
    return _log_of(
        pa.array([f"lake/{name}"]), np.array([0]), len(parent), parent, (heads, np.arange(len(heads)), names), seed, none, none
    )  # fmt: skip


def _log_of(
    names: pa.Array,
    datasets: Ints,
    size: int,
    parent: Ints,
    heads: tuple[Ints, Ints, Sequence[str]],
    seed: int,
    all_snapshots: Bools,
    all_appends: Bools,
) -> Log:
    """The tables of equally long datasets, from their parents and heads; everything else is drawn by row."""
    count = len(datasets)
    n = count * size
    ordinal = np.tile(np.arange(size, dtype=np.int64), count)
    row = np.repeat(datasets * size, size) + ordinal
    draw = (_noise(row, 2, seed) >> np.uint64(11)).astype(np.float64) / 2.0**53
    type_ = np.searchsorted(_TYPE_ODDS, draw, side="right").astype(np.int32)
    type_[ordinal == 0] = 0
    type_[all_snapshots] = 0
    type_[all_appends] = 1
    chance = _noise(row, 3, seed)
    status = np.where(chance % np.uint64(50) == 0, 2, 1).astype(np.int32)
    status[(chance % np.uint64(5) == 0) & (ordinal == size - 1)] = 0
    phase = (_noise(datasets, 4, seed) % np.uint64(86_400_000_000)).astype(np.int64)
    closed = micros(AS_OF) - SPAN - np.repeat(phase, size) + ordinal * (SPAN // size)
    ids = _hex(_noise(row, 5, seed))
    above = np.where(parent < 0, 0, np.repeat(np.arange(count) * size, size) + parent)
    tagged, tag_of, expiries = _tags(datasets, size, seed)
    columns = {
        "dataset": pa.DictionaryArray.from_arrays(pa.array(np.repeat(np.arange(count, dtype=np.int32), size)), names),
        "transaction": _strings(ids, None),
        "ordinal": pa.array(ordinal.astype(np.int32)),
        "parent_ordinal": pa.array(parent.astype(np.int32)),
        "parent": _strings(ids[above], parent >= 0),
        "type": pa.DictionaryArray.from_arrays(pa.array(type_), pa.array(TYPES)),
        "status": pa.DictionaryArray.from_arrays(pa.array(status), pa.array(STATUSES)),
        "opened_at": pa.array(closed - 60_000_000).view(INSTANT),
        "closed_at": pa.array(closed, mask=status == 0).view(INSTANT),
        "bytes": pa.array((chance >> np.uint64(34)).astype(np.int64)),
        "files": pa.array((chance % np.uint64(40)).astype(np.int64)),
        "heads": _lists(n, heads[0], pa.array(heads[2], pa.string()).take(pa.array(heads[1]))),
        "tags": _lists(n, tagged, tag_of),
        "tag_expiries": _lists(n, tagged, expiries),
    }
    transactions = pa.table({field.name: columns.get(field.name, pa.nulls(n, field.type)) for field in LOG}, schema=LOG)
    facts = {"dataset": names, "transactions": pa.array(np.full(count, size)), "attributes": pa.nulls(count, ATTRIBUTES)}
    about = pa.table({field.name: facts.get(field.name, pa.nulls(count, field.type)) for field in DATASETS}, schema=DATASETS)
    return Log(transactions, about)


def _tags(datasets: Ints, size: int, seed: int) -> tuple[Ints, pa.Array, pa.Array]:
    """A tenth of the datasets has a tag somewhere; half of the tags have expired."""
    draw = _noise(datasets, 6, seed)
    mine = np.flatnonzero(draw % np.uint64(10) == 0)
    at = mine * size + (_noise(datasets[mine], 7, seed) % np.uint64(size)).astype(np.int64)
    expired = (draw[mine] >> np.uint64(32)) % np.uint64(2) == 0
    expiries = np.full(len(mine), micros(AS_OF) - 86_400_000_000)
    return at, pa.array(["release"] * len(mine), pa.string()), pa.array(expiries, mask=~expired).view(INSTANT)


def _lists(n: int, at: Ints, values: pa.Array) -> pa.ListArray:
    """A list column with these values at these rows, empty elsewhere."""
    order = np.argsort(at, kind="stable")
    offsets = np.zeros(n + 1, dtype=np.int32)
    np.cumsum(np.bincount(at, minlength=n), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), values.take(pa.array(order)))


def _names(datasets: Ints, letter: str) -> pa.Array:
    return pa.array([f"lake/{letter}{number:06d}" for number in datasets.tolist()], pa.string())


def _noise(values: Ints, stream: int, seed: int) -> npt.NDArray[np.uint64]:
    """Random bits that depend on the value alone (splitmix64), so that batches agree with the whole."""
    with np.errstate(over="ignore"):
        x = values.astype(np.uint64) + np.uint64((seed * 1_000_003 + stream) * 0x9E3779B97F4A7C15 % 2**64)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    noise: npt.NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return noise


_PAIRS = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), dtype=np.uint16)


def _hex(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint16]:
    """Sixteen hex digits for each value, two per element."""
    digits: npt.NDArray[np.uint16] = _PAIRS[values.view(np.uint8).reshape(-1, 8)]
    return digits


def _strings(digits: npt.NDArray[np.uint16], valid: Bools | None) -> pa.Array:
    """Rows of sixteen characters as strings, null where not valid."""
    offsets = np.arange(len(digits) + 1, dtype=np.int32) * 16
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    data = pa.py_buffer(np.ascontiguousarray(digits).tobytes())
    return pa.Array.from_buffers(pa.string(), len(digits), [bitmap, pa.py_buffer(offsets.tobytes()), data])

"""Schemas of a log: one table of transactions, and one of datasets.

A log that follows them is sound and clustered: the rows of a dataset stand together, in the order of `ordinal`, parents
before children. Soundness is decided in soundness.py. Marks are matched with transactions by id and times: databases
reuse ids, and so may a rewritten log.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import NEVER, Bools, Ints, as_micros, changes, flags, integers, join_chunks, keys_of
from retention_assets.policy.globs import is_literal, matches, matching, protecting, protects
from retention_assets.policy.model import Datasets, Hold, Keeper, RetainRule
from retention_assets.policy.realms import REALM, has_attributes

INSTANT = pa.timestamp("us", tz="UTC")
NAME = pa.dictionary(pa.int32(), pa.string())
ATTRIBUTES = pa.map_(pa.string(), pa.string())
# class of an OBJECT by a scan; a dataset has it too if its OBJECTs do
CLASS = "class"
OWN_CLASSES = "::classes"
# attribute of a dataset: anything but `true` says that its store can't commit to its table
COMMITS = "commits.enabled"
# attribute of a dataset: its own window in milliseconds, counted from when the next view began
SUPERSEDED_WINDOW = "window.superseded-ms"
# anything but `false`: what is inside of that window is spared
WINDOW_SPARES = "window.spares"
# `copied`: the times of its commits are those of a copy
COPIED_TIMES = "times"
# `kept`: its DELETEs neither add nor remove a file
EMPTY_VERSIONS = "versions.empty"
# word for a transaction of which data may be shared by others, such as `version`
SHARED_DATA = "data.shared"
# number of files in the folder of a table that its log does not name
STRAYS = "strays"
# bytes are cast to this before they are summed: many large ones overflow 64 bits
SUMMED = pa.decimal128(38, 0)

LOG = pa.schema(
    [
        pa.field("dataset", NAME),
        pa.field("transaction", pa.string()),
        pa.field("ordinal", pa.int32()),
        pa.field("parent_ordinal", pa.int32()),
        pa.field("parent", pa.string()),
        pa.field("type", NAME),
        pa.field("status", NAME),
        pa.field("opened_at", INSTANT),
        pa.field("closed_at", INSTANT),
        pa.field("archived_at", INSTANT),
        pa.field("bytes", pa.int64()),
        pa.field("files", pa.int64()),
        pa.field("file_names", pa.list_(pa.string())),
        pa.field("heads", pa.list_(pa.string())),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("tag_expiries", pa.list_(INSTANT)),
        pa.field("attributes", ATTRIBUTES),
    ]
)

DATASETS = pa.schema(
    [
        pa.field("dataset", pa.string()),
        pa.field("transactions", pa.int64()),
        pa.field("attributes", ATTRIBUTES),
        pa.field("fault", pa.string()),
        pa.field("fault_transaction", pa.string()),
    ]
)

# lines of the exchange format as read, before soundness is known
LINES = pa.schema(
    [
        pa.field("dataset", pa.string()),
        pa.field("transaction", pa.string()),
        pa.field("parent", pa.string()),
        pa.field("parent_given", pa.bool_()),
        pa.field("type", pa.string()),
        pa.field("status", pa.string()),
        pa.field("opened_at", INSTANT),
        pa.field("closed_at", INSTANT),
        pa.field("archived_at", INSTANT),
        pa.field("bytes", pa.int64()),
        pa.field("files", pa.int64()),
        pa.field("file_names", pa.list_(pa.string())),
        pa.field("attributes", ATTRIBUTES),
        pa.field("branch", pa.string()),
        pa.field("tag", pa.string()),
        pa.field("head", pa.string()),
        pa.field("expires_at", INSTANT),
        pa.field("realm", pa.string()),
        pa.field("fault", pa.string()),
    ]
)

# times that tell a reused id from the transaction that had it before
TIMES = ("opened_at", "closed_at")
# statuses of marks that are open or swept
LIVING = ("MARKED", "SWEEPING", "SWEPT")
# transactions that are marked or swept; the times of swept ones tell if their ids belong to others now
KNOWN_ROWS = pa.schema(
    [("dataset", pa.string()), ("transaction", pa.string()), *((name, INSTANT) for name in TIMES), ("swept", pa.bool_())]
)


@dataclass(frozen=True)
class Log:
    """Sound transactions, and every dataset that was read: a refused one has its fault here and no transaction."""

    transactions: pa.Table
    datasets: pa.Table

    @property
    def attributes(self) -> dict[str, str]:
        """Attributes of the first dataset, for logs of one."""
        return dict(self.datasets["attributes"][0].as_py() or ())


def sums_by(rows: pa.Table, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Number and bytes of the transactions that have the same values in some columns."""
    sized = rows.select(columns).append_column("bytes", rows["bytes"].cast(SUMMED))
    sums = sized.group_by(list(columns)).aggregate([([], "count_all"), ("bytes", "sum")]).to_pylist()
    return [
        {**{name: row[name] for name in columns}, "transactions": row["count_all"], "bytes": int(row["bytes_sum"] or 0)}
        for row in sums
    ]


def realms_of(table: pa.Table) -> pa.Array:
    return attribute_of(table, REALM)


def attribute_of(table: pa.Table, key: str) -> pa.Array:
    """Value of one attribute in each row, null where it is absent."""
    return pc.map_lookup(join_chunks(table["attributes"]).cast(ATTRIBUTES), key, "first")


def datasets_with(datasets: pa.Table, key: str, value: str) -> frozenset[str]:
    is_equal = pc.fill_null(pc.equal(attribute_of(datasets, key), value), False)
    return frozenset(datasets["dataset"].filter(is_equal).to_pylist())


def copied_datasets(datasets: pa.Table) -> frozenset[str]:
    return datasets_with(datasets, COPIED_TIMES, "copied")


def refusals_of(datasets: pa.Table) -> dict[str, dict[str, str | None]]:
    refused = datasets.filter(pc.is_valid(datasets["fault"])).select(["dataset", "fault", "fault_transaction"])
    return {row["dataset"]: {"fault": row["fault"], "transaction": row["fault_transaction"]} for row in refused.to_pylist()}


def fault_sentence(refusal: Mapping[str, str | None]) -> str:
    at = f" (transaction {refusal['transaction']})" if refusal["transaction"] else ""
    return f"{refusal['fault']}{at}"


def faults_of(datasets: pa.Table) -> dict[str, str]:
    return {name: fault_sentence(refusal) for name, refusal in refusals_of(datasets).items()}


def is_same_life(marks: pa.Table, rows: pa.Table) -> Bools:
    """For each mark, tell whether the row beside it is the transaction that was marked.

    A mark without any time matches whatever row is there: logs may know no times of what was aborted.
    """
    noted, present = ([as_micros(table[name]) for name in TIMES] for table in (marks, rows))
    unknown: Bools = np.logical_and.reduce([times == NEVER for times in noted])
    same: Bools = np.logical_and.reduce([before == now for before, now in zip(noted, present, strict=True)])
    return unknown | same


def is_same_again(marks: pa.Table, rows: pa.Table) -> Bools:
    """For each mark, tell whether the row beside it may be what was deleted: an object is known by the note of its plan."""
    is_object: Bools = flags(pc.equal(rows["type"].cast(pa.string()), "OBJECT"))
    same: Bools = np.logical_and.reduce([as_micros(marks[name]) == as_micros(rows[name]) for name in TIMES])
    return is_object | same


def is_in_log(marks: pa.Table, log: pa.Table) -> Bools:
    """For each mark, tell whether a log still has that transaction; under its id it may have another one."""
    at = pc.index_in(keys_of(marks), value_set=keys_of(log))
    is_there = flags(pc.is_valid(at))
    rows = log.select(TIMES).take(at.drop_null())
    is_there[is_there] = is_same_life(marks.filter(pa.array(is_there)), rows)
    return is_there


def known_rows(marks: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Convert rows of marks that are open or swept to KNOWN_ROWS."""
    for batch in marks:
        # an open mark blocks its id, whatever the transaction
        swept = pc.equal(batch["status"], "SWEPT")
        times = (pc.if_else(swept, batch[name], pa.scalar(None, INSTANT)) for name in TIMES)
        yield pa.record_batch([batch["dataset"], batch["transaction"], *times, swept], schema=KNOWN_ROWS)


def in_one_piece(log: pa.Table) -> pa.Table:
    """Combine the chunks of all columns but the ids, which are the largest and only passed on."""
    for number, field in enumerate(log.schema):
        column = log.column(number)
        if column.num_chunks > 1 and field.name != "transaction":
            log = log.set_column(number, field, column.combine_chunks())
    return log


def selects_dataset(datasets: Datasets, name: str, attributes: Mapping[str, str]) -> bool:
    return selects_name(datasets, name) and has_attributes(attributes, datasets.with_)


def selects_name(datasets: Datasets, name: str) -> bool:
    """Go by the name alone, whatever attributes are asked for."""
    return matches(name, datasets.include) and not protects(name, datasets.exclude)


class DatasetKeepers(NamedTuple):
    """Keepers about one dataset: holds keep by name, retain rules by a look at the log."""

    holds: tuple[Hold, ...]
    rules: tuple[RetainRule, ...]


def keepers_about(
    keepers: Iterable[Keeper], dataset: str, attributes: Mapping[str, str] | None, as_of: datetime
) -> DatasetKeepers:
    """Return the keepers that are in force about a dataset. A dataset of unknown attributes (None) may have had any."""
    about = [keeper for keeper in keepers if keeper.is_live(as_of) and holds_dataset(keeper, dataset, attributes)]
    holds = (keeper for keeper in about if isinstance(keeper, Hold))
    return DatasetKeepers(tuple(holds), tuple(keeper for keeper in about if isinstance(keeper, RetainRule)))


def holds_dataset(keeper: Keeper, name: str, attributes: Mapping[str, str] | None) -> bool:
    # In a hold an exclude is what lets go, so it means no more than it says.
    is_named = protects(name, keeper.datasets.include) and not matches(name, keeper.datasets.exclude)
    return is_named and (attributes is None or has_attributes(attributes, keeper.datasets.with_))


def datasets_chosen_by(
    log: pa.Table, bounds: Ints, datasets: pa.Table, choosers: Sequence[Datasets], are_holds: bool = False
) -> Bools:
    """Datasets of the batch that each chooser is about: a matrix of datasets x choosers."""
    include, exclude = (protecting, matching) if are_holds else (matching, protecting)
    names: list[str] = log["dataset"].take(pa.array(bounds[:-1])).cast(pa.string()).to_pylist()
    chosen = np.zeros((len(names), len(choosers)), dtype=bool)
    attributes: dict[str, dict[str, str]] = {}
    if any(chooser.with_ for chooser in choosers):
        attributes = {
            name: dict(pairs or ())
            for name, pairs in zip(datasets["dataset"].to_pylist(), datasets["attributes"].to_pylist(), strict=True)
        }
    place = {name: row for row, name in enumerate(names)}
    for number, chooser in enumerate(choosers):
        chosen[_rows_of_globs(chooser.include, names, place, include), number] = True
        chosen[_rows_of_globs(chooser.exclude, names, place, exclude), number] = False
        if chooser.with_:
            has = [has_attributes(attributes.get(name, {}), chooser.with_) for name in names]
            chosen[:, number] &= np.array(has, dtype=bool)
    return chosen


def _rows_of_globs(
    globs: Sequence[str],
    names: Sequence[str],
    place: dict[str, int],
    match: Callable[[Sequence[str], Iterable[str]], list[bool]],
) -> list[int]:
    # Literal names are looked up, so a policy about one dataset costs one look-up.
    rows = [place[glob] for glob in globs if glob in place]
    patterns = [glob for glob in globs if not (is_literal(glob) and (match is matching or glob.isascii()))]
    if patterns:
        rows += [row for row, matched in enumerate(match(names, patterns)) if matched]
    return rows


def bounds_of(log: pa.Table) -> Ints:
    """First row of each dataset, and the end."""
    index = integers(join_chunks(log["dataset"]).indices, -1)
    return np.append(np.flatnonzero(changes(index)), len(index))


def by_dataset(table: pa.Table) -> dict[str, pa.Table]:
    """Rows of each dataset in their order; those of one dataset may lie apart. A row without a dataset is in none."""
    encoded = join_chunks(table["dataset"].cast(pa.string()).dictionary_encode().unify_dictionaries())
    codes = integers(encoded.indices, -1)
    starts = np.flatnonzero(changes(codes))
    if len(starts) > len(encoded.dictionary):
        order = np.argsort(codes, kind="stable")
        table, codes = table.take(pa.array(order)), codes[order]
        starts = np.flatnonzero(changes(codes))
    names, bounds = encoded.dictionary.to_pylist(), pairwise([*starts.tolist(), len(codes)])
    own = zip(codes[starts].tolist(), bounds, strict=True)
    return {names[code]: table.slice(begin, end - begin) for code, (begin, end) in own if code >= 0}


# attribute of a transaction that a sweep added, and the attribute that names its branch
PROVENANCE = {"provenance": "retention"}
BRANCH = "branch"


def move_heads(lines: pa.Table) -> pa.Table:
    """Move each branch to the last of the DELETE transactions that sweeps added at its head.

    A sweep inside a latest view only appends to a log, so the line that says where a branch stands is older than the DELETE
    above it. What a person committed meanwhile wins.
    """
    next_of = _sweep_deletes(lines)
    if not next_of:
        return lines
    at = pc.and_(pc.is_valid(lines["branch"]), pc.is_in(lines["dataset"], pa.array({dataset for dataset, _, _ in next_of})))
    refs = lines.select(["dataset", "branch", "head"]).filter(at).to_pylist()
    heads = pa.array([_moved(next_of, **ref) for ref in refs], pa.string())
    moved = pc.replace_with_mask(lines["head"].combine_chunks(), pc.fill_null(at, False).combine_chunks(), heads)
    return lines.set_column(LINES.names.index("head"), LINES.field("head"), moved)


def _sweep_deletes(lines: pa.Table) -> dict[tuple[str, str, str], str]:
    # by dataset, branch and parent; of two in one place the first
    here = pc.and_(pc.equal(lines["type"], "DELETE"), pc.equal(lines["status"], "COMMITTED"))
    here = pc.and_(here, pc.and_(pc.is_valid(lines["attributes"]), pc.is_valid(lines["parent"])))
    deletes: dict[tuple[str, str, str], str] = {}
    for line in lines.select(["dataset", "parent", "transaction", "attributes"]).filter(here).to_pylist():
        attributes = dict(line["attributes"])
        if line["transaction"] and attributes.items() >= PROVENANCE.items() and BRANCH in attributes:
            deletes.setdefault((line["dataset"], attributes[BRANCH], line["parent"]), line["transaction"])
    return deletes


def _moved(next_of: Mapping[tuple[str, str, str], str], dataset: str, branch: str, head: str | None) -> str | None:
    seen = set()
    # A cycle of parents is a fault of the dataset, which is not found here.
    while head is not None and head not in seen:
        seen.add(head)
        head = next_of.get((dataset, branch, head), head)
    return head

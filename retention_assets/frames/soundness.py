"""From lines to a sound log: ordinals, parents before children, and a fault for each dataset that cannot be trusted.

A dataset with a fault is left out whole, with the first fault of the first kind in the order below; the others go on.
Nothing downstream checks a log again, so a fault that passes here could delete data. All of it is array work: no loop over
lines.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import Bools, Ints, changes, flags, integers, inverse, join_chunks
from retention_assets.frames.log import (
    ATTRIBUTES,
    CLASS,
    DATASETS,
    INSTANT,
    LINES,
    LOG,
    NAME,
    OWN_CLASSES,
    Log,
    attribute_of,
    realms_of,
)
from retention_assets.frames.views.forest import topological
from retention_assets.policy.realms import REALM
from retention_assets.policy.selection import BRANCHED, INDEPENDENT, STATUSES

_CHECKED = ["transaction", "parent", "parent_given", "type", "status", "opened_at", "closed_at", "bytes", "files"]
# Fields of transactions: a line that has any of them and names none has lost its id.
_OF_TRANSACTIONS = ("type", "status", "opened_at", "closed_at", "archived_at", "bytes", "files")
_MOST_RUNS = 20_000


def sound_log(lines: pa.Table) -> Log:
    """Split lines by dataset, assign ordinals, and refuse each dataset that has a fault."""
    names, codes = _datasets(lines)
    kinds = _Kinds(lines)
    faults = _Faults(len(names))
    faults.note(codes, flags(pc.is_valid(lines["fault"])), lines["transaction"], detail=lines["fault"])
    faults.note(codes, kinds.several, lines["transaction"], "a line that is more than one thing")
    faults.note(codes, kinds.nameless, lines["transaction"], "missing id")

    rows = np.flatnonzero(kinds.transaction)
    rows = rows[np.argsort(codes[rows], kind="stable")]
    table = _taken(lines.select(_CHECKED), rows)
    code = codes[rows]
    refs = np.flatnonzero(kinds.branch | kinds.tag)
    ids = _Ids(table, code, lines, codes, refs)
    faults.note(code, ids.repeated, table["transaction"], "duplicate id")
    _check_words(table, code, faults)
    _check_times(table, code, faults)

    parent, unknown = _parents(table, code, ids)
    faults.note(code, unknown, table["transaction"], "unknown parent", table["parent"])
    order, cyclic = topological(parent)
    faults.note(code, cyclic, table["transaction"], "cycle")

    is_tag = kinds.tag[refs]
    lost = ids.ref_row < 0
    heads = join_chunks(pc.coalesce(lines["branch"], lines["tag"]).take(pa.array(refs)))
    targets = join_chunks(lines["head"].take(pa.array(refs)))
    faults.note(codes[refs], lost & ~is_tag, targets, "head on an unknown transaction", heads)
    faults.note(codes[refs], lost & is_tag, targets, "tag on an unknown transaction", heads)
    for kind, what in ((~is_tag, "two branches of one name"), (is_tag, "two tags of one name")):
        faults.note(codes[refs], _repeated_names(codes[refs], heads, kind), targets, what, heads)
    attributes = _dataset_attributes(lines, codes, kinds, len(names), faults)

    kept = order[~faults.refused[code[order]]]
    place = np.full(len(code) + 1, -1, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    starts = np.searchsorted(code[kept], np.arange(len(names)))
    live = ids.ref_row[~faults.refused[codes[refs]]]
    live_refs = refs[~faults.refused[codes[refs]]]
    whole = lines.select([name for name in LOG.names if name in LINES.names and name != "dataset"])
    whole = _without_closings_of_open(whole)
    transactions = _log_table(_taken(whole, rows[kept]), names, code[kept], place[parent[kept]], starts)
    transactions = _with_refs(transactions, lines, live_refs, place[live], kinds.tag[live_refs])
    counts = np.bincount(code[kept], minlength=len(names))
    datasets = pa.table(
        [names, pa.array(counts), attributes, pa.array(faults.text, pa.string()), pa.array(faults.transaction, pa.string())],
        schema=DATASETS,
    )
    return Log(transactions, datasets)


def _without_closings_of_open(table: pa.Table) -> pa.Table:
    # An OPEN transaction has not closed, whatever its line says.
    says_closed = pc.and_(pc.equal(table["status"], "OPEN"), pc.is_valid(table["closed_at"]))
    if not pc.any(says_closed).as_py():
        return table
    closed = pc.if_else(pc.fill_null(says_closed, False), pa.scalar(None, INSTANT), table["closed_at"])
    return table.set_column(table.column_names.index("closed_at"), "closed_at", closed)


def _taken(table: pa.Table, rows: Ints) -> pa.Table:
    # Runs of rows are sliced; only interleaved rows are copied one by one.
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    if len(rows) == len(table) and not len(breaks):
        # A single array is not copied.
        return table.combine_chunks()
    if len(breaks) > _MOST_RUNS:
        return table.take(pa.array(rows)).combine_chunks()
    runs = [run for run in np.split(rows, breaks) if len(run)]
    return pa.concat_tables([table.slice(0, 0), *(table.slice(run[0], len(run)) for run in runs)]).combine_chunks()


class _Faults:
    """First fault of each dataset."""

    def __init__(self, count: int) -> None:
        self.text: list[str | None] = [None] * count
        self.transaction: list[str | None] = [None] * count
        self.refused = np.zeros(count, dtype=bool)

    def note(
        self, codes: Ints, bad: Bools, who: pa.ChunkedArray, what: str = "", detail: pa.ChunkedArray | None = None
    ) -> None:
        """Refuse the datasets of the bad rows, naming the first bad row of each."""
        rows = np.flatnonzero(bad)
        rows = rows[~self.refused[codes[rows]]]
        datasets, first = np.unique(codes[rows], return_index=True)
        for dataset, row in zip(datasets.tolist(), rows[first].tolist(), strict=True):
            more = detail[row].as_py() if detail is not None else None
            self.text[dataset] = f"{what}: {more}" if what and more is not None else what or more
            self.transaction[dataset] = who[row].as_py()
        self.refused[datasets] = True


class _Kinds:
    """Kind of each line: transaction, branch, tag, or attributes of the dataset; several or none of them are faults."""

    def __init__(self, lines: pa.Table) -> None:
        def given(name: str) -> Bools:
            return flags(pc.is_valid(lines[name]))

        transaction, branch, tag = given("transaction"), given("branch"), given("tag")
        about = flags(lines["parent_given"])
        for name in _OF_TRANSACTIONS:
            about |= given(name)
        empty = np.zeros(len(transaction), dtype=bool)
        for name, there in (("transaction", transaction), ("branch", branch), ("tag", tag)):
            empty |= there & flags(pc.equal(lines[name], ""))
        named = transaction.astype(np.int8) + branch + tag
        nameless = (about & ~transaction) | (given("head") & ~branch & ~tag) | (given("expires_at") & (named == 0)) | empty
        ref = (branch | tag) & ~transaction
        self.transaction = transaction & ~empty
        self.branch = ref & branch & ~empty
        self.tag = ref & tag & ~branch & ~empty
        self.dataset = (named == 0) & ~nameless
        self.several = named > 1
        self.nameless = nameless


class _Ids:
    """Rows whose id an earlier one of their dataset has; and the rows that parents and refs name, or -1."""

    def __init__(self, table: pa.Table, code: Ints, lines: pa.Table, codes: Ints, refs: Ints) -> None:
        ids, parents = join_chunks(table["transaction"]), join_chunks(table["parent"])
        targets = join_chunks(lines["head"].take(pa.array(refs)))
        encoded = pc.dictionary_encode(pa.chunked_array([ids, parents, targets], pa.string())).combine_chunks()
        words = join_chunks(encoded).indices
        numbers = words.fill_null(-1).to_numpy().astype(np.int64)
        width = np.int64(len(join_chunks(encoded).dictionary) + 1)
        n = len(ids)
        keys = code * width + numbers[:n]
        rows = np.argsort(keys, kind="stable")
        ordered = keys[rows]
        self.repeated = np.zeros(n, dtype=bool)
        self.repeated[rows[~changes(ordered)]] = True

        def find(datasets: Ints, ids: Ints) -> Ints:
            if not n:
                return np.full(len(ids), -1, dtype=np.int64)
            keys = np.where(ids < 0, -1, datasets * width + ids)
            at = np.minimum(np.searchsorted(ordered, keys), n - 1)
            return np.where(ordered[at] == keys, rows[at], -1)

        self.parent, self.ref_row = find(code, numbers[n : 2 * n]), find(codes[refs], numbers[2 * n :])


def _datasets(lines: pa.Table) -> tuple[pa.Array, Ints]:
    encoded = join_chunks(pc.dictionary_encode(lines["dataset"]))
    names = encoded.dictionary
    order = pc.sort_indices(names)
    return names.take(order), inverse(order.to_numpy())[encoded.indices.to_numpy()]


def _check_words(table: pa.Table, code: Ints, faults: _Faults) -> None:
    for column, known in (("type", (*BRANCHED, *INDEPENDENT)), ("status", STATUSES)):
        bad = ~flags(pc.is_in(table[column], pa.array(known)))
        faults.note(code, bad, table["transaction"], f"unknown {column}", pc.coalesce(table[column], "(none)"))


def _check_times(table: pa.Table, code: Ints, faults: _Faults) -> None:
    committed = flags(pc.equal(table["status"], "COMMITTED"))
    closed = flags(pc.is_valid(table["closed_at"]))
    faults.note(code, committed & ~closed, table["transaction"], "COMMITTED without closed_at")
    backwards = flags(pc.less(table["closed_at"], table["opened_at"]))
    faults.note(code, backwards, table["transaction"], "closed before opened")
    for column in ("bytes", "files"):
        faults.note(code, flags(pc.less(table[column], 0)), table["transaction"], f"negative {column}")


def _parents(table: pa.Table, code: Ints, ids: _Ids) -> tuple[Ints, Bools]:
    given = flags(table["parent_given"])
    parent = np.where(given | changes(code), -1, np.arange(len(code)) - 1)
    named = given & flags(pc.is_valid(table["parent"]))
    parent[named] = ids.parent[named]
    return parent, named & (parent < 0)


def _repeated_names(codes: Ints, names: pa.Array, among: Bools) -> Bools:
    rows = np.flatnonzero(among)
    words = join_chunks(pc.dictionary_encode(names.take(pa.array(rows)))).indices.to_numpy().astype(np.int64)
    keys = codes[rows] * np.int64(len(names) + 1) + words
    _, first = np.unique(keys, return_index=True)
    repeated = np.zeros(len(codes), dtype=bool)
    repeated[np.delete(rows, first)] = True
    return repeated


def _dataset_attributes(lines: pa.Table, codes: Ints, kinds: _Kinds, count: int, faults: _Faults) -> pa.Array:
    attributes: list[dict[str, str]] = [{} for _ in range(count)]
    contradicts = np.zeros(len(codes), dtype=bool)
    rows = np.flatnonzero(kinds.dataset)
    about = lines.select(["attributes", "realm"]).take(pa.array(rows)).to_pylist()
    for row, line in zip(rows.tolist(), about, strict=True):
        new = dict(line["attributes"] or ())
        if line["realm"] is not None:
            new["realm"] = line["realm"]
        earlier = attributes[codes[row]]
        contradicts[row] = any(earlier.get(key, value) != value for key, value in new.items())
        earlier.update(new)
    faults.note(codes, contradicts, lines["transaction"], "two lines about the dataset that contradict each other")
    _take_realms(lines, codes, np.flatnonzero(kinds.transaction), attributes, faults)
    for code in _with_classes(lines, codes, kinds.transaction).tolist():
        attributes[code][OWN_CLASSES] = "true"
    return pa.array([list(pairs.items()) for pairs in attributes], ATTRIBUTES)


def _take_realms(lines: pa.Table, codes: Ints, rows: Ints, attributes: list[dict[str, str]], faults: _Faults) -> None:
    # A dataset has one realm, so all of its transactions name the same. A DELETE, which a sweep may have added, need not name
    # one.
    if not _is_a_key(REALM, lines["attributes"]):
        return
    realms = realms_of(lines).dictionary_encode()
    names, realm = realms.dictionary.to_pylist(), integers(realms.indices, -1)
    rows = rows[(realm[rows] >= 0) | ~flags(pc.equal(lines["type"], "DELETE"))[rows]]
    code, realm = codes[rows], realm[rows]
    first = np.full(len(attributes), -1, dtype=realm.dtype)
    first[code[::-1]] = realm[::-1]
    realm_of = [attributes[number].get(REALM, names[at]) if at >= 0 else None for number, at in enumerate(first.tolist())]
    differs = np.array([at >= 0 and realm_of[number] != names[at] for number, at in enumerate(first.tolist())], dtype=bool)
    faults.note(
        code, (realm != first[code]) | differs[code], lines["transaction"].take(pa.array(rows)),
        "a dataset has one realm, and its transactions or its lines name several",
    )  # fmt: skip
    for number, name in enumerate(realm_of):
        if name is not None:
            attributes[number][REALM] = name


def _with_classes(lines: pa.Table, codes: Ints, transactions: Bools) -> Ints:
    attributes = lines["attributes"]
    if not _is_a_key(CLASS, attributes):
        return np.empty(0, dtype=np.int64)
    has_class = pc.is_valid(attribute_of(lines, CLASS))
    objects = flags(pc.equal(lines["type"], "OBJECT"))
    datasets: Ints = np.unique(codes[flags(has_class) & objects & transactions])
    return datasets


def _is_a_key(key: str, attributes: pa.ChunkedArray) -> bool:
    return any(pc.index(chunk.keys, key).as_py() >= 0 for chunk in attributes.chunks if chunk.null_count < len(chunk))


def _log_table(table: pa.Table, names: pa.Array, code: Ints, parent: Ints, starts: Ints) -> pa.Table:
    start = starts[code]
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        "dataset": pa.DictionaryArray.from_arrays(pa.array(code.astype(np.int32)), names),
        "transaction": table["transaction"],
        "ordinal": pa.array((np.arange(len(code)) - start).astype(np.int32)),
        "parent_ordinal": pa.array(np.where(parent < 0, -1, parent - start).astype(np.int32)),
        "parent": table["transaction"].take(pa.array(np.maximum(parent, 0), mask=parent < 0)),
    }
    for name in LOG.names[len(columns) :]:
        if name in table.column_names:
            column = table[name]
            columns[name] = column.dictionary_encode().cast(NAME) if LOG.field(name).type == NAME else column
        else:
            columns[name] = pa.nulls(len(code), LOG.field(name).type)
    return pa.table(columns, schema=LOG)


def _with_refs(log: pa.Table, lines: pa.Table, refs: Ints, rows: Ints, is_tag: Bools) -> pa.Table:
    for column, name, kind in (("heads", "branch", ~is_tag), ("tags", "tag", is_tag)):
        chosen, at = refs[kind], rows[kind]
        names = join_chunks(lines[name].take(pa.array(chosen)))
        by_name = pc.sort_indices(names).to_numpy()
        order = by_name[np.argsort(at[by_name], kind="stable")]
        offsets = np.zeros(len(log) + 1, dtype=np.int32)
        np.cumsum(np.bincount(at, minlength=len(log)), out=offsets[1:])
        lists = pa.ListArray.from_arrays(pa.array(offsets), names.take(pa.array(order)))
        log = log.set_column(log.column_names.index(column), LOG.field(column), lists)
        if column == "tags":
            expiries = join_chunks(lines["expires_at"].take(pa.array(chosen[order])))
            lists = pa.ListArray.from_arrays(pa.array(offsets), expiries)
            log = log.set_column(log.column_names.index("tag_expiries"), LOG.field("tag_expiries"), lists)
    return log

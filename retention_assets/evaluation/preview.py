"""Preview of what policies decide about a log, without ledger, store or Dagster; nothing is written or deleted."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.evaluation.rules_in_force import RulesInForce
from retention_assets.frames.arrays import integers, join_chunks
from retention_assets.frames.log import KNOWN_ROWS, Log, refusals_of, sums_by
from retention_assets.frames.verdicts.candidate_marks import candidate_marks
from retention_assets.frames.verdicts.decisions import VERDICTS
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.policy.durations import text_of

_LINES_AT_ONCE = 65_536
_CHANGED = pa.schema([(name, pa.string()) for name in ("dataset", "transaction", "policy")])


@dataclass(frozen=True)
class Preview:
    as_of: datetime
    log: Log
    marks: pa.Table

    @property
    def refused(self) -> dict[str, dict[str, str | None]]:
        return refusals_of(self.log.datasets)

    @property
    def marked(self) -> pa.Table:
        return self.marks.filter(self.is_marked)

    @property
    def not_marked(self) -> pa.Table:
        return self.marks.filter(pc.invert(self.is_marked))

    @property
    def is_marked(self) -> pa.Array:
        return pc.equal(join_chunks(self.marks["verdict"]).cast(pa.string()), VERDICTS[0])

    def sums_by(self, *columns: str) -> list[dict[str, Any]]:
        rows = pa.table({name: join_chunks(self.marks[name]).cast(pa.string()) for name in columns})
        return sums_by(rows.append_column("bytes", self.log.transactions["bytes"]), columns)

    def count_reasons(self) -> dict[str, int]:
        """Count each reason by its code, the most frequent first."""
        codes = join_chunks(join_chunks(self.marks["reasons"]).flatten()).field("code").cast(pa.string())
        counts = {row["values"]: row["counts"] for row in pc.value_counts(codes).to_pylist()}
        return dict(sorted(counts.items(), key=lambda item: -item[1]))


def preview(log: Log, rules: RulesInForce, as_of: datetime) -> Preview:
    """Judge a log as if nothing of it was marked or swept before."""
    known = KNOWN_ROWS.empty_table()
    return Preview(as_of, log, candidate_marks(log.transactions, log.datasets, rules.policies, rules.holds, as_of, known))


def as_json(result: Preview) -> Iterator[str]:
    """Yield the result as one JSON object in pieces: a log of millions is never one string."""
    refused = result.refused
    datasets = {name: {"refused": refused.get(name)} for name in result.log.datasets["dataset"].to_pylist()}
    yield f'{{"as_of":{json.dumps(text_of(result.as_of))},"datasets":{_compact(datasets)},"transactions":['
    for start in range(0, len(result.marks), _LINES_AT_ONCE):
        lines = _lines(result.marks.slice(start, _LINES_AT_ONCE))
        yield ("," if start else "") + ",".join(lines.to_pylist())
    yield "]}\n"


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _lines(marks: pa.Table) -> pa.Array:
    # Join columns as JSON text: row by row is too slow.
    policy = _quoted(marks["policy"]).fill_null("null")
    also, reasons = _joined_lists(join_chunks(marks["also"]), _quoted), _joined_lists(join_chunks(marks["reasons"]), _reasons)
    return pc.binary_join_element_wise(
        '{"dataset":', _quoted(marks["dataset"]), ',"transaction":', _quoted(marks["transaction"]),
        ',"verdict":', _quoted(marks["verdict"]), ',"policy":', policy,
        ',"also":[', also, '],"reasons":[', reasons, "]}", "",
    )  # fmt: skip


def _quoted(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    # Only what needs an escape is touched; a dictionary column is escaped once per distinct word.
    array = join_chunks(column)
    if pa.types.is_dictionary(array.type):
        return _quoted(array.dictionary).take(array.indices)
    plain = pc.binary_join_element_wise('"', array, '"', "")
    special = pc.match_substring_regex(array, r'[\x00-\x1f"\\]')
    if not pc.any(special).as_py():
        return plain
    escaped = [_compact(text) for text in array.filter(special).to_pylist()]
    return pc.replace_with_mask(plain, special.fill_null(False), pa.array(escaped, pa.string()))


def _joined_lists(lists: pa.ListArray, render: Callable[[pa.Array], pa.Array]) -> pa.Array:
    offsets = lists.offsets.to_numpy()
    entries = render(lists.flatten())
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets - offsets[0], pa.int32()), entries), ",")


def _reasons(entries: pa.StructArray) -> pa.Array:
    # Each distinct pair of code and witness is put into words once.
    code, witness = entries.field("code"), entries.field("witness")
    width = len(witness.dictionary) + 1
    pairs = integers(code.indices, 0).astype(np.int64) * width + integers(witness.indices, -1) + 1
    distinct, which = np.unique(pairs, return_inverse=True)
    names, witnesses = code.dictionary.to_pylist(), [None, *witness.dictionary.to_pylist()]
    words = []
    for pair in distinct.tolist():
        name, witness_name = names[pair // width], witnesses[pair % width]
        words.append(_compact({"code": name, "witness": witness_name, "text": Reason[name].text(witness_name)}))
    return pa.array(words, pa.string()).take(pa.array(which))


@dataclass(frozen=True)
class Change:
    """Number of transactions of a dataset that a change of policies would newly mark, or no longer mark."""

    dataset: str
    policy: str
    change: str
    transactions: int
    bytes: int


def compare(log: Log, before: RulesInForce, after: RulesInForce, as_of: datetime) -> tuple[list[Change], pa.Table]:
    old, new = preview(log, before, as_of), preview(log, after, as_of)
    parts = []
    for judged, other, change in ((new, old, "newly marked"), (old, new, "no longer marked")):
        part = judged.marks.select(["dataset", "transaction", "policy"]).cast(_CHANGED)
        changed = pc.and_not(judged.is_marked, other.is_marked)
        sized = part.append_column("bytes", log.transactions["bytes"]).filter(changed)
        parts.append(sized.append_column("change", pa.repeat(change, len(sized))))
    rows = pa.concat_tables(parts)
    changes = [Change(**row) for row in sums_by(rows, ["dataset", "policy", "change"])]
    return sorted(changes, key=lambda change: (change.dataset, change.change, change.policy)), rows

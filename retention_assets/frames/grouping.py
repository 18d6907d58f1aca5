"""Cut a batch into groups of datasets that the same policies and holds are about, and put the results together again."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from retention_assets.frames.arrays import Bools, Ints, integers, join_chunks
from retention_assets.policy.globs import is_literal, matches, matching, protecting, protects
from retention_assets.policy.model import Datasets, Hold
from retention_assets.policy.realms import has_attributes

_Match = Callable[[Sequence[str], Iterable[str]], list[bool]]


def in_one_piece(log: pa.Table) -> pa.Table:
    """Log with single arrays as columns, except the ids: they are the largest and only passed on."""
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


def holds_dataset(hold: Hold, name: str, attributes: Mapping[str, str]) -> bool:
    return holds_name(hold, name) and has_attributes(attributes, hold.datasets.with_)


def holds_name(hold: Hold, name: str) -> bool:
    """Go by the name alone, whatever attributes are asked for."""
    # In a hold an exclude is what lets go, so it means no more than it says.
    return protects(name, hold.datasets.include) and not matches(name, hold.datasets.exclude)


def bounds_of(log: pa.Table) -> Ints:
    """First row of each dataset, and the end."""
    index = integers(join_chunks(log["dataset"]).indices, -1)
    return np.append(np.flatnonzero(np.append(True, index[1:] != index[:-1])), len(index))


def datasets_chosen_by(
    log: pa.Table, bounds: Ints, datasets: pa.Table, choosers: Sequence[Datasets], are_holds: bool = False
) -> Bools:
    """Datasets of the batch that each chooser is about: a matrix of datasets x choosers."""
    include, exclude = (protecting, matching) if are_holds else (matching, protecting)
    names: list[str] = join_chunks(log["dataset"]).take(pa.array(bounds[:-1])).to_pylist()
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


def _rows_of_globs(globs: Sequence[str], names: Sequence[str], place: dict[str, int], match: _Match) -> list[int]:
    """Literal names are looked up, so a policy about one dataset costs one look-up."""
    rows = [place[glob] for glob in globs if glob in place]
    patterns = [glob for glob in globs if not (is_literal(glob) and (match is matching or glob.isascii()))]
    if patterns:
        rows += [row for row, matched in enumerate(match(names, patterns)) if matched]
    return rows


def slices(log: pa.Table, bounds: Ints, datasets: Ints) -> pa.Table:
    """Rows of some datasets; neighbours are cut out together."""
    breaks = np.flatnonzero(np.diff(datasets) != 1) + 1
    runs = np.split(datasets, breaks)
    return pa.concat_tables([log.slice(bounds[run[0]], bounds[run[-1] + 1] - bounds[run[0]]) for run in runs]).combine_chunks()


def back_in_order(bounds: Ints, member: Ints) -> Ints:
    """For each row of the log its position in the concatenated groups."""
    sizes = np.diff(bounds)
    order = np.argsort(member, kind="stable")
    begins = np.empty(len(sizes), dtype=np.int64)
    begins[order] = np.cumsum(sizes[order]) - sizes[order]
    return np.repeat(begins - bounds[:-1], sizes) + np.arange(bounds[-1])

"""Datasets that policies, holds and retain rules are about, by their globs and attributes."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from retention_assets.frames.arrays import Bools, Ints
from retention_assets.policy.globs import is_literal, matching, protecting
from retention_assets.policy.model import Datasets
from retention_assets.policy.realms import has_attributes

_Match = Callable[[Sequence[str], Iterable[str]], list[bool]]


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


def _rows_of_globs(globs: Sequence[str], names: Sequence[str], place: dict[str, int], match: _Match) -> list[int]:
    # Literal names are looked up, so a policy about one dataset costs one look-up.
    rows = [place[glob] for glob in globs if glob in place]
    patterns = [glob for glob in globs if not (is_literal(glob) and (match is matching or glob.isascii()))]
    if patterns:
        rows += [row for row, matched in enumerate(match(names, patterns)) if matched]
    return rows

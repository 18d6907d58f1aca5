"""Lives of the transactions of a dataset; those before its visibility mark can be left out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import islice, repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import BadInput, Problem, did_you_mean
from retention_assets.evaluation.dataset_log import MOST_COMPARED
from retention_assets.evaluation.fates import Fates
from retention_assets.evaluation.past_views import has_word
from retention_assets.frames.arrays import Bools, as_micros, flags, join_chunks
from retention_assets.frames.log import LOG, Log
from retention_assets.frames.views.branch_views import branch_views
from retention_assets.ledger import Ledger
from retention_assets.ledger.histories import TransactionLife, life_of
from retention_assets.ledger.mark_rows import STATUSES
from retention_assets.policy.durations import micros
from retention_assets.policy.globs import protecting
from retention_assets.policy.model import Hold
from retention_assets.stores.protocol import FindData


def _visible_rows(rows: pa.Table, views: pa.Table, visible_from: datetime) -> Bools:
    # Transactions that a reader may still read by the visibility mark, given the dataset's `branch_views`: those OPEN or pinned
    # by a tag, those in a view that was current on some live branch at the mark or later, and those in no view (ABORTED, on no
    # branch, a RECORD or OBJECT) that closed, or were opened and never closed, at the mark or later.
    mark = micros(visible_from)
    in_view = flags(pc.is_valid(views["view"]))
    current = in_view & flags(pc.equal(views["view"], 0))
    later = in_view & (as_micros(views["superseded_at"]) > mark)
    loose = ~in_view & (as_micros(pc.coalesce(rows["closed_at"], rows["opened_at"])) >= mark)
    visible: Bools = current | later | loose | flags(pc.is_valid(views["protected_by"])) | has_word(rows["status"], "OPEN")
    return visible


def held_rows(rows: pa.Table, holds: Sequence[Hold]) -> Bools:
    held: Bools = np.zeros(len(rows), dtype=bool)
    names = rows["transaction"].to_pylist() if any(hold.transactions is not None for hold in holds) else []
    for hold in holds:
        held |= True if hold.transactions is None else np.array(protecting(names, hold.transactions), dtype=bool)
    return held


# lives in memory at a time
_AT_ONCE = 5_000
_COLUMNS = ("transaction", "type", "status", "opened_at", "closed_at", "bytes")


@dataclass
class TransactionLives:
    """Lives of the transactions of one dataset, in batches. Without a log, those that the ledger knows."""

    dataset: str
    log: Log | None
    ledger: Ledger | None
    holds: Sequence[Hold]
    as_of: datetime
    # None: a mark is described by its own state and the holds.
    fates: Fates | None = None
    # None: nobody looks for data of deleted transactions.
    find_data: FindData | None = None
    # transactions that `all` left out because of the visibility mark; complete once all were read
    hidden: int = 0

    def named(self, names: Sequence[str]) -> Iterator[TransactionLife]:
        listed = self._listed()
        table = listed.filter(pc.is_in(listed["transaction"], pa.array(names, pa.string())))
        rows = {row["transaction"]: row for row in table.to_pylist()}
        lives = {life.transaction: life for life in self._lives(rows.get(name, {"transaction": name}) for name in names)}
        unknown = [name for name, life in lives.items() if name not in rows and not life.marks]
        if unknown:
            known = listed["transaction"].slice(0, MOST_COMPARED).to_pylist()
            raise BadInput([self._unknown(name, known) for name in unknown])
        return iter(lives.values())

    def all(self, visible_from: datetime | None) -> Iterator[TransactionLife]:
        """Yield what the log lists, in its order, then what only the ledger knows."""
        listed = self._listed()
        marked = pa.array([], pa.string())
        if self.ledger:
            marks = self.ledger.marks.table([self.dataset], STATUSES, columns=("id", "transaction"))
            marked = marks.sort_by("id")["transaction"].unique()
        unlisted = marked.filter(pc.invert(pc.is_in(marked, value_set=join_chunks(listed["transaction"]))))
        sure: Bools = np.ones(len(listed), dtype=bool)
        if visible_from is not None:
            # Transactions of the ledger are listed unless they ended before the mark; held ones can be read by name.
            visible = _visible_rows(self._rows, self._views, visible_from) | held_rows(self._rows, self.holds)
            seen = visible | flags(pc.is_in(listed["transaction"], value_set=marked))
            self.hidden = int((~seen).sum())
            listed, sure = listed.filter(pa.array(seen)), visible[seen]
        for start in range(0, len(listed), _AT_ONCE):
            lives = self._lives(listed.slice(start, _AT_ONCE).to_pylist())
            if visible_from is None:
                yield from lives
            else:
                yield from self._recent(zip(lives, sure[start : start + _AT_ONCE].tolist(), strict=True), visible_from)
        lives = self._lives({"transaction": name} for name in unlisted.to_pylist())
        yield from lives if visible_from is None else self._recent(zip(lives, repeat(False)), visible_from)

    def _recent(self, lives: Iterable[tuple[TransactionLife, bool]], visible_from: datetime) -> Iterator[TransactionLife]:
        for life, is_sure in lives:
            if is_sure or (life.mark is not None and not (life.ended_at and life.ended_at < visible_from)):
                yield life
            else:
                self.hidden += 1

    def _listed(self) -> pa.Table:
        return self._rows.select(_COLUMNS).append_column("protected_by", self._views["protected_by"])

    @cached_property
    def _rows(self) -> pa.Table:
        return self.log.transactions if self.log else LOG.empty_table()

    @cached_property
    def _views(self) -> pa.Table:
        return branch_views(self._rows, self.as_of)

    def _lives(self, rows: Iterable[dict[str, Any]]) -> Iterator[TransactionLife]:
        remaining = iter(rows)
        while batch := list(islice(remaining, _AT_ONCE)):
            names = [row["transaction"] for row in batch]
            histories = self.ledger.histories.of(self.dataset, names) if self.ledger else {}
            swept = [name for name, marks in histories.items() if marks[-1].is_deleted]
            with_data = frozenset(self.find_data(swept)) if self.find_data else ()
            for row in batch:
                life = TransactionLife(**row, in_log="type" in row, marks=histories.get(row["transaction"], ()))
                again = life.in_log and life.mark is not None and life.transaction in with_data
                life = replace(life, there_again=again)
                fate = self.fates.of({**vars(life.mark), "dataset": self.dataset}) if self.fates and life.mark else None
                if fate and life.mark:
                    life = replace(life, marks=(*life.marks[:-1], replace(life.mark, due_at=fate.at)))
                yield life_of(self.dataset, life, self.holds, self.as_of, fate.spared if fate else None)

    def _unknown(self, name: str, known: Sequence[str]) -> Problem:
        where = f"the log of {self.dataset}" if self.log else "any log that was named"
        return Problem(f"transaction '{name}' was never marked, and is not in {where}", remedy=did_you_mean(name, known))

"""What is written down of a row before it is deleted, and what it means for the row when its turn comes.

Belongs here: the note, and why a row is not deleted. Pure: what is there now was looked up already.
Does not belong here: statements (table.py), deleting (delete.py).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from retention_assets.outcomes import Outcome
from retention_assets.stores.aspects.names import row_of
from retention_assets.stores.protocol import PreparedTarget, SweptTarget, Target

_CURRENT = "It is the current version of its urn, which is never deleted."
_ANOTHER = "The row is another one than was planned: its time or its size has changed."
_UNPLANNED = "There was no such row when it was planned, and now there is one."
_NO_CURRENT = "Its urn has no current version any more, so nobody can say what it is the history of."
_ROLLED_BACK = (
    "Version {newest} of its urn is gone, the newest that was to stay: after a rollback, older versions are newer again."
)
_NO_ROW = "This is no name of a row of this dataset, such as <urn>@<version>."
RACED = "The row changed in the moment in which it was to be deleted."

Row = tuple[str, int]


class RowNote(NamedTuple):
    """What a row was when its deletion was planned."""

    moment: int | str
    bytes: int
    # 0: the plan takes all of the urn's history.
    newest: int

    def written(self) -> str:
        """As text for the plan."""
        # One by one, a writer of JSON takes longer than the deletion.
        created = self.moment if isinstance(self.moment, int) else json.dumps(self.moment)
        return f'{{"created": {created}, "bytes": {self.bytes}, "newest": {self.newest}}}'

    @classmethod
    def read_all(cls, texts: Sequence[str]) -> "list[RowNote]":
        """From the texts of a plan."""
        found = zip(texts, json.loads(f"[{','.join(texts)}]"), strict=True)
        return [cls(one["created"], one["bytes"], one["newest"]) for _, one in found]


class WantedRow(NamedTuple):
    """A target whose row can be looked for."""

    transaction: str
    row: Row
    note: RowNote | None
    begun_earlier: bool = False


@dataclass(frozen=True)
class UrnRows:
    """What is there of an urn now: time and size of each of its versions."""

    versions: Mapping[int, tuple[int | str, int]]

    @property
    def newest(self) -> int:
        """Its newest history version; 0 without a history."""
        return max(self.versions, default=0)


def classify(targets: Sequence[Target], entity: str) -> tuple[list[SweptTarget], list[WantedRow]]:
    """Targets that nothing has to be asked about, and the others."""
    swept: list[SweptTarget] = []
    wanted: list[WantedRow] = []
    notes = iter(RowNote.read_all([target.note for target in targets if target.note]))
    for target in targets:
        note = next(notes) if target.note else None
        row = row_of(target.transaction, entity)
        if row is None:
            swept.append(SweptTarget(target.transaction, Outcome.FAILED, error=_NO_ROW))
        elif row[1] == 0:
            swept.append(SweptTarget(target.transaction, Outcome.SPARED, error=_CURRENT))
        else:
            wanted.append(WantedRow(target.transaction, row, note, target.begun_earlier))
    return swept, wanted


def prepared_of(transaction: str, note: RowNote | None) -> PreparedTarget:
    """The note for the plan; nothing to note of a row that is not there."""
    return PreparedTarget(transaction, note.bytes, note.written()) if note else PreparedTarget(transaction)


def reason_to_keep(one: WantedRow, urn: UrnRows | None, sent: Mapping[Row, int]) -> SweptTarget | None:
    """Why a row is not deleted now, if so. `sent`: the bytes of what a commit may have deleted whose answer was lost."""
    version, note = one.row[1], one.note
    if urn is None or version not in urn.versions:
        if one.row in sent:
            return SweptTarget(one.transaction, Outcome.DELETED, sent[one.row])
        return SweptTarget(one.transaction, Outcome.ALREADY_GONE, note.bytes if note and one.begun_earlier else 0)
    if note is None:
        why = _UNPLANNED
    elif urn.versions[version] != (note.moment, note.bytes):
        why = _ANOTHER
    elif 0 not in urn.versions:
        why = _NO_CURRENT
    elif urn.newest < note.newest:
        why = _ROLLED_BACK.format(newest=note.newest)
    else:
        return None
    return SweptTarget(one.transaction, Outcome.SPARED, error=why)


def failure_of(one: WantedRow, why: str) -> SweptTarget:
    """Neither deleted nor kept for a reason that can be seen now: the next sweep looks again."""
    return SweptTarget(one.transaction, Outcome.FAILED, error=why)

"""Rows of DataHub's table: names of datasets and transactions, notes for a plan, and the decision whether a row may still go.

A dataset is `store/entity.aspect`. The entity is the third part of an urn, whole: `urn:li:dataProcess:…` is another entity than
`urn:li:dataProcessInstance:…`. Rows whose urn is not `urn:li:<entity>:…`, the entity of letters, digits, _ and -, belong to no
entity: per aspect they are one dataset `store/.aspect`, which is always refused, so that nothing of it is ever marked or swept.

A transaction is `<urn>@<version>`, read from the right: an urn may contain @, a version can't.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from retention_assets.outcomes import Outcome
from retention_assets.stores.protocol import SweptTarget, Target

_ENTITY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_VERSION = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)
PREFIX = "urn:li:"
# all versions of an urn are equal up to the last of these
VERSION_AT = "@"

Key = tuple[str, str]
_CURRENT = "It is the current version of its urn, which is never deleted."
_ANOTHER = "The row is not the planned one: its time or its size has changed."
_UNPLANNED = "The row did not exist when the sweep was planned, but exists now."
_NO_CURRENT = "Its urn has no current version any more, so it is not known what its history belongs to."
_ROLLED_BACK = (
    "Version {newest} of its urn, the newest that was to stay, is gone. After a rollback, older versions become newer."
)
_NO_ROW = "This is not the name of a row of this dataset, such as <urn>@<version>."
RACED = "The row changed just before its deletion."
Row = tuple[str, int]


def dataset_of(store: str, entity: str | None, aspect: str) -> str:
    return f"{store}/{entity if entity and _ENTITY.fullmatch(entity) else ''}.{aspect}"


def key_of(store: str, dataset: str) -> Key:
    """Return entity and aspect; the entity is empty for rows of no entity."""
    entity, _, aspect = dataset.removeprefix(f"{store}/").partition(".")
    return entity, aspect


def transaction_of(urn: str, version: int) -> str:
    return f"{urn}{VERSION_AT}{version}"


def row_of(transaction: str, entity: str) -> tuple[str, int] | None:
    """Return urn and version; None for a text that names no row of this entity."""
    urn, _, version = transaction.rpartition(VERSION_AT)
    begin = _begin_of(entity)
    return (urn, int(version)) if begin and urn.startswith(begin) and _VERSION.fullmatch(version) else None


@cache
def _begin_of(entity: str) -> str:
    return f"{PREFIX}{entity}:" if _ENTITY.fullmatch(entity) else ""


class RowNote(NamedTuple):
    """State of a row when its deletion was planned."""

    moment: int | str
    bytes: int
    # 0: the plan takes the urn's whole history
    newest: int

    def written(self) -> str:
        # calling a JSON writer per note would take longer than the deletion
        created = self.moment if isinstance(self.moment, int) else json.dumps(self.moment)
        return f'{{"created": {created}, "bytes": {self.bytes}, "newest": {self.newest}}}'

    @classmethod
    def read_all(cls, texts: Sequence[str]) -> "list[RowNote]":
        notes = zip(texts, json.loads(f"[{','.join(texts)}]"), strict=True)
        return [cls(one["created"], one["bytes"], one["newest"]) for _, one in notes]


class WantedRow(NamedTuple):
    """A target with a parsed note."""

    transaction: str
    row: Row
    note: RowNote | None
    begun_earlier: bool = False
    again: bool = False


@dataclass(frozen=True)
class UrnRows:
    versions: Mapping[int, tuple[int | str, int]]

    @property
    def newest(self) -> int:
        """Newest history version; 0 without a history."""
        return max(self.versions, default=0)


def classify(targets: Sequence[Target], entity: str) -> tuple[list[SweptTarget], list[WantedRow]]:
    """Split off targets that need no query."""
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
            wanted.append(WantedRow(target.transaction, row, note, target.begun_earlier, target.again is not None))
    return swept, wanted


def reason_to_spare(one: WantedRow, urn: UrnRows) -> str | None:
    """Compare a row that is there with its note; None if it may go."""
    if one.note is None:
        return _UNPLANNED
    if urn.versions[one.row[1]] != (one.note.moment, one.note.bytes):
        return _ANOTHER
    if 0 not in urn.versions:
        return _NO_CURRENT
    # a backup may be older than the plan
    is_rolled_back = urn.newest < one.note.newest and not one.again
    return _ROLLED_BACK.format(newest=one.note.newest) if is_rolled_back else None

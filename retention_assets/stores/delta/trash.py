"""Notes in the trash of a table: which files each version had that was set aside, and which of them were left in place.

By them the trash can be emptied once the table is another one, or is not there any more.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from retention_assets.errors import Refused
from retention_assets.outcomes import Order, Outcome
from retention_assets.stores.delta.delete import TableFiles
from retention_assets.stores.delta.folder import TableFolder
from retention_assets.stores.delta.needs import long_quote
from retention_assets.stores.places import TRASH
from retention_assets.stores.places.own_files import own_files_in, read_own_file, remove_own_file, write_own_file
from retention_assets.stores.protocol import SweptTarget, Target

# remedy where the trash was removed by somebody
FORGET = "If it is gone for good, record that: retention trash forget DATASET VERSION --reason …"


@dataclass(frozen=True)
class Noted:
    """Files of a version that was set aside, with their sizes, and those that stayed in place because others needed them."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    left: Sequence[str] = ()


@dataclass(frozen=True)
class TrashNotes:
    """The notes in the trash of a table, by the folder of a mark (plan/mark). Any of them may raise OSError."""

    folder: TableFolder

    def write(self, aside: str, noted: Noted) -> None:
        """Note the files of a version before any of them moves; a note that is there already stays."""
        if self.read(aside) is None:
            write_own_file(self._place(aside), json.dumps({"sizes": noted.sizes, "left": noted.left}).encode())

    def read(self, aside: str) -> Noted | None:
        if (content := read_own_file(self._place(aside))) is None:
            return None
        try:
            fields = json.loads(content)
            return Noted({str(name): int(size) for name, size in fields["sizes"].items()}, [*map(str, fields["left"])])
        except (ValueError, KeyError, TypeError, AttributeError) as fault:
            where = f"the note {TRASH}/{aside}.json in {self.folder.shown}"
            raise Refused(f"{where} can't be read: {fault}. Nothing was deleted") from fault

    def remove_ended(self, targets: Sequence[Target], answers: Iterable[SweptTarget]) -> None:
        """Remove notes of versions that left the trash: a note keeps files that its version shares with others in the trash.

        A version that FAILED keeps its note, by which it is known once its files are back.
        """
        asides = {target.transaction: target.aside for target in targets}
        for answer in answers:
            if answer.outcome in (Outcome.RESTORED, Outcome.DELETED, Outcome.ALREADY_GONE):
                with suppress(OSError):
                    remove_own_file(self._place(asides[answer.transaction]))

    def files_of_others(self, asides: Collection[str]) -> set[str]:
        """Return the files of all versions that are set aside, but for some."""
        mine, names = {f"{aside}.json" for aside in asides}, set[str]()
        for name in own_files_in(f"{self.folder.location}/{TRASH}"):
            if name.endswith(".json") and name not in mine and (noted := self.read(name.removesuffix(".json"))):
                names |= noted.sizes.keys()
        return names

    def _place(self, aside: str) -> str:
        return f"{self.folder.location}/{TRASH}/{aside}.json"


def empty_trash(notes: TrashNotes, files: TableFiles, targets: Sequence[Target]) -> list[SweptTarget]:
    """Delete from the trash files of a table that was replaced or removed, but for those that another note names.

    Files that were left in place may be the other table's, and stay.
    """
    others, noted = notes.files_of_others([target.aside for target in targets]), {one: notes.read(one.aside) for one in targets}
    due = {target: own.sizes.keys() - {*own.left} - others for target, own in noted.items() if own}
    sizes = {name: own.sizes[name] for target, own in noted.items() if own for name in due[target]}
    answers = files.carry_out(Order.DELETE_ASIDE, sizes.__getitem__, sorted(sizes))
    results, counted, swept = {answer.transaction: answer for answer in answers}, set[str](), list[SweptTarget]()
    for target, own in noted.items():
        results_of_target = [results[name] for name in sorted(due.get(target, ()))]
        fault = next((one for one in results_of_target if one.outcome not in (Outcome.DELETED, Outcome.ALREADY_GONE)), None)
        if fault:
            error = f"{long_quote(fault.transaction)}: {fault.error}"
            swept.append(SweptTarget(target.transaction, fault.outcome, error=error))
        elif own is None or (results_of_target and all(one.outcome is Outcome.ALREADY_GONE for one in results_of_target)):
            swept.append(gone_from_trash(target, notes.folder.shown))
        else:
            freed = sum(one.bytes for one in results_of_target if one.transaction not in counted)
            swept.append(SweptTarget(target.transaction, Outcome.DELETED, freed, left=len(own.sizes) - len(results_of_target)))
        counted |= {one.transaction for one in results_of_target}
    notes.remove_ended(targets, swept)
    return swept


def gone_from_trash(target: Target, where: str) -> SweptTarget:
    """Outcome of a target that has nothing in the trash: an earlier sweep deleted it, or somebody took it away."""
    if target.begun_earlier:
        return SweptTarget(target.transaction, Outcome.ALREADY_GONE)
    return SweptTarget(target.transaction, Outcome.FAILED, error=f"nothing of it is in the trash of {where} any more. {FORGET}")

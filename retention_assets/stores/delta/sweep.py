"""Carries out an order about versions of one table: read, announce, read what is new, move or delete files, announce the end.

No file of the log is changed or removed: what goes are files of the targets that no other version needs. What earlier sweeps
left, or what is there again, stays.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from retention_assets.errors import Refused, Withheld
from retention_assets.frames.arrays import Bools
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.outcomes import Order, Outcome
from retention_assets.stores.delta.announcements import Announcer
from retention_assets.stores.delta.delete import TableFiles
from retention_assets.stores.delta.folder import CHANGE_DATA
from retention_assets.stores.delta.log import Pins
from retention_assets.stores.delta.needs import (
    Needs,
    Swept,
    TableState,
    VersionNote,
    check_names,
    is_listed,
    is_missing,
    long_quote,
    number_of,
)
from retention_assets.stores.delta.table import Table
from retention_assets.stores.delta.trash import Noted, TrashNotes, gone_from_trash
from retention_assets.stores.places import Entry
from retention_assets.stores.protocol import SweptTarget, Target
from retention_assets.stores.table_order import TableOrder

# files between two looks at the log
_FILES = 1_000
_LOOKS = 20
_ANOTHER = "another table has the name now; the files of the earlier table stay"
_LOST = "it is not in the log any more, so nobody knows which files were its own"
_NO_FILES = "it neither adds nor removes a file"
# states of files that were not touched
_STAYS, _MISSING = "stays", "missing"
# faults of a file, the gravest first
_FAULTS = (Outcome.WITHHELD, Outcome.FAILED, Outcome.SPARED)


@dataclass
class VersionsOrder(TableOrder):
    """An order about versions of one table. Reads the table anew as often as it needs to be sure."""

    files: TableFiles
    # reads the table and its pins as they are now
    load: Callable[[], tuple[Table, Pins]]
    notes: TrashNotes
    # files of this folder that other tables refer to, with the name of the table; raises Refused if that is unknown
    find_claims: Callable[[], Mapping[str, str]]
    swept: Swept
    announcer: Announcer
    # targets with files, by version
    going: dict[int, Target] = field(default_factory=dict, init=False)
    # outcome of each file that was moved or deleted
    results: dict[str, SweptTarget] = field(default_factory=dict, init=False)
    # state by which targets are judged: the table, needs for its files, claims of other tables, and the files that are there
    table: Table = field(init=False)
    needs: Needs = field(init=False)
    claimed: Mapping[str, str] = field(init=False)
    listing: dict[str, Entry] = field(init=False)
    # files that were not there when the targets were judged
    missing: Bools = field(init=False)
    # names of files by what is to happen to them
    moves: Mapping[Order, Sequence[str]] = field(init=False)

    def decide(self, targets: Sequence[Target]) -> bool:
        self.table, pins = self.load()
        self._sort(pins, targets)
        if not self.going:
            return False
        self.claimed, self.listing = self.find_claims(), self.files.listing()
        check_names(self.table, self.listing)
        if self.order is not Order.RESTORE:
            self.missing = is_missing(self.table, self.listing)
            if self.order is Order.DELETE_ASIDE:
                self._return_needed(pins)
            self._check_whole()
            self.needs = self._judge(pins)
        return bool(self.going)

    def commit(self) -> bool:
        if self.order is Order.RESTORE:
            return True
        self.moves = self._moves()
        due = {name for names in self.moves.values() for name in names} & self.listing.keys()
        if not due:
            return True
        self.permit()
        # in the log of a table that was made anew meanwhile, the commit would follow a gap
        is_current = self.load()[0].newest == self.table.newest
        return is_current and self.announcer.start(self.table, len(due), sum(self.listing[name].size or 0 for name in due))

    def act(self) -> None:
        table = self.table
        if self.order is Order.RESTORE:
            self._restore()
            return
        if self.order is Order.SET_ASIDE:
            moving = {*self.moves[self.order]}
            for number, target in self.going.items():
                names = sorted(table.names[file] for file in table.files_of(number).tolist())
                staying = [name for name in names if name not in moving]
                self.notes.write(target.aside, Noted({name: table.size_of(name) for name in names}, staying))
        judged = table.newest if self.announcer.begun_at is None else self.announcer.begun_at
        self.in_doubt = True
        for order, due in self.moves.items():
            for begin in range(0, len(due), _FILES):
                part = self._still_due(due[begin : begin + _FILES], judged)
                answers = self.files.carry_out(order, table.size_of, part, self.listing)
                self.results |= {one.transaction: one for one in answers}
        self._conclude()
        self._end(self.announcer.begun_at is not None or table.is_announced)

    def _sort(self, pins: Pins, targets: Sequence[Target]) -> None:
        self.going, table = {}, self.table
        pinned = {} if self.order is Order.RESTORE else pins.of_bases(table)
        lost = Outcome.FAILED if self.order is Order.RESTORE else Outcome.ALREADY_GONE
        for target in (target for target in targets if target.transaction not in self.outcomes):
            name, number = target.transaction, number_of(target.transaction)
            if target.note and VersionNote.parse(target.note).table not in table.ids:
                self.settle([name], lost, _ANOTHER)
            elif number not in table.versions:
                self.settle([name], lost, _LOST)
            elif number in pinned:
                self.settle([name], Outcome.SPARED, pinned[number])
            elif table.versions[number].is_empty:
                from_trash = Outcome.RESTORED if self.order is Order.RESTORE else Outcome.ALREADY_GONE
                self.settle([name], from_trash if self.order.starts_in_trash else Outcome.SPARED, _NO_FILES)
            else:
                self.going[number] = target

    def _check_whole(self) -> None:
        unlisted = self.table.live_names() - self.listing.keys()
        if missing := sorted(name for name in unlisted if not name.startswith("/")):
            raise Refused(
                f"version {self.table.newest}, the newest, lacks {len(missing):,} of its files: {long_quote(missing[0])}. "
                "Nothing is deleted until it can be read: bring them back, or restore the table to a version that is whole"
            )

    def _judge(self, pins: Pins) -> Needs:
        """Spare targets that changed or are needed by a version committed since their plan; return the needs of the rest."""
        table, listing = self.table, self.listing
        while True:
            needs = self._needs(table, pins)
            spared: dict[int, str] = {}
            if self.order is Order.DELETE_ASIDE:
                return needs
            if self.order is Order.SET_ASIDE:
                sizes = [(listing[name].size if name in listing else -1) for name in table.names]
                changed = np.array([real not in (-1, size) and size > 0 for real, size in zip(sizes, table.sizes, strict=True)])
                for number, file in self._having(table, changed & ~needs.needed):
                    spared[number] = f"{long_quote(table.names[file])} has {sizes[file]} bytes, and not {table.sizes[file]}"
            notes = {number: VersionNote.parse(target.note).newest for number, target in self.going.items() if target.note}
            for planned in {*notes.values()} - {table.newest}:
                known_newest = table.newest_of({version for version in needs.versions if version <= planned})
                for number, file in self._having(table, (needs.newest > planned) & (known_newest < 0)):
                    if notes.get(number) == planned:
                        spared[number] = f"{needs.witness(file)} {needs.name(file)}"
            if not spared:
                return needs
            for number, reason in spared.items():
                self.settle([self.going.pop(number).transaction], Outcome.SPARED, reason)

    def _having(self, table: Table, files: Bools) -> Iterator[tuple[int, int]]:
        # yields the targets that have some of these files, each with one of them
        for number, count in table.counts(self.going, files).items():
            if count:
                own = table.files_of(number)
                yield number, int(own[files[own]][0])

    def _moves(self) -> dict[Order, list[str]]:
        """Return the names of the files to delete or to move; change data goes last."""
        table = self.needs.table
        due = (table.newest_of(self.going) >= 0) & ~self.needs.needed
        moves = {self.order: due}
        if self.order is Order.DELETE_ASIDE:
            # also the files that were left in place for versions that are gone by now
            noted = filter(None, (self.notes.read(target.aside) for target in self.going.values()))
            was_left, numbers = np.zeros(len(table.names), dtype=bool), table.numbers_of_names
            was_left[[numbers[name] for own in noted for name in own.left if name in numbers]] = True
            was_left &= is_listed(table, self.listing)
            moves = {Order.DELETE_ASIDE: due & ~was_left, Order.DELETE: due & was_left}
        names = {order: [table.names[file] for file in np.flatnonzero(files).tolist()] for order, files in moves.items()}
        return {order: sorted(own, key=lambda name: (name.startswith(CHANGE_DATA), name)) for order, own in names.items()}

    def _still_due(self, names: Sequence[str], judged: int) -> Collection[str]:
        # names without the files that a later commit has added again
        table, pins = self.load()
        if table.newest == judged:
            return names
        if table.lineage is not self.needs.table.lineage:
            raise Refused("its log was rewritten meanwhile; the next sweep goes on")
        self.needs = self._needs(table, pins)
        return [name for name in names if not self.needs.needed[table.numbers_of_names[name]]]

    def _needs(self, table: Table, pins: Pins) -> Needs:
        # a file that the log has added since then is not missing
        missing = np.concatenate([self.missing, np.zeros(len(table.names) - len(self.missing), dtype=bool)])
        return Needs.of(TableState(table, pins, self.swept, self.claimed, missing), self.going, self.order)

    def _restore(self) -> None:
        table = self.table
        files = {number: [table.names[file] for file in table.files_of(number).tolist()] for number in self.going}
        own = {number: {name for name in names if not name.startswith("/")} for number, names in files.items()}
        answers = self.files.carry_out(Order.RESTORE, table.size_of, sorted(set().union(*own.values())))
        self.results = {answer.transaction: answer for answer in answers}
        whole: set[str] = set()
        for number, names in own.items():
            faults = [self.results[name] for name in sorted(names) if self.results[name].outcome is not Outcome.RESTORED]
            whole |= set() if faults else names
            outcome = next((Outcome.WITHHELD for fault in faults if fault.outcome is Outcome.WITHHELD), Outcome.FAILED)
            error = f"{long_quote(faults[0].transaction)}: {faults[0].error}" if faults else None
            self.settle([self.going[number].transaction], outcome if faults else Outcome.RESTORED, error)
        # a version comes back whole or not at all
        returned = [
            name for name, answer in self.results.items() if answer.outcome is Outcome.RESTORED and name not in self.listing
        ]
        self.files.carry_out(Order.SET_ASIDE, table.size_of, [name for name in returned if name not in whole])

    def _return_needed(self, pins: Pins) -> None:
        # a version or clone made since then may need files that are in the trash
        table, needs = self.table, self._needs(self.table, pins)
        needed = table.newest_of(needs.versions) >= 0
        needed[[*needs.claimed]] = True
        in_trash = needed & (table.newest_of(self.going) >= 0) & self.missing
        names = [table.names[file] for file in np.flatnonzero(in_trash).tolist()]
        for answer in self.files.carry_out(Order.RESTORE, table.size_of, names) if names else ():
            if answer.outcome is Outcome.RESTORED:
                self.listing[answer.transaction] = Entry(answer.transaction, None, None)

    def _conclude(self) -> None:
        table, staying = self.needs.table, self.needs.table.counts(self.going, self.needs.wanted)
        states = np.where(is_missing(table, self.listing), _MISSING, _STAYS).astype(object)
        # bytes count for the newest target that has a file
        freed, owner = Counter[int](), table.newest_of(self.going)
        for name, result in self.results.items():
            file = table.numbers_of_names[name]
            states[file] = str(result.outcome)
            if result.outcome in (self.order.done, Outcome.HIDDEN):
                freed[int(owner[file])] += result.bytes
        outcomes = {number: Counter[str]() for number in self.going}
        for state in {*states.tolist()}:
            for number, count in table.counts(self.going, states == state).items():
                outcomes[number][state] += count
        for number, target in self.going.items():
            outcome, error = self._outcome_of(number, outcomes[number], states)
            is_done, name = outcome is self.order.done, target.transaction
            size, stay = (freed[number], staying[number]) if is_done else (0, 0)
            is_lost = outcome is Outcome.ALREADY_GONE and self.order is Order.DELETE_ASIDE
            answer = SweptTarget(name, outcome, size, error, left=stay)
            self.outcomes[name] = gone_from_trash(target, self.notes.folder.shown) if is_lost else answer

    def _outcome_of(self, number: int, files: Counter[str], states: np.ndarray[Any, Any]) -> tuple[Outcome, str | None]:
        needs = self.needs
        stay, is_aside = files[_STAYS] + files[_MISSING], self.order is Order.DELETE_ASIDE
        if fault := next((outcome for outcome in _FAULTS if files[outcome]), None):
            own = needs.table.files_of(number)
            name = needs.table.names[int(own[states[own] == fault][0])]
            error = f"{long_quote(name)}: {self.results[name].error}"
            if self.order is Order.SET_ASIDE and fault is not Outcome.WITHHELD:
                return self._bring_back(needs.table, number, fault, error)
            return fault, error
        if stay == sum(files.values()) and (is_aside or not files[_MISSING]):
            return Outcome.SPARED, Reason.NEEDED.text(needs.sentence(number))
        is_gone = stay + files[Outcome.ALREADY_GONE] == sum(files.values())
        return Outcome.ALREADY_GONE if is_gone else self.order.done, needs.sentence(number) if stay else None

    def _bring_back(self, table: Table, number: int, outcome: Outcome, error: str) -> tuple[Outcome, str]:
        # a version is set aside whole or not at all
        names = {table.names[file] for file in table.files_of(number).tolist()} & self.results.keys()
        moved = [name for name in sorted(names) if self.results[name].outcome is Outcome.SET_ASIDE]
        answers = self.files.carry_out(Order.RESTORE, table.size_of, moved)
        self.results |= {answer.transaction: answer for answer in answers if answer.outcome is Outcome.RESTORED}
        fault = next((answer.error for answer in answers if answer.outcome is not Outcome.RESTORED), None)
        if fault is None:
            return outcome, error
        return Outcome.WITHHELD, f"{error}. A part of it stays set aside for now: {fault}"

    def _end(self, is_announced: bool) -> None:
        # The end follows the version that was looked at: a writer who read an earlier one can't commit any more.
        for _ in range(_LOOKS):
            if is_announced:
                try:
                    self.permit()
                except Withheld:
                    is_announced = False  # the next sweep ends it
            newest = self._check_newest()
            if not is_announced or self.announcer.end(newest):
                return

    def _check_newest(self) -> Table:
        # a commit after the last look may refer to what is gone by now
        taken = {name for name, answer in self.results.items() if answer.outcome in (Outcome.DELETED, Outcome.SET_ASIDE)}
        table, _ = self.load()
        later, numbers = {number for number in table.versions if number > self.table.newest}, table.numbers_of_names
        needed = table.newest_of(later)
        files = np.zeros(len(table.names), dtype=bool)
        files[[numbers[name] for name in taken if name in numbers]] = True
        files &= needed >= 0
        if not files.any():
            return table
        first = min(np.flatnonzero(files).tolist(), key=lambda file: table.names[file])
        why = f"version {needed[first]}, committed meanwhile, needs {long_quote(table.names[first])}"
        for number in dict(self._having(table, files)):
            outcome, error = Outcome.FAILED, f"{why}, which this sweep has taken. Restore the table to a version that is whole"
            if self.order is Order.SET_ASIDE:
                outcome, error = self._bring_back(table, number, Outcome.SPARED, why)
            name = self.going[number].transaction
            self.outcomes[name] = SweptTarget(name, outcome, error=error)
        return table

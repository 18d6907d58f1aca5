"""Carries out an order about versions of one table: read, announce, read what is new, move or delete files, announce the end.

No file of the log is changed or removed: what goes are files of the targets that no other version needs. What earlier sweeps
left, or what is there again, stays.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

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
from retention_assets.stores.protocol import Permit, SweptTarget, Target, error_text

# files between two looks at the log
_FILES = 1_000
_ATTEMPTS, _LOOKS = 5, 20
_ANOTHER = "another table has the name now; the files of the earlier table stay"
_LOST = "it is not in the log any more, so nobody knows which files were its own"
_NO_FILES = "it neither adds nor removes a file"
# faults of a file, the gravest first
_FAULTS = (Outcome.WITHHELD, Outcome.FAILED, Outcome.SPARED)


@dataclass
class TableOrder:
    """An order about one table. Reads the table anew as often as it needs to be sure."""

    order: Order
    files: TableFiles
    # reads the table and its pins as they are now
    load: Callable[[], tuple[Table, Pins]]
    notes: TrashNotes
    # files of this folder that other tables refer to, with the name of the table; raises Refused if that is unknown
    find_claims: Callable[[], Mapping[str, str]]
    swept: Swept
    announcer: Announcer
    permit: Permit
    outcomes: dict[str, SweptTarget] = field(default_factory=dict)
    # targets with files, by version
    going: dict[int, Target] = field(default_factory=dict)
    # of each file that was moved or deleted
    results: dict[str, SweptTarget] = field(default_factory=dict)
    # a target may be at its other place already
    in_doubt: bool = False
    needs: Needs = field(init=False)
    # by file: it was not there when the targets were judged
    missing: Bools = field(init=False)
    # the newest version when the targets were judged
    judged: int = field(init=False)

    def run(self, targets: Sequence[Target]) -> list[SweptTarget]:
        self.in_doubt = any(target.begun_earlier for target in targets)
        try:
            self._carry_out(targets)
        except Withheld as fault:
            self._settle([target.transaction for target in targets], Outcome.WITHHELD, str(fault))
        # drivers have exceptions of their own
        except Exception as fault:  # noqa: BLE001
            self._settle([target.transaction for target in targets], self.order.failed(self.in_doubt), error_text(fault))
        return [self.outcomes[target.transaction] for target in targets]

    def _carry_out(self, targets: Sequence[Target]) -> None:
        for _ in range(_ATTEMPTS):
            table, pins = self.load()
            self._sort(table, pins, targets)
            if not self.going:
                return
            claimed, listing = self.find_claims(), self.files.listing()
            check_names(table, listing)
            if self.order is Order.RESTORE:
                self._restore(table, listing)
                return
            self.missing = is_missing(table, listing)
            if self.order is Order.DELETE_ASIDE:
                self._return_needed(table, pins, claimed, listing)
            self._check_whole(table, listing)
            self.needs, self.judged = self._judge(table, pins, claimed, listing), table.newest
            if not self.going:
                return
            moves = self._moves(self.needs, listing)
            due = {name for names in moves.values() for name in names} & listing.keys()
            if due:
                self.permit()
                # in a table that is made anew meanwhile the commit would lie behind a gap
                is_current = self.load()[0].newest == table.newest
                if not is_current or not self.announcer.start(table, len(due), sum(listing[name].size or 0 for name in due)):
                    # somebody committed at the same instant
                    continue
            if self.order is Order.SET_ASIDE:
                moving = {*moves[self.order]}
                for number, target in self.going.items():
                    names = sorted(table.names[file] for file in table.files_of(number).tolist())
                    left = [name for name in names if name not in moving]
                    self.notes.write(target.aside, Noted({name: table.size_of(name) for name in names}, left))
            judged = table.newest if self.announcer.begun_at is None else self.announcer.begun_at
            self.in_doubt = True
            for order, names in moves.items():
                for at in range(0, len(names), _FILES):
                    part = self._still_due(names[at : at + _FILES], judged, claimed)
                    self.results |= {one.transaction: one for one in self.files.carry_out(order, table.size_of, part, listing)}
            self._conclude(self.needs, listing)
            self._end(self.announcer.begun_at is not None or table.is_announced)
            return
        raise Refused(f"other writers committed during each of {_ATTEMPTS} attempts; the next sweep tries again")

    def _sort(self, table: Table, pins: Pins, targets: Sequence[Target]) -> None:
        self.going = {}
        pinned = {} if self.order is Order.RESTORE else pins.of_bases(table)
        missing = Outcome.FAILED if self.order is Order.RESTORE else Outcome.ALREADY_GONE
        for target in (target for target in targets if target.transaction not in self.outcomes):
            name, number = target.transaction, number_of(target.transaction)
            if target.note and VersionNote.parse(target.note).table not in table.ids:
                self._settle([name], missing, _ANOTHER)
            elif number not in table.versions:
                self._settle([name], missing, _LOST)
            elif number in pinned:
                self._settle([name], Outcome.SPARED, pinned[number])
            elif table.versions[number].is_empty:
                in_trash = Outcome.RESTORED if self.order is Order.RESTORE else Outcome.ALREADY_GONE
                self._settle([name], in_trash if self.order.starts_in_trash else Outcome.SPARED, _NO_FILES)
            else:
                self.going[number] = target

    def _check_whole(self, table: Table, listing: Mapping[str, Entry]) -> None:
        if missing := sorted(name for name in table.live_names() - listing.keys() if not name.startswith("/")):
            raise Refused(
                f"version {table.newest}, the newest, lacks {len(missing):,} of its files: {long_quote(missing[0])}. Nothing is"
                " deleted until it can be read: bring them back, or restore the table to a version that is whole"
            )

    def _judge(self, table: Table, pins: Pins, claimed: Mapping[str, str], listing: Mapping[str, Entry]) -> Needs:
        """Spare the targets that changed or are needed by a version committed since their plan; return who needs files then."""
        while True:
            needs = self._needs(table, pins, claimed)
            late: dict[int, str] = {}
            if self.order is Order.DELETE_ASIDE:
                return needs
            if self.order is Order.SET_ASIDE:
                sizes = [(listing[name].size if name in listing else -1) for name in table.names]
                changed = np.array([here not in (-1, size) and size > 0 for here, size in zip(sizes, table.sizes, strict=True)])
                for number, file in self._having(table, changed & ~needs.needed):
                    late[number] = f"{long_quote(table.names[file])} has {sizes[file]} bytes, and not {table.sizes[file]}"
            notes = {number: VersionNote.parse(target.note).newest for number, target in self.going.items() if target.note}
            for then in {*notes.values()} - {table.newest}:
                before = table.newest_of({version for version in needs.versions if version <= then})
                for number, file in self._having(table, (needs.newest > then) & (before < 0)):
                    if notes.get(number) == then:
                        late[number] = f"{needs.witness(file)} {needs.name(file)}"
            if not late:
                return needs
            for number, reason in late.items():
                self._settle([self.going.pop(number).transaction], Outcome.SPARED, reason)

    def _having(self, table: Table, files: Bools) -> Iterator[tuple[int, int]]:
        """Yield the targets that have some of these files, each with one of them."""
        for number, count in table.counts(self.going, files).items():
            if count:
                own = table.files_of(number)
                yield number, int(own[files[own]][0])

    def _moves(self, needs: Needs, listing: Mapping[str, Entry]) -> dict[Order, list[str]]:
        """Return the names of the files to delete or to move; change data goes last."""
        table = needs.table
        due = (table.newest_of(self.going) >= 0) & ~needs.needed
        moves = {self.order: due}
        if self.order is Order.DELETE_ASIDE:
            # with what was left in place for versions that are gone by now
            noted = filter(None, (self.notes.read(target.aside) for target in self.going.values()))
            left, numbers = np.zeros(len(table.names), dtype=bool), table.numbers_of_names
            left[[numbers[name] for own in noted for name in own.left if name in numbers]] = True
            left &= is_listed(table, listing)
            moves = {Order.DELETE_ASIDE: due & ~left, Order.DELETE: due & left}
        names = {order: [table.names[file] for file in np.flatnonzero(files).tolist()] for order, files in moves.items()}
        return {order: sorted(own, key=lambda name: (name.startswith(CHANGE_DATA), name)) for order, own in names.items()}

    def _still_due(self, names: Sequence[str], judged: int, claimed: Mapping[str, str]) -> Collection[str]:
        # what came back since is needed
        table, pins = self.load()
        if table.newest == judged:
            return names
        if table.lineage is not self.needs.table.lineage:
            raise Refused("its log was rewritten meanwhile; the next sweep goes on")
        self.needs = self._needs(table, pins, claimed)
        return [name for name in names if not self.needs.needed[table.numbers_of_names[name]]]

    def _needs(self, table: Table, pins: Pins, claimed: Mapping[str, str]) -> Needs:
        return Needs.of(table, pins, self.swept, self.going, claimed, _padded(self.missing, len(table.names)), self.order)

    def _restore(self, table: Table, listing: Mapping[str, Entry]) -> None:
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
            self._settle([self.going[number].transaction], outcome if faults else Outcome.RESTORED, error)
        # a version comes back whole or not at all
        back = [name for name, answer in self.results.items() if answer.outcome is Outcome.RESTORED and name not in listing]
        self.files.carry_out(Order.SET_ASIDE, table.size_of, [name for name in back if name not in whole])

    def _return_needed(self, table: Table, pins: Pins, claimed: Mapping[str, str], listing: dict[str, Entry]) -> None:
        # a version or clone that came since may need what was set aside with others
        needs = self._needs(table, pins, claimed)
        needed = table.newest_of(needs.versions) >= 0
        needed[[*needs.claimed]] = True
        away = needed & (table.newest_of(self.going) >= 0) & self.missing
        names = [table.names[file] for file in np.flatnonzero(away).tolist()]
        for answer in self.files.carry_out(Order.RESTORE, table.size_of, names) if names else ():
            if answer.outcome is Outcome.RESTORED:
                listing[answer.transaction] = Entry(answer.transaction, None, None)

    def _conclude(self, needs: Needs, listing: Mapping[str, Entry]) -> None:
        table, files = needs.table, range(len(needs.newest))
        results = [self.results.get(table.names[file]) for file in files]
        outcomes = np.array([str(result.outcome) if result else "" for result in results], dtype=object)
        every, stays = table.counts(self.going, np.ones(len(files), dtype=bool)), table.counts(self.going, outcomes == "")
        missing = table.counts(self.going, (outcomes == "") & is_missing(table, listing))
        left = table.counts(self.going, needs.wanted)
        done = table.counts(self.going, (outcomes != "") & (outcomes != str(Outcome.ALREADY_GONE)))
        # bytes count for the newest target that has a file
        freed, owner = dict.fromkeys(self.going, 0), table.newest_of(self.going)
        for file, result in zip(files, results, strict=True):
            if result and result.outcome in (self.order.done, Outcome.HIDDEN):
                freed[int(owner[file])] += result.bytes
        faults: dict[int, SweptTarget | None] = {}
        for outcome in _FAULTS:
            faults = {number: results[file] for number, file in self._having(table, outcomes == str(outcome))} | faults
        for number, target in self.going.items():
            is_whole = stays[number] == every[number]
            outcome, error = self.order.done, needs.sentence(number) if stays[number] else None
            if fault := faults.get(number):
                outcome, error = fault.outcome, f"{long_quote(fault.transaction)}: {fault.error}"
                if self.order is Order.SET_ASIDE and outcome is not Outcome.WITHHELD:
                    outcome, error = self._bring_back(table, number, outcome, error)
            elif is_whole and not (missing[number] and self.order is not Order.DELETE_ASIDE):
                outcome, error = Outcome.SPARED, Reason.NEEDED.text(needs.sentence(number))
            elif not done[number] and self.order is Order.DELETE_ASIDE:
                self.outcomes[target.transaction] = gone_from_trash(target, self.notes.folder.shown)
                continue
            elif not done[number]:
                outcome = Outcome.ALREADY_GONE
            is_done, name = outcome is self.order.done, target.transaction
            size, stay = (freed[number], left[number]) if is_done else (0, 0)
            self.outcomes[name] = SweptTarget(name, outcome, size, error, left=stay)

    def _bring_back(self, table: Table, number: int, outcome: Outcome, error: str) -> tuple[Outcome, str]:
        # a version is set aside whole or not at all
        names = {table.names[file] for file in table.files_of(number).tolist()} & self.results.keys()
        moved = [name for name in sorted(names) if self.results[name].outcome is Outcome.SET_ASIDE]
        answers = self.files.carry_out(Order.RESTORE, table.size_of, moved)
        self.results |= {answer.transaction: answer for answer in answers if answer.outcome is Outcome.RESTORED}
        left = next((answer.error for answer in answers if answer.outcome is not Outcome.RESTORED), None)
        if left is None:
            return outcome, error
        return Outcome.WITHHELD, f"{error}. A part of it stays set aside for now: {left}"

    def _end(self, is_announced: bool) -> None:
        # The end follows the version that was looked at: a writer who read an earlier one can't commit any more.
        for _ in range(_LOOKS):
            if is_announced:
                try:
                    self.permit()
                except Withheld:
                    # the next sweep ends it
                    is_announced = False
            newest = self._check_newest()
            if not is_announced or self.announcer.end(newest):
                return

    def _check_newest(self) -> Table:
        # a commit after the last look may refer to what is gone by now
        gone = {name for name, answer in self.results.items() if answer.outcome in (Outcome.DELETED, Outcome.SET_ASIDE)}
        table, _ = self.load()
        needed, numbers = table.newest_of({number for number in table.versions if number > self.judged}), table.numbers_of_names
        files = np.zeros(len(table.names), dtype=bool)
        files[[numbers[name] for name in gone if name in numbers]] = True
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

    def _settle(self, names: Sequence[str], outcome: Outcome, error: str | None = None) -> None:
        for name in names:
            self.outcomes.setdefault(name, SweptTarget(name, outcome, error=error))


def _padded(files: Bools, size: int) -> Bools:
    # files that a newer log added are there
    return np.concatenate([files, np.zeros(size - len(files), dtype=bool)])

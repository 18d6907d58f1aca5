"""Needs for each file of a table: by retained versions, by other tables, or none."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from retention_assets.errors import Refused, quote
from retention_assets.frames.arrays import Bools, Ints
from retention_assets.outcomes import Order
from retention_assets.stores.delta.folder import CHANGE_DATA
from retention_assets.stores.delta.log import Pins
from retention_assets.stores.delta.table import Table
from retention_assets.stores.places import Entry
from retention_assets.stores.protocol import PreparedTarget, Remains, Target

# files that an explanation names
_SHOWN = 20


@dataclass(frozen=True)
class Swept:
    """Versions that were swept before: deleted, and set aside; and those of both that a hold or a retain rule names."""

    deleted: frozenset[int] = frozenset()
    aside: frozenset[int] = frozenset()
    kept: frozenset[int] = frozenset()


class VersionNote(NamedTuple):
    """Note of a plan about a version: its table, and the newest version then."""

    table: str
    newest: int

    @classmethod
    def parse(cls, text: str) -> Self:
        return cls(*json.loads(text))


@dataclass(frozen=True)
class TableState:
    """A table as it is now, and what else decides about its files."""

    table: Table
    pins: Pins
    swept: Swept
    # other tables, by the name of the file to which they refer
    claims: Mapping[str, str]
    # files that should be there, and are not
    missing: Bools


@dataclass(frozen=True)
class Needs:
    """For each file of a table, who needs it while some versions are swept."""

    table: Table
    # retained versions with files, and those in the trash, whose files may not be deleted either
    versions: frozenset[int]
    others: frozenset[int]
    # by file: the newest of both that has it, -1 if none has
    newest: Ints
    # tables that refer to files, by file
    claimed: Mapping[int, str]

    @classmethod
    def of(cls, state: TableState, targets: Collection[int], order: Order = Order.DELETE) -> Self:
        """Retain every version but the targets and earlier swept ones; of these the pinned, held and whole ones, too.

        Versions in the trash keep their files from being deleted, but not from being set aside.
        """
        table, swept = state.table, state.swept
        lost = table.counts(swept.deleted & table.versions.keys(), state.missing)
        whole_again = {number for number, count in lost.items() if not count} | swept.kept
        not_retained = (swept.deleted | swept.aside) - whole_again | {*targets}
        kept = {version.number for version in table.versions.values() if not version.is_empty} - not_retained
        kept |= {table.base_of(number) for number in state.pins.of_bases(table)}
        others = frozenset() if order is Order.SET_ASIDE else swept.aside - {*targets}
        return cls(table, frozenset(kept), others, table.newest_of(kept | others), claimed_files(table, state.claims))

    @property
    def wanted(self) -> Bools:
        needed = self.newest >= 0
        needed[[*self.claimed]] = True
        return needed

    @cached_property
    def needed(self) -> Bools:
        """Tell for each file whether it stays; one in another folder does, whoever needs it."""
        needed = self.wanted
        needed[self.table.elsewhere] = True
        return needed

    def witness(self, file: int) -> str:
        """Say who needs a file, as the beginning of a sentence."""
        if self.newest[file] >= 0:
            is_aside = self.newest[file] not in self.versions
            return f"version {self.newest[file]}{', which is set aside,' if is_aside else ''} needs"
        return f"{self.claimed[file]} needs" if file in self.claimed else "another folder has"

    def sentence(self, version: int) -> str:
        """Say who needs the files of a version that stay."""
        files = self.table.files_of(version)
        stays = files[self.needed[files]]
        if not len(stays):
            return "it has no files"
        first, newest = int(stays[0]), self.newest[stays]
        # a table may be large and its versions many: names are compared only where no version needs the files
        is_one = (newest == newest[0]).all() and (newest[0] >= 0 or len(set(map(self.witness, stays.tolist()))) == 1)
        if is_one and len(stays) == len(files):
            return f"{self.witness(first)} all of its files"
        return f"{len(stays):,} of its files stay: {self.witness(first)} {self.name(first)}"

    def explanation(self, version: int, is_swept: bool) -> list[str]:
        """Say how many files of a version nobody else needs, and who needs each of the others."""
        files = self.table.files_of(version)
        own, stays = files[~self.needed[files]], files[self.needed[files]].tolist()
        size = int(self.table.file_sizes()[own].sum())
        named = [f"{self.witness(file)} {self.name(file)}." for file in stays[:_SHOWN]]
        more = [f"{len(stays) - _SHOWN:,} more of its files stay."] if len(stays) > _SHOWN else []
        total = f"{len(own):,} of its {len(files):,} files go with it, {size:,} bytes."
        if is_swept:
            total = f"It was swept. {len(stays):,} of its {len(files):,} files stay."
        return [total, *named, *more]

    def name(self, file: int) -> str:
        return long_quote(self.table.names[file].removeprefix("/"))


def long_quote(name: str) -> str:
    return quote(name, 200)


def number_of(transaction: str) -> int:
    """Return the number of a version; -1 for any other text."""
    return int(transaction) if transaction.isdecimal() and str(int(transaction)) == transaction else -1


def claimed_files(table: Table, claimed: Mapping[str, str]) -> dict[int, str]:
    """Return who else needs files of a table, by the number of the file."""
    numbers = table.numbers_of_names
    return {numbers[name]: other for name, other in claimed.items() if name in numbers}


def prepare_versions(state: TableState, transactions: Sequence[str]) -> list[PreparedTarget]:
    """Return a note for each version, and the bytes that go if all of them do, each file counted once."""
    table = state.table
    due_versions = {name: number for name in transactions if (number := number_of(name)) in table.versions}
    needs = Needs.of(state, due_versions.values())
    owner, is_due = table.newest_of(due_versions.values()), ~needs.needed
    sizes = np.bincount(owner[is_due & (owner >= 0)], table.file_sizes()[is_due & (owner >= 0)], table.newest + 1)
    note = json.dumps(VersionNote(table.id, table.newest))
    return [
        PreparedTarget(name, int(sizes[due_versions[name]]), note) if name in due_versions else PreparedTarget(name, 0)
        for name in transactions
    ]


def wanted_again(state: TableState, versions: Collection[int]) -> dict[int, str]:
    """Return the set aside versions that are needed, and by whom: pinned ones, and those that have a file that is missed.

    If several have a missed file, the one with the fewest other missing files.
    """
    table, missing, swept = state.table, state.missing, state.swept
    # a set aside version that a hold or a retain rule names stays aside: it doesn't need its own files back
    readable = replace(state, swept=replace(swept, kept=swept.kept - swept.aside))
    pinned, needs = state.pins.of_bases(table), Needs.of(readable, (), Order.SET_ASIDE)
    wanted = {number: _sentence(pinned[number]) for number in versions if number in pinned}
    missed = needs.wanted & missing
    for number in wanted:
        missed[table.files_of(number)] = False
    others = table.counts({*versions}, missing & ~missed)
    for number in sorted(versions, key=lambda version: (others[version], version)):
        files = table.files_of(number)
        if number not in wanted and len(own := files[missed[files]]):
            wanted[number] = _sentence(f"{needs.witness(int(own[0]))} {needs.name(int(own[0]))}, a file of it")
            missed[files] = False
    return wanted


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def remains_of(needs: Needs, targets: Sequence[Target], listing: Mapping[str, Entry]) -> dict[str, Remains]:
    """Return the state of each version by the files that go with it; none for a version without such files."""
    table, due = needs.table, ~needs.needed
    by_number = {number_of(target.transaction): target for target in targets}
    versions = {number: target for number, target in by_number.items() if number in table.versions}
    planned, left = table.counts(versions, due), table.counts(versions, due & is_listed(table, listing))
    remains: dict[str, Remains] = {}
    for number, target in versions.items():
        if planned[number] and not left[number]:
            # a set aside version has freed nothing
            remains[target.transaction] = Remains.NOTHING if target.aside else Remains.FREED
        elif planned[number]:
            remains[target.transaction] = Remains.ALL if left[number] == planned[number] else Remains.SOME
    return remains


def is_listed(table: Table, listing: Mapping[str, Entry]) -> Bools:
    return np.fromiter((name in listing for name in table.names), bool, len(table.names))


def is_missing(table: Table, listing: Mapping[str, Entry]) -> Bools:
    """Tell for each file of a table whether it should be in its folder, and is not."""
    missing = ~is_listed(table, listing)
    missing[table.elsewhere] = False
    return missing


def check_names(table: Table, listing: Mapping[str, Entry]) -> None:
    """Raises Refused if a name of the log is there both as written and decoded: nobody knows which file is meant."""
    for path, file in table.raw.items():
        if path in listing and table.names[file] in listing:
            decoded = long_quote(table.names[file])
            raise Refused(f"{long_quote(path)} is there as the log writes it, and decoded as {decoded}")


def strays_of(table: Table, names: Iterable[str]) -> int:
    """Count the files in the folder of a table that its log does not name, but for hidden ones, as readers see them."""
    numbers = table.numbers_of_names
    return sum(1 for name in names if name not in numbers and not _is_hidden(name))


def _is_hidden(name: str) -> bool:
    return not name.startswith(CHANGE_DATA) and any(part.startswith((".", "_")) and "=" not in part for part in name.split("/"))

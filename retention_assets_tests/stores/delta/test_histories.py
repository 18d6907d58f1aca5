"""Random lives of a table under policies: writers, people and runs, and after each run one law, by files alone.

Every file of a version that the ledger does not call swept is in its place; of one that is set aside, in its place or the trash.
And a file that only deleted versions had is gone.
"""

import json
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake.exceptions import DeltaError

from retention_assets.errors import Refused
from retention_assets.ledger import OUTCOMES, AskedBy
from retention_assets.outcomes import Order
from retention_assets.policy import Hold
from retention_assets_tests.ledger.states import set_aside_in
from retention_assets_tests.people.conftest import lake, run
from retention_assets_tests.rounds import rounds
from retention_assets_tests.stores.delta.tables import Table, file_uris, files, versions
from retention_assets_tests.stores.delta.test_cycle import folder, house
from retention_assets_tests.sweep.cycle import begin
from retention_assets_tests.sweep.datasets import MARKED
from retention_assets_tests.sweep.lakes import DAY, Lake

__all__ = ["folder", "house", "lake", "run"]

STEPS = 24


class Life:
    """A table, what people say about it, and the days that go by."""

    def __init__(self, house: Lake, folder: Path, seed: int) -> None:
        self.house, self.folder, self.dice = house, folder, random.Random(seed)
        self.at, self.number, self.said = MARKED, 0, list[str]()
        self.needs: dict[int, frozenset[str]] = {}
        self.rules = ["", ""]
        Table(folder, 0, 1, 2, partitioned=self.dice.random() < 0.5)
        self.change_policies()

    def live(self) -> None:
        acts: tuple[tuple[int, Callable[[], object]], ...] = (
            (8, self.write), (6, self.run), (2, self.change_policies), (2, self.hold), (2, self.release), (1, self.retain),
            (1, self.restore_version), (1, self.pin), (1, self.empty), (3, self.pass_days),
        )  # fmt: skip
        for _ in range(STEPS):
            [act] = self.dice.choices([act for _, act in acts], [weight for weight, _ in acts])
            self.said.append(act.__name__)
            act()
            self.look()
        for _ in range(2):
            self.pass_days()
            self.run()
            self.look()

    def write(self) -> None:
        table = Table.open(self.folder)
        self.number += 1
        older = versions(self.folder)
        acts: tuple[Callable[[], object], ...] = (
            lambda: table.append(self.number), lambda: table.append(self.number, self.number + 50), table.compact,
            lambda: table.overwrite(self.number), lambda: table.delete(f"id = {self.dice.randrange(self.number + 2)}"),
            lambda: table.restore(self.dice.choice(older)),
        )  # fmt: skip
        with suppress(DeltaError):
            self.dice.choice(acts)()

    def change_policies(self) -> None:
        def policy(name: str) -> str:
            undo = self.dice.choice(["", "undo: 3d, ", "undo: 12d, "])
            batch, grace = self.dice.choice([1, 2, 500]), self.dice.choice(["2d", "7d", "15d"])
            select = self.dice.choice(["beyond: {transactions: 1}", "beyond: {transactions: 3}", 'where: "bytes > 1500"'])
            return f"{{name: {name}, datasets: {{include: ['lh/*']}}, select: {{{select}}}, grace: {grace}, {undo}sweep: {{every: 0s, batch: {batch}}}}}"

        self.rules[0] = ", ".join(policy(name) for name in self.dice.sample(["one", "two"], self.dice.randint(1, 2)))
        self.house.says(self.rules[0], retain=self.rules[1])

    def retain(self) -> None:
        chosen = ", ".join(f"'{number}'" for number in self.dice.sample(versions(self.folder), 1))
        rule = f"{{name: kept, reason: audit, datasets: 'lh/*', where: \"transaction IN ({chosen})\"}}"
        self.rules[1] = self.dice.choice(["", rule, "{name: young, reason: new, datasets: 'lh/*', newest: {transactions: 2}}"])
        self.house.says(self.rules[0], retain=self.rules[1])

    def hold(self) -> None:
        number = self.dice.choice(versions(self.folder))
        said = {"name": f"hold-{len(self.said)}", "datasets": "lh/*", "transactions": [str(number)], "reason": "audit"}
        with self.house.opened() as ledger:
            ledger.holds.place(Hold.model_validate(said), "ann")

    def release(self) -> None:
        with self.house.opened() as ledger:
            for hold in ledger.holds.recorded(self.at).placed:
                if self.dice.random() < 0.6:
                    ledger.holds.release(str(hold.name), "ann", "over")

    def pin(self) -> None:
        kept = ",".join(map(str, self.dice.sample(versions(self.folder), 1)))
        Table.open(self.folder).set_properties({"retention.keep_versions": kept})

    def restore_version(self) -> None:
        self._ask(Order.RESTORE)

    def empty(self) -> None:
        self._ask(Order.DELETE_ASIDE)

    def _ask(self, order: Order) -> None:
        with self.house.opened() as ledger:
            aside = sorted(set_aside_in(ledger, "lh/t"))
            names = self.dice.sample(aside, min(len(aside), 2))
            with suppress(Refused):
                begin(ledger, "lh/t", order, AskedBy("ann", "asked for"), names) if names else None
        self.house.sweeps(self.at, only=order)

    def pass_days(self) -> None:
        self.at += self.dice.choice([1, 3, 8, 20]) * DAY

    def run(self) -> None:
        self.at += timedelta(hours=1)
        self.house.marks(self.at)
        results = self.house.sweeps(self.at)
        assert all(result.refused is None for result in results.values()), results

    def look(self) -> None:
        """The law."""
        for number in versions(self.folder):
            # a version that neither adds nor removes a file stands for the one before it
            if number not in self.needs and self.changes_files(number):
                self.needs[number] = frozenset(
                    str(Path(place).relative_to(self.folder)) for place in file_uris(self.folder, number)
                )
        ends = self.ends()
        there = files(self.folder).keys()
        in_trash = {name.rpartition("/")[2] for name in there if name.startswith(".retention-trash")}
        for number, needed in self.needs.items():
            lost = needed - there
            if ends.get(number) == "SET_ASIDE":
                lost = frozenset(name for name in lost if name.rpartition("/")[2] not in in_trash)
            if ends.get(number) not in ("DELETED", "ALREADY_GONE"):
                assert not lost, (f"version {number} ({ends.get(number)}) lost {lost}", self.said)
        deleted = {number for number, end in ends.items() if end in ("DELETED", "ALREADY_GONE")}
        named = frozenset[str]().union(*(self.needs[number] for number in deleted))
        wanted = frozenset[str]().union(*(needed for number, needed in self.needs.items() if number not in deleted))
        left = {name for name in named - wanted if name in there or name.rpartition("/")[2] in in_trash}
        assert not left, (f"{left} of {deleted} are left", self.said)

    def changes_files(self, number: int) -> bool:
        lines = (self.folder / "_delta_log" / f"{number:020}.json").read_text("utf-8").splitlines()
        return any(not {"add", "remove"}.isdisjoint(json.loads(line)) for line in lines)

    def ends(self) -> dict[int, str]:
        """How versions ended that the ledger calls swept."""
        with self.house.opened() as ledger:
            swept = ledger.marks.table(["lh/t"], ["SWEPT"], columns=OUTCOMES).to_pylist()
            return {int(row["transaction"]): str(row["outcome"]) for row in swept}


@pytest.mark.parametrize("seed", range(rounds(6)))
def test_what_is_retained_or_set_aside_has_its_files_after_each_run(seed: int, house: Lake, folder: Path) -> None:
    life = Life(house, folder, seed)
    life.live()
    assert house.verified() == ()

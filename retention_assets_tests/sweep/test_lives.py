"""Ids that come again: what a sweep deletes is what was marked, and whatever has its id since gets a mark and a grace of its own.

The law at the end runs random days of a lake against a model in plain dictionaries.
"""

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.errors import Refused
from retention_assets.frames import INSTANT, new_marks
from retention_assets.ledger import Ledger
from retention_assets.policy import parse_instant, text_of
from retention_assets_tests.sweep.lakes import ALL, DAY, DUE, FIVE, MARKED, OLD, Lake
from retention_assets_tests.sweep.test_between_batches import BEGUN, REPLACED

WEEK = timedelta(days=7)
TICK = timedelta(microseconds=1)
# S2 as it was drawn, and others of its name that differ by as little as can be.
S2 = parse_instant("2026-01-10T12:00:00Z")
ANOTHER = [
    pytest.param({"closed_at": text_of(S2 + TICK)}, id="closed later"),
    pytest.param({"opened_at": text_of(S2 - TICK)}, id="opened earlier"),
    pytest.param({"opened_at": text_of(S2 - TICK), "closed_at": text_of(S2 - TICK)}, id="back-dated"),
    pytest.param({"opened_at": None}, id="no opening"),
]


@pytest.mark.parametrize("left", [False, True], ids=["fresh", "left"])
@pytest.mark.parametrize("changes", ANOTHER)
def test_what_was_made_anew_under_a_marked_id_is_spared_and_has_a_grace_of_its_own(
    lake: Lake, changes: dict[str, Any], left: bool
) -> None:
    lake.has(FIVE).marks()
    if left:
        lake.begins(*ALL - {"S6"})
    lake.comes_again("S2", **changes)
    lake.sweeps()
    assert lake.there() == {"S2", "S6"}
    assert lake.why("S2") == BEGUN * left + REPLACED
    assert lake.report()["spared"] == 1
    assert lake.marks(DUE) == 1
    lake.sweeps(DUE + WEEK - TICK)
    assert lake.there() == {"S2", "S6"}
    lake.sweeps(DUE + WEEK)
    assert lake.there() == {"S6"}
    assert lake.verified() == ()


@pytest.mark.parametrize(
    ("before", "after", "left", "stays"),
    [
        pytest.param(10, 11, False, True, id="larger"),
        pytest.param(10, 9, False, True, id="smaller"),
        pytest.param(10, 10, False, False, id="as large"),
        pytest.param(None, 10, False, False, id="nobody knew how large"),
        pytest.param(10, None, False, False, id="nobody knows how large"),
        # It may be the sweep that has made it smaller.
        pytest.param(10, 9, True, False, id="a sweep had begun on it"),
    ],
)
def test_another_size_is_another_one_unless_a_sweep_had_begun(
    lake: Lake, before: int | None, after: int | None, left: bool, stays: bool
) -> None:
    lake.has(FIVE).comes_again("S2", bytes=before)
    lake.marks()
    if left:
        lake.begins(*ALL - {"S6"})
    lake.comes_again("S2", bytes=after)
    lake.sweeps()
    assert lake.there() == ({"S2", "S6"} if stays else {"S6"})
    assert lake.statuses()["S2"] == ("SPARED" if stays else "SWEPT")


def test_what_failed_once_and_is_smaller_since_is_tried_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.has(FIVE).marks()
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", _fails)
        patch.setattr("os.unlink", _fails)
        patch.setattr("os.rmdir", _fails)
        lake.sweeps()
    assert lake.statuses()["S2"] == "MARKED"
    lake.comes_again("S2", bytes=9)
    lake.sweeps(DUE + DAY)
    assert lake.there() == {"S6"}


def _fails(*_: Any, **__: Any) -> None:
    raise OSError("the disk is on fire")


def test_a_mark_that_knows_no_times_is_of_whatever_has_its_id(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """What closed after it was marked is another one all the same."""

    def knows_no_times(*arguments: Any) -> pa.Table:
        marks = new_marks(*arguments)
        nothing = pa.nulls(len(marks), INSTANT)
        times = ["opened_at", "closed_at"]
        return marks.drop_columns(times).append_column(times[0], nothing).append_column(times[1], nothing)

    lake.says(OLD.replace("{older_than: 30d}", "{beyond: {views: 1}}"))
    monkeypatch.setattr("retention_assets_tests.sweep.datasets.new_marks", knows_no_times)
    lake.has(FIVE).marks()
    lake.comes_again("S2", closed_at=text_of(S2 + TICK))
    lake.comes_again("S3", closed_at=text_of(MARKED + TICK))
    lake.sweeps()
    assert lake.there() == {"S3", "S6"}
    assert "It closed after it was marked" in lake.why("S3")
    lake.comes_again("S1", closed_at="2025-12-31T12:00:00.000001Z")
    assert lake.marks(DUE) == 1
    assert lake.statuses()["S1"] == "SWEPT"


@pytest.mark.parametrize(("again", "new"), [(("S1", "S2"), 2), (("S1", "S2", "S3"), 0)], ids=["within", "over"])
def test_limits_count_what_came_again_under_the_id_of_something_swept(lake: Lake, again: tuple[str, ...], new: int) -> None:
    lake.has(FIVE).marks()
    lake.sweeps()
    lake.says(OLD.replace("{older_than: 30d}", "{older_than: 30d}, limits: {transactions: 2}"))
    assert lake.marks(DUE) == 0
    for name in again:
        lake.comes_again(name, opened_at="2025-12-01T00:00:00Z")
    assert lake.marks(DUE) == new


def test_the_open_mark_of_an_earlier_life_keeps_its_id_from_counting_as_new(lake: Lake) -> None:
    """It could not be marked, so that it takes nothing of a limit away from others."""
    lake.says(OLD.replace("{older_than: 30d}", "{older_than: 75d}"))
    lake.has(FIVE)
    assert lake.marks() == 2
    for name in ("S1", "S2"):
        lake.comes_again(name, opened_at="2025-12-01T00:00:00Z")
    lake.says(OLD.replace("{older_than: 30d}", "{older_than: 65d}, limits: {transactions: 1}"))
    assert lake.marks() == 1


# --- the law ----------------------------------------------------------------------------------------------------------

NAMES = ("S1", "S2", "S3", "S4", "S5")
Life = tuple[str, datetime]


@dataclass
class Model:
    """What is true of the lake, in as few words as there can be. Times are all that tells the lives of an id apart."""

    at: datetime = MARKED
    closed: dict[str, datetime] = field(default_factory=dict)
    there: set[str] = field(default_factory=lambda: set(NAMES))
    # By id: what is marked, and since when.
    marks: dict[str, tuple[datetime, datetime]] = field(default_factory=dict)
    swept: set[Life] = field(default_factory=set)

    def evaluate(self) -> None:
        for name, closed in self.closed.items():
            if name not in self.marks and (name, closed) not in self.swept:
                self.marks[name] = closed, self.at

    def sweep(self) -> None:
        for name, (closed, since) in list(self.marks.items()):
            if self.at >= since + WEEK:
                del self.marks[name]
                if closed == self.closed[name]:
                    self.there.discard(name)
                    self.swept.add((name, closed))


def lives_of(ledger: Ledger, *statuses: str) -> list[Life]:
    rows = ledger.marks.table(["lake/d"], statuses).to_pylist()
    return sorted((row["transaction"], row["closed_at"]) for row in rows)


@dataclass
class Days:
    lake: Lake
    rng: random.Random
    model: Model
    drawn: dict[str, datetime]

    def evaluate(self) -> None:
        before = len(self.model.marks)
        self.model.evaluate()
        assert self.lake.marks(self.model.at) == len(self.model.marks) - before

    def sweep(self) -> None:
        self.model.sweep()
        assert [one for one in self.lake.sweeps(self.model.at).values() if one.refused or one.errors] == []

    def unmark(self) -> None:
        name, model = self.rng.choice(NAMES), self.model
        with self.lake.opened() as ledger:
            if model.marks.pop(name, None):
                ledger.unmark.transactions("lake/d", [name], "ann", "law")
            else:
                with pytest.raises(Refused):
                    ledger.unmark.transactions("lake/d", [name], "ann", "law")

    def come_as_they_were(self) -> None:
        self._come()

    def come_as_others(self) -> None:
        self._come(others=True)

    def _come(self, others: bool = False) -> None:
        for name in self.rng.sample(NAMES, self.rng.randint(1, 4)):
            if others:
                self.model.closed[name] = self.drawn[name] + TICK * self.rng.randrange(5)
            self.model.there.add(name)
            self.lake.comes_again(name, closed_at=text_of(self.model.closed[name]))

    def compare(self) -> None:
        assert self.lake.there() == self.model.there | {"S6"}
        with self.lake.opened() as ledger:
            assert lives_of(ledger, "MARKED") == sorted((name, closed) for name, (closed, _) in self.model.marks.items())
            assert lives_of(ledger, "SWEPT") == sorted(self.model.swept)
            assert lives_of(ledger, "SWEEPING") == []


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_no_life_goes_without_its_own_mark_and_grace_and_none_stays_unmarked(tmp_path: Path, url: str, seed: int) -> None:
    """Days of evaluating, sweeping, taking back, and of ids that come again as they were, as new ones, or as older ones."""
    rng, model = random.Random(f"lives {seed}"), Model()
    lake = Lake(tmp_path / "lake", url).has(FIVE)
    lake.says(OLD.replace("{older_than: 30d}", "{beyond: {views: 1}}"))
    lake.configures(clock={"max_ahead": "9y"})
    drawn = {row["transaction"]: parse_instant(row["closed_at"]) for row in lake.drawn[0].transactions}
    model.closed = {name: drawn[name] for name in NAMES}
    days = Days(lake, rng, model, drawn)
    acts = (days.evaluate, days.sweep, days.come_as_others)
    rare = (days.unmark, days.come_as_they_were, days.evaluate, days.sweep)
    did: list[str] = []
    for number in range(24):
        model.at += rng.choice((timedelta(), 3 * DAY, WEEK - TICK, WEEK))
        act = rng.choice(rare) if rng.random() < 0.3 else acts[number % 3]
        did.append(f"{model.at:%m-%d %X} {act.__name__}")
        act()
        days.compare()
    assert lake.verified() == ()
    assert len(model.swept) > len({name for name, _ in model.swept}), f"no id was swept twice: {did}"

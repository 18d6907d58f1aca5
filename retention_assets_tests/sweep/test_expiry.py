"""Sweeps that hand expiry to the store: marks stay begun until a later look finds them gone, and what is needed gets its time
taken back. The store of these tests keeps times for the rows of a real log, and takes them out of it when their time has come.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pyarrow as pa
import pytest

from retention_assets.outcomes import Outcome
from retention_assets.stores.dry_run import RecordingStore
from retention_assets.stores.protocol import Capabilities, Only, Permit, PreparedTarget, Store, SweptTarget, Target, always
from retention_assets_tests.sweep.lakes import DUE, OLD, Lake
from retention_assets_tests.sweep.test_engine import FIVE

DAY = timedelta(days=1)
TTL = OLD.replace("sweep: {every: 0s,", "sweep: {mode: ttl, parallelism: 3, every: 0s,").replace(
    "{older_than: 30d}", "{beyond: {views: 1}}"
)
GOING = {"S1", "S2", "S3", "S4", "S5"}


class Expires(RecordingStore):
    """A store that expires what has passed its time, when its own night comes."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake.stores["lake"])
        self.file = lake.folder / "log" / "lake-d.jsonl"
        self.times: dict[str, datetime] = {}
        self.away = False
        # Whether times were to be taken back, the notes of the targets, and how many at once.
        self.asked: list[tuple[bool, dict[str, str | None], int]] = []
        # What it gives its time and then says of it.
        self.says: dict[str, Outcome] = {}

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.store.capabilities, expiry=True, log_is_complete=True)

    def prepare(self, dataset: str, transactions: Sequence[str]) -> list[PreparedTarget]:  # noqa: ARG002 - the protocol's
        return [PreparedTarget(name, None, f"note of {name}") for name in transactions]

    def expire(
        self,
        dataset: str,  # noqa: ARG002 - the protocol's
        targets: Sequence[Target],
        at: datetime | None,
        parallelism: int,
        permit: Permit = always,  # noqa: ARG002 - the protocol's
    ) -> list[SweptTarget]:
        self.asked.append((at is None, {one.transaction: one.note for one in targets}, parallelism))
        if self.away:
            raise OSError("the database is away")
        there = self.log()
        swept = []
        for one in targets:
            if one.transaction not in there:
                swept.append(SweptTarget(one.transaction, Outcome.ALREADY_GONE))
                continue
            self.times.pop(one.transaction, None)
            if at is not None:
                self.times[one.transaction] = at
            said = Outcome.EXPIRING if at is None else self.says.get(one.transaction, Outcome.EXPIRING)
            swept.append(SweptTarget(one.transaction, said, error=None if said is Outcome.EXPIRING else "as it was told"))
        return swept

    def log(self) -> set[str]:
        """The transactions of the log."""
        return {str(row["transaction"]) for row in self._rows() if "transaction" in row}

    def night(self) -> None:
        """What has passed its time goes."""
        gone = self.times.keys()
        rows = [row for row in self._rows() if row.get("transaction") not in gone]
        kept = [{**row, **({"parent": None} if row.get("parent") in gone else {})} for row in rows]
        self.file.write_text("".join(f"{json.dumps(row)}\n" for row in kept))
        self.times = {}

    def _rows(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.file.read_text().splitlines()]


@pytest.fixture
def marked(lake: Lake) -> Lake:
    """A lake whose five old transactions are marked, to be expired."""
    lake.says(TTL)
    lake.has(FIVE).marks()
    return lake


def sweeps(lake: Lake, store: Store, as_of: datetime = DUE) -> dict[Outcome, int]:
    return dict(lake.sweeps(as_of, stores={"lake": store})["lake/d"].outcomes)


def test_what_is_due_gets_its_time_and_is_swept_once_the_store_no_longer_has_it(marked: Lake) -> None:
    store = Expires(marked)
    assert sweeps(marked, store) == {Outcome.EXPIRING: 5}
    assert store.times == dict.fromkeys(GOING, DUE)
    assert store.recorded == []
    assert set(marked.statuses().values()) == {"SWEEPING"}
    assert marked.report()["finished_at"] is None
    store.night()
    (result,) = marked.sweeps(DUE + DAY, stores={"lake": store}).values()
    # What the log said of their bytes.
    assert (dict(result.outcomes), result.bytes_freed) == ({Outcome.DELETED: 5}, 50)
    assert set(marked.statuses().values()) == {"SWEPT"}
    report = marked.report(DUE + DAY)
    assert (report["to_delete"], report["deleted"], report["bytes_freed"]) == (5, 5, 50)
    assert report["finished_at"] is not None
    assert marked.report()["finished_at"] is not None
    assert marked.verified() == ()


def test_a_store_is_told_its_notes_whether_it_gives_times_or_takes_them_back(marked: Lake) -> None:
    """By them it knows that a row is still what was planned."""
    store = Expires(marked)
    notes = {name: f"note of {name}" for name in sorted(GOING)}
    sweeps(marked, store)
    assert {name: note for _, some, _ in store.asked for name, note in some.items()} == notes
    assert {parallelism for _, _, parallelism in store.asked} == {3}
    store.asked.clear()
    marked.says(TTL, "{name: legal, datasets: ['lake/*'], transactions: ['S2'], reason: case 7}")
    sweeps(marked, store, DUE + DAY)
    assert [some for back, some, _ in store.asked if back] == [{"S2": "note of S2"}]
    assert {name: note for back, some, _ in store.asked for name, note in some.items() if not back} == {
        name: note for name, note in notes.items() if name != "S2"
    }


def test_what_the_store_still_has_waits_and_is_given_no_other_outcome(marked: Lake) -> None:
    store = Expires(marked)
    sweeps(marked, store)
    assert sweeps(marked, store, DUE + DAY) == {Outcome.EXPIRING: 5}
    assert set(marked.statuses().values()) == {"SWEEPING"}
    assert marked.report(DUE + DAY)["deleted"] == 0


def test_a_hold_that_comes_after_the_time_was_given_takes_it_back(marked: Lake) -> None:
    store = Expires(marked)
    sweeps(marked, store)
    marked.says(TTL, "{name: legal, datasets: ['lake/*'], transactions: ['S2'], reason: case 7}")
    assert sweeps(marked, store, DUE + DAY) == {Outcome.SPARED: 1, Outcome.EXPIRING: 4}
    assert store.times.keys() == GOING - {"S2"}
    assert marked.why("S2") == "Hold 'legal' keeps it."


def test_a_hold_that_comes_after_the_store_has_expired_it_keeps_nothing_and_nobody_says_so(marked: Lake) -> None:
    store = Expires(marked)
    sweeps(marked, store)
    store.night()
    marked.says(TTL, "{name: legal, datasets: ['lake/*'], transactions: ['S2'], reason: case 7}")
    assert sweeps(marked, store, DUE + DAY) == {Outcome.ALREADY_GONE: 1, Outcome.DELETED: 4}
    assert marked.statuses()["S2"] == "SWEPT"


def test_a_time_that_cannot_be_taken_back_is_never_called_spared(marked: Lake) -> None:
    store = Expires(marked)
    sweeps(marked, store)
    marked.says(TTL, "{name: legal, datasets: ['lake/*'], transactions: ['S2'], reason: case 7}")
    store.away = True
    (result,) = marked.sweeps(DUE + DAY, stores={"lake": store}).values()
    assert "could not be taken back" in result.errors[0]
    assert marked.statuses()["S2"] == "SWEEPING"
    store.away = False
    sweeps(marked, store, DUE + 2 * DAY)
    assert marked.statuses()["S2"] == "SPARED"
    assert "S2" not in store.times


def test_a_sweep_that_fails_to_give_a_time_is_tried_again(marked: Lake) -> None:
    store = Expires(marked)
    store.away = True
    assert sweeps(marked, store) == {Outcome.FAILED: 5}
    # It may have come as far as the rows: nobody can take back a mark whose rows may go.
    assert set(marked.statuses().values()) == {"SWEEPING"}
    store.away = False
    assert sweeps(marked, store) == {Outcome.EXPIRING: 5}


def test_what_failed_after_some_of_it_had_its_time_has_none_when_it_is_marked_again(marked: Lake) -> None:
    """The rows of its children, say, or all of them, where the answer of the commit was lost."""
    store = Expires(marked)
    store.says = {"S2": Outcome.FAILED}
    assert sweeps(marked, store) == {Outcome.FAILED: 1, Outcome.EXPIRING: 4}
    assert store.times.keys() == GOING - {"S2"}
    assert (marked.statuses()["S2"], marked.why("S2")) == ("MARKED", "as it was told")


def test_what_the_store_leaves_alone_later_loses_the_time_that_it_was_given_before(marked: Lake) -> None:
    """It was changed in a way that the policy does not mind, and the store does."""
    store = Expires(marked)
    sweeps(marked, store)
    store.says = {"S2": Outcome.SPARED}
    assert sweeps(marked, store, DUE + DAY) == {Outcome.SPARED: 1, Outcome.EXPIRING: 4}
    assert store.times.keys() == GOING - {"S2"}
    assert marked.statuses()["S2"] == "SPARED"


def test_what_the_store_leaves_alone_at_once_keeps_whatever_time_it_has(marked: Lake) -> None:
    """The application's own, for example: nobody here has given it one."""
    store = Expires(marked)
    store.says = {"S2": Outcome.SPARED}
    assert sweeps(marked, store) == {Outcome.SPARED: 1, Outcome.EXPIRING: 4}
    assert store.times.keys() == GOING


def test_a_store_that_lost_the_ability_leaves_what_it_was_to_expire(marked: Lake) -> None:
    """Deleting it now would be another thing than the policy says."""
    store = Expires(marked)
    sweeps(marked, store)
    before = marked.left()
    (result,) = marked.sweeps(DUE + DAY).values()
    assert "can't expire anything by itself" in result.errors[0]
    assert marked.left() == before
    assert set(marked.statuses().values()) == {"SWEEPING"}


class Guards(RecordingStore):
    """A store that looks itself at each target before it goes. In the middle of its sweeps somebody writes into the log."""

    def __init__(self, lake: Lake, guards: bool = True) -> None:
        super().__init__(lake.stores["lake"])
        self.lake, self.guards, self.reads = lake, guards, 0

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.store.capabilities, guards=self.guards)

    def read(self, datasets: Sequence[str], only: Only | None = None) -> pa.Table:
        self.reads += 1
        return super().read(datasets, only)

    def sweep(self, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always) -> list[SweptTarget]:
        log = self.lake.folder / "log" / "lake-d.jsonl"
        log.write_text(log.read_text() + "\n")
        return self.store.sweep(dataset, targets, parallelism, permit)


@pytest.mark.parametrize(("guards", "reads"), [(True, 1), (False, 3)])
def test_a_store_that_guards_its_targets_is_not_read_again_between_batches(lake: Lake, guards: bool, reads: int) -> None:
    lake.has(FIVE).marks()
    store = Guards(lake, guards)
    lake.sweeps(stores={"lake": store})
    assert lake.there() == {"S6"}
    assert store.reads == reads

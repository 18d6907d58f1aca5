"""Expiry by the store: marks stay begun until a later look finds them gone, and what is needed gets its time taken back.

First on a store that keeps times for the rows of a real log, and takes them out of it when their time has come; then on a
database, with what housekeeping puts off.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from retention_assets.environment import Environment
from retention_assets.evaluation import Keepers
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.outcomes import Outcome
from retention_assets.policy import Hold, Keeper, RetainRule, parse_duration
from retention_assets.stores.dry_run import RecordingStore
from retention_assets.stores.protocol import (
    ExpiryCount,
    ExpiryTerms,
    Permit,
    PreparedTarget,
    Store,
    SweptTarget,
    Target,
    always,
)
from retention_assets.stores.records import store
from retention_assets.stores.records.store import RecordsStore
from retention_assets.sweep import PostponementResult, postpone_expiry, postpone_expiry_dry_run
from retention_assets_tests.ledger.states import take_lease
from retention_assets_tests.stores.records.cycle import UnitsCycle
from retention_assets_tests.stores.records.environments import TOLD_TO, Units
from retention_assets_tests.sweep.lakes import DUE, FIVE, OLD, Lake

DAY = timedelta(days=1)
TTL = OLD.replace("sweep: {every: 0s,", "sweep: {mode: ttl, parallelism: 3, every: 0s,").replace(
    "{older_than: 30d}", "{beyond: {views: 1}}"
)
GOING = {"S1", "S2", "S3", "S4", "S5"}
HOLD = "{name: legal, datasets: ['lake/*'], transactions: ['S2'], reason: case 7}"


class Expires(RecordingStore):
    """A store that expires what has passed its time, when its own night comes."""

    expiry = ExpiryTerms(days=1, length=parse_duration("1d"))
    log_is_complete = True

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake.stores["lake"])
        self.file = lake.folder / "log" / "lake-d.jsonl"
        self.times: dict[str, datetime] = {}
        self.away = False
        # Whether times were to be taken back, the notes of the targets, and how many at once.
        self.asked: list[tuple[bool, dict[str, str | None], int]] = []
        # What it gives its time and then says of it.
        self.says: dict[str, Outcome] = {}

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
    lake.says(TTL)
    lake.has(FIVE).marks()
    return lake


def sweeps(lake: Lake, store: Store, as_of: datetime = DUE) -> dict[Outcome, int]:
    return dict(lake.sweeps(as_of, store=store)["lake/d"].outcomes)


def test_what_is_due_gets_its_time_and_is_swept_once_the_store_no_longer_has_it(marked: Lake) -> None:
    store = Expires(marked)
    assert sweeps(marked, store) == {Outcome.EXPIRING: 5}
    assert store.times == dict.fromkeys(GOING, DUE)
    assert store.recorded == []
    assert set(marked.statuses().values()) == {"SWEEPING"}
    assert marked.report()["finished_at"] is None
    store.night()
    (result,) = marked.sweeps(DUE + DAY, store=store).values()
    # What the log said of their bytes.
    assert (dict(result.outcomes), result.bytes_freed) == ({Outcome.DELETED: 5}, 50)
    assert set(marked.statuses().values()) == {"SWEPT"}
    report = marked.report(DUE + DAY)
    assert (report["to_delete"], report["deleted"], report["bytes_freed"]) == (5, 5, 50)
    assert report["finished_at"] is not None
    assert marked.report()["finished_at"] is not None
    assert marked.verified() == ()


def test_a_hold_that_comes_later_takes_the_time_back_and_the_store_is_told_its_notes_both_times(marked: Lake) -> None:
    """By them it knows that a row is still what was planned."""
    store = Expires(marked)
    notes = {name: f"note of {name}" for name in sorted(GOING)}
    sweeps(marked, store)
    assert {name: note for _, some, _ in store.asked for name, note in some.items()} == notes
    assert {parallelism for _, _, parallelism in store.asked} == {3}
    store.asked.clear()
    marked.says(TTL, HOLD)
    assert sweeps(marked, store, DUE + DAY) == {Outcome.SPARED: 1, Outcome.EXPIRING: 4}
    assert store.times.keys() == GOING - {"S2"}
    assert marked.why("S2") == "Hold 'legal' keeps it."
    assert [some for back, some, _ in store.asked if back] == [{"S2": "note of S2"}]
    assert {name: note for back, some, _ in store.asked for name, note in some.items() if not back} == {
        name: note for name, note in notes.items() if name != "S2"
    }


def test_a_hold_that_comes_after_the_store_has_expired_it_keeps_nothing_and_nobody_says_so(marked: Lake) -> None:
    store = Expires(marked)
    sweeps(marked, store)
    store.night()
    marked.says(TTL, HOLD)
    assert sweeps(marked, store, DUE + DAY) == {Outcome.ALREADY_GONE: 1, Outcome.DELETED: 4}
    assert marked.statuses()["S2"] == "SWEPT"


def test_a_time_that_cannot_be_taken_back_is_never_called_spared(marked: Lake) -> None:
    store = Expires(marked)
    sweeps(marked, store)
    marked.says(TTL, HOLD)
    store.away = True
    (result,) = marked.sweeps(DUE + DAY, store=store).values()
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


@pytest.mark.parametrize(
    ("before", "said", "status", "keeps"),
    [
        # The rows of its children had their time, say, or all of them, where the answer of the commit was lost.
        pytest.param(False, Outcome.FAILED, "MARKED", False, id="failed after some of it had its time"),
        # It was changed in a way that the policy does not mind, and the store does.
        pytest.param(True, Outcome.SPARED, "SPARED", False, id="left alone later"),
        # The application's own time, for example: nobody here has given it one.
        pytest.param(False, Outcome.SPARED, "SPARED", True, id="left alone at once"),
    ],
)
def test_what_a_store_does_not_let_go_keeps_no_time_but_one_that_it_had_before(
    marked: Lake, before: bool, said: Outcome, status: str, keeps: bool
) -> None:
    store = Expires(marked)
    if before:
        sweeps(marked, store)
    store.says = {"S2": said}
    assert sweeps(marked, store, DUE + before * DAY) == {said: 1, Outcome.EXPIRING: 4}
    assert store.times.keys() == (GOING if keeps else GOING - {"S2"})
    assert (marked.statuses()["S2"], marked.why("S2")) == (status, "as it was told")


def test_a_store_that_lost_the_ability_leaves_what_it_was_to_expire(marked: Lake) -> None:
    """Deleting it now would be another thing than the policy says."""
    store = Expires(marked)
    sweeps(marked, store)
    before = marked.left()
    (result,) = marked.sweeps(DUE + DAY).values()
    assert "but lake can't do that, so its marks wait" in result.errors[0]
    assert marked.left() == before
    assert set(marked.statuses().values()) == {"SWEEPING"}


AS_OF = datetime(2023, 5, 17, 10, 0, 0, 500_000, UTC)
# How a time is shown that the store or the test wrote.
NOW, PUT_OFF = "2023-05-17 10:00:00.500000", "2023-11-13 10:00:00.500000"
SOON, EXACTLY, LATER = "2023-05-18 09:00:00", "2023-05-18 10:00:00.500000", "2023-05-18 10:00:00.500001"
POLICY = {
    "name": "ods", "datasets": {"include": ["ods/*"]}, "sweep": {"mode": "ttl"},
    "select": {"older_than": {"age": "P2Y", "align": "day"}, "terminal_only": False, "archived_before_purge": ["PAYMENT"]},
}  # fmt: skip


@pytest.fixture
def units(store_url: str) -> Iterator[Units]:
    units = Units(store_url, ttl={"document_ttl": "180d", "expires_in_max_days": 1})
    yield units
    units.store().close()


@pytest.fixture
def cycle(tmp_path: Path, units: Units) -> UnitsCycle:
    return UnitsCycle(tmp_path / "cycle", [units]).purges(POLICY)


def kept(cycle: UnitsCycle, *holds: Keeper, dry_run: bool = False) -> PostponementResult:
    with cycle.opened() as ledger:
        load_rulebook(ledger, cycle.settings, "test")
        stores, keepers = Environment(cycle.settings).stores(), Keepers(ledger, lambda: holds)
        if dry_run:
            (found,) = postpone_expiry_dry_run(ledger, stores, AS_OF, keepers)
        else:
            (found,) = postpone_expiry(ledger, stores, AS_OF, keepers)
        assert ledger.verify().faults == ()
    assert found.refused is None
    return found


def acts(cycle: UnitsCycle) -> list[dict[str, object]]:
    with cycle.opened() as ledger:
        lines = [json.loads(line) for line in ledger.audit_lines()]
    return [line["detail"] for line in lines if line["deed"] == "POSTPONE"]


# --- what a sweep gives its time ---


def test_what_is_swept_gets_the_same_time_in_all_of_its_tables_and_is_not_deleted(cycle: UnitsCycle, units: Units) -> None:
    units.has("old").has("young", closed="2022-01-01")
    (result,) = cycle.runs(AS_OF).values()
    assert (result.refused, result.errors) == (None, [])
    assert units.whole("old", "young")
    assert (units.expires("old"), units.expires("young")) == ({NOW}, {None})
    assert cycle.statuses(units.dataset) == {"old": "SWEEPING"}


def test_what_the_database_has_expired_is_swept_when_a_later_sweep_finds_it_gone(cycle: UnitsCycle, units: Units) -> None:
    units.has("a", "b")
    cycle.runs(AS_OF)
    for name in units.tables:
        units.loses(name, "a")
    cycle.runs(AS_OF + timedelta(hours=1))
    assert cycle.statuses(units.dataset) == {"a": "SWEPT", "b": "SWEEPING"}
    assert units.expires("b") == {NOW}
    total = cycle.day(AS_OF.date()).total
    assert (total.counters["to_delete"], total.counters["deleted"], total.unsettled, total.finished_at) == (2, 1, 1, None)


def test_what_another_database_does_not_have_was_not_expired(
    cycle: UnitsCycle, units: Units, monkeypatch: pytest.MonkeyPatch
) -> None:
    units.has("a", "b")
    cycle.runs(AS_OF)
    for name in units.tables:
        units.loses(name, "a")
    monkeypatch.setattr(RecordsStore, "place", lambda *_, **__: "another database")
    (result,) = cycle.sweeps(AS_OF + timedelta(hours=1)).values()
    assert "is not at the place that the settings name" in str(result.refused)
    assert cycle.statuses(units.dataset) == {"a": "SWEEPING", "b": "SWEEPING"}


def test_a_time_that_was_given_is_taken_back_from_what_is_needed_again(cycle: UnitsCycle, units: Units) -> None:
    units.has("a", "b")
    cycle.runs(AS_OF)
    units.becomes("a", closed="2023-05-01")
    cycle.sweeps(AS_OF + timedelta(hours=1))
    assert (units.expires("a"), units.expires("b")) == ({None}, {NOW})
    assert cycle.statuses(units.dataset) == {"a": "SPARED", "b": "SWEEPING"}


@pytest.mark.parametrize(("before", "after"), [(None, NOW), (SOON, NOW), ("2023-05-17 09:00:00", "2023-05-17 09:00:00")])
def test_a_time_is_lowered_and_never_raised(units: Units, before: str | None, after: str) -> None:
    units.has("a", expires=before)
    store = units.store()
    for _ in range(2):
        (swept,) = store.expire(units.dataset, _targets(units, "a"), AS_OF, 4)
        assert swept.outcome is Outcome.EXPIRING
        assert units.expires("a") == {after}


def test_a_unit_of_work_that_was_reopened_since_the_plan_gets_no_time(units: Units) -> None:
    units.has("a", "b")
    targets = _targets(units, "a", "b")
    units.becomes("a", closed=None)
    swept = {one.transaction: one for one in units.store().expire(units.dataset, targets, AS_OF, 4)}
    assert (swept["a"].outcome, swept["b"].outcome) == (Outcome.SPARED, Outcome.EXPIRING)
    assert (units.expires("a"), units.expires("b")) == ({None}, {NOW})


def test_what_is_gone_has_no_time_to_get_or_to_give_back(units: Units) -> None:
    # One that stays is the sign that this is the database.
    units.has("a", "b")
    targets = _targets(units, "a")
    units.loses(units.root, "a")
    for at in (AS_OF, None):
        assert [one.outcome for one in units.store().expire(units.dataset, targets, at, 4)] == [Outcome.ALREADY_GONE]


# --- what housekeeping puts off ---


@pytest.mark.parametrize(
    ("row", "is_put_off"),
    [
        ({"closed": None, "expires": SOON}, True),
        ({"closed": None, "expires": EXACTLY}, True),
        ({"closed": None, "expires": LATER}, False),
        # The database's job has not come to it yet, so that it can still be saved.
        ({"closed": None, "expires": "2023-05-17 09:00:00"}, True),
        ({"closed": None, "expires": None}, False),
        ({"expires": SOON}, False),
        ({"expires": SOON, "kind": "PAYMENT"}, True),
        ({"expires": SOON, "kind": "PAYMENT", "archived": "2022-01-01"}, False),
        ({"expires": SOON, "kind": "RECALL"}, False),
        ({"closed": None, "expires": SOON, "kind": "PAYMENT", "archived": "2022-01-01"}, True),
    ],
)
def test_what_is_not_done_with_and_would_expire_is_put_off(
    cycle: UnitsCycle, units: Units, row: dict[str, str | None], is_put_off: bool
) -> None:
    units.has("a", **{"closed": "2023-01-01", **row})  # type: ignore[arg-type]
    found = kept(cycle)
    assert (found.postponed, found.left) == (int(is_put_off), 0)
    assert units.expires("a") == {PUT_OFF if is_put_off else row["expires"]}
    assert units.whole("a")


@pytest.mark.parametrize(("days", "put_off"), [(1, {"d1"}), (2, {"d1", "d2"}), (3, {"d1", "d2", "d3"})])
def test_so_many_days_ahead_is_looked_and_the_last_one_counts(tmp_path: Path, days: int, put_off: set[str]) -> None:
    (tmp_path / "ods.db").touch()
    units = Units(f"sqlite:///{tmp_path / 'ods.db'}", ttl={"document_ttl": "180d", "expires_in_max_days": days})
    for day in (1, 2, 3):
        units.has(f"d{day}", closed=None, expires=(AS_OF + day * DAY).replace(tzinfo=None).isoformat(sep=" "))
    kept(UnitsCycle(tmp_path / "cycle", [units]).purges(POLICY))
    assert {unit for unit in ("d1", "d2", "d3") if units.expires(unit) == {PUT_OFF}} == put_off


def test_what_a_sweep_has_given_its_time_is_never_put_off(cycle: UnitsCycle, units: Units) -> None:
    """`unfinished` was swept though it is not finished, for so the policy has it; nobody swept `other`."""
    units.has("unfinished", closed=None).has("other", opened="2023-01-01", closed=None, expires=SOON)
    cycle.runs(AS_OF)
    assert units.expires("unfinished") == {NOW}
    assert kept(cycle).postponed == 1
    assert (units.expires("unfinished"), units.expires("other")) == ({NOW}, {PUT_OFF})


def test_what_files_or_people_hold_does_not_expire_until_the_hold_ends(cycle: UnitsCycle, units: Units) -> None:
    units.has("case-1", "case-2", "kept", "free", closed="2023-01-01", expires=SOON)
    placed = {"name": "p", "datasets": {"include": ["ods/*"]}, "transactions": ["kept"], "reason": "case 7", "owner": "ann"}
    with cycle.opened() as ledger:
        ledger.holds.place(Hold.model_validate(placed), "ann")
        ledger.holds.place(Hold.model_validate({**placed, "name": "q", "datasets": "ods/other*", "transactions": None}), "ann")
    hold = {"name": "h", "datasets": {"include": ["ods/*"]}, "transactions": ["case-*"]}
    ended = {"name": "e", "datasets": {"include": ["ods/*"]}, "until": "2023-05-01T00:00:00Z"}
    found = kept(cycle, *(Hold.model_validate({**one, "datasets": one["datasets"]}, strict=False) for one in (hold, ended)))
    assert found.postponed == 3
    assert [units.expires(unit) for unit in ("case-1", "case-2", "kept", "free")] == [{PUT_OFF}] * 3 + [{SOON}]


def test_what_a_retain_rule_keeps_does_not_expire(cycle: UnitsCycle, units: Units) -> None:
    units.has("a", kind="PAYMENT", closed="2023-01-01", expires=SOON)
    units.has("b", kind="RECALL", closed="2023-01-01", expires=SOON)
    rule = {
        "name": "law",
        "reason": "r",
        "datasets": ["ods/*"],
        "where": "attributes['type'] = 'PAYMENT'",
        "younger_than": "7y",
    }
    cycle.purges({**POLICY, "select": {"older_than": "P2Y"}})
    assert kept(cycle, RetainRule.model_validate(rule)).postponed == 1
    assert (units.expires("a"), units.expires("b")) == ({PUT_OFF}, {SOON})


def test_a_hold_or_an_archiving_policy_about_other_datasets_puts_nothing_off(cycle: UnitsCycle, units: Units) -> None:
    own = {**POLICY, "select": {"older_than": "P2Y"}}
    others = {**POLICY, "name": "others", "datasets": {"include": ["ods/other*"]}}
    cycle.purges(own, others)
    units.has("a", kind="PAYMENT", closed="2023-01-01", expires=SOON)
    hold = {"name": "h", "datasets": {"include": ["ods/other*"]}, "reason": "case 8", "owner": "ann"}
    assert kept(cycle, Hold.model_validate(hold)).postponed == 0
    assert units.expires("a") == {SOON}


def test_no_time_of_a_child_becomes_earlier_by_it(cycle: UnitsCycle, units: Units) -> None:
    units.has("a", closed=None, expires=SOON)
    child = units.tables["summary"]
    with units.engine.begin() as connection:
        connection.execute(child.update().values(expires=units.at("2025-01-01 00:00:00")))
    assert kept(cycle).postponed == 1
    assert units.expires("a") == {PUT_OFF, "2025-01-01 00:00:00"}


def test_what_is_put_off_is_in_the_audit(cycle: UnitsCycle, units: Units) -> None:
    units.has("a", "b", closed=None, expires=SOON)
    assert (kept(cycle, dry_run=True).postponed, acts(cycle), units.expires("a")) == (2, [], {SOON})
    kept(cycle)
    (detail,) = acts(cycle)
    assert detail["transactions"] == 2
    assert (detail["within"], detail["until"]) == ("2023-05-18T10:00:00.500000Z", "2023-11-13T10:00:00.500000Z")
    assert kept(cycle).postponed == 0
    assert len(acts(cycle)) == 1


def test_what_expires_tomorrow_is_told_by_type_for_the_day_in_utc(cycle: UnitsCycle, units: Units) -> None:
    """What is not done with and within a day was put off before; what expires in the evening of tomorrow was not looked at yet."""
    evening, midnight, after = "2023-05-18 23:59:59.999999", "2023-05-18 00:00:00", "2023-05-19 00:00:00"
    units.has("a", "b", kind="PAYMENT", expires=evening).has("c", kind="PAYMENT", archived="2022-01-01", expires=midnight)
    units.has("d", kind="RECALL", closed=None, expires=evening).has("e", closed=None, kind="RECALL", expires=SOON)
    units.has("f", kind="RECALL", expires=after).has("g", kind="RECALL", expires="2023-05-17 23:00:00")
    found = kept(cycle)
    assert found.postponed == 1
    assert found.tomorrow == (ExpiryCount("PAYMENT", 3, 0, 2), ExpiryCount("RECALL", 1, 1, 0))
    # Also for somebody in whose zone it is tomorrow already.
    with cycle.opened() as ledger:
        far_east = AS_OF.astimezone(timezone(14 * timedelta(hours=1)))
        (there,) = postpone_expiry_dry_run(ledger, {"ods": units.store()}, far_east, Keepers(ledger))
    assert there.tomorrow == found.tomorrow


@pytest.mark.parametrize("piece", [1, 2, 1_000])
def test_a_child_that_can_not_be_written_is_told_and_the_others_are_put_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    """However many are looked at together."""
    monkeypatch.setattr(store, "_PIECE", piece)
    (tmp_path / "ods.db").touch()
    units = Units(f"sqlite:///{tmp_path / 'ods.db'}", ttl={"document_ttl": "180d"})
    units.has("a", "b", "c", "d", "e", closed=None, expires=SOON)
    with units.engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TRIGGER broken BEFORE UPDATE ON summary WHEN OLD.unit IN ('a', 'd') BEGIN SELECT RAISE(ABORT, 'told to fail'); END"
        )
    found = kept(UnitsCycle(tmp_path / "cycle", [units]).purges(POLICY))
    assert (found.postponed, found.left) == (3, 2)
    assert [TOLD_TO in error for error in found.errors] == [True, True]
    assert [units.expires(unit) for unit in "abcde"] == [{SOON}, {PUT_OFF}, {PUT_OFF}, {SOON}, {PUT_OFF}]


def test_nothing_is_postponed_while_a_sweep_has_the_dataset(cycle: UnitsCycle, units: Units) -> None:
    units.has("a", closed=None, expires=SOON)
    with cycle.opened() as ledger:
        take_lease(ledger, units.dataset, "a sweep", 60)
        (found,) = postpone_expiry(ledger, {"ods": units.store()}, AS_OF, Keepers(ledger))
    assert "a sweep" in (found.refused or "")
    assert units.expires("a") == {SOON}


def test_a_store_that_expires_nothing_by_itself_is_left_alone(tmp_path: Path, cycle: UnitsCycle) -> None:
    (tmp_path / "plain.db").touch()
    plain = Units(f"sqlite:///{tmp_path / 'plain.db'}", store_name="aaa").has("a", closed=None)
    with cycle.opened() as ledger:
        assert postpone_expiry(ledger, {"aaa": plain.store()}, AS_OF, Keepers(ledger)) == []


# --- a store that can't be asked ---


@pytest.mark.parametrize("part", ["expiry", "datasets", "find_postponable", "postpone", "count_expiring"])
def test_whatever_a_store_raises_is_told_and_the_next_one_is_looked_at(
    tmp_path: Path, cycle: UnitsCycle, units: Units, part: str
) -> None:
    """A store may be anybody's, and so may what it raises."""

    def breaks(*_: object) -> None:
        raise KeyError("expires_at")

    # Of a class of its own, so that the other one is well.
    broken = type("Broken", (RecordsStore,), {part: property(breaks) if part == "expiry" else breaks})
    (tmp_path / "other.db").touch()
    other = Units(f"sqlite:///{tmp_path / 'other.db'}", ttl={"document_ttl": "180d"}, store_name="aaa")
    units.has("a", closed=None, expires=SOON)
    other.has("a", closed=None, expires=SOON)
    with cycle.opened() as ledger:
        found = postpone_expiry(ledger, {"aaa": broken(other.store().settings), "ods": units.store()}, AS_OF, Keepers(ledger))
    (said,) = [words for one in found for words in one.troubles]
    assert said.startswith("aaa/")
    assert "KeyError: 'expires_at'" in said
    assert units.expires("a") == {PUT_OFF}


def _targets(units: Units, *names: str) -> list[Target]:
    return [Target(one.transaction, one.note) for one in units.store().prepare(units.dataset, names)]

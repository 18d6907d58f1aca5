"""The engine on a real lake: what is due and justified goes, byte for byte, and nothing else; and every reason is written down."""

import json
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.ledger.leases import Leases
from retention_assets.outcomes import Outcome
from retention_assets.policy import text_of
from retention_assets.stores.dry_run import RecordingStore
from retention_assets.stores.files.log import FilesLog
from retention_assets.stores.files.store import FilesStore
from retention_assets.stores.protocol import Permit, PreparedTarget, Store, SweptTarget, Target, always
from retention_assets.sweep import Sweeper
from retention_assets_tests.clocks import set_clock
from retention_assets_tests.ledger.states import write_past_ledger
from retention_assets_tests.sweep.lakes import ALL, DAY, DUE, FIVE, MARKED, OLD, Lake

HOUR = timedelta(hours=1)


def test_what_is_due_goes_and_nothing_else(lake: Lake) -> None:
    before = lake.has(FIVE).has("main: K1:SNAPSHOT@90d - K2:SNAPSHOT@1d", "lake/other").left()
    assert lake.marks() == 6
    assert lake.sweeps(DUE - DAY) == {}
    assert lake.left() == before
    results = lake.sweeps()
    assert {name: dict(one.outcomes) for name, one in results.items()} == {
        "lake/d": {Outcome.DELETED: 5},
        "lake/other": {Outcome.DELETED: 1},
    }
    assert lake.left() == {name: text for name, text in before.items() if "S6" in name or "K2" in name}
    assert lake.statuses() == dict.fromkeys(["S1", "S2", "S3", "S4", "S5"], "SWEPT")
    assert lake.verified() == ()
    with lake.opened() as ledger, ledger.database.reading() as connection:
        assert connection.exec_driver_sql("SELECT count(*), count(finished_at) FROM plans").one() == (2, 2)


def test_the_report_says_what_happened_to_the_byte(lake: Lake) -> None:
    lake.has(FIVE + "  |  -: S6 - X:APPEND?@1h").marks()
    before = sum(len(text) for text in lake.left().values())
    (result,) = lake.sweeps().values()
    report = lake.report()
    counted = ("to_delete", "deleted", "already_gone", "failed", "spared", "unmarked", "bytes_to_free")
    assert [report[name] for name in counted] == [5, 5, 0, 0, 0, 0, 50]
    assert report["bytes_freed"] == result.bytes_freed == before - sum(len(text) for text in lake.left().values())
    assert {name: times for name, times in report["classes"].items() if times} == {"due": 5, "kept": 1, "open": 1}
    assert len(report["classes"]) == 8
    assert report["policies"] == {"old": 1}
    assert report["bounds"] == {"old": "2026-03-08T12:00:00Z"}
    assert report["finished_at"] is not None


def test_a_later_report_tells_what_was_swept_and_begun_from_what_is_due_and_waits(lake: Lake) -> None:
    """By the log alone they would all be selected anew."""
    later = OLD.replace("select:", "grace: 1d, select:")
    lake.says(OLD.replace("30d", "75d"))
    lake.has(FIVE).marks()
    lake.sweeps()
    lake.says(later.replace("30d", "65d"))
    assert lake.marks(DUE) == 2
    lake.begins("S3", as_of=DUE + DAY)
    lake.says(later)
    assert lake.marks(DUE + DAY / 2) == 1
    lake.sweeps(DUE + DAY)
    classes = {name: times for name, times in lake.report(DUE + DAY)["classes"].items() if times}
    assert classes == {"swept": 2, "sweeping": 1, "due": 1, "waiting": 1, "kept": 1}


@pytest.mark.parametrize("already", ["MARKED", "SWEEPING", "SWEPT"])
def test_limits_count_what_is_new_and_not_what_is_marked_or_was_swept_before(lake: Lake, already: str) -> None:
    lake.says(OLD.replace("{older_than: 30d}", "{older_than: 30d}, limits: {transactions: 3}"))
    assert lake.has(FIVE).marks() == 0
    lake.says(OLD.replace("{older_than: 30d}", "{older_than: 55d}, limits: {transactions: 4}"))
    assert lake.marks() == 4
    if already == "SWEPT":
        lake.sweeps()
    elif already == "SWEEPING":
        lake.begins("S1", "S2", "S3", "S4")
    assert set(lake.statuses().values()) == {already}
    lake.says(OLD.replace("{older_than: 30d}", "{older_than: 30d}, limits: {transactions: 3}"))
    assert lake.marks(DUE) == 1
    lake.sweeps(DUE + timedelta(days=7) if already == "MARKED" else DUE)
    assert lake.there() == ({"S6"} if already == "MARKED" else {"S5", "S6"})


def test_the_branch_that_saves_a_transaction_is_named_before_the_count_that_it_changed(lake: Lake) -> None:
    lake.says(OLD.replace("{older_than: 30d}", "{older_than: 30d, beyond: {views: 2}}"))
    lake.has(FIVE).marks()
    lake.branches("rescue", "S3")
    lake.sweeps()
    assert lake.there() == {"S2", "S3", "S5", "S6"}
    assert lake.why("S3") == (
        "It is in the latest view of branch 'rescue': readers of that branch need it."
        " It is in one of the newest views, which policy 'old' keeps."
    )
    assert lake.why("S2") == "It is in one of the newest views, which policy 'old' keeps."


def test_a_mark_that_its_own_policy_would_not_make_any_more_is_spared(lake: Lake) -> None:
    """The clock of the sweep is behind that of the marking: what was old enough then is not old enough now."""
    lake.has(FIVE).marks(MARKED + timedelta(days=31))
    lake.says(OLD.replace("30d", "30d, where: \"attributes['legal'] IS NULL\""))
    assert lake.statuses()["S5"] == "MARKED"
    log = lake.folder / "log" / "lake-d.jsonl"
    # The pipeline corrects its log: S5 closed only yesterday.
    log.write_text(log.read_text().replace("2026-02-09T12:00:00", "2026-04-30T12:00:00"))
    lake.sweeps(MARKED + timedelta(days=38))
    assert lake.statuses()["S5"] == "SPARED"
    assert lake.why("S5") == "It is younger than policy 'old' requires."


@pytest.mark.parametrize(
    ("happens", "fault"),
    [
        (lambda lake: lake.branches("main", "S1"), "its log is not sound: two branches of one name"),
        (lambda lake: (lake.folder / "log" / "lake-d.jsonl").unlink(), "its store does not have it"),
    ],
    ids=["not sound", "vanished"],
)
def test_a_log_that_cannot_be_judged_stops_its_dataset_and_no_other(
    lake: Lake, happens: Callable[[Lake], object], fault: str
) -> None:
    before = lake.has(FIVE).has(FIVE, "lake/e").left()
    lake.marks()
    happens(lake)
    assert fault in str(lake.sweeps()["lake/d"].refused)
    assert lake.statuses() == dict.fromkeys(ALL - {"S6"}, "MARKED")
    assert {name for name in lake.left() if name.startswith("d/")} == {name for name in before if name.startswith("d/")}
    assert lake.there("lake/e") == {"S6"}


def test_a_log_that_was_emptied_spares_what_it_had_and_stops_no_other_dataset(lake: Lake) -> None:
    lake.has(FIVE).has(FIVE, "lake/e").marks()
    (lake.folder / "log" / "lake-d.jsonl").write_text('{"dataset": "lake/d", "attributes": {"owner": "ann"}}\n')
    results = lake.sweeps()
    assert [dict(one.outcomes) for one in results.values()] == [{Outcome.SPARED: 5}, {Outcome.DELETED: 5}]
    assert (lake.report()["classes"]["due"], lake.there(), lake.there("lake/e")) == (0, ALL, {"S6"})


class Answers(RecordingStore):
    """A store that answers in its own way when it is told to delete."""

    def __init__(self, store: Store, answer: Callable[[Sequence[Target]], list[SweptTarget]]) -> None:
        super().__init__(store)
        self.answer = answer

    def sweep(self, _: str, targets: Sequence[Target], __: int, ___: Permit = always) -> list[SweptTarget]:
        return self.answer(targets)


def is_away(*_: object) -> Any:
    raise ConnectionResetError("the other end is gone")


AWAY = "the store lake failed: ConnectionResetError: the other end is gone"


@pytest.mark.parametrize(("answer", "error"), [(is_away, AWAY), (lambda _: [], "the store gave no result")])
def test_a_store_that_fails_fails_its_batches_and_the_next_run_finishes(
    lake: Lake, answer: Callable[[Sequence[Target]], list[SweptTarget]], error: str
) -> None:
    lake.has(FIVE).marks()
    (result,) = lake.sweeps(store=Answers(lake.stores["lake"], answer)).values()
    assert result.outcomes == {Outcome.FAILED: 5}
    assert set(result.errors) == {error}
    assert lake.statuses() == dict.fromkeys(ALL - {"S6"}, "MARKED")
    lake.sweeps()
    assert lake.there() == {"S6"}


def test_a_store_that_cannot_be_read_sweeps_nothing(lake: Lake) -> None:
    lake.has(FIVE).marks()
    (result,) = lake.sweeps(store=lake.elsewhere(is_away, "read")).values()
    assert result.refused == AWAY
    assert lake.there() == ALL


def test_a_store_that_is_not_in_the_settings_is_named(lake: Lake) -> None:
    lake.has(FIVE).marks()
    (result,) = lake.sweeps(stores={}).values()
    assert result.refused == "The settings have no store named lake."


@pytest.mark.parametrize("before", ["MARKED", "SWEEPING"])
def test_stop_ends_after_the_batch_in_flight(lake: Lake, before: str) -> None:
    """Also where an earlier sweep has begun on all of it."""
    lake.has(FIVE).has(FIVE, "lake/e").marks()
    if before == "SWEEPING":
        lake.begins(*ALL - {"S6"})
    stop = threading.Event()
    lake.sweeps(store=lake.elsewhere(stop.set), stop=stop)
    assert (lake.there(), lake.there("lake/e")) == ({"S3", "S4", "S5", "S6"}, ALL)
    assert lake.statuses() == {**dict.fromkeys(["S1", "S2"], "SWEPT"), **dict.fromkeys(["S3", "S4", "S5"], before)}
    lake.sweeps()
    assert (lake.there(), lake.there("lake/e")) == ({"S6"}, {"S6"})


def test_batches_and_pace_are_the_policys_whoever_sweeps(lake: Lake) -> None:
    """Batches of two, an hour each. Nobody really waits, so that each wait ends where the batch before it does."""
    lake.says(OLD.replace("every: 0s", "every: 1h"))
    lake.has(FIVE).has("main: K1:SNAPSHOT@90d - K2:SNAPSHOT@1d", "lake/e").marks()
    waited: list[timedelta] = []
    store = RecordingStore(lake.stores["lake"])

    def sweep(dataset: str) -> None:
        with lake.opened() as ledger:
            rulebook = load_rulebook(ledger, lake.settings, "test")
            sweeper = Sweeper(ledger, {"lake": store}, rulebook, DUE, "test", wait=lambda time, _: waited.append(time))
            assert [one.refused for one in sweeper.run([dataset])] == [None]

    sweep("lake/d")
    assert [one.transaction for one in store.recorded] == ["S1", "S2", "S3", "S4", "S5"]
    assert [round(one / HOUR, 1) for one in waited] == [1, 2]
    # A batch of one takes half of the time, and what another sweeper has reserved counts.
    sweep("lake/e")
    assert [round(one / HOUR, 1) for one in waited] == [1, 2, 2.5]


@pytest.mark.parametrize(
    ("days", "server", "refused"),
    [
        # A cold dataset alone says that it can't be so late; once a warm one was seen, it can.
        pytest.param(40, None, "a", id="a log that was written lately"),
        # The log of b says that it closed 30 days after the marking. At 29 days nobody can know.
        pytest.param(29, None, "abc", id="a log time that is still to come"),
        pytest.param(29, timedelta(minutes=4), "", id="a server is a little ahead"),
        pytest.param(29, timedelta(minutes=-4), "", id="a server is a little behind"),
        pytest.param(29, timedelta(days=-15), "abc", id="a server is far behind"),
        pytest.param(29, ConnectionError(), "abc", id="a server that can't be asked"),
    ],
)
def test_after_a_long_pause_nothing_is_swept_without_a_witness_of_the_time(
    days: int, server: timedelta | Exception | None, refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = MARKED + timedelta(days=days)

    def present(_: FilesStore) -> datetime | None:
        if isinstance(server, Exception):
            raise server
        return None if server is None else at + server

    monkeypatch.setattr(FilesLog, "shares", lambda _, datasets: [(one,) for one in sorted(datasets)])
    monkeypatch.setattr(FilesStore, "present", present)
    lake = Lake(tmp_path / "real", clock={})
    for name in "abc":
        lake.has(FIVE.replace("@1d", "@+30d") if name == "b" else FIVE, f"lake/{name}")
    set_clock(monkeypatch, MARKED)
    lake.marks()
    with lake.opened() as ledger:
        assert ledger.clock.check(MARKED, None) is None
    set_clock(monkeypatch, at)
    results = lake.sweeps(at)
    faults = {name.removeprefix("lake/"): str(one.refused) for name, one in results.items() if one.refused}
    assert sorted(faults) == [*refused]
    assert all("no other clock confirms it" in fault for fault in faults.values()) or not isinstance(server, Exception)


def test_what_becomes_due_while_the_sweep_waits_for_its_turn_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an as_of the time is asked when the lease is taken; with one, it is the bound. A hold that is over by then is over."""
    lake = Lake(tmp_path / "real", clock={}).has(FIVE).has(FIVE, "lake/e")
    set_clock(monkeypatch, MARKED)
    lake.marks()
    set_clock(monkeypatch, DUE - timedelta(minutes=1))
    lake.hold("lake/d", until=DUE - timedelta(seconds=30))
    with lake.opened() as ledger:
        rulebook = load_rulebook(ledger, lake.settings, "test")
        early, late = (Sweeper(ledger, lake.stores, rulebook, bound, "test") for bound in (DUE - timedelta(minutes=1), None))
        set_clock(monkeypatch, DUE)
        assert [one.outcomes.total() for one in early.run(["lake/d"])] == [0]
        assert [dict(one.outcomes) for one in late.run(["lake/d"])] == [{Outcome.DELETED: 5}]


@pytest.mark.parametrize("ahead", [timedelta(days=8), timedelta(days=8000)])
def test_an_as_of_that_is_still_to_come_sweeps_nothing_early_whoever_asks(
    ahead: timedelta, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is held or tagged until tomorrow is held today, and no grace is over before its time."""
    lake = Lake(tmp_path / "real", clock={}).has(FIVE)
    set_clock(monkeypatch, MARKED - timedelta(days=8))
    lake.marks(MARKED - timedelta(days=8))
    tag = {"dataset": "lake/d", "tag": "v1", "head": "S2", "expires_at": text_of(MARKED + timedelta(days=7))}
    lake._log("lake/d", [json.dumps(tag)])
    set_clock(monkeypatch, MARKED)
    lake.hold("lake/d", "S3", until=MARKED + timedelta(days=7))
    lake.sweeps(MARKED + ahead)
    assert lake.there() == {"S2", "S3", "S6"}


def test_a_policy_that_hands_expiry_to_a_store_that_cannot_is_named(lake: Lake) -> None:
    lake.says(OLD.replace("every: 0s", "every: 0s, mode: ttl"))
    lake.has(FIVE).marks()
    (result,) = lake.sweeps().values()
    assert "policy old lets the store expire rows (sweep.mode: ttl), but lake can't do that" in result.errors[0]
    assert lake.there() == ALL


def test_a_realm_that_is_purged_goes_whole_but_for_what_is_held(lake: Lake) -> None:
    lake.says("{name: none, datasets: {include: ['lake/none']}, select: all}")
    lake.has(FIVE + "  |  #v1=S2").has(FIVE, "lake/held").has(FIVE, "lake/other")
    for dataset in ("lake/d", "lake/held"):
        lake._log(dataset, ['{"dataset": "%s", "realm": "acme"}' % dataset])  # noqa: UP031 - braces
    assert lake.marks() == 0
    lake.change_realm("acme", "PURGING")
    lake.hold("lake/held")
    assert lake.marks() == 6
    lake.sweeps(MARKED)
    assert (lake.there(), lake.there("lake/held"), lake.there("lake/other")) == (set(), ALL, ALL)


def test_a_latest_view_goes_only_where_a_policy_says_so_and_readers_learn_of_it(lake: Lake) -> None:
    lake.says("{name: trash, datasets: {include: ['lake/d']}, select: all, latest_view: allow}")
    lake.has(FIVE).has(FIVE, "lake/other").marks()
    lake.sweeps()
    assert (lake.there(), lake.there("lake/other")) == (set(), ALL)
    (store,) = lake.stores.values()
    rows = store.read(["lake/d"]).to_pylist()
    (added,) = [row for row in rows if row["type"] == "DELETE"]
    assert dict(added["attributes"]).items() >= {"provenance": "retention", "branch": "main"}.items()


def test_what_the_sweep_adds_to_a_log_keeps_none_of_its_own_marks(lake: Lake) -> None:
    """Six transactions of one view in three batches: the DELETE of the first one makes the view no younger for the others."""
    lake.says(OLD.replace("{older_than: 30d}", "{in_views_older_than: 30d}, latest_view: allow"))
    lake.has("main: S1:SNAPSHOT@90d - " + " - ".join(f"A{number}:APPEND@{80 - number}d" for number in range(5))).marks()
    lake.sweeps()
    assert lake.there() == set()


def test_progress_is_told_after_each_batch_and_at_the_end(lake: Lake) -> None:
    lake.has(FIVE).marks()
    told: list[tuple[int, int]] = []
    lake.sweeps(on_progress=lambda result: told.append((result.outcomes[Outcome.DELETED], result.planned)))
    assert told == [(2, 5), (4, 5), (5, 5), (5, 5)]


class Complete(RecordingStore):
    """A store whose log is its data."""

    log_is_complete = True


@pytest.mark.parametrize("kind", [RecordingStore, Complete])
def test_what_the_log_lost_is_spared_unless_a_sweep_had_begun(lake: Lake, kind: type[RecordingStore]) -> None:
    """A wrong catalog for one day must not make everything swept for ever."""
    lake.has(FIVE).marks()
    lake.forgets("S1")
    store = kind(lake.stores["lake"])
    lake.sweeps(store=store)
    assert lake.statuses()["S1"] == "SPARED"
    assert lake.why("S1") == "The store's log does not have it any more."
    assert {one.transaction for one in store.recorded} == {"S2", "S3", "S4", "S5"}


# Not a hold: the sweep before had settled its attempt.
FAILED = " "
LEGAL = "{name: legal, datasets: ['lake/*'], reason: case 7, "


@pytest.mark.parametrize(
    ("complete", "hold", "spared"),
    [
        pytest.param(True, "", "", id="nobody holds it"),
        pytest.param(True, FAILED, "", id="an attempt that failed"),
        pytest.param(False, "", "The store's log does not have it any more.", id="a log that may leave out what is there"),
        pytest.param(True, LEGAL + "transactions: ['S1']}", "Hold 'legal' keeps it.", id="held"),
        pytest.param(True, LEGAL + "until: 2026-04-08}", "Hold 'legal' keeps it.", id="held until tomorrow"),
        pytest.param(True, LEGAL + "until: 2026-04-07}", "", id="held until today"),
        pytest.param(True, LEGAL + "transactions: ['S2']}", "", id="another one is held"),
        pytest.param(True, LEGAL.replace("lake/*", "lake/other") + "}", "", id="another dataset is held"),
        pytest.param(
            True, LEGAL.replace("['lake/*']", "{include: ['*'], with: {owner: ann}}") + "}", "Hold 'legal' keeps it.", id="hers"
        ),
        pytest.param(True, LEGAL.replace("['lake/*']", "{include: ['*'], with: {owner: bob}}") + "}", "", id="his"),
    ],
)
def test_what_a_sweep_had_begun_and_the_log_no_longer_has_is_finished_unless_it_is_held(
    lake: Lake, complete: bool, hold: str, spared: str
) -> None:
    lake.says(OLD.replace("30d", "85d"))
    lake.has(FIVE)._log("lake/d", ['{"dataset": "lake/d", "attributes": {"owner": "ann"}}'])
    assert lake.marks() == 1
    if hold == FAILED:
        lake.sweeps(store=Answers(lake.stores["lake"], is_away))
    else:
        lake.begins("S1")
    lake.forgets("S1")
    lake.says(OLD.replace("30d", "85d"), hold)
    store = (Complete if complete else RecordingStore)(lake.stores["lake"])
    lake.sweeps(store=store)
    assert lake.statuses() == {"S1": "SPARED" if spared else "SWEPT"}
    assert [one.transaction for one in store.recorded] == ([] if spared else ["S1"])
    assert lake.why("S1").endswith(spared)


def test_a_lease_that_cannot_be_given_up_hides_nothing_and_stops_nobody(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.has(FIVE).has(FIVE, "lake/e").marks()

    def breaks(*_: object) -> None:
        raise OperationalError("UPDATE leases", {}, Exception("the other end is gone"))

    with monkeypatch.context() as patch:
        patch.setattr(Leases, "give_up", breaks)
        results = lake.sweeps()
    assert [one.refused for one in results.values()] == [None, None]
    assert (lake.there(), lake.there("lake/e")) == ({"S6"}, {"S6"})


class Forgetful(RecordingStore):
    """A store that fails at everything, and remembers something else of it each time that it is asked."""

    def __init__(self, store: Store, notes: Sequence[str | None]) -> None:
        super().__init__(store)
        self.left = list(notes)

    def prepare(self, _: str, transactions: Sequence[str]) -> list[PreparedTarget]:
        note = self.left.pop(0)
        return [PreparedTarget(name, 77, note and f"{note} of {name}") for name in transactions]

    def sweep(self, _: str, targets: Sequence[Target], parallelism: int, __: Permit = always) -> list[SweptTarget]:
        self.notes, self.parallelism = {one.transaction: one.note for one in targets}, parallelism
        return [SweptTarget(one.transaction, Outcome.FAILED, 5, "not today") for one in targets]


@pytest.mark.parametrize(
    ("notes", "found"),
    [
        pytest.param(["first", None], "first of S1", id="none any more"),
        pytest.param(["first", "second"], "second of S1", id="another one"),
        pytest.param([None, "second"], "second of S1", id="none before"),
        pytest.param(["first", "second", None], "second of S1", id="two, and none any more"),
    ],
)
def test_the_newest_note_of_a_store_is_what_it_is_given(lake: Lake, notes: list[str | None], found: str) -> None:
    lake.says(OLD.replace("30d", "85d").replace("batch: 2", "batch: 2, parallelism: 3"))
    lake.has(FIVE).marks()
    store = Forgetful(lake.stores["lake"], notes)
    result = [lake.sweeps(store=store)["lake/d"] for _ in notes][-1]
    assert (store.notes, store.parallelism) == ({"S1": found}, 3)
    # What failed frees nothing, whatever the store says of it.
    assert (result.bytes_freed, result.outcomes, result.warnings) == (0, {Outcome.FAILED: 1}, [])
    with lake.opened() as ledger, ledger.database.reading() as connection:
        assert set(connection.exec_driver_sql("SELECT bytes FROM planned").scalars()) == {77}


def test_a_few_words_of_a_store_on_what_it_deleted_are_remarks_and_no_errors(lake: Lake) -> None:
    lake.has("main: " + " - ".join(f"S{number}:SNAPSHOT@{90 - number}d" for number in range(8)) + " - S9:SNAPSHOT@1d").marks()

    def answer(targets: Sequence[Target]) -> list[SweptTarget]:
        return [SweptTarget(one.transaction, Outcome.DELETED, 5, f"a word on {one.transaction}") for one in targets]

    (result,) = lake.sweeps(store=Answers(lake.stores["lake"], answer)).values()
    assert (result.bytes_freed, result.errors) == (40, [])
    assert result.warnings == [f"a word on S{number}" for number in range(5)]


def test_a_mark_of_a_policy_version_that_is_not_in_the_book_is_spared(lake: Lake) -> None:
    lake.has(FIVE).marks()
    with lake.opened() as ledger:
        assert write_past_ledger(ledger, "UPDATE marks SET policy_version = 9 WHERE \"transaction\" = 'S2'") == 1
    lake.sweeps()
    assert lake.there() == {"S2", "S6"}
    assert lake.why("S2") == "The policy version that marked it is not in the policy book, so there is no reason to delete it."


def test_a_store_is_told_what_is_in_a_latest_view_as_it_is_by_then(lake: Lake) -> None:
    """Readers of a branch that was made between batches learn what is gone as well."""
    lake.says(OLD.replace("select:", "latest_view: allow, select:").replace("30d", "1h"))
    lake.has(FIVE).marks()
    latest = dict[str, bool]()

    def answer(targets: Sequence[Target]) -> list[SweptTarget]:
        if not latest:
            lake.branches("late", "S4")
        latest.update({one.transaction: one.in_latest_view for one in targets})
        return [SweptTarget(one.transaction, Outcome.DELETED) for one in targets]

    lake.sweeps(store=Answers(lake.stores["lake"], answer))
    assert latest == {**dict.fromkeys(ALL, False), "S4": True, "S6": True}

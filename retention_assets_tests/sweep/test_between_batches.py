"""Something happens elsewhere while a sweep is under way: whoever needs a mark from then on keeps it, and nobody else's stays.

It happens during the first batch of a fresh plan, or of what an earlier sweep had begun; on a store whose log is read again before
each batch, or on one that guards its targets and is not read again. It may also happen while the store is being read, while it
prepares a plan, or while another dataset has its turn.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.clock import Moment
from retention_assets.errors import BadInput, Refused
from retention_assets.outcomes import Outcome
from retention_assets.policy import Duration, text_of
from retention_assets.stores.protocol import Store
from retention_assets.sweep import Recheck, SweepPermit, Verdicts, checked
from retention_assets_tests.sweep.lakes import ALL, DAY, DUE, FIVE, OLD, Lake, Told

# Batches of two: S1 and S2 are gone when it happens.
REST = {"S3", "S4", "S5"}
BEGUN = "A sweep had begun on it, so some of its bytes may be gone already. "
REPLACED = (
    "It is another transaction of the same name: its times or size are not those of the marked one. Its grace has not begun."
)
Happens = Callable[[Lake], object]


def holds_one(lake: Lake) -> None:
    lake.says(OLD, "{name: legal, datasets: ['lake/*'], transactions: ['S4'], reason: case 7}")


def unmarks(lake: Lake) -> None:
    with lake.opened() as ledger:
        ledger.unmark.transactions("lake/d", ["S5"], "ann", "still needed")


def revokes(lake: Lake) -> None:
    lake.says("")
    with lake.opened() as ledger:
        ledger.policy_book.revoke("old", "ann", "no longer wanted")


def closes_anew(lake: Lake, transaction: str) -> None:
    """The pipeline writes another one under the name of an old one."""
    lake.comes_again(transaction, closed_at=text_of(DUE - DAY))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Five marks that are due, made once and copied for each test."""
    lake = Lake(tmp_path_factory.mktemp("built") / "lake").has(FIVE)
    assert lake.marks() == 5
    return lake


@pytest.fixture(params=[False, True], ids=["fresh", "left"])
def left(request: pytest.FixtureRequest) -> bool:
    """Whether an earlier sweep has begun."""
    return bool(request.param)


@pytest.fixture
def fresh(built: Lake, tmp_path: Path) -> Lake:
    return copied(built, tmp_path)


@pytest.fixture
def marked(fresh: Lake, left: bool) -> Lake:
    """Five marks that are due, or on which an earlier sweep has begun."""
    if left:
        fresh.begins(*ALL - {"S6"})
    return fresh


def copied(built: Lake, to: Path) -> Lake:
    return Lake(shutil.copytree(built.folder, to / "lake"))


def sweeps(lake: Lake, store: Store) -> dict[Outcome, int]:
    (result,) = lake.sweeps(store=store, wait=lambda *_: None).values()
    assert (result.refused, result.errors) == (None, [])
    return {outcome: times for outcome, times in result.outcomes.items() if times}


@pytest.mark.parametrize(
    ("happens", "stay", "why"),
    [
        pytest.param(lambda lake: lake.hold(), REST, "Hold 'legal' keeps it.", id="a hold"),
        pytest.param(holds_one, {"S4"}, "Hold 'legal' keeps it.", id="a hold in a policy file"),
        # In force is what the book had when the lease was taken.
        pytest.param(lambda lake: lake.says(OLD.replace("30d", "300d")), set(), "", id="a policy is amended"),
        pytest.param(revokes, set(), "", id="a policy is revoked"),
        pytest.param(lambda lake: lake.change_realm("beta", "PURGING"), set(), "", id="another realm"),
    ],
)
def test_what_people_say_between_batches_is_heard(
    marked: Lake, happens: Happens, stay: set[str], why: str, guards: bool, left: bool
) -> None:
    gone = ALL - {"S6"} - stay
    outcomes = sweeps(marked, marked.elsewhere(lambda: happens(marked), guards=guards))
    assert outcomes == {Outcome.DELETED: len(gone), **({Outcome.SPARED: len(stay)} if stay else {})}
    assert marked.there() == stay | {"S6"}
    assert marked.statuses() == {**dict.fromkeys(gone, "SWEPT"), **dict.fromkeys(stay, "SPARED")}
    assert {marked.why(name) for name in stay} == ({BEGUN * left + why} if stay else set())
    report = marked.report()
    assert (report["deleted"], report["spared"], report["finished_at"] is None) == (len(gone), len(stay), False)
    assert marked.verified() == ()


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        pytest.param(
            lambda lake: lake.branches("rescue", "S4"),
            "It is in the latest view of branch 'rescue': readers of that branch need it.",
            id="a branch",
        ),
        pytest.param(
            lambda lake: lake._log("lake/d", ['{"dataset": "lake/d", "tag": "audit", "head": "S4"}']),
            "It belongs to a view that tag 'audit' pins.",
            id="a tag",
        ),
        pytest.param(
            lambda lake: closes_anew(lake, "S4"),
            "It is younger than policy 'old' requires.",
            id="another of the same name",
        ),
        pytest.param(
            lambda lake: lake.comes_again("S4", closed_at="2026-01-30T12:00:00.000001Z"), REPLACED, id="another, back-dated"
        ),
        pytest.param(
            lambda lake: lake.comes_again("S4", opened_at="2026-01-30T11:59:59.999999Z"), REPLACED, id="another, opened before"
        ),
    ],
)
def test_what_a_log_says_between_batches_is_read_where_the_store_does_not_guard(
    marked: Lake, happens: Happens, why: str, left: bool
) -> None:
    store = marked.elsewhere(lambda: happens(marked))
    assert sweeps(marked, store) == {Outcome.DELETED: 4, Outcome.SPARED: 1}
    assert marked.there() == {"S4", "S6"}
    assert marked.why("S4") == BEGUN * left + why


def test_what_is_unmarked_between_batches_stays_unless_it_had_begun(marked: Lake, guards: bool, left: bool) -> None:

    def happens() -> None:
        if left:
            with pytest.raises(Refused, match="S5 of lake/d is being swept"):
                unmarks(marked)
        else:
            unmarks(marked)

    sweeps(marked, marked.elsewhere(happens, guards=guards))
    assert marked.there() == ({"S6"} if left else {"S5", "S6"})
    assert marked.report()["unmarked"] == (0 if left else 1)
    assert marked.report()["finished_at"] is not None


def test_a_policy_file_that_breaks_between_batches_stops_the_run(marked: Lake, guards: bool) -> None:
    """What it was meant to say may be a hold."""
    store = marked.elsewhere(lambda: marked.says(OLD, "{name: legal, dataset"), guards=guards)
    with pytest.raises(BadInput):
        marked.sweeps(store=store)
    assert marked.there() == REST | {"S6"}


@pytest.mark.parametrize(
    ("happens", "said"),
    [
        pytest.param(
            lambda lake: lake.branches("main", "S1"),
            "its log is not sound: two branches of one name: main (transaction S1)",
            id="unsound",
        ),
        pytest.param(
            lambda lake: (lake.folder / "log" / "lake-d.jsonl").rename(lake.folder / "elsewhere.jsonl"),
            "its store does not have it",
            id="gone",
        ),
    ],
)
def test_a_log_that_cannot_be_judged_any_more_ends_the_sweep_of_its_dataset(marked: Lake, happens: Happens, said: str) -> None:
    lake = marked.has("main: K1:SNAPSHOT@1d", "lake/other")
    store = lake.elsewhere(lambda: happens(lake))
    (result,) = lake.sweeps(store=store).values()
    assert result.refused == f"the sweep of lake/d ends here: {said}"
    assert lake.there() == REST | {"S6"}
    assert lake.report()["finished_at"] is None


@pytest.fixture(scope="module")
def purging(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Two marks of a policy, and then four of the purge of a realm, which are a batch of their own; made once."""
    lake = Lake(tmp_path_factory.mktemp("purging") / "lake")
    lake.says(OLD.replace("30d", "75d"))
    lake.has(FIVE)._log("lake/d", ['{"dataset": "lake/d", "realm": "acme"}'])
    assert lake.marks() == 2
    lake.change_realm("acme", "PURGING", Duration(days=3))
    assert lake.marks() == 4
    return lake


@pytest.mark.parametrize("status", ["ACTIVE", "INACTIVE", "PURGED", "PURGING"])
def test_only_a_realm_that_is_still_being_purged_is_swept_any_further(
    purging: Lake, tmp_path: Path, status: str, guards: bool, left: bool
) -> None:
    lake = copied(purging, tmp_path)
    if left:
        lake.begins(*ALL)

    def happens() -> None:
        with lake.opened() as ledger:
            if status == "PURGED":
                ledger.realms.purged("acme", "ann")
            else:
                ledger.realms.change("acme", status, "ann", "they say so")
            assert ledger.realms.of("acme").status == status

    sweeps(lake, lake.elsewhere(happens, guards=guards))
    stay = set() if status == "PURGING" else REST | {"S6"}
    assert lake.there() == stay
    assert {lake.why(name) for name in stay} == ({BEGUN * left + "Its realm is not being purged any more."} if stay else set())


def test_what_changes_while_the_store_is_read_is_not_taken_for_known(marked: Lake, guards: bool) -> None:
    """The token is from before the log is read, so that what was read is not taken for what is there now."""
    store = marked.elsewhere(lambda: marked.branches("rescue", "S4"), "read", guards=guards)
    assert sweeps(marked, store) == {Outcome.DELETED: 4, Outcome.SPARED: 1}
    assert marked.there() == {"S4", "S6"}


def test_what_changes_while_the_store_is_read_again_is_read_once_more(marked: Lake) -> None:

    def happens() -> None:
        marked.branches("rescue", "S4")
        store.at, store.happens = ("read", 2), lambda: marked.branches("second", "S5")

    store = marked.elsewhere(happens)
    assert sweeps(marked, store) == {Outcome.DELETED: 3, Outcome.SPARED: 2}
    assert marked.there() == {"S4", "S5", "S6"}


@pytest.mark.parametrize(
    ("guards", "late", "stay"),
    [
        pytest.param(False, False, {"S1", "S6"}, id="read again"),
        pytest.param(True, True, {"S1", "S6"}, id="guards, asked long ago"),
        pytest.param(True, False, {"S6"}, id="guards, asked lately"),
    ],
)
def test_what_changes_while_another_dataset_has_its_turn_is_noticed(
    marked: Lake, monkeypatch: pytest.MonkeyPatch, guards: bool, late: bool, stay: set[str], left: bool
) -> None:
    """Both are read together, and the first one may take an hour. It has a batch of its own."""
    monkeypatch.setattr(checked, "ASKED_LATELY", 0.0 if late else 1e9)
    lake = marked.has("main: K1:SNAPSHOT@91d - K2:SNAPSHOT@90d - K3:SNAPSHOT@1d", "lake/before")
    lake.marks()
    if left:
        lake.begins("K1", "K2", dataset="lake/before")
    store = lake.elsewhere(lambda: lake.branches("rescue", "S1"), guards=guards)
    results = lake.sweeps(store=store, wait=lambda *_: None)
    assert list(results) == ["lake/before", "lake/d"]
    assert (lake.there("lake/before"), lake.there()) == ({"K3"}, stay)


def test_a_batch_that_asks_nothing_does_not_count_as_asked(
    built: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first dataset has three batches: its first one takes an hour, and of the others the store is not asked."""
    lake, hours = copied(built, tmp_path), [0]
    lake.has(FIVE, "lake/before")
    assert lake.marks() == 5
    monkeypatch.setattr(checked, "moment", lambda: Moment(0.0, 3600.0 * hours[0]))

    def happens() -> None:
        hours[0] += 1
        lake.branches("rescue", "S1")

    lake.sweeps(store=lake.elsewhere(happens, guards=True), wait=lambda *_: None)
    assert (lake.there("lake/before"), lake.there()) == ({"S6"}, {"S1", "S6"})


@pytest.mark.parametrize(("lately", "looks"), [(1e9, 2), (0.0, 3)])
def test_a_store_that_guards_is_not_asked_before_the_plan_about_what_it_said_lately(
    fresh: Lake, monkeypatch: pytest.MonkeyPatch, lately: float, looks: int
) -> None:
    """Once while it is read and once before the first batch, whatever else."""
    monkeypatch.setattr(checked, "READ_LATELY", lately)
    store = fresh.elsewhere(lambda: None, "read", guards=True)
    assert sweeps(fresh, store) == {Outcome.DELETED: 5}
    assert (store.calls["read"], store.calls["tokens"]) == (1, looks)


@pytest.mark.parametrize(("guards", "reads"), [(True, 1), (False, 3)])
def test_only_a_log_whose_store_does_not_guard_is_read_again_when_it_changes(fresh: Lake, guards: bool, reads: int) -> None:
    log = fresh.folder / "log" / "lake-d.jsonl"
    store = Told(fresh.stores["lake"], lambda kind, _: kind == "sweep" and log.write_text(f"{log.read_text()}\n"), guards)
    calls = list[str]()
    assert sweeps(fresh, Told(store, lambda kind, _: calls.append(kind))) == {Outcome.DELETED: 5}
    assert calls.count("read") == reads


@pytest.mark.parametrize("late", [True, False])
def test_what_changes_while_another_dataset_of_the_batch_takes_its_time_is_noticed(
    marked: Lake, monkeypatch: pytest.MonkeyPatch, late: bool, left: bool
) -> None:
    """S1 is in one batch with K1. Before it goes its log is asked for again, if that was done long ago."""
    monkeypatch.setattr(checked, "ASKED_LATELY", 0.0 if late else 1e9)
    lake = marked.has("main: K1:SNAPSHOT@90d - K2:SNAPSHOT@1d", "lake/before")
    lake.marks()
    if left:
        lake.begins("K1", dataset="lake/before")
    store = lake.elsewhere(lambda: lake.branches("rescue", "S1"))
    results = lake.sweeps(store=store, wait=lambda *_: None)
    assert [one.refused for one in results.values()] == [None, None]
    assert (lake.there("lake/before"), lake.there()) == ({"K2"}, {"S1", "S6"} if late else {"S6"})
    assert lake.verified() == ()


def test_what_changes_before_the_store_prepares_is_noticed_though_its_notes_say_nothing_of_it(
    fresh: Lake, guards: bool
) -> None:
    """A note is of the moment in which it was taken; what the log said then is known only from a look that is no older."""
    store = fresh.elsewhere(lambda: closes_anew(fresh, "S2"), "prepare", guards=guards)
    assert sweeps(fresh, store) == {Outcome.DELETED: 4, Outcome.SPARED: 1}
    assert fresh.there() == {"S2", "S6"}


def test_what_changes_while_an_earlier_sweep_is_finished_is_noticed_before_the_rest_begins(fresh: Lake, guards: bool) -> None:
    fresh.begins("S1", "S2")
    store = fresh.elsewhere(lambda: closes_anew(fresh, "S4"), guards=guards)
    assert sweeps(fresh, store) == {Outcome.DELETED: 4, Outcome.SPARED: 1}
    assert fresh.there() == {"S4", "S6"}


def test_what_people_say_while_marks_are_checked_is_heard_before_the_first_batch(
    marked: Lake, monkeypatch: pytest.MonkeyPatch, guards: bool
) -> None:
    """What they had said is written down before marks are held against it."""
    check, asked = Recheck.check, list[pa.Table]()

    def checks(door: Recheck, *about: Any) -> Verdicts:
        checked = check(door, *about)
        asked.append(about[1])
        if len(asked) == 1:
            marked.hold()
        return checked

    monkeypatch.setattr(Recheck, "check", checks)
    assert sweeps(marked, marked.elsewhere(lambda: None, guards=guards)) == {Outcome.SPARED: 5}
    assert marked.there() == ALL


def test_nothing_begins_once_the_permit_is_over(fresh: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine slept while the store was asked for the last time, right before the first batch."""
    late, real = list[str](), SweepPermit._late
    monkeypatch.setattr(SweepPermit, "_late", lambda permit: late[0] if late else real(permit))
    store = fresh.elsewhere(lambda: late.append("the machine slept"), "tokens", 3)
    (result,) = fresh.sweeps(store=store).values()
    assert (result.refused, store.calls["tokens"]) == ("Nothing further is deleted: the machine slept.", 3)
    assert fresh.statuses() == dict.fromkeys(ALL - {"S6"}, "MARKED")

"""A mark goes only if the version that made it and a policy in force select it, and if an independent check finds no fault."""

import re
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.errors import Refused
from retention_assets.evaluation.rules_in_force import Rulebook
from retention_assets.frames import Log
from retention_assets.outcomes import Outcome
from retention_assets.people.audit import AcceptRequest, audit_accept
from retention_assets.policy import Policy
from retention_assets.stores.dry_run import RecordingStore
from retention_assets.sweep import Fate, Recheck, Verdict, Verdicts
from retention_assets_tests.sweep.lakes import ALL, DAY, DUE, FIVE, MARKED, OLD, Lake
from retention_assets_tests.sweep.test_between_batches import revokes
from retention_assets_tests.sweep.test_engine import Complete
from retention_assets_tests.sweep.test_expiry import TTL, Expires

RAW = OLD.replace("lake/*", "lake/raw.*")
CHANGED = "Policy 'old' marked it, but no policy in force selects it any more."


def lets_through(_: Recheck, __: Log, marks: pa.Table, *___: Any) -> Verdicts:
    return Verdicts(dict.fromkeys(marks["id"].to_pylist(), Verdict(Fate.GOES)))


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(lambda lake: lake.says(RAW.replace("lake/raw.*", "lake/raw_*")), id="another glob"),
        pytest.param(lambda lake: lake.says(RAW.replace("30d", "400d")), id="an older age"),
        pytest.param(lambda lake: lake.says(RAW[:-1] + ", branches: {only_in: main}}"), id="other branches"),
        pytest.param(revokes, id="revoked"),
    ],
)
def test_what_no_policy_in_force_selects_any_more_is_spared(lake: Lake, changes: Callable[[Lake], None]) -> None:
    lake.says(RAW)
    lake.has(FIVE, "lake/raw.d")
    lake.branches("side", "S6", "lake/raw.d")
    lake.marks()
    changes(lake)
    lake.sweeps()
    assert lake.there("lake/raw.d") == ALL
    assert {lake.why(name, "lake/raw.d") for name in ALL - {"S6"}} == {CHANGED}


def test_another_policy_that_selects_it_keeps_it_going(lake: Lake) -> None:
    lake.has(FIVE).marks()
    lake.says(
        OLD.replace("30d", "400d")
        + ", {name: other, datasets: {include: ['lake/d']}, select: {older_than: 60d}, sweep: {every: 0s, batch: 1}}"
    )
    result = lake.sweeps()["lake/d"]
    assert (lake.there(), result.outcomes[Outcome.SPARED]) == ({"S5", "S6"}, 1)


def ann_writes(lake: Lake) -> None:
    with lake.opened() as ledger:
        policy = {"name": "old", "datasets": {"include": ["lake/*"]}, "select": {"older_than": "30d"}}
        ledger.policy_book.write(Policy.model_validate(policy), "ann", "as agreed")


def test_what_differs_in_the_files_has_to_select_as_well(lake: Lake) -> None:
    """A person wrote the version of the book, so the narrower file is drift."""
    lake.says(OLD.replace("30d", "20d"))
    ann_writes(lake)
    lake.has(FIVE).marks()
    lake.says(OLD.replace("30d", "60d"))
    lake.sweeps()
    assert lake.there() == {"S5", "S6"}
    assert lake.why("S5") == CHANGED


@pytest.mark.parametrize(
    ("writes", "policies", "last"),
    [
        pytest.param(False, OLD[:-1] + ", grace: 20d}", 20, id="of the same policy"),
        pytest.param(False, OLD[:-1] + ", grace: 3d}", 7, id="the grace of the mark is longer"),
        pytest.param(
            False,
            OLD[:-1] + ", grace: 20d}, {name: other, datasets: {include: ['*']}, select: {older_than: 30d}, grace: 12d}",
            12,
            id="of several the shortest",
        ),
        pytest.param(True, OLD[:-1] + ", grace: 20d}", 20, id="of what differs in the files"),
        pytest.param(
            True,
            OLD[:-1] + ", grace: 20d}, {name: other, datasets: {include: ['*']}, select: {older_than: 30d}, grace: 12d}",
            12,
            id="of several, one of which differs in the files, the shortest",
        ),
    ],
)
def test_the_longer_grace_counts(lake: Lake, writes: bool, policies: str, last: int) -> None:
    if writes:
        ann_writes(lake)
    lake.has(FIVE).marks()
    lake.says(policies)
    before = MARKED + timedelta(days=last) - timedelta(seconds=1)
    lake.sweeps(before)
    assert lake.there() == ALL
    assert set(lake.statuses().values()) == {"MARKED"}
    lake.sweeps(MARKED + timedelta(days=last))
    assert lake.there() == {"S6"}
    assert lake.verified() == ()


@pytest.mark.parametrize("name", ["old", "other"])
def test_a_sweep_goes_as_the_policy_in_force_says(lake: Lake, name: str) -> None:
    waited = list[timedelta]()
    lake.has(FIVE).marks()
    lake.says(OLD.replace("every: 0s, batch: 2", "every: 1h, batch: 3").replace("name: old", f"name: {name}"))
    lake.sweeps(wait=lambda time, _: waited.append(time))
    assert (lake.there(), len(waited)) == ({"S6"}, 1)


@pytest.mark.parametrize("mends", ["every: 1s", "the clock"])
def test_a_pace_ends_with_its_policy_and_is_said(lake: Lake, mends: str, caplog: pytest.LogCaptureFixture) -> None:
    lake.says(OLD.replace("every: 0s", "every: 30d"))
    lake.has(FIVE).has(FIVE, "lake/e").marks()
    waited = list[timedelta]()
    stop = threading.Event()

    def ends(time: timedelta, _: threading.Event) -> None:
        waited.append(time)
        stop.set()

    lake.sweeps(wait=ends, stop=stop)
    assert waited[0] > timedelta(days=29)
    assert "The next batch of old waits 30 days" in caplog.text
    assert "(sweep.every: 30 days)" in caplog.text
    if mends == "the clock":
        with lake.opened() as ledger:
            ledger.clock.reset(DUE, "ann", "it was fast")
    else:
        lake.says(OLD.replace("every: 0s", mends))
    waited.clear()
    lake.sweeps(wait=ends, stop=threading.Event())
    most = timedelta(days=30) if mends == "the clock" else timedelta(seconds=1)
    assert waited[0] <= most


@pytest.mark.parametrize("held", [False, True])
def test_what_a_sweep_has_half_deleted_is_finished_unless_it_is_held(lake: Lake, held: bool) -> None:
    lake.has(FIVE).marks()
    lake.begins("S1", "S2")
    lake.says(OLD.replace("30d", "400d"), "{name: legal, datasets: ['lake/*'], reason: case 7}" if held else "")
    lake.sweeps()
    assert lake.there() == (ALL if held else {"S3", "S4", "S5", "S6"})


def test_a_time_to_expire_is_taken_back_where_nothing_justifies_it_any_more(lake: Lake) -> None:
    lake.says(TTL)
    store = Expires(lake.has(FIVE))
    lake.marks()
    lake.sweeps(store=store)
    assert len(store.times) == 5
    lake.says(TTL.replace("views: 1", "views: 4"))
    result = lake.sweeps(DUE + DAY, store=store)["lake/d"]
    assert store.times.keys() == {"S1", "S2"}
    assert (result.outcomes[Outcome.SPARED], lake.why("S3")) == (3, CHANGED)
    store.night()
    lake.sweeps(DUE + 2 * DAY, store=store)
    assert {lake.statuses()[name] for name in ("S1", "S2")} == {"SWEPT"}


def test_a_time_to_expire_is_taken_back_where_the_grace_in_force_is_longer(lake: Lake) -> None:
    """Otherwise the store would expire it before that is over."""
    lake.says(TTL)
    store = Expires(lake.has(FIVE))
    lake.marks()
    lake.sweeps(store=store)
    lake.says(TTL[:-1] + ", grace: 20d}")
    result = lake.sweeps(DUE + DAY, store=store)["lake/d"]
    assert (store.times, result.outcomes) == ({}, {Outcome.SPARED: 5})
    assert lake.why("S3") == "The grace of policy 'old', which is in force now, is not over."


def test_what_another_policy_now_hands_to_a_store_that_can_expire_nothing_waits(lake: Lake) -> None:
    lake.has(FIVE).marks()
    lake.says(OLD.replace("30d", "400d") + ", " + TTL.replace("name: old", "name: other"))
    lake.sweeps()
    assert (lake.there(), set(lake.statuses().values())) == (ALL, {"MARKED"})
    lake.says(OLD)
    lake.sweeps()
    assert lake.there() == {"S6"}


HOLD = "{name: legal, datasets: ['lake/*'], transactions: ['S1'], reason: case 7}"
ELSE = "{name: another, datasets: {include: ['lake/none']}, select: all}"


def with_folder(lake: Lake, policies: str) -> Lake:
    (lake.folder / "theirs").mkdir(exist_ok=True)
    (lake.folder / "theirs" / "p.yaml").write_text(policies)
    lake.configures(policies="theirs")
    return lake


@pytest.mark.parametrize("theirs", ["policies: []", f"policies: [{ELSE}]"], ids=["empty", "nothing in common"])
def test_a_folder_with_nothing_in_common_sweeps_nothing_until_it_is_accepted(lake: Lake, theirs: str) -> None:
    lake.says(OLD, HOLD)
    lake.has(FIVE).marks()
    (refused,) = [one.refused for one in with_folder(lake, theirs).sweeps().values()]
    assert "`retention audit accept --policies --reason …`" in (refused or "")
    assert lake.there() == ALL
    with lake.opened() as ledger:
        assert [one.name for one in ledger.policy_book.in_force()] == ["old"]
        assert [row.keeper.name for row in ledger.holds.recorded().files] == ["legal"]
    audit_accept(AcceptRequest(actor="ann", reason="moved", policies=True), lake.environment)
    lake.sweeps()
    # Now the other files count: what was loaded before is revoked, so its marks are spared.
    assert lake.there() == ALL
    assert "no policy in force selects it any more" in lake.why("S2")
    assert lake.verified() == ()


def test_a_policy_that_is_taken_out_of_its_file_or_renamed_there_takes_effect(lake: Lake) -> None:
    lake.has(FIVE).marks()
    lake.says(OLD.replace("name: old", "name: new").replace("30d", "400d"))
    assert lake.marks() == 0
    (result,) = lake.sweeps().values()
    assert (result.refused, lake.there()) == (None, ALL)
    assert "Policy 'old' marked it, but no policy in force selects it any more." in lake.why("S2")
    lake.says(OLD)
    assert lake.marks(DUE) == 5


def test_the_hold_of_a_file_goes_only_when_its_own_folder_is_read_without_it(lake: Lake) -> None:
    lake.says(OLD, HOLD)
    lake.has(FIVE).marks()
    with_folder(lake, f"policies: [{OLD}]").sweeps()
    assert lake.there() == {"S1", "S6"}
    assert lake.marks() == 0
    lake.configures(policies="policies")
    lake.says(OLD)
    assert lake.marks() == 1
    lake.sweeps(DUE.replace(year=DUE.year + 1))
    assert "S1" not in lake.there()


def test_after_all_was_revoked_other_policies_are_the_first(lake: Lake, tmp_path: Path) -> None:
    lake.has(FIVE).marks()
    with lake.opened() as ledger:
        ledger.policy_book.revoke("old", "ann", "all of them go")
    (result,) = with_folder(lake, f"policies: [{ELSE}]").sweeps().values()
    assert result.refused is None
    assert lake.there() == ALL


def test_whoever_accepts_policies_vouches_for_nothing_else(lake: Lake) -> None:
    lake.says(OLD)
    lake.has(FIVE).marks()
    lake.hold()
    with lake.opened() as ledger, ledger.database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE holds SET content = content || ' '")
    request = AcceptRequest(actor="ann", reason="moved", policies=True)
    with pytest.raises(Refused, match="nothing to accept"):
        audit_accept(request, lake.environment)
    with_folder(lake, f"policies: [{ELSE}]")
    assert audit_accept(request, lake.environment).data["faults"] == []
    assert any("was changed past the ledger" in fault for fault in lake.verified())


OTHER = re.sub(r"S(\d)", r"K\1", FIVE)


def test_a_mark_in_a_latest_view_stops_its_dataset_and_no_other(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The branch came after the mark, and the door lets everything through."""
    lake.has(FIVE).has(OTHER, "lake/other").marks()
    lake.branches("rescue", "S2")
    monkeypatch.setattr(Recheck, "check", lets_through)
    results = lake.sweeps()
    assert str(results["lake/d"].refused).startswith(
        "nothing of lake/d is swept: S2 is in the latest view of branch rescue, but policy old marked it, which it may not do (1"
    )
    assert (lake.there(), lake.there("lake/other")) == (ALL, {"K6"})
    assert set(lake.statuses().values()) == {"MARKED"}


def test_a_policy_that_may_select_in_latest_views_is_let_through(lake: Lake) -> None:
    lake.says(OLD.replace("select:", "latest_view: allow, select:"))
    lake.has(FIVE).marks()
    lake.branches("rescue", "S2")
    assert lake.sweeps()["lake/d"].refused is None
    assert lake.there() == {"S6"}


def marks_without_limits(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> int:
    """An evaluation that overlooks all limits; how many marks it makes."""
    in_force = Rulebook.rules

    def unlimited(book: Rulebook, *about: Any) -> Any:
        rules = in_force(book, *about)
        return replace(rules, policies=tuple(one.model_copy(update={"limits": None}) for one in rules.policies))

    with monkeypatch.context() as patch:
        patch.setattr(Rulebook, "rules", unlimited)
        return lake.marks(MARKED)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        pytest.param({"transactions": 4}, "policy old marked 5 of 6 transactions", id="transactions"),
        pytest.param({"fraction": 0.5}, "policy old marked 5 of 6 transactions", id="fraction"),
        pytest.param({"bytes": 49}, "50 bytes at a time: over its limits", id="bytes"),
    ],
)
def test_more_than_the_limits_of_a_policy_is_not_swept_however_often_it_was_judged_since(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, limits: dict[str, Any], said: str
) -> None:
    """An evaluation that overlooked them; the next one marks nothing new, so that it keeps to them."""
    lake.says(OLD.replace("sweep:", f"limits: {limits}, sweep:"))
    lake.has(FIVE)
    assert marks_without_limits(lake, monkeypatch) == 5
    assert lake.marks(DUE) == 0
    (result,) = lake.sweeps().values()
    assert said in str(result.refused)
    assert "retention unmark" in str(result.refused)
    assert lake.there() == ALL


@pytest.mark.parametrize(("fraction", "refused"), [(0.49, True), (0.5, False)])
@pytest.mark.parametrize("complete", [pytest.param(False, id="a log keeps them"), pytest.param(True, id="the log is the data")])
def test_a_fraction_is_of_what_the_log_has_and_had_each_transaction_counted_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, complete: bool, fraction: float, refused: bool
) -> None:
    """Two of six were swept: a log that keeps them has six transactions, one that does not has four."""
    lake.says(OLD.replace("30d", "75d"))
    lake.has(FIVE).marks()
    lake.sweeps()
    if complete:
        lake.forgets("S1")
        lake.forgets("S2")
    lake.says(OLD.replace("sweep:", f"limits: {{fraction: {fraction}}}, sweep:"))
    assert marks_without_limits(lake, monkeypatch) == 3
    store = (Complete if complete else RecordingStore)(lake.stores["lake"])
    (result,) = lake.sweeps(store=store).values()
    assert (result.refused is not None) is refused
    assert "marked 3 of 6 transactions" in str(result.refused) or not refused
    assert len(store.recorded) == (0 if refused else 3)

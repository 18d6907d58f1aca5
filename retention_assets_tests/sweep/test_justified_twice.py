"""A mark goes only if it is justified twice: by the version that made it, and by some policy that is in force."""

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from retention_assets.outcomes import Outcome
from retention_assets.policy.model import Policy
from retention_assets_tests.sweep.lakes import DUE, MARKED, OLD, Lake
from retention_assets_tests.sweep.test_engine import ALL, FIVE, begin
from retention_assets_tests.sweep.test_expiry import DAY, TTL, Expires

RAW = OLD.replace("lake/*", "lake/raw.*")
CHANGED = "Policy 'old' marked it, and no policy in force selects it any more."


def revokes(lake: Lake) -> None:
    with lake.opened() as ledger:
        ledger.policy_book.revoke("old", "ann", "no longer wanted")


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


def test_what_differs_in_the_files_has_to_select_as_well(lake: Lake) -> None:
    """A person wrote the version of the book, so the narrower file is drift."""
    lake.says(OLD.replace("30d", "20d"))
    with lake.opened() as ledger:
        policy = {"name": "old", "datasets": {"include": ["lake/*"]}, "select": {"older_than": "30d"}}
        ledger.policy_book.write(Policy.model_validate(policy), "ann", "as agreed")
    lake.has(FIVE).marks()
    lake.says(OLD.replace("30d", "60d"))
    lake.sweeps()
    assert lake.there() == {"S5", "S6"}
    assert lake.why("S5") == CHANGED


@pytest.mark.parametrize(
    ("policies", "last"),
    [
        pytest.param(OLD[:-1] + ", grace: 20d}", 20, id="of the same policy"),
        pytest.param(OLD[:-1] + ", grace: 3d}", 7, id="the grace of the mark is longer"),
        pytest.param(
            OLD[:-1] + ", grace: 20d}, {name: other, datasets: {include: ['*']}, select: {older_than: 30d}, grace: 12d}",
            12,
            id="of several the shortest",
        ),
    ],
)
def test_the_longer_grace_counts(lake: Lake, policies: str, last: int) -> None:
    lake.has(FIVE).marks()
    lake.says(policies)
    before = MARKED + timedelta(days=last) - timedelta(seconds=1)
    lake.sweeps(before)
    assert lake.there() == ALL
    assert set(lake.statuses().values()) == {"MARKED"}
    lake.sweeps(MARKED + timedelta(days=last))
    assert lake.there() == {"S6"}
    assert lake.verified() == ()


def test_of_what_differs_in_the_files_the_longer_grace_counts(lake: Lake) -> None:
    with lake.opened() as ledger:
        policy = {"name": "old", "datasets": {"include": ["lake/*"]}, "select": {"older_than": "30d"}}
        ledger.policy_book.write(Policy.model_validate(policy), "ann", "as agreed")
    lake.has(FIVE).marks()
    lake.says(OLD[:-1] + ", grace: 20d}")
    lake.sweeps(MARKED + timedelta(days=19))
    assert lake.there() == ALL
    lake.sweeps(MARKED + timedelta(days=20))
    assert lake.there() == {"S6"}


def test_a_sweep_goes_as_the_policy_in_force_says(lake: Lake) -> None:
    waited = list[timedelta]()
    lake.has(FIVE).marks()
    lake.says(OLD.replace("every: 0s, batch: 2", "every: 1h, batch: 5"))
    lake.sweeps(wait=lambda time, _: waited.append(time))
    assert (lake.there(), len(waited)) == ({"S6"}, 0)


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
    begin(lake, "S1", "S2")
    lake.says(OLD.replace("30d", "400d"), "{name: legal, datasets: ['lake/*'], reason: case 7}" if held else "")
    lake.sweeps()
    assert lake.there() == (ALL if held else {"S3", "S4", "S5", "S6"})


def test_a_time_to_expire_is_taken_back_where_nothing_justifies_it_any_more(lake: Lake) -> None:
    lake.says(TTL)
    store = Expires(lake.has(FIVE))
    lake.marks()
    lake.sweeps(stores={"lake": store})
    assert len(store.times) == 5
    lake.says(TTL.replace("views: 1", "views: 4"))
    result = lake.sweeps(DUE + DAY, stores={"lake": store})["lake/d"]
    assert store.times.keys() == {"S1", "S2"}
    assert (result.outcomes[Outcome.SPARED], lake.why("S3")) == (3, CHANGED)
    store.night()
    lake.sweeps(DUE + 2 * DAY, stores={"lake": store})
    assert {lake.statuses()[name] for name in ("S1", "S2")} == {"SWEPT"}


def test_a_realm_that_is_purged_needs_no_policy(lake: Lake) -> None:
    lake.says("{name: none, datasets: {include: ['lake/none']}, select: all}")
    lake.has(FIVE)._log("lake/d", ['{"dataset": "lake/d", "realm": "acme"}'])
    with lake.opened() as ledger:
        ledger.realms.change("acme", "PURGING", "ann", "contract over")
    lake.marks()
    lake.says("{name: none, datasets: {include: ['lake/nothing']}, select: all}")
    lake.sweeps(MARKED + timedelta(days=30))
    assert lake.there() == set()

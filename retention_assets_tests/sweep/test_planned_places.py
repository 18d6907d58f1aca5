"""Where the data of a plan was: settings that lead elsewhere before the next sweep, and disks that are not the right one."""

import json
import shutil
from pathlib import Path

import pytest

from retention_assets.environment import Environment
from retention_assets.errors import Refused, Withheld
from retention_assets.outcomes import Outcome
from retention_assets.people.plan import PlanRequest, make_plan
from retention_assets.pipeline.head_file import place_faults
from retention_assets.policy.model import Hold
from retention_assets.stores.protocol import KNOWN_BY, LocatedStore
from retention_assets.sweep.dataset_sweep import SweepResult
from retention_assets_tests.ledger.states import change_leases
from retention_assets_tests.sweep.lakes import DUE, OLD, Elsewhere, Lake
from retention_assets_tests.sweep.test_engine import FIVE, begin
from retention_assets_tests.sweep.test_withheld import ASKS, Interrupted

REST = {"S3", "S4", "S5", "S6"}
ALL = {"S1", "S2", *REST}


@pytest.fixture
def begun(lake: Lake) -> Lake:
    """A sweep has begun on five transactions, has deleted two of them, and lost its lease then."""
    lake.says(OLD.replace("batch: 2", "batch: 5"))
    lake.has(FIVE).marks()

    def lost() -> None:
        # From now on nothing is permitted any more, nor can be written.
        store.ask += 1
        with lake.opened() as ledger:
            change_leases(ledger, "UPDATE leases SET token = token + 1, given_up = true")
        raise Withheld("stopped")

    store = Interrupted(lake.stores["lake"], lost, 2 * ASKS + 1)
    (result,) = lake.sweeps(stores={"lake": store}).values()
    assert "has lost the lease" in str(result.refused)
    assert lake.there() == REST
    return lake


def leads_to(lake: Lake, place: str) -> None:
    """Somebody changes the settings."""
    settings = json.loads((lake.folder / "retention.yaml").read_text())
    settings["stores"][0]["data"] = f"{place}/{{dataset}}/{{transaction}}"
    (lake.folder / "retention.yaml").write_text(json.dumps(settings))


def swept(lake: Lake) -> SweepResult:
    (result,) = lake.sweeps().values()
    return result


def files(root: Path) -> set[Path]:
    return {file for file in root.rglob("*") if file.is_file()}


def is_refused(lake: Lake, then: Path, now: Path) -> None:
    """Neither place loses anything, and the sentence has both of them and what can be done."""
    before = files(lake.folder / "data"), files(now)
    said = str(swept(lake).refused)
    assert f"Then: {then}{KNOWN_BY}" in said
    assert f"Now: {now}" in said
    assert "Point the settings of the store back to the first and run again." in said
    assert "place a hold on lake/d" in said
    assert (files(lake.folder / "data"), files(now)) == before
    assert "SWEPT" not in lake.statuses().values()


def test_what_was_begun_in_one_root_is_not_deleted_in_another_that_is_a_copy_of_it(begun: Lake) -> None:
    """Whatever says which root it is was copied as well."""
    shutil.copytree(begun.folder / "data", begun.folder / "copy")
    begun._fill("lake/e", "S1")
    shutil.copytree(begun.folder / "data" / "e" / "S1", begun.folder / "copy" / "d" / "S1")
    leads_to(begun, "copy")
    is_refused(begun, begun.folder / "data", begun.folder / "copy")
    leads_to(begun, "data")
    each = sum(file.stat().st_size for file in files(begun.folder / "data" / "d" / "S3"))
    result = swept(begun)
    assert result.outcomes == {Outcome.ALREADY_GONE: 2, Outcome.DELETED: 3}
    assert begun.there() == {"S6"}
    # What the sweep freed that did not come to its end is counted by the one that finishes it.
    with begun.opened() as ledger:
        (report,) = ledger.reports.of(DUE.date())
    assert result.bytes_freed == report["bytes_freed"] == 5 * each


def test_what_was_begun_on_one_disk_is_not_deleted_on_another_at_the_same_place(begun: Lake) -> None:
    root = begun.folder / "data"
    root.rename(begun.folder / "unmounted")
    for name in ("S3", "S6"):
        begun._fill("lake/d", name)
    is_refused(begun, root, root)
    (root / ".retention-store").write_text("0" * 32)
    is_refused(begun, root, root)


def test_a_disk_that_is_mounted_between_batches_in_the_place_of_another_loses_nothing(lake: Lake, guards: bool) -> None:
    lake.has(FIVE).marks()
    root = lake.folder / "data"
    (root / ".retention-store").write_text("1" * 32)

    def mounts() -> None:
        shutil.copytree(root, lake.folder / "copy")
        root.rename(lake.folder / "unmounted")
        (lake.folder / "copy").rename(root)
        (root / ".retention-store").write_text("0" * 32)

    (result,) = lake.sweeps(stores={"lake": Elsewhere(lake.stores["lake"], guards, mounts)}).values()
    assert "what was planned of lake/d is in another place than the one to which the settings lead" in str(result.refused)
    assert (lake.there(), result.outcomes) == (REST, {Outcome.DELETED: 2})


def test_what_was_begun_in_a_place_that_is_gone_for_good_is_spared_by_a_hold(begun: Lake) -> None:
    shutil.copytree(begun.folder / "data", begun.folder / "copy")
    shutil.rmtree(begun.folder / "data")
    leads_to(begun, "copy")
    with begun.opened() as ledger:
        ledger.holds.place(Hold.model_validate({"name": "moved", "datasets": ["lake/d"], "reason": "moved"}), "ann")
    before = files(begun.folder / "copy")
    assert (swept(begun).refused, set(begun.statuses().values())) == (None, {"SPARED"})
    # Of what was elsewhere nobody can say what is left of it.
    assert begun.why("S1") == "A sweep had begun on it, so some of its bytes may be gone already. Hold 'moved' keeps it."
    assert files(begun.folder / "copy") == before


def test_what_is_gone_and_needed_again_is_said_to_be_gone(begun: Lake) -> None:
    with begun.opened() as ledger:
        ledger.holds.place(Hold.model_validate({"name": "legal", "datasets": ["lake/d"], "reason": "case 7"}), "ann")
    each = sum(file.stat().st_size for file in files(begun.folder / "data" / "d" / "S3"))
    result = swept(begun)
    # What the sweep freed that did not come to its end is counted by the one that finds it.
    assert (result.outcomes, result.bytes_freed) == ({Outcome.ALREADY_GONE: 2, Outcome.SPARED: 3}, 2 * each)
    assert {name: status for name, status in begun.statuses().items() if status == "SWEPT"} == dict.fromkeys(
        ["S1", "S2"], "SWEPT"
    )
    assert begun.why("S4") == "A sweep had begun on it, and it has deleted nothing of it. Hold 'legal' keeps it."
    with begun.opened() as ledger, ledger.database.reading() as connection:
        (report,) = ledger.reports.of(DUE.date())
        assert report["bytes_freed"] == 2 * each
        whys = set(connection.exec_driver_sql("SELECT why FROM steps WHERE outcome = 'ALREADY_GONE'").scalars())
    assert whys == {"It was deleted before it was needed again. Hold 'legal' keeps it."}


def test_a_plan_of_before_that_knows_no_place_is_finished_as_ever(lake: Lake) -> None:
    lake.has(FIVE).marks()
    begin(lake, "S1", "S2")
    assert swept(lake).outcomes == {Outcome.DELETED: 5}


def test_only_a_plan_leaves_in_a_root_by_what_it_is_known(lake: Lake) -> None:
    known = lake.folder / "data" / ".retention-store"
    lake.has(FIVE).marks()
    found = make_plan(PlanRequest(as_of=DUE), Environment(lake.settings))
    assert len(found.deleted) == 5
    assert not known.exists()
    assert swept(lake).outcomes == {Outcome.DELETED: 5}
    first = known.read_text()
    assert len(first.strip()) == 32
    lake.has("main: K1:SNAPSHOT@90d - K2:SNAPSHOT@1d", "lake/other").marks()
    lake.sweeps()
    assert known.read_text() == first
    assert lake.there("lake/other") == {"K2"}


def test_an_empty_file_of_a_killed_program_or_a_full_disk_is_written_anew(lake: Lake) -> None:
    """By the first line the root is known, and behind it the head stands beside the data."""
    lake.has(FIVE).marks()
    known = lake.folder / "data" / ".retention-store"
    known.touch()
    with lake.environment.ledger() as ledger:
        assert place_faults(ledger, lake.stores.values(), "ann") == {}
        ledger.realms.change("acme", "INACTIVE", "ann", "r")
    first, head = known.read_text().splitlines()
    assert len(first) == 32
    assert json.loads(head)["position"] > 0


def test_a_root_in_which_nothing_can_be_left_is_known_by_its_name_alone(lake: Lake) -> None:
    (lake.folder / "data" / ".retention-store").mkdir()
    lake.has(FIVE).marks()
    assert swept(lake).outcomes == {Outcome.DELETED: 5}
    with lake.opened() as ledger, ledger.database.reading() as connection:
        places = connection.exec_driver_sql("SELECT place FROM plans").scalars().all()
    assert places == [str(lake.folder / "data")]


# The folder of the dataset alone does not show that `data` leads to its transactions.
@pytest.mark.parametrize("else_", ["lost+found", "lost+found/#12", "other/S1", "d/S77/a"])
def test_a_disk_that_is_not_the_right_one_makes_nothing_swept_and_is_left_alone(lake: Lake, else_: str) -> None:
    lake.has(FIVE).marks()
    root = lake.folder / "data"
    root.rename(lake.folder / "unmounted")
    (root / else_).mkdir(parents=True)
    result = swept(lake)
    assert result.outcomes == {}
    assert "mount the disk" in str(result.refused)
    assert set(lake.statuses().values()) == {"MARKED"}
    assert sorted(path.name for path in root.iterdir()) == [Path(else_).parts[0]]
    shutil.rmtree(root)
    (lake.folder / "unmounted").rename(root)
    assert swept(lake).outcomes == {Outcome.DELETED: 5}


@pytest.mark.parametrize("sign", ["d/S6/a", "e/K1/a"])
def test_where_other_data_of_the_log_is_what_is_not_there_is_gone(lake: Lake, sign: str) -> None:
    lake.has(FIVE).has("main: K1:SNAPSHOT@9d", "lake/e").marks()
    shutil.rmtree(lake.folder / "data")
    file = lake.folder / "data" / sign
    file.parent.mkdir(parents=True)
    file.write_text("x")
    assert lake.sweeps()["lake/d"].outcomes == {Outcome.ALREADY_GONE: 5}


def test_a_store_says_where_it_is_and_a_file_by_which_it_is_known_is_no_data(lake: Lake) -> None:
    lake.has(FIVE)
    (store,) = lake.stores.values()
    assert isinstance(store, LocatedStore)
    assert store.place("lake/d") == str(lake.folder / "data")
    shutil.rmtree(lake.folder / "data" / "d")
    (lake.folder / "data" / ".retention-store").write_text("0" * 32)
    # A root in which nothing else is, is empty.
    with pytest.raises(Refused, match="is empty"):
        store.prepare("lake/d", ["S1"])
    assert store.place("lake/d", claim=True) == f"{lake.folder / 'data'}{KNOWN_BY}{'0' * 32}"

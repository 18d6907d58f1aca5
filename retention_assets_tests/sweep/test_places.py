"""Places: what is not where it was planned, what lies at another store's or retention's own place, stays, whatever leads there.

Mounts are made by a program of its own, in namespaces of its own; its cases share it, for it takes long to begin.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from retention_assets.environment import Environment
from retention_assets.errors import Refused, Withheld
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.outcomes import Outcome
from retention_assets.people.plan import PlanRequest, make_plan
from retention_assets.stores.protocol import KNOWN_BY
from retention_assets.sweep import Sweeper, SweepResult
from retention_assets_tests.ledger.states import change_leases
from retention_assets_tests.stores.places.mounts import run_with_mounts
from retention_assets_tests.sweep.lakes import DUE, FIVE, OLD, Lake
from retention_assets_tests.sweep.test_lease import ASKS


def link_warehouse(folder: Path) -> None:
    (folder / "data" / "w").mkdir()
    (folder / "warehouse").symlink_to(folder / "data" / "w")


def link_log_of_another(folder: Path) -> None:
    (folder / "data" / "rawlog").mkdir()
    (folder / "rawlog").symlink_to("data/rawlog")


def link_data(folder: Path) -> None:
    """The data is now where all the rest is."""
    (folder / "data").rename(folder / "moved")
    (folder / "data").symlink_to(folder)
    (folder / "d").symlink_to(folder / "moved" / "d")


@pytest.mark.parametrize(
    ("meanwhile", "said"),
    [
        (link_warehouse, "warehouse ("),
        (link_log_of_another, "stores[1].log ("),
        (link_data, "lies in stores[0].data ("),
        (lambda _: None, None),
    ],
)
def test_a_link_that_was_made_after_the_settings_were_read_sweeps_nothing(
    tmp_path: Path, meanwhile: Callable[[Path], None], said: str | None
) -> None:
    lake = Lake(tmp_path).has("main: T1:SNAPSHOT@90d - T2:SNAPSHOT@1d")
    stores = json.loads(lake.settings_file.read_text())["stores"]
    raw = {"name": "raw", "kind": "files", "log": "rawlog", "data": "raw/{dataset}/{transaction}"}
    mark = lake.marks()
    lake.configures(stores=[*stores, raw])
    with lake.opened() as ledger:
        opened, rulebook = lake.stores, load_rulebook(ledger, lake.settings, "test")
        meanwhile(tmp_path)
        before = {path for path in tmp_path.rglob("*") if "ledger" not in path.name}
        [result] = Sweeper(ledger, opened, rulebook, DUE, "test").run(["lake/d"])
        after = {path for path in tmp_path.rglob("*") if "ledger" not in path.name}
    assert mark == 1
    if said is None:
        assert (result.refused, result.outcomes) == (None, {Outcome.DELETED: 1})
        return
    assert result.refused is not None
    assert result.refused.startswith("nothing of lake is swept: ")
    assert said in result.refused
    assert (result.outcomes, before - after) == ({}, set())


REST = {"S3", "S4", "S5", "S6"}


@pytest.fixture
def begun(lake: Lake) -> Lake:
    """A sweep has begun on five transactions, has deleted two of them, and lost its lease then."""
    lake.says(OLD.replace("batch: 2", "batch: 5"))
    lake.has(FIVE).marks()

    def lost() -> None:
        # From now on nothing is permitted any more, nor can be written.
        store.at = ("permit", store.at[1] + 1)
        with lake.opened() as ledger:
            change_leases(ledger, "UPDATE leases SET token = token + 1, given_up = true")
        raise Withheld("stopped")

    store = lake.elsewhere(lost, "permit", 2 * ASKS + 1)
    (result,) = lake.sweeps(store=store).values()
    assert "has lost the lease" in str(result.refused)
    assert lake.there() == REST
    return lake


def leads_to(lake: Lake, place: str) -> None:
    stores = json.loads(lake.settings_file.read_text())["stores"]
    lake.configures(stores=[{**stores[0], "data": f"{place}/{{dataset}}/{{transaction}}"}])


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
    assert "Set the store back to the first place and run again." in said
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

    (result,) = lake.sweeps(store=lake.elsewhere(mounts, guards=guards)).values()
    assert "what was planned of lake/d is not at the place that the settings name" in str(result.refused)
    assert (lake.there(), result.outcomes) == (REST, {Outcome.DELETED: 2})


def test_what_was_begun_in_a_place_that_is_gone_for_good_is_spared_by_a_hold(begun: Lake) -> None:
    shutil.copytree(begun.folder / "data", begun.folder / "copy")
    shutil.rmtree(begun.folder / "data")
    leads_to(begun, "copy")
    begun.hold("lake/d", name="moved")
    before = files(begun.folder / "copy")
    assert (swept(begun).refused, set(begun.statuses().values())) == (None, {"SPARED"})
    # Of what was elsewhere nobody can say what is left of it.
    assert begun.why("S1") == "A sweep had begun on it, so some of its bytes may be gone already. Hold 'moved' keeps it."
    assert files(begun.folder / "copy") == before


def test_what_is_gone_and_needed_again_is_said_to_be_gone(begun: Lake) -> None:
    begun.hold("lake/d")
    each = sum(file.stat().st_size for file in files(begun.folder / "data" / "d" / "S3"))
    result = swept(begun)
    # What the sweep freed that did not come to its end is counted by the one that finds it.
    assert (result.outcomes, result.bytes_freed) == ({Outcome.ALREADY_GONE: 2, Outcome.SPARED: 3}, 2 * each)
    assert {name: status for name, status in begun.statuses().items() if status == "SWEPT"} == dict.fromkeys(
        ["S1", "S2"], "SWEPT"
    )
    assert begun.why("S4") == "A sweep had begun on it, but has deleted nothing of it. Hold 'legal' keeps it."
    with begun.opened() as ledger, ledger.database.reading() as connection:
        (report,) = ledger.reports.of(DUE.date())
        assert report["bytes_freed"] == 2 * each
        whys = set(connection.exec_driver_sql("SELECT why FROM marks WHERE outcome = 'ALREADY_GONE'").scalars())
    assert whys == {"It was deleted before it was needed again. Hold 'legal' keeps it."}


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
        assert lake.environment.place_faults(ledger, lake.stores.values(), "ann") == {}
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
    assert store.place("lake/d") == str(lake.folder / "data")
    shutil.rmtree(lake.folder / "data" / "d")
    (lake.folder / "data" / ".retention-store").write_text("0" * 32)
    # A root in which nothing else is, is empty.
    with pytest.raises(Refused, match="is empty"):
        store.prepare("lake/d", ["S1"])
    assert store.place("lake/d", claim=True) == f"{lake.folder / 'data'}{KNOWN_BY}{'0' * 32}"


# What is mounted (a folder; a file system in memory where there is none) and where; what the settings say besides the lake and
# another store; and the two keys that are at odds. None where nothing is.
AT_ODDS: dict[str, tuple[list[tuple[str | None, str]], dict[str, Any], tuple[str, str] | None]] = {
    "the ledger in a folder of the data": (
        [("data/d", "else where")], {"ledger": "sqlite:///else where/l.db"}, ("ledger", "stores[0].data"),
    ),
    "the warehouse below a folder of the data": (
        [("data/d", "else where")], {"warehouse": "else where/w"}, ("warehouse", "stores[0].data"),
    ),
    "another store in a folder of the data": ([("data/d", "raw")], {}, ("stores[1].data", "stores[0].data")),
    "the data in a folder of another store": ([("raw/in/it", "data")], {}, ("stores[0].data", "stores[1].data")),
    "a mount of a mount": (
        [("data", "again"), ("again/d", "else where")], {"ledger": "sqlite:///else where/l.db"}, ("ledger", "stores[0].data"),
    ),
    "a folder beside the data": ([("beside", "else where")], {"ledger": "sqlite:///else where/l.db"}, None),
    "a disk of its own": ([(None, "else where")], {"ledger": "sqlite:///else where/data/d/l.db"}, None),
}  # fmt: skip
# Ways in which a sweep comes to what another store has, on a disk on which the root of the lake is not.
ON_ITS_WAY = {
    "another store in a due folder": "data/d/T1/raw",
    "another store deep in a due folder": "data/d/T1/deep/er",
    "another store around a due folder": "data/d",
    "another store elsewhere": "else",
}
PROGRAM = """
import json, subprocess, sys
from pathlib import Path
from retention_assets_tests.sweep.lakes import Lake

def environment(name, more):
    lake = Lake(Path(sys.argv[1]) / name)
    stores = json.loads(lake.settings_file.read_text())["stores"]
    raw = {"name": "raw", "kind": "files", "log": "rawlog", "data": "raw/{dataset}/{transaction}"}
    lake.configures(**more, stores=[*stores, raw])
    (lake.folder / "rawlog").mkdir()
    at = dict.fromkeys(("opened_at", "closed_at"), "2020-01-01T00:00:00Z")
    line = {"dataset": "raw/d", "transaction": "R1", "type": "SNAPSHOT", "status": "COMMITTED", **at}
    (lake.folder / "rawlog" / "a.jsonl").write_text(json.dumps(line) + "\\n")
    return lake

def mount(root, source, place):
    for folder in filter(None, (source, place)):
        (root / folder).mkdir(parents=True, exist_ok=True)
    kind = ["-t", "tmpfs", "none"] if source is None else ["--bind", root / source]
    subprocess.run(["mount", *kind, root / place], check=True)

at_odds, on_its_way = json.loads(sys.argv[2])
answers = {}
for number, (case, (mounts, more, _)) in enumerate(at_odds.items()):
    lake = environment(f"odds{number}", more)
    for source, place in mounts:
        mount(lake.folder, source, place)
    command = [sys.executable, "-c", "from retention_assets.cli import main; main()", "validate"]
    done = subprocess.run(command, cwd=lake.folder, capture_output=True, text=True, check=False)
    answers[case] = [done.returncode, done.stderr]
for number, (case, place) in enumerate(on_its_way.items()):
    lake = environment(f"way{number}", {})
    mount(lake.folder, None, "data/d")
    lake.has("main: T1:SNAPSHOT@90d - T2:SNAPSHOT@1d")
    mount(lake.folder, place, "raw")
    (lake.folder / "raw" / "precious").write_text("precious")
    lake.marks()
    before = lake.left()
    result = lake.sweeps()["lake/d"]
    answers[case] = [{str(outcome): count for outcome, count in result.outcomes.items()}, result.errors,
                     sorted(before.keys() - lake.left().keys())]
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    return run_with_mounts(PROGRAM, tmp_path_factory.mktemp("mounts"), [AT_ODDS, ON_ITS_WAY])


@pytest.mark.parametrize("case", AT_ODDS)
def test_what_lies_in_the_data_by_a_mount_is_refused(answers: Mapping[str, Any], case: str) -> None:
    code, stderr = answers[case]
    keys = AT_ODDS[case][2]
    if keys is None:
        assert code == 0, stderr
        return
    assert code == 2
    assert f"{keys[0]} (" in stderr
    assert f"lies in {keys[1]} (" in stderr


@pytest.mark.parametrize("case", ON_ITS_WAY)
def test_a_removal_that_meets_what_another_store_has_removes_nothing(answers: Mapping[str, Any], case: str) -> None:
    outcomes, errors, gone = answers[case]
    if case == "another store elsewhere":
        assert (outcomes, errors) == ({"DELETED": 1}, [])
        return
    assert (outcomes, gone) == ({"FAILED": 1}, [])
    assert "belongs to retention itself or to another store" in errors[0]


@pytest.mark.parametrize("name", ["ledger.db", "retention.yaml", "policies/p.yaml"])
def test_a_removal_that_meets_a_file_of_retention_itself_removes_nothing(tmp_path: Path, name: str) -> None:
    lake = Lake(tmp_path).has("main: T1:SNAPSHOT@90d - T2:SNAPSHOT@1d")
    lake.configures(policies="policies/p.yaml")
    lake.marks()
    (lake.place("lake/d", "T1") / "deep" / "here").hardlink_to(tmp_path / name)
    before = sorted(lake.place("lake/d", "T1").rglob("*"))
    result = lake.sweeps()["lake/d"]
    assert result.outcomes == {Outcome.FAILED: 1}
    assert "'here' belongs to retention itself" in result.errors[0]
    assert sorted(lake.place("lake/d", "T1").rglob("*")) == before

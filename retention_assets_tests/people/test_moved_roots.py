"""A root that was renamed, copied, or put back from a backup: what goes on by itself, what is refused, and that the command which
a refusal names helps.

Belongs here: marks, the trash and begun plans across a change of place, through the command line. What a place is by itself is in
stores/test_places.py; ledgers and heads are in test_environments.py.
"""

import json
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from retention_assets.policy import text_of
from retention_assets.stores.places import open_place
from retention_assets_tests.people.conftest import DONE, FAILED, Run
from retention_assets_tests.sweep.lakes import DUE, MARKED, OLD, Lake

HISTORY = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@1d=10"
UNDO = OLD.replace("sweep:", "undo: 14d, sweep:")
LATER, UNTIL, AT_LAST = (DUE + timedelta(days=days) for days in (7, 14, 28))
NOTHING = "there is nothing to accept"
ACCEPT = ("audit", "accept", "--store", "lake", "-r", "the disk was full")

pytestmark = pytest.mark.usefixtures("local_spark", "numbers")


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the tests lie on an overlay or in memory."""
    monkeypatch.setattr("retention_assets.stores.places.mounts.keeps_numbers", lambda _: True)


@pytest.fixture
def aside(lake: Lake, run: Run) -> Lake:
    """S1 and S2 of one dataset are set aside, T1 and T2 of another one are marked."""
    lake.says(UNDO)
    lake.has(HISTORY)
    done(run, "run", at=MARKED)
    lake.has(HISTORY.replace("S", "T").replace("TNAPTHOT", "SNAPSHOT"), "lake/e")
    done(run, "run", at=DUE)
    assert (there(lake, "data"), in_trash(lake, "data")) == ({"S3", "T1", "T2", "T3"}, {"S1", "S2"})
    return lake


def done(run: Run, *arguments: str, at: datetime | None = None, ends: int = DONE) -> str:
    code, out, err = run(*arguments, *(("--as-of", text_of(at)) if at else ()))
    assert code == ends, out + err
    return " ".join((out + err).split())


def refused(run: Run, *arguments: str, at: datetime | None = None) -> str:
    return done(run, *arguments, at=at, ends=FAILED)


def there(lake: Lake, root: str) -> set[str]:
    return {folder.name for folder in (lake.folder / root).glob("[de]/*")}


def in_trash(lake: Lake, root: str) -> set[str]:
    return {folder.name for folder in (lake.folder / root / ".retention-trash").glob("*/*/*") if folder.is_dir()}


def leads_to(lake: Lake, root: str) -> None:
    (store,) = json.loads(lake.settings_file.read_text())["stores"]
    lake.configures(stores=[{**store, "data": f"{root}/{{dataset}}/{{transaction}}"}])


def whys(lake: Lake, status: str) -> dict[str, str | None]:
    with lake.opened() as ledger:
        return {row["transaction"]: row["why"] for row in ledger.marks.table(statuses=[status]).to_pylist()}


def is_renamed(lake: Lake) -> str:
    (lake.folder / "data").rename(lake.folder / "data2")
    leads_to(lake, "data2")
    return "data2"


def is_renamed_with_a_link(lake: Lake) -> str:
    (lake.folder / "data").rename(lake.folder / "data2")
    (lake.folder / "data").symlink_to("data2")
    return "data2"


def is_renamed_and_another_has_its_name(lake: Lake) -> str:
    root = is_renamed(lake)
    (lake.folder / "data" / "other").mkdir(parents=True)
    return root


def is_put_back(lake: Lake) -> str:
    (lake.folder / "data").rename(lake.folder / "backup")
    shutil.copytree(lake.folder / "backup", lake.folder / "data")
    shutil.rmtree(lake.folder / "backup")
    return "data"


def is_copied(lake: Lake) -> str:
    shutil.copytree(lake.folder / "data", lake.folder / "data2")
    leads_to(lake, "data2")
    return "data2"


def is_copied_and_removed(lake: Lake) -> str:
    root = is_copied(lake)
    shutil.rmtree(lake.folder / "data")
    return root


def is_renamed_and_copied_back(lake: Lake) -> str:
    root = is_renamed(lake)
    shutil.copytree(lake.folder / "data2", lake.folder / "data")
    return root


def is_put_back_without_its_identity(lake: Lake) -> str:
    root = is_put_back(lake)
    (lake.folder / "data" / ".retention-store").unlink()
    return root


SAME = [is_renamed, is_renamed_with_a_link, is_renamed_and_another_has_its_name, is_put_back]
OTHER = [is_copied, is_copied_and_removed, is_renamed_and_copied_back, is_put_back_without_its_identity]


@pytest.mark.parametrize("change", SAME)
def test_a_root_that_was_renamed_or_put_back_is_the_same_place_for_everything(
    change: Callable[[Lake], str], aside: Lake, run: Run
) -> None:
    root = change(aside)
    assert NOTHING in refused(run, *ACCEPT)
    assert "Restored: 1 transaction of lake/d" in done(run, "restore", "lake/d", "S1", "-r", "r", at=LATER)
    assert (there(aside, root), in_trash(aside, root)) == ({"S1", "S3", "T1", "T2", "T3"}, {"S2"})
    done(run, "run", "--yes", at=LATER)
    # marks go on, and so does the head of the record
    assert (there(aside, root), in_trash(aside, root)) == ({"S1", "S3", "T3"}, {"S2", "T1", "T2"})
    assert NOTHING in refused(run, *ACCEPT)
    done(run, "run", "--yes", at=UNTIL)
    assert in_trash(aside, root) == {"T1", "T2"}
    assert "Deleted for good: 2 transactions" in done(run, "trash", "empty", "-r", "r", "--yes", at=UNTIL)
    assert (there(aside, root), in_trash(aside, root), whys(aside, "SPARED")) == ({"S1", "S3", "T3"}, set(), {})
    assert aside.verified() == ()


@pytest.mark.parametrize("first", ["restore", "trash empty", "run"])
def test_a_renamed_root_needs_no_run_before_a_person_uses_its_trash(first: str, aside: Lake, run: Run) -> None:
    root = is_renamed(aside)
    names = ("lake/d", "S1", "S2") if first == "restore" else ("--yes",)
    done(run, *first.split(), *names, *(() if first == "run" else ("-r", "r")), at=UNTIL)
    assert {"S1", "S2"} & in_trash(aside, root) == set()
    assert {"S1", "S2"} & there(aside, root) == ({"S1", "S2"} if first == "restore" else set())


@pytest.mark.parametrize("change", OTHER)
@pytest.mark.parametrize("freed", ["until", "empty"])
def test_a_copied_root_is_refused_until_it_is_accepted_and_its_trash_goes_on_then(
    change: Callable[[Lake], str], freed: str, aside: Lake, run: Run
) -> None:
    root = change(aside)
    before = there(aside, root), in_trash(aside, root)
    for command in (("run", "--yes"), ("trash", "empty", "-r", "r", "--yes")):
        said = refused(run, *command, at=LATER)
        assert "`retention audit accept --store lake --reason …`" in said
    assert (there(aside, root), in_trash(aside, root)) == before
    # the one command that is named
    done(run, *ACCEPT)
    assert NOTHING in refused(run, *ACCEPT)
    assert "Restored: 1 transaction of lake/d" in done(run, "restore", "lake/d", "S1", "-r", "r", at=LATER)
    assert (there(aside, root), in_trash(aside, root)) == (before[0] | {"S1"}, {"S2"})
    done(run, "run", "--yes", at=LATER)
    assert there(aside, root) == before[0] | {"S1"}
    assert all("It was marked when the data of lake was at" in str(why) for why in whys(aside, "SPARED").values())
    assert whys(aside, "SPARED").keys() == {"T1", "T2"}
    if freed == "until":
        done(run, "run", "--yes", at=UNTIL)
    else:
        assert "Deleted for good: 1 transaction, 2" in done(run, "trash", "empty", "-r", "r", "--yes", at=LATER)
        done(run, "run", "--yes", at=UNTIL)
    assert (there(aside, root), in_trash(aside, root)) == (before[0] | {"S1"}, set())
    # T1 and T2 were marked anew, with a grace of their own
    done(run, "run", "--yes", at=AT_LAST)
    assert (there(aside, root), in_trash(aside, root)) == ({"S1", "S3", "T3"}, {"T1", "T2"})
    assert aside.verified() == ()


def test_the_trash_of_a_copy_that_was_accepted_and_then_renamed_is_restored(aside: Lake, run: Run) -> None:
    is_copied(aside)
    done(run, *ACCEPT)
    (aside.folder / "data2").rename(aside.folder / "data3")
    leads_to(aside, "data3")
    done(run, "restore", "lake/d", "S1", "S2", "-r", "r", at=LATER)
    assert there(aside, "data3") == {"S1", "S2", "S3", "T1", "T2", "T3"}
    # who goes back to the original comes to another place, also once the copy is gone
    shutil.rmtree(aside.folder / "data3")
    leads_to(aside, "data")
    assert "this ledger knows it at" in refused(run, "run", at=LATER)


def test_a_backup_that_was_put_back_and_renamed_after_a_run_is_known_by_its_new_folder(aside: Lake, run: Run) -> None:
    is_put_back(aside)
    done(run, "run", "--yes", at=DUE)
    root = is_renamed(aside)
    done(run, "run", "--yes", at=LATER)
    assert (there(aside, root), whys(aside, "SPARED")) == ({"S3", "T3"}, {})


@pytest.mark.parametrize("is_left", [True, False])
def test_a_clone_of_a_whole_disk_is_the_renamed_root_only_once_the_first_is_gone(
    is_left: bool, aside: Lake, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has each number of the original."""
    number = open_place(str(aside.folder / "data")).number()  # type: ignore[attr-defined]
    monkeypatch.setattr("retention_assets.stores.places.local.LocalPlace.number", lambda _: number)
    root = is_copied(aside) if is_left else is_copied_and_removed(aside)
    before = (aside.folder / root / ".retention-store").read_text()
    if not is_left:
        done(run, "run", "--yes", at=LATER)
        return
    assert "this ledger knows it at" in refused(run, "run", "--yes", at=LATER)
    assert (aside.folder / root / ".retention-store").read_text() == before


def test_without_lasting_numbers_a_renamed_root_is_a_copy_that_is_accepted(
    aside: Lake, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retention_assets.stores.places.mounts.keeps_numbers", lambda _: False)
    root = is_renamed(aside)
    assert "this ledger knows it at" in refused(run, "run", "--yes", at=LATER)
    done(run, *ACCEPT)
    done(run, "restore", "lake/d", "S1", "-r", "r", at=LATER)
    done(run, "run", "--yes", at=UNTIL)
    assert "S1" in there(aside, root)
    assert {"S1", "S2"} & in_trash(aside, root) == set()


def test_a_head_that_was_lost_with_a_rename_is_still_missed(aside: Lake, run: Run) -> None:
    root = aside.folder / is_renamed(aside)
    first = (root / ".retention-store").read_text().splitlines()[0]
    (root / ".retention-store").write_text(f"{first}\n")
    assert "data2/.retention-store is missing, but this ledger noted" in refused(run, "run", "--yes", at=LATER)
    done(run, "audit", "accept", "--head", "-r", "r")
    done(run, "run", "--yes", at=LATER)
    assert in_trash(aside, "data2") == {"S1", "S2", "T1", "T2"}


@pytest.fixture
def begun(lake: Lake, run: Run) -> Lake:
    """A sweep has begun on S1 and S2, and was killed before it deleted anything."""
    lake.says(OLD)
    lake.has(HISTORY)
    done(run, "run", at=MARKED)
    lake.dies_before("sweep.dataset_sweep.execute_order")
    assert lake.statuses() == {"S1": "SWEEPING", "S2": "SWEEPING"}
    return lake


@pytest.mark.parametrize("change", SAME)
def test_what_was_begun_goes_on_in_a_renamed_root_and_is_spared_in_one_put_back(
    change: Callable[[Lake], str], begun: Lake, run: Run
) -> None:
    """The folders of a backup are not those that were planned."""
    root = change(begun)
    done(run, "run", "--yes", at=DUE)
    is_back = change is is_put_back
    assert there(begun, root) == ({"S1", "S2", "S3"} if is_back else {"S3"})
    assert begun.statuses().keys() == {"S1", "S2"}


@pytest.mark.parametrize("change", OTHER)
def test_what_was_begun_in_a_root_of_which_a_copy_is_accepted_is_spared_there(
    change: Callable[[Lake], str], begun: Lake, run: Run
) -> None:
    root = change(begun)
    assert "this ledger knows it at" in refused(run, "run", "--yes", at=DUE)
    done(run, *ACCEPT)
    done(run, "run", "--yes", at=DUE)
    assert there(begun, root) == {"S1", "S2", "S3"}
    assert all("It was marked when the data of lake was at" in str(why) for why in whys(begun, "SPARED").values())
    assert whys(begun, "SPARED").keys() == {"S1", "S2"}

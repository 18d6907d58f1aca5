"""Places under two ways to them: what retention and other stores keep is theirs, whatever is mounted or linked in the data.

A program of its own, in namespaces of its own, mounts, validates and sweeps; the cases share it, for it takes long to begin.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from retention_assets.outcomes import Outcome
from retention_assets_tests.sweep.lakes import Lake

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
    settings = json.loads(lake.settings_file.read_text())
    raw = {"name": "raw", "kind": "files", "log": "rawlog", "data": "raw/{dataset}/{transaction}"}
    lake.settings_file.write_text(json.dumps({**settings, **more, "stores": [*settings["stores"], raw]}))
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
    """What became of each case."""
    command = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*command, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount in a namespace of his own (unshare --user --mount)")
    program = [
        *command,
        sys.executable,
        "-c",
        PROGRAM,
        str(tmp_path_factory.mktemp("mounts")),
        json.dumps([AT_ODDS, ON_ITS_WAY]),
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(program, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found: Mapping[str, Any] = json.loads(done.stdout)
    return found


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
    assert "is a place of retention itself or of another store" in errors[0]


@pytest.mark.parametrize("name", ["ledger.db", "retention.yaml", "policies/p.yaml"])
def test_a_removal_that_meets_a_file_of_retention_itself_removes_nothing(tmp_path: Path, name: str) -> None:
    lake = Lake(tmp_path).has("main: T1:SNAPSHOT@90d - T2:SNAPSHOT@1d")
    settings = json.loads(lake.settings_file.read_text())
    lake.settings_file.write_text(json.dumps({**settings, "policies": "policies/p.yaml"}))
    lake.marks()
    (lake.place("lake/d", "T1") / "deep" / "here").hardlink_to(tmp_path / name)
    before = sorted(lake.place("lake/d", "T1").rglob("*"))
    result = lake.sweeps()["lake/d"]
    assert result.outcomes == {Outcome.FAILED: 1}
    assert "'here' is a place of retention itself" in result.errors[0]
    assert sorted(lake.place("lake/d", "T1").rglob("*")) == before

"""`retention plan` of a store of objects against `retention run` right after it: what is refused, marked and deleted, and how
both end; and that the plan leaves no trace.

Belongs here: the two side by side. What a scan finds is stores/objects/scan's, what becomes of it in a run pipeline/test_scans.py's.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from retention_assets.policy import purge_named, text_of
from retention_assets.stores.objects.scan import scan_in
from retention_assets_tests.people.conftest import DONE, FAILED, REFUSED, TO_DO, Run
from retention_assets_tests.stores.objects.environments import write_lines
from retention_assets_tests.sweep.lakes import MARKED, OLD, Lake

OBJECTS = ("acme/1", "acme/2", "beta/1", "beta/2")
BLOBS = {
    "name": "blobs", "kind": "objects", "listing": {"path": "objects"}, "references": [{"lines": "refs/*.jsonl"}],
    "realm": "{0}", "dataset": "{0}",
}  # fmt: skip
GARBAGE = (
    "{name: garbage, datasets: {include: ['blobs/*']}, select: {unreferenced: true}, grace: 0s, confirm: no-grace,"
    " sweep: {every: 0s}}"
)
DAY = ("--as-of", text_of(MARKED))
pytestmark = pytest.mark.usefixtures("local_spark")


@pytest.fixture
def lake(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake with nothing to do, and a store of four old objects beside it, of which two are referred to."""
    made = lake.has("main: S1:SNAPSHOT@1d=10", "lake/a")
    made.says(f"{OLD}, {GARBAGE}")
    made.configures(BLOBS)
    before = (MARKED - timedelta(days=9)).timestamp()
    for name in OBJECTS:
        file = made.folder / "objects" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"." * 10)
        os.utime(file, (before, before))
    (made.folder / "refs").mkdir()
    refer(made, ["acme/1", "beta/1"])
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    return made


def refer(lake: Lake, names: Sequence[str]) -> None:
    """What is referred to from now on."""
    write_lines(lake.folder / "refs" / "a.jsonl", *({"object": name} for name in names))


def trace(lake: Lake) -> dict[str, str]:
    """Every file below the environment and among the temporary ones, as a digest, and when each folder of objects was changed."""
    roots = (lake.folder, lake.folder.parent / "temporary")
    files = [file for root in roots for file in sorted(root.rglob("*")) if file.is_file()]
    folders = [file for file in sorted((lake.folder / "objects").rglob("*")) if file.is_dir()]
    return {
        **{str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files},
        **{str(folder): str(folder.stat().st_mtime_ns) for folder in (lake.folder / "objects", *folders)},
    }


def there(lake: Lake) -> set[str]:
    root = lake.folder / "objects"
    return {str(file.relative_to(root)) for file in root.rglob("*") if file.is_file() and file.name != ".retention-store"}


def planned(run: Run, *more: str) -> tuple[int, dict[str, Any], str]:
    code, out, err = run("plan", *DAY, "--format", "json", *more)
    return code, json.loads(out), err


def names(rows: Sequence[dict[str, Any]]) -> set[str]:
    return {row["transaction"] for row in rows if row["dataset"].startswith("blobs/")}


def nothing(_: Lake) -> None:
    """As it is."""


def a_wrong_prefix(lake: Lake) -> None:
    refer(lake, ["acme/1", *(f"other/{number}" for number in range(9))])


def almost_nothing_is_referred_to(lake: Lake) -> None:
    said = json.loads(lake.settings_file.read_text())
    said["stores"][1]["brakes"] = {"unreferenced_fraction": 0.4}
    lake.settings_file.write_text(json.dumps(said))


def no_last_line(lake: Lake) -> None:
    (lake.folder / "refs" / "b.jsonl").write_text('{"object": "acme/2"}\n')


def an_empty_source(lake: Lake) -> None:
    refer(lake, [])


def acme_is_purged(lake: Lake) -> None:
    """And what it has is young: only a scan that knows of the purge lets it go."""
    minute = (MARKED - timedelta(minutes=1)).timestamp()
    for name in ("acme/1", "acme/2"):
        os.utime(lake.folder / "objects" / name, (minute, minute))
    with lake.opened() as ledger:
        ledger.realms.change("acme", "PURGING", "ann", "the contract has ended")


def acme_is_purged_and_braked(lake: Lake) -> None:
    acme_is_purged(lake)
    refer(lake, ["beta/1", *(f"other/{number}" for number in range(9))])


def a_hold(lake: Lake) -> None:
    acme_is_purged(lake)
    lake.says(f"{OLD}, {GARBAGE}", "{name: court, datasets: 'blobs/acme', transactions: ['acme/1'], reason: law}")


def a_hold_from_which_edges_lead(lake: Lake) -> None:
    """It is in a file that no run has loaded yet."""
    (lake.folder / "edges.jsonl").write_text('{"from": "beta/1", "to": "beta/2"}\n{"complete": true, "count": 1}\n')
    said = json.loads(lake.settings_file.read_text())
    said["stores"][1]["edges"] = [{"lines": "edges.jsonl"}]
    lake.settings_file.write_text(json.dumps(said))
    refer(lake, ["acme/1", "gone"])
    lake.says(f"{OLD}, {GARBAGE}", "{name: court, datasets: 'blobs/beta', transactions: ['beta/1'], reason: law}")


# Those of which a run is made as well cost a second each.
RUN = ("a wrong prefix", "a source is not whole", "a hold in a realm that is purged", "a hold from which edges lead")
CASES: dict[str, tuple[Callable[[Lake], None], int, set[str], str]] = {
    "usual": (nothing, TO_DO, {"acme/2", "beta/2"}, ""),
    "a wrong prefix": (a_wrong_prefix, REFUSED, set(), "9 of 10 references name no listed object, 90 %"),
    "little is referred to": (
        almost_nothing_is_referred_to, REFUSED, set(), "nothing refers to 2 of 4 judged objects, 50 %, and",
    ),
    "a source is not whole": (no_last_line, FAILED, set(), "blobs/* was not read: "),
    "a source is empty": (an_empty_source, FAILED, set(), "has no reference at all"),
    "a realm is purged": (acme_is_purged, TO_DO, {"acme/1", "acme/2", "beta/2"}, ""),
    "a realm is purged and the scan braked": (acme_is_purged_and_braked, REFUSED, set(), "9 of 10 references"),
    "a hold from which edges lead": (a_hold_from_which_edges_lead, TO_DO, {"acme/2"}, ""),
    "a hold in a realm that is purged": (a_hold, TO_DO, {"acme/2", "beta/2"}, ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_plan_says_what_the_run_after_it_does_and_leaves_no_trace(lake: Lake, run: Run, case: str) -> None:
    prepare, code, goes, words = CASES[case]
    prepare(lake)
    before = trace(lake)
    ended, found, said = planned(run)
    assert trace(lake) == before
    assert (ended, names(found["deleted"]), names(found["newly_marked"])) == (code, goes, goes)
    assert words in said
    if code == REFUSED:
        assert found["refused"].keys() == {"blobs/acme", "blobs/beta"}
    purged = {row["transaction"] for row in found["deleted"] if row["policy"] == purge_named("acme")}
    assert purged == {one for one in goes if prepare in (acme_is_purged, a_hold) and one.startswith("acme/")}
    if case not in RUN:
        return
    ran, _, also_said = run("run", *DAY, "--yes", "--format", "json")
    assert ran == (DONE if code == TO_DO else code)
    assert words in also_said
    assert there(lake) == set(OBJECTS) - goes


@pytest.mark.parametrize("case", CASES)
def test_a_preview_marks_what_a_plan_marks_and_leaves_no_trace(lake: Lake, run: Run, case: str) -> None:
    prepare, code, goes, words = CASES[case]
    prepare(lake)
    before = trace(lake)
    ended, out, said = run("preview", *DAY, "--format", "json")
    assert trace(lake) == before
    found = json.loads(out)
    marked = [row for row in found["transactions"] if row["verdict"] == "mark"]
    assert (ended, names(marked)) == (DONE if code == TO_DO else code, goes)
    assert words in said + " ".join(str(about["refused"]) for about in found["datasets"].values())
    assert run("preview", "--against", str(lake.folder / "policies"), *DAY, "--format", "json")[0] == ended


def test_a_preview_remembers_the_references_of_the_last_scan(lake: Lake, run: Run) -> None:
    refer(lake, OBJECTS)
    assert run("run", *DAY, "--yes")[0] == DONE
    refer(lake, ["acme/1"])
    code, out, said = run("preview", *DAY, "--format", "json")
    assert (code, "had 4 references last time and has 1, 75 % fewer" in said) == (FAILED, True)
    assert {row["dataset"] for row in json.loads(out)["transactions"]} == {"lake/a"}


def test_an_accepted_scan_is_what_a_plan_goes_by_and_is_left_to_the_run(lake: Lake, run: Run) -> None:
    a_wrong_prefix(lake)
    code, _, err = run("run", *DAY, "--yes")
    assert (code, "`retention scans blobs accept 1 --reason …` lets it mark" in err) == (REFUSED, True)
    assert run("scans", "blobs", "accept", "1", "-r", "they were moved")[0] == DONE
    before = trace(lake)
    code, found, _ = planned(run)
    assert trace(lake) == before
    assert (code, names(found["deleted"])) == (TO_DO, {"acme/2", "beta/1", "beta/2"})
    rows = json.loads(run("preview", *DAY, "--format", "json")[1])["transactions"]
    assert names([row for row in rows if row["verdict"] == "mark"]) == names(found["deleted"])
    assert run("run", *DAY, "--yes")[0] == DONE
    assert there(lake) == {"acme/1"}


def test_references_that_shrank_since_the_last_scan_fail_a_plan(lake: Lake, run: Run) -> None:
    refer(lake, OBJECTS)
    assert run("run", *DAY, "--yes")[0] == DONE
    refer(lake, ["acme/1"])
    code, _, said = run("plan", *DAY)
    assert (code, "had 4 references last time and has 1, 75 % fewer" in said) == (FAILED, True)


def test_a_store_that_nobody_asks_about_is_not_scanned(lake: Lake, run: Run) -> None:
    no_last_line(lake)
    code, _, said = planned(run, "-d", "lake/*")
    assert (code, "refs" in said) == (DONE, False)


def test_a_simulation_scans_once_and_with_the_same_brakes(lake: Lake, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    scans = 0

    def counted(*arguments: Any) -> Any:
        nonlocal scans
        scans += 1
        return scan_in(*arguments)

    monkeypatch.setattr("retention_assets.pipeline.unrecorded_scans.scan_in", counted)
    code, out, _ = run("plan", "--as-of", text_of(MARKED), "--days", "3", "--format", "json")
    assert (code, json.loads(out)["totals"]["deleted"]["transactions"], scans) == (TO_DO, 2, 1)
    almost_nothing_is_referred_to(lake)
    _, out, _ = run("plan", "--as-of", text_of(MARKED), "--days", "3", "--format", "json")
    assert (json.loads(out)["refused"].keys(), scans) == ({"blobs/acme", "blobs/beta"}, 2)


def test_whoever_is_asked_sees_what_a_scan_lets_go_and_the_record_keeps_who_told_a_run_and_said_yes(
    lake: Lake, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([False, True])
    monkeypatch.setattr("retention_assets.people.run.is_on_terminal", lambda: True)
    monkeypatch.setattr("retention_assets.people.run.confirm", lambda *_, **__: next(answers))
    code, out, _ = run("run", *DAY)
    assert (code, "This run would delete 2 (20 B)." in out, there(lake)) == (FAILED, True, set(OBJECTS))
    code, _, err = run("run", *DAY, "--actor", "alice@desk")
    assert code == DONE, err
    acts = [json.loads(line) for line in run("audit", "export")[1].splitlines()]
    confirmed = next(act for act in acts if act["deed"] == "CONFIRM")
    assert (confirmed["actor"], confirmed["detail"]["transactions"], confirmed["detail"]["bytes"]) == ("alice@desk", 2, 20)
    swept = {act["actor"].partition(" (run ")[0] for act in acts if act["deed"] in ("MARK", "PLAN", "BEGIN", "SETTLE")}
    assert swept == {"alice@desk"}

"""`retention simulate` against the days as they are lived: each day has what marking and sweeping do on it; nothing is touched."""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from retention_assets.environment import Environment
from retention_assets.errors import Refused
from retention_assets.outcomes import Outcome
from retention_assets.people.forecast import SimulationRequest, show_simulation
from retention_assets.stores.files.store import FilesStore
from retention_assets_tests.people.conftest import Run
from retention_assets_tests.people.terminals import COLUMNS, at_terminal
from retention_assets_tests.people.test_made_plans import AT_ONCE, ELSEWHERE, HISTORY, content
from retention_assets_tests.sweep.lakes import MARKED, Lake

DAY = timedelta(days=1)
# The tag keeps the view of S2 for five days.
TAGGED = f"{HISTORY} | #v1=S2@+5d"


def simulated(lake: Lake, days: int = 14, **request: Any) -> Any:
    return show_simulation(SimulationRequest(days=days, **{"begin": MARKED, **request}), Environment(lake.settings)).data


def deleted(simulation: Any) -> int:
    count: int = simulation["totals"]["deleted"]["transactions"]
    return count


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """One that was never judged."""
    made = Lake(tmp_path / "lake", policies=f"{ELSEWHERE}, {AT_ONCE}").has(TAGGED).has(HISTORY, "lake/now")
    return made.has(HISTORY, "lake/e")


def test_each_day_is_as_it_is_then_lived(lake: Lake) -> None:
    """With marks of before, a branch that saves one of them, a hold and a tag that end meanwhile."""
    lake.says(f"{ELSEWHERE}, {AT_ONCE}", "{name: h, datasets: 'lake/e', transactions: [S3], reason: law, until: 2026-04-04}")
    lake.marks(MARKED - 3 * DAY)
    lake.branches("rescue", "S1")
    found = simulated(lake)
    lived = []
    for number in range(14):
        at = MARKED + number * DAY
        new, done = lake.marks(at), lake.sweeps(at).values()
        lived.append((at, new, *(sum(one.outcomes[what] for one in done) for what in (Outcome.DELETED, Outcome.SPARED))))
    counted = ("newly_marked", "deleted", "spared")
    assert [(day["as_of"], *(day[name]["transactions"] for name in counted)) for day in found["days"]] == lived
    with lake.opened() as ledger:
        spared = ledger.marks.table(statuses=["SPARED"])["why"].to_pylist()
    assert found["spared_because"] == Counter(spared)
    assert all(sum(amounts) > 0 for amounts in list(zip(*lived, strict=True))[1:])


def test_a_newcomer_sees_the_whole_cycle_and_nothing_is_touched(lake: Lake) -> None:
    before = content(lake.folder)
    found = simulated(lake, days=8)
    assert content(lake.folder) == before
    assert len(found["days"]) == 8
    first, last = found["days"][0], found["days"][-1]
    # lake/now has no grace; of the others S1 and S3, and S2 where no tag pins its view. S4 is young for some days.
    assert (first["newly_marked"]["transactions"], first["deleted"]["transactions"]) == (3 + 2 + 3, 3)
    assert (last["due"]["transactions"], last["deleted"]["transactions"]) == (2 + 3, 2 + 3)
    assert last["deleted"]["bytes"] > 0
    assert deleted(found) == sum(day["deleted"]["transactions"] for day in found["days"])


def test_an_existing_ledger_stays_as_it_is(lake: Lake) -> None:
    lake.marks()
    before = content(lake.folder)
    assert deleted(simulated(lake)) > 0
    assert content(lake.folder) == before


def test_each_log_is_read_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A history that changes within a simulation would be nobody's."""
    asked: list[str] = []
    original = FilesStore.read

    def read(store: FilesStore, datasets: Sequence[str]) -> Any:
        asked.extend(datasets)
        return original(store, datasets)

    monkeypatch.setattr(FilesStore, "read", read)
    simulated(lake)
    assert sorted(asked) == ["lake/d", "lake/e", "lake/now"]


def test_a_simulation_does_not_begin_before_the_newest_mark(lake: Lake) -> None:
    lake.marks()
    with pytest.raises(Refused, match="a simulation begins then or later"):
        simulated(lake, begin=MARKED - DAY)


def test_a_sick_dataset_is_named_and_the_others_are_lived_through(lake: Lake) -> None:
    lake.branches("main", "S1", "lake/e")
    found = simulated(lake, days=8)
    assert found["refused"].keys() == {"lake/e"}
    assert deleted(found) == 4 + 2


def test_nothing_is_swept_by_policies_that_have_nothing_in_common_with_the_loaded_ones(lake: Lake) -> None:
    lake.marks()
    (lake.folder / "theirs").mkdir()
    (lake.folder / "theirs" / "p.yaml").write_text("policies: []")
    lake.settings_file.write_text(json.dumps({**json.loads(lake.settings_file.read_text()), "policies": "theirs"}))
    found = simulated(lake)
    assert (deleted(found), found["days"][-1]["due"]) == (0, found["days"][-1]["waiting"])
    assert set(found["refused"]) == {"lake/d", "lake/e", "lake/now"}
    assert "nothing of lake is swept. The policies at" in found["refused"]["lake/d"]


def test_globs_choose_the_datasets(lake: Lake) -> None:
    assert deleted(simulated(lake, days=8, datasets=("lake/e",))) == 3


# --- as it is printed ---


BEGIN = ("--from", MARKED.isoformat())


@pytest.fixture
def small(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Lake:
    made = Lake(tmp_path / "lake").has("main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=20 - S3:SNAPSHOT@25d=30 - S4:SNAPSHOT@1d=40")
    monkeypatch.setenv("RETENTION_CONFIG", str(made.settings_file))
    return made


def test_eight_days_show_a_newcomer_the_sweep(small: Lake, run: Run) -> None:
    code, said, errors = run("simulate", "--days", "8", *BEGIN)
    assert (code, errors) == (0, "")
    assert said.startswith("In 8 days: 3 marked, 2 deleted (")
    assert "nothing was changed" in said
    assert "What will arrive later is not in it." in said
    rows = {line.split("│")[1].strip(): line for line in said.splitlines() if "│" in line}
    assert rows.keys() == {"2026-03-31", "2026-04-06", "2026-04-07"}
    assert not (small.folder / "ledger.db").exists()


def test_json_has_one_entry_a_day(small: Lake, run: Run) -> None:
    code, said, _ = run("simulate", "--days", "8", *BEGIN, "--format", "json")
    found = json.loads(said)
    assert code == 0
    assert [one["date"] for one in found["days"]] == ["2026-03-31", *(f"2026-04-0{day}" for day in range(1, 8))]
    assert found["days"][0]["newly_marked"] == {"transactions": 2, "bytes": 30}
    assert found["days"][7]["due"] == {"transactions": 2, "bytes": 30}
    assert found["days"][7]["deleted"]["transactions"] == found["totals"]["deleted"]["transactions"] == 2
    assert found["days"][7]["waiting"] == {"transactions": 1, "bytes": 30}


def test_what_is_refused_is_exit_code_4_or_1(small: Lake, run: Run) -> None:
    small.has(HISTORY, "lake/e").branches("main", "S1")
    code, _, errors = run("simulate", "--days", "2", *BEGIN)
    assert (code, errors.count("lake/d was refused: ")) == (4, 1)
    assert run("simulate", "--days", "2", *BEGIN, "--strict")[0] == 1


@pytest.mark.parametrize(
    "arguments", [(), ("--days", "0"), ("--days", "-1"), ("--days", "3661"), ("--days", "x")], ids=" ".join
)
def test_days_are_asked_for_and_have_bounds(arguments: tuple[str, ...], small: Lake, run: Run) -> None:
    code, out, errors = run("simulate", *arguments)
    assert (code, out, bool(errors)) == (2, "", True)


def test_a_simulation_fits_eighty_columns(small: Lake) -> None:
    small.has(HISTORY, "lake/e")
    small.branches("late", "S2")
    code, lines = at_terminal(small.folder, "simulate", "--days", "9", *BEGIN)
    assert code == 0
    begin = next(at for at, line in enumerate(lines) if line.startswith("In 9 days"))
    assert max(map(len, lines[begin:])) <= COLUMNS

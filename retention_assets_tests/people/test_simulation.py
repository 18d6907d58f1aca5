"""The simulation against the days as they are lived: each day has what marking and sweeping do on it, and nothing is touched.

Belongs here: simulations of lakes with real bytes. How one looks is people/test_simulate.py's.
"""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from retention_assets.environment import Environment
from retention_assets.errors import BadInput, Refused
from retention_assets.outcomes import Outcome
from retention_assets.people.forecast import SimulatedDay, Simulation, SimulationRequest, make_simulation
from retention_assets.stores.files.store import FilesStore
from retention_assets_tests.people.test_made_plans import AT_ONCE, ELSEWHERE, HISTORY, content
from retention_assets_tests.sweep.lakes import MARKED, Lake

DAY = timedelta(days=1)
# The tag keeps the view of S2 for five days.
TAGGED = f"{HISTORY} | #v1=S2@+5d"


def simulated(lake: Lake, days: int = 14, **request: Any) -> Simulation:
    return make_simulation(SimulationRequest(days=days, **{"begin": MARKED, **request}), Environment(lake.settings))


def counts(days: Sequence[SimulatedDay]) -> list[tuple[datetime, int, int, int]]:
    return [(one.as_of, one.newly_marked.transactions, one.deleted.transactions, one.spared.transactions) for one in days]


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
    assert counts(found.days) == lived
    with lake.opened() as ledger:
        spared = ledger.marks.table(statuses=["SPARED"])["why"].to_pylist()
    assert found.reasons == Counter(spared)
    assert all(sum(amounts) > 0 for amounts in list(zip(*lived, strict=True))[1:])


def test_a_newcomer_sees_the_whole_cycle_and_nothing_is_touched(lake: Lake) -> None:
    before = content(lake.folder)
    found = simulated(lake, days=8)
    assert content(lake.folder) == before
    assert len(found.days) == 8
    first, last = found.days[0], found.days[-1]
    # lake/now has no grace; of the others S1 and S3, and S2 where no tag pins its view. S4 is young for some days.
    assert (first.newly_marked.transactions, first.deleted.transactions) == (3 + 2 + 3, 3)
    assert (last.due.transactions, last.deleted.transactions) == (2 + 3, 2 + 3)
    assert last.deleted.bytes > 0
    assert found.total("deleted").transactions == sum(one.deleted.transactions for one in found.days)


def test_an_existing_ledger_stays_as_it_is(lake: Lake) -> None:
    lake.marks()
    before = content(lake.folder)
    assert simulated(lake).total("deleted").transactions > 0
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


@pytest.mark.parametrize("days", [0, -1, 3_661])
def test_days_have_bounds(days: int) -> None:
    with pytest.raises(BadInput, match="is out of bounds"):
        SimulationRequest(days=days)


def test_a_sick_dataset_is_named_and_the_others_are_lived_through(lake: Lake) -> None:
    lake.branches("main", "S1", "lake/e")
    found = simulated(lake, days=8)
    assert found.refused.keys() == {"lake/e"}
    assert found.total("deleted").transactions == 4 + 2


def test_nothing_is_swept_by_policies_that_have_nothing_in_common_with_the_loaded_ones(lake: Lake) -> None:
    lake.marks()
    (lake.folder / "theirs").mkdir()
    (lake.folder / "theirs" / "p.yaml").write_text("policies: []")
    lake.settings_file.write_text(json.dumps({**json.loads(lake.settings_file.read_text()), "policies": "theirs"}))
    found = simulated(lake)
    assert (found.total("deleted").transactions, found.days[-1].due) == (0, found.days[-1].waiting)
    assert set(found.refused) == {"lake/d", "lake/e", "lake/now"}
    assert "nothing of lake is swept. The policies at" in found.refused["lake/d"]


def test_globs_choose_the_datasets(lake: Lake) -> None:
    assert simulated(lake, days=8, datasets=("lake/e",)).total("deleted").transactions == 3

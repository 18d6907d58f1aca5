"""Datasets of which much is due, in stores that can read the chains of some transactions: what is judged by them, and what a
later slice costs.

Slices of two marks: in the second one the dataset is not read whole any more.
"""

import json
import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from retention_assets.frames import Log, candidate_marks, sound_log
from retention_assets.outcomes import Outcome
from retention_assets.policy import Policy
from retention_assets.stores.aspects import store as aspects_store
from retention_assets.stores.aspects.store import AspectsStore
from retention_assets.stores.protocol import Only, Store
from retention_assets.stores.records import log as records_log
from retention_assets.stores.records.store import RecordsStore
from retention_assets.sweep import SweepResult
from retention_assets.sweep import round as sweep_round
from retention_assets.sweep.independent_check import IndependentCheck
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.rounds import rounds
from retention_assets_tests.stores.aspects.environments import STORE, DataHub, Table, entry
from retention_assets_tests.stores.records.cycle import UnitsCycle
from retention_assets_tests.stores.records.environments import Units
from retention_assets_tests.stores.records.test_cycle import AS_OF as UNITS_DAY
from retention_assets_tests.stores.records.test_cycle import policy
from retention_assets_tests.sweep.lakes import DUE, MARKED

STATUS = f"{STORE}/dataset.status"
_SELECTIONS: tuple[dict[str, Any], ...] = (
    {"older_than": "30d"},
    {"beyond": {"transactions": 2}},
    {"in_views_older_than": "20d"},
    {"older_than": "40d", "where": "attributes['version'] != '1'"},
    {"older_than": "10d", "terminal_only": False},
)
_POLICIES = [
    Policy.model_validate({"name": f"p{at}", "datasets": {"include": ["*"]}, "select": select})
    for at, select in enumerate(_SELECTIONS)
]


@pytest.fixture(autouse=True)
def in_twos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_round, "SLICE", 2)
    monkeypatch.setattr(aspects_store, "_URNS", 3)
    monkeypatch.setattr(records_log, "NAMED", 3)


def urn(number: int) -> str:
    return f"urn:li:dataset:d@{number}"


def assert_judged_alike(store: Store, dataset: str, chance: random.Random, policies: Sequence[Policy] = _POLICIES) -> None:
    whole = sound_log(store.read([dataset]))
    names = whole.transactions["transaction"].to_pylist()
    asked = chance.sample(names, chance.randint(1, len(names)))
    chains = sound_log(store.read([dataset], Only({dataset: [*asked, "no such name"]})))
    assert chains.datasets.drop_columns("transactions").equals(whole.datasets.drop_columns("transactions"))
    for one in policies:
        by_name = [
            {row["transaction"]: (row["verdict"], row["reasons"]) for row in found.to_pylist()}
            for found in (candidate_marks(log.transactions, log.datasets, [one], [], AS_OF) for log in (whole, chains))
        ]
        assert {name: by_name[1][name] for name in asked} == {name: by_name[0][name] for name in asked}


def test_versions_are_judged_by_their_chains_as_by_the_whole_table(table: Table) -> None:
    chance = random.Random(7)
    for number in range(rounds(10)):
        for one in range(chance.randint(1, 7)):
            versions = chance.sample(range(8), chance.randint(1, 8))
            for aspect in ("status", "ownership"):
                table.chain(urn(10 * number + one), aspect, {version: chance.randint(0, 60) for version in versions})
        assert_judged_alike(table.store(), STATUS, chance)
        table.do(f"DELETE FROM {table.name}")


def test_units_of_work_are_judged_by_themselves_as_by_the_whole_table(units: Units) -> None:
    chance = random.Random(8)
    for number in range(40):
        opened, *others = sorted((AS_OF - timedelta(days=chance.randint(0, 60))).isoformat() for _ in range(3))
        closed, archived = (at if chance.random() < 0.8 else None for at in others)
        units.has(f"u {number}", opened=opened, closed=closed, archived=archived)
    for _ in range(rounds(10)):
        # What is counted along a line needs all of it: a sweep reads it whole.
        assert_judged_alike(units.opened, units.dataset, chance, [one for one in _POLICIES if not one.looks_along_lines])


def test_keys_that_a_database_holds_to_be_equal_are_told_apart(units: Units) -> None:
    units.has("a", "b")
    found = units.opened.read([units.dataset], Only({units.dataset: ["A", "a ", "b"]}))
    assert found["transaction"].to_pylist() == ["b"]


@pytest.fixture
def hub(table: Table, tmp_path: Path) -> DataHub:
    for number in range(6):
        table.chain(urn(number), "status", {0: 1, 1: 50, 2: 40, 3: 30})
    hub = DataHub(tmp_path / "hub", {STORE: table})
    hub.retains("retention", [entry("*", "*", "v1")])
    assert hub.marks(MARKED) == 12
    return hub


def counted(
    monkeypatch: pytest.MonkeyPatch, kind: type[Any], name: str, happens: Callable[[int], None] = lambda _: None
) -> list[int]:
    real, calls = getattr(kind, name), list[int]()

    def call(store: Any, *given: Any, **named: Any) -> Any:
        calls.append(len(calls) + 1)
        happens(len(calls))
        return real(store, *given, **named)

    monkeypatch.setattr(kind, name, call)
    return calls


def reads(
    monkeypatch: pytest.MonkeyPatch, kind: Any, happens: Callable[[int], object] = lambda _: None
) -> tuple[list[str], list[int]]:
    """Datasets of which a store is read whole, and the calls by which only chains are read; what happens right before those."""
    real, whole, chains = kind.read, list[str](), list[int]()

    def read(store: Any, datasets: Sequence[str], only: Only | None = None) -> Any:
        if only is None:
            whole.extend(datasets)
        else:
            chains.append(len(chains) + 1)
            happens(len(chains))
        return real(store, datasets, only)

    monkeypatch.setattr(kind, "read", read)
    return whole, chains


def swept(hub: DataHub) -> SweepResult:
    (result,) = hub.sweeps(DUE, wait=lambda *_: None).values()
    return result


def test_however_many_slices_a_table_is_read_whole_once(hub: DataHub, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    (whole, chains), tokens = reads(monkeypatch, AspectsStore), counted(monkeypatch, AspectsStore, "tokens")
    result = swept(hub)
    assert (result.refused, result.outcomes[Outcome.DELETED]) == (None, 12)
    assert {version for _, _, version in table.rows()} == {0, 3}
    # The first slice asks whether what was read still stands; of the other five each reads its chains, and once more.
    assert (len(whole), len(chains)) == (1, 10)
    assert len(tokens) <= 3
    assert hub.verified() == ()


def test_units_of_work_are_read_whole_once(units: Units, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    units.has(*(f"u{number}" for number in range(7)))
    cycle = UnitsCycle(tmp_path / "cycle", [units]).purges(policy())
    assert cycle.marks(UNITS_DAY) == 7
    whole, chains = reads(monkeypatch, RecordsStore)
    (result,) = cycle.sweeps(UNITS_DAY).values()
    assert (result.refused, result.outcomes[Outcome.DELETED], units.there()) == (None, 7, [])
    assert (len(whole), len(chains)) == (1, 6)


@pytest.mark.parametrize("happens_in", [0, 2], ids=["nothing happens", "newer ones are deleted by somebody else"])
def test_units_of_work_are_counted_over_the_whole_table_in_every_slice(
    units: Units, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, happens_in: int
) -> None:
    for number in range(9):
        units.has(f"u{number}", opened=f"2020-01-0{number + 1}", closed=f"2020-01-0{number + 1}")
    counting = policy()
    counting["select"]["beyond"] = {"transactions": 3}
    cycle = UnitsCycle(tmp_path / "cycle", [units]).purges(counting)

    def lose(*names: str) -> None:
        for name in names:
            for table in (units.root, *units.children):
                units.loses(table, name)

    assert cycle.marks(UNITS_DAY) == 6
    counted(monkeypatch, RecordsStore, "prepare", lambda call: lose("u7", "u8") if call == happens_in else None)
    (result,) = cycle.sweeps(UNITS_DAY).values()
    assert result.refused is None
    # Two newer ones fewer: the third newest of what is left is one that was marked.
    left = ["u4", "u5", "u6"] if happens_in else ["u6", "u7", "u8"]
    assert units.there() == left
    assert result.outcomes[Outcome.SPARED] == (2 if happens_in else 0)


@pytest.mark.parametrize(
    ("during", "call", "of"),
    [
        pytest.param("sweep", 1, 5, id="while the first slice is deleted"),
        pytest.param("prepare", 2, 1, id="when the second slice is checked, before its notes are taken"),
    ],
)
def test_a_rollback_between_slices_keeps_what_has_become_the_newest(
    hub: DataHub, table: Table, monkeypatch: pytest.MonkeyPatch, during: str, call: int, of: int
) -> None:
    counted(monkeypatch, AspectsStore, during, lambda now: table.roll_back(urn(of), "status") if now == call else None)
    result = swept(hub)
    assert result.refused is None
    # Version 3 is the current one now, so that 2 is kept beside it.
    assert table.versions(urn(of), "status") == {0, 2}
    assert (result.outcomes[Outcome.DELETED], result.outcomes[Outcome.SPARED]) == (11, 1)
    assert hub.verified() == ()


def test_a_time_that_is_none_ends_the_sweep_of_its_dataset(hub: DataHub, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    if table.database.dialect != "sqlite":
        pytest.skip("a server takes no such text for a time")
    counted(
        monkeypatch, AspectsStore, "sweep", lambda call: table.mistime(urn(5), "status", 3, "'gone'") if call == 1 else None
    )
    result = swept(hub)
    assert "createdon of urn:li:dataset:d@5@3 is gone" in str(result.refused)
    assert table.versions(urn(5), "status") == {0, 1, 2, 3}


def test_a_hold_between_slices_is_heard(hub: DataHub, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def happens(call: int) -> None:
        if call == 1:
            holds = [{"name": "legal", "datasets": ["meta/*"], "reason": "case 7"}]
            (hub.folder / "policies" / "holds.yaml").write_text(json.dumps({"holds": holds}))

    counted(monkeypatch, AspectsStore, "sweep", happens)
    result = swept(hub)
    assert 0 < result.outcomes[Outcome.DELETED] < 12
    assert result.outcomes[Outcome.DELETED] + result.outcomes[Outcome.SPARED] == 12
    assert hub.verified() == ()


def test_a_table_that_is_empty_all_at_once_is_another_one(hub: DataHub, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not there in it is neither deleted nor kept: nobody knows."""
    reads(monkeypatch, AspectsStore, lambda call: table.do(f"DELETE FROM {table.name}") if call == 1 else None)
    result = swept(hub)
    assert "its store does not have it" in str(result.refused)
    assert result.outcomes[Outcome.SPARED] == 0


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_limits_are_held_against_the_log_without_what_the_sweep_has_deleted(
    units: Units, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units.has(*(f"u{number}" for number in range(7)))
    units.has("young", opened="2023-05-16", closed="2023-05-16")
    cycle = UnitsCycle(tmp_path / "cycle", [units]).purges(policy(limits={"fraction": 0.875}))
    assert cycle.marks(UNITS_DAY) == 7
    real, sizes = IndependentCheck.faults, list[int]()

    def faults(check: IndependentCheck, log: Log, *others: Any) -> dict[str, str]:
        sizes.append(log.datasets["transactions"][0].as_py())
        return real(check, log, *others)

    monkeypatch.setattr(IndependentCheck, "faults", faults)
    (result,) = cycle.sweeps(UNITS_DAY).values()
    assert (result.refused, units.there(), sizes) == (None, ["young"], [8, 6, 4, 2])

"""DataHub's own page about retention: the file that it shows, on its table in PostgreSQL, and what is done otherwise here.

What DataHub does is written down beside it as SQL, from its sources: so a case of docs/stores/datahub.md is one that both were
asked. Which versions each kind of entry keeps is test_cases.py's.
"""

from datetime import timedelta
from pathlib import Path

import pytest

from retention_assets_tests.histories import AS_OF
from retention_assets_tests.stores.aspects.environments import STORE, DataHub, Table, entry
from retention_assets_tests.sweep.lakes import DUE

# The file that the page shows, as it shows it.
PAGE = """
- entity: "*" # denotes that policy will be applied to all entities
  aspect: "*" # denotes that policy will be applied to all aspects
  config:
    retention:
      version:
        maxVersions: 20
- entity: "dataset"
  aspect: "datasetProperties"
  config:
    retention:
      version:
        maxVersions: 20
      time:
        maxAgeInSeconds: 2592000 # 30 days
- entity: "dataHubExecutionRequest"
  aspect: "dataHubExecutionRequestResult"
  forceOverwrite: true # overwrite user-managed policies for this entry; still skips if config unchanged
  config:
    retention:
      version:
        maxVersions: 1
"""
pytestmark = pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
DATASET, REQUEST = "urn:li:dataset:a", "urn:li:dataHubExecutionRequest:b"


@pytest.fixture
def datahub(table: Table, tmp_path: Path) -> DataHub:
    return DataHub(tmp_path / "hub", {STORE: table})


def ages(newest: int, *versions: int) -> dict[int, int]:
    return {version: newest + 10 * back for back, version in enumerate(reversed(versions))} | {0: 1}


def swept(datahub: DataHub) -> None:
    datahub.marks()
    results = datahub.sweeps(DUE, wait=lambda *_: None)
    assert not [one for one in results.values() if one.refused or one.errors]


def test_the_file_of_the_page_is_obeyed_as_it_is(datahub: DataHub, table: Table) -> None:
    (datahub.folder / "policies" / "retention.yaml").write_text(PAGE)
    long = range(1, 26)
    table.chain(DATASET, "status", ages(10, *long))
    # Half of them are younger than 30 days.
    table.chain(DATASET, "datasetProperties", {version: 41 - version for version in long} | {0: 1})
    table.chain(REQUEST, "dataHubExecutionRequestResult", ages(10, 1, 2, 3))
    swept(datahub)
    # The newest 20, and the current one.
    assert table.versions(DATASET, "status") == {0, *range(6, 26)}
    # Outside the newest 20, and more than 30 days old: 1 to 5 are 40 to 36 days old.
    assert table.versions(DATASET, "datasetProperties") == {0, *range(6, 26)}
    assert table.versions(REQUEST, "dataHubExecutionRequestResult") == {0, 3}


DIFFERENCES = {
    # History, versions and days kept; what is left here, and what DataHub leaves.
    "gaps in the numbers count as versions there": (ages(10, 2, 5, 9), 2, None, {2, 5, 9} - {2}, {9}),
    "age alone decides there where there are fewer than N": (ages(20, 1, 2), 3, 15, {1, 2}, set()),
    "an urn without version 0 is trimmed there": ({1: 30, 2: 20, 3: 10}, 1, None, {1, 2, 3}, {3}),
}


def test_what_datahub_does_otherwise(datahub: DataHub, table: Table) -> None:
    """In one cycle: each difference is an entity of its own, beside one that only DataHub's deletion is for."""
    rules = []
    for number, (history, versions, days, _, _) in enumerate(DIFFERENCES.values()):
        for entity in (f"ours{number}", f"theirs{number}"):
            table.chain(f"urn:li:{entity}:a", "status", history)
        rules.append(entry(f"ours{number}", "status", f"v{versions}" + (f"+t{days}d" if days else "")))
    datahub.retains("p", rules)
    swept(datahub)
    found = {}
    for number, (what, (_, versions, days, _, _)) in enumerate(DIFFERENCES.items()):
        by_datahub(table, f"urn:li:theirs{number}:a", versions, days)
        ours, theirs = (table.versions(f"urn:li:{who}{number}:a", "status") - {0} for who in ("ours", "theirs"))
        found[what] = (ours, theirs)
    assert found == {what: (here, there) for what, (_, _, _, here, there) in DIFFERENCES.items()}


def by_datahub(table: Table, urn: str, versions: int, days: int | None) -> None:
    """Its deletion for one urn and aspect: never version 0; by numbers, which it leaves out below N; and by age."""
    largest = max(table.versions(urn, "status"))
    conditions = ["urn = :urn", "aspect = 'status'", "version <> 0"]
    if largest >= versions:
        conditions.append(f"version < {largest - versions + 1}")
    if days is not None:
        conditions.append(f"createdon < DATE '{(AS_OF - timedelta(days=days)).date()}'")
    assert len(conditions) > 3
    table.do(f"DELETE FROM {table.name} WHERE {' AND '.join(conditions)}", urn=urn)

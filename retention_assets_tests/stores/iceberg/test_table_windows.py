"""`from_table: true` on real tables, against Iceberg's own rule for what an expiry keeps.

Belongs here: the way from a table's properties and refs to verdicts. The rule is written down here a second time, from Iceberg's
specification and in its own words; what one key does on small drawings is frames/verdicts/test_selectors.py's.
"""

import random
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, TableUpdate

from retention_assets.frames import Log, candidate_marks, sound_log
from retention_assets.policy import Policy
from retention_assets_tests.stores.iceberg.tables import Warehouse, append

DATASET = "ice/db.t"
AS_OF = datetime(2026, 3, 31, 12, tzinfo=UTC)
NOW_MS = int(AS_OF.timestamp() * 1000)
DAY = 24 * 60 * 60 * 1000
MAX_AGE, MIN_SNAPSHOTS = "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep"
OWN = Policy.model_validate(
    {"name": "own", "datasets": {"include": ["ice/*"]}, "branches": {"reach": "any"}, "select": {"from_table": True}}
)
# As Iceberg's own expiry does it.
DROPS = Policy.model_validate({**OWN.model_dump(by_alias=True), "select": {"from_table": True, "expired_refs": "drop"}})


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    with Warehouse(tmp_path) as made:
        yield made


def read(warehouse: Warehouse, **settings: Any) -> Log:
    store = warehouse.store(**settings)
    try:
        return sound_log(store.read([DATASET]))
    finally:
        store.close()


def judged(log: Log, policy: Policy = OWN) -> Mapping[int, tuple[str, list[str]]]:
    marks: pa.Table = candidate_marks(log.transactions, log.datasets, [policy], [], AS_OF)
    return {
        int(row["transaction"]): (row["verdict"], [reason["code"] for reason in row["reasons"]]) for row in marks.to_pylist()
    }


def of(snapshots: Mapping[int, tuple[str, list[str]]], *verdicts: str) -> set[int]:
    return {one for one, (verdict, _) in snapshots.items() if verdict in verdicts}


def kept(metadata: TableMetadata, with_tags: bool, drops_refs: bool = True) -> set[int]:
    """What Iceberg's expiry keeps: each branch's walk from its head, what tags name, and what is young on no branch.

    A ref that is past its age is dropped first, but for main.
    """
    known = {one.snapshot_id: one for one in metadata.snapshots}
    max_age = int(metadata.properties.get(MAX_AGE, 5 * DAY))
    min_snapshots = int(metadata.properties.get(MIN_SNAPSHOTS, 1))
    found: set[int] = set()
    on_branches: set[int] = set()
    for name, said in metadata.refs.items():
        at = known.get(said.snapshot_id)
        is_over = at is not None and said.max_ref_age_ms is not None and NOW_MS - at.timestamp_ms > said.max_ref_age_ms
        if drops_refs and name != "main" and is_over:
            continue
        if said.snapshot_ref_type is SnapshotRefType.TAG:
            if with_tags and at:
                found.add(at.snapshot_id)
            continue
        since, fewest = NOW_MS - (said.max_snapshot_age_ms or max_age), said.min_snapshots_to_keep or min_snapshots
        walked, walking = 0, True
        while at is not None:
            on_branches.add(at.snapshot_id)
            # It stops at the first that it does not keep. Times of these tables never run backwards, so nothing is lost behind it.
            walking = walking and (walked < fewest or at.timestamp_ms >= since)
            if walking:
                found.add(at.snapshot_id)
            walked, at = walked + 1, known.get(at.parent_snapshot_id or -1)
    young = {one.snapshot_id for one in metadata.snapshots if one.timestamp_ms >= NOW_MS - max_age}
    return found | (young - on_branches)


def snapshot(number: int, parent: Snapshot | None, made_at: int, operation: Operation = Operation.APPEND) -> Snapshot:
    """A snapshot of a time of its own. Nobody reads its files here."""
    return Snapshot(
        snapshot_id=number,
        parent_snapshot_id=parent.snapshot_id if parent else None,
        sequence_number=number,
        timestamp_ms=made_at,
        manifest_list=f"snap-{number}.avro",
        summary=Summary(operation),
        schema_id=0,
    )


def ref(name: str, one: Snapshot, type_: SnapshotRefType = SnapshotRefType.BRANCH, **numbers: int) -> SetSnapshotRefUpdate:
    said = {key.replace("_", "-"): number for key, number in numbers.items()}
    return SetSnapshotRefUpdate.model_validate({"ref-name": name, "type": type_, "snapshot-id": one.snapshot_id, **said})


def grown(warehouse: Warehouse, rng: random.Random) -> Table:
    """A table with a history of any shape over a month, in whole days, and refs that say this and that about it."""
    properties = {MAX_AGE: str(rng.choice((1, 3, 10)) * DAY), MIN_SNAPSHOTS: str(rng.choice((1, 2, 4)))}
    table = warehouse.table(**{name: value for name, value in properties.items() if rng.random() < 0.8})
    made: list[Snapshot] = []
    for number in range(1, rng.randint(8, 25)):
        parent = None if not made or rng.random() < 0.03 else rng.choice(made[-1:] * 4 + made)
        since = parent.timestamp_ms if parent else NOW_MS - 30 * DAY
        operation = rng.choice((Operation.APPEND, Operation.OVERWRITE, Operation.DELETE))
        made.append(snapshot(number, parent, min(NOW_MS, since + rng.choice((0, 1, 1, 2, 5)) * DAY), operation))
    updates: list[TableUpdate] = [AddSnapshotUpdate(snapshot=one) for one in made]
    for name in ("main", "dev", "feature/a.b", "v1", "v2"):
        type_ = SnapshotRefType.TAG if name.startswith("v") else SnapshotRefType.BRANCH
        # Half a day, so that no ref ends at this very instant.
        numbers = {"max_ref_age_ms": rng.randint(1, 20) * DAY + DAY // 2}
        if type_ is SnapshotRefType.BRANCH:
            numbers |= {"max_snapshot_age_ms": rng.choice((1, 2, 7, 20)) * DAY, "min_snapshots_to_keep": rng.randint(1, 5)}
        said = {key: number for key, number in numbers.items() if rng.random() < 0.5}
        updates.append(ref(name, rng.choice(made[-3:] if name == "main" else made), type_, **said))
    table._do_commit(tuple(updates), ())
    return table.refresh()


@pytest.mark.parametrize("policy", [pytest.param(DROPS, id="refs go"), pytest.param(OWN, id="refs stay")])
@pytest.mark.parametrize("seed", range(12))
def test_what_goes_is_what_icebergs_rule_would_expire(seed: int, policy: Policy, warehouse: Warehouse) -> None:
    metadata = grown(warehouse, random.Random(seed)).metadata
    everything = {one.snapshot_id for one in metadata.snapshots}
    found = judged(read(warehouse), policy)
    assert of(found, "mark") == everything - kept(metadata, True, policy.drops_refs)
    assert of(found, "mark", "spare") == everything - kept(metadata, False, policy.drops_refs)
    assert {code for one in of(found, "spare") for code in found[one][1]} <= {"TAG"}


@pytest.mark.parametrize("policy", [pytest.param(DROPS, id="refs go"), pytest.param(OWN, id="refs stay")])
@pytest.mark.parametrize("seed", range(12))
def test_deltas_are_counted_by_the_same_rule_and_protected_by_more(seed: int, policy: Policy, warehouse: Warehouse) -> None:
    metadata = grown(warehouse, random.Random(seed)).metadata
    everything = {one.snapshot_id for one in metadata.snapshots}
    found = judged(read(warehouse, model="deltas"), policy)
    assert of(found, "mark", "spare") == everything - kept(metadata, False, policy.drops_refs)
    # What the latest view of a branch is made of stays, which Iceberg's expiry gives up as history.
    assert of(found, "mark") <= everything - kept(metadata, True, policy.drops_refs)


def test_the_random_tables_lose_and_keep_for_every_reason(tmp_path: Path) -> None:
    codes: set[str] = set()
    for seed in range(12):
        (tmp_path / str(seed)).mkdir()
        with Warehouse(tmp_path / str(seed)) as warehouse:
            grown(warehouse, random.Random(seed))
            codes |= {code for _, reasons in judged(read(warehouse), DROPS).values() for code in reasons}
    assert codes == {"SELECTED", "TAG", "TOO_YOUNG", "WITHIN_TRANSACTIONS", "EXPIRED_REF"}


def attributes(warehouse: Warehouse) -> dict[str, str]:
    pairs = read(warehouse).datasets["attributes"][0].as_py()
    return {name: value for name, value in pairs if name.startswith("history.expire.")}


def test_a_property_in_the_name_of_a_branch_is_not_taken_for_its_ref(warehouse: Warehouse) -> None:
    append(warehouse.table(**{"history.expire.branch.main.max-snapshot-age-ms": "1"}), 1)
    assert attributes(warehouse) == {MAX_AGE: str(5 * DAY), MIN_SNAPSHOTS: "1"}


def test_a_table_whose_number_cannot_be_read_keeps_everything(warehouse: Warehouse) -> None:
    table = warehouse.table(**{MAX_AGE: "5d"})
    snapshots = {append(table, number) for number in range(3)}
    found = judged(read(warehouse))
    assert found == dict.fromkeys(snapshots, ("keep", ["NO_OWN_RETENTION"]))

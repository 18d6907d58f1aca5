"""The plan of the days to come is exact: each of its days is the one that the real engine then has.

Belongs here: random lakes that are marked and swept for real, under several policies, holds and acts of people, each day
compared.
"""

import json
import random
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from retention_assets.demo.environment import build_environment
from retention_assets.demo.lake import AS_OF as DEMO
from retention_assets.environment import Environment
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.exchange import ADDED
from retention_assets.outcomes import Outcome
from retention_assets.people.plan_days import PlannedDay, PlannedDays, plan_days
from retention_assets.settings import load_settings
from retention_assets.sweep import Sweeper
from retention_assets_tests.clocks import CLOCK
from retention_assets_tests.histories import AS_OF, History, random_history, to_lines
from retention_assets_tests.policies import random_holds, random_limits, random_policies
from retention_assets_tests.rounds import rounds
from retention_assets_tests.stores.iceberg.tables import Warehouse, append
from retention_assets_tests.sweep.datasets import evaluate
from retention_assets_tests.sweep.lakes import Lake

DAYS = 12
DATASETS = 12
_OPEN = ("MARKED", "SWEEPING")


@dataclass(frozen=True)
class Day:
    """What the law compares of a day."""

    date: str
    marked: int
    bytes_marked: int
    deleted: int
    bytes_deleted: int
    spared: int
    waiting: int
    bytes: int


def lived(lake: Lake, drawn: list[History]) -> list[Day]:
    size = {(one.dataset, row["transaction"]): row["bytes"] or 0 for one in drawn for row in one.transactions}
    found = []
    before = {row["id"]: row["status"] for row in marks_of(lake)}
    for number in range(DAYS):
        at = AS_OF + timedelta(days=number)
        lake.marks(at)
        results = lake.sweeps(at)
        assert [one.refused or one.errors for one in results.values() if one.refused or one.errors] == []
        rows = marks_of(lake)
        new = [row for row in rows if row["id"] not in before]
        gone = [row for row in rows if row["status"] == "SWEPT" and before.get(row["id"]) != "SWEPT"]
        spared = [row for row in rows if row["status"] == "SPARED" and before.get(row["id"]) != "SPARED"]
        swept = {(row["dataset"], row["transaction"]) for row in rows if row["status"] == "SWEPT"}
        found.append(
            Day(
                date=at.date().isoformat(),
                marked=len(new), bytes_marked=sum(size[row["dataset"], row["transaction"]] for row in new),
                deleted=len(gone), bytes_deleted=sum(size[row["dataset"], row["transaction"]] for row in gone),
                spared=len(spared), waiting=sum(row["status"] in _OPEN for row in rows),
                bytes=sum(size.values()) - sum(size[one] for one in swept),
            )
        )  # fmt: skip
        before = {row["id"]: row["status"] for row in rows}
    return found


def marks_of(lake: Lake) -> list[dict[str, Any]]:
    with lake.opened() as ledger:
        return list(ledger.marks.table().to_pylist())


def foreseen(day: PlannedDay, log: dict[tuple[str, str], int], goes: list[dict[str, Any]]) -> Day:
    date = day.as_of.date()
    return Day(
        date=date.isoformat(),
        marked=day.newly_marked.transactions, bytes_marked=day.newly_marked.bytes,
        # a plan tells what becomes free, the law goes by the sizes of the log
        deleted=day.deleted.transactions,
        bytes_deleted=sum(log[row["dataset"], row["transaction"]] for row in goes if row["on"].date() == date),
        spared=day.spared.transactions, waiting=day.waiting.transactions, bytes=day.stored.bytes,
    )  # fmt: skip


def planned(environment: Environment, days: int = DAYS, as_of: datetime = AS_OF) -> PlannedDays:
    return plan_days(environment, days, ("*",), as_of)


def random_documents(rng: random.Random) -> list[dict[str, Any]]:
    """Policies about these datasets, with graces short enough to see their end."""
    about = (["lake/*"], ["lake/d1*", "lake/d2*"], ["lake/*"])
    documents = []
    for one in random_policies(rng, 4):
        document = {**one, "sweep": {"every": "0s"}, "datasets": {"include": rng.choice(about)}}
        document["grace"] = rng.choice(("1d", "2d", "3d", "7d"))
        document.pop("confirm", None)
        # What a sweep adds to a log when it takes something out of a latest view, nobody foresees.
        document.pop("latest_view", None)
        if rng.random() < 0.3:
            document["limits"] = random_limits(rng)
        documents.append(document)
    # Something always goes.
    sure = {"name": "sure", "datasets": {"include": ["lake/*"]}, "select": {"older_than": "20d"}, "grace": "2d"}
    return [*documents, {**sure, "sweep": {"every": "0s"}}]


def says(rng: random.Random, lake: Lake) -> None:
    holds = [{**one, "datasets": {"include": [f"lake/d{rng.randrange(DATASETS)}"]}} for one in random_holds(rng, 2)]
    lake.says(", ".join(map(json.dumps, random_documents(rng))), ", ".join(map(json.dumps, holds)))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(rounds(1)))
def test_the_engine_does_what_was_foreseen(seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"plan {seed}")
    drawn = [one for one in (random_history(rng, f"lake/d{number}") for number in range(DATASETS)) if one.transactions]
    lake = Lake(tmp_path / "lake")
    says(rng, lake)
    for history in drawn:
        for row in history.transactions:
            lake._fill(history.dataset, row["transaction"])
    (lake.folder / "log" / "all.jsonl").write_text("".join(f"{line}\n" for line in to_lines(drawn)))
    # Some of it is marked already, by versions of policies that are not in force any more, and some was taken back.
    lake.marks(AS_OF - timedelta(days=2))
    says(rng, lake)
    with lake.opened() as ledger:
        for row in ledger.marks.table().to_pylist():
            if rng.random() < 0.2:
                ledger.unmark.transactions(row["dataset"], [row["transaction"]], "ann", "law")
    told = planned(Environment(lake.settings))
    assert (told.refused, told.away, told.withheld) == ({}, {}, {})
    days = lived(lake, drawn)
    size = {(one.dataset, row["transaction"]): row["bytes"] or 0 for one in drawn for row in one.transactions}
    goes = told.gone.to_pylist()
    assert [foreseen(day, size, goes) for day in told.days] == days
    assert told.total("deleted").transactions
    assert told.spared_because == Counter(row["why"] for row in marks_of(lake) if row["status"] == "SPARED")


def test_an_iceberg_table_whose_middle_goes_begins_anew_after_it(tmp_path: Path) -> None:
    """What comes before the gap is on no branch any more, and goes by another policy; a tag keeps one of it for ever."""
    begin = AS_OF + timedelta(days=3 * 365)
    with Warehouse(tmp_path) as warehouse:
        table = warehouse.table()
        made = [append(table, number) for number in range(6)]
        with table.manage_snapshots() as change:
            change.create_tag(made[1], "kept")
    middle = {"name": "middle", "select": {"where": f"transaction = '{made[3]}'"}, "grace": "1d"}
    lost = {"name": "lost", "branches": {"reach": "unreachable"}, "select": {"older_than": "1d"}, "grace": "2d"}
    documents = [{**one, "datasets": {"include": ["ice/*"]}, "sweep": {"every": "0s"}} for one in (middle, lost)]
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "p.yaml").write_text(json.dumps({"policies": documents}))
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/data"}
    store = {"name": "ice", "kind": "iceberg", "catalog": catalog, "namespaces": ["*"]}
    (tmp_path / "retention.yaml").write_text(json.dumps({"clock": CLOCK, "ledger": "sqlite:///ledger.db", "stores": [store]}))
    environment = Environment(load_settings(tmp_path / "retention.yaml"))
    told = planned(environment, 6, begin)
    lived = []
    with environment.ledger() as ledger:
        for number in range(6):
            at = begin + timedelta(days=number)
            (opened,) = environment.stores().values()
            new = evaluate(ledger, [opened], environment.settings, at)
            sweeper = Sweeper(ledger, {"ice": opened}, load_rulebook(ledger, environment.settings, "test"), at, "test")
            results = list(sweeper.run(ledger.marks.datasets_to_sweep(at)))
            assert [one.refused or one.errors for one in results if one.refused or one.errors] == []
            lived.append((new, sum(one.outcomes.get(Outcome.DELETED, 0) for one in results)))
    assert [(day.newly_marked.transactions, day.deleted.transactions) for day in told.days] == lived
    # The third goes alone; then the first and the third of those before it, of which the tag keeps the second.
    assert lived == [(1, 0), (0, 1), (2, 0), (0, 0), (0, 2), (0, 0)]
    assert [day.stored.transactions for day in told.days] == [6, 5, 5, 5, 3, 3]


@pytest.mark.long
@pytest.mark.parametrize("begin", [DEMO, DEMO - timedelta(days=88)], ids=["present", "some_of_it_is_still_to_come"])
def test_stores_of_every_kind_live_the_days_that_were_foreseen(begin: datetime, tmp_path: Path) -> None:
    """The demonstration: files, Iceberg tables, aspects and records, some of which no log has any more once they are swept."""
    environment = Environment(load_settings(build_environment(tmp_path / "demo")))
    days = 11
    told = planned(environment, days, begin)
    lived = []
    with environment.ledger() as ledger:
        for number in range(days):
            at = begin + timedelta(days=number)
            stores = environment.stores()
            rulebook = load_rulebook(ledger, environment.settings, "test")
            evaluate(ledger, stores.values(), environment.settings, at)
            sweeper = Sweeper(ledger, stores, rulebook, at, "test", wait=lambda *_: None)
            results = list(sweeper.run(ledger.marks.datasets_to_sweep(at)))
            assert [one.errors for one in results if one.errors] == []
            # What a sweep adds to a log where it takes something out of a latest view, nobody foresees.
            rows = [row for row in ledger.marks.table().to_pylist() if not row["transaction"].startswith(ADDED)]
            ended = Counter(row["status"] for row in rows)
            lived.append((len(rows), ended["SWEPT"], ended["SPARED"]))
    each = ((day.newly_marked.transactions, day.deleted.transactions, day.spared.transactions) for day in told.days)
    assert list(accumulate(each, lambda one, other: tuple(map(sum, zip(one, other, strict=True))))) == lived
    assert lived[-1][1] > 100

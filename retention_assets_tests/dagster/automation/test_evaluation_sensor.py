"""The evaluation loop: what a tick evaluates again, what it leaves alone, and that its runs leave it nothing to do.

Belongs here: ticks over a lake, without Spark where an evaluation can be done in one piece; and the loop as the daemon turns
it, with its own requests run by the real job. When time changes a verdict is frames/verdicts/test_reevaluate_at.py's.
"""

import json
import sqlite3
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from retention_assets.definitions import build_defs
from retention_assets.evaluation.rules_in_force import load_rulebook, rules_digests
from retention_assets.frames import new_marks, sound_log, verdicts_and_reevaluation
from retention_assets.ledger import CANDIDATES, Ledger
from retention_assets.pipeline.read_tokens import evaluations_of
from retention_assets.policy import Hold, text_of
from retention_assets_tests.dagster.automation.conftest import AWAY, SOME, Clock, Ticks
from retention_assets_tests.dagster.launch import create_run, run, tick, typed
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.sweep.lakes import OLD, Lake

# At 30 days and a microsecond S1 is old enough, which is seen at the next full hour.
YOUNG = "main: S1:SNAPSHOT@20d=10 - S2:SNAPSHOT@1d=10"
HOUR = timedelta(hours=1)


class Looped(Lake):
    """A lake that the loop evaluates."""

    def tick(self, instance: dg.DagsterInstance) -> Any:
        return tick(self.settings, instance, "evaluation_loop")

    def asks_for(self, instance: dg.DagsterInstance) -> list[str]:
        """What the one run that a tick asks for is about; nothing if it asks for none."""
        return Ticks(self, instance).asks_for("evaluation_loop")

    def evaluates(self, as_of: datetime = AS_OF, only: str | None = None) -> None:
        """Judge as the assets do, in one piece and without Spark."""
        with self.opened() as ledger:
            stores = [(store, [one for one in store.datasets() if only in (None, one)]) for store in self.stores.values()]
            tokens = {name: token for store, names in stores for name, token in store.tokens(names).items()}
            log = sound_log(pa.concat_tables([store.read(names) for store, names in stores]))
            names = log.datasets["dataset"].to_pylist()
            rules = load_rulebook(ledger, self.settings, "test").rules(names, as_of)
            verdicts, found = verdicts_and_reevaluation(log.transactions, log.datasets, rules.policies, rules.holds, as_of)
            marks = new_marks(verdicts, log.transactions, rules.policies, rules.versions).cast(CANDIDATES)
            evaluations = evaluations_of(log.datasets, tokens, rules_digests(rules, names, as_of), found, as_of)
            ledger.marks.mark(marks, as_of, "test", evaluations=evaluations)

    def within(self, change: Callable[[Ledger], object]) -> None:
        """Change something in the ledger."""
        with self.opened() as ledger:
            change(ledger)

    def adds(self, dataset: str, *lines: dict[str, Any]) -> None:
        """Somebody adds to a log."""
        self._log(dataset, [json.dumps({"dataset": dataset, **line}) for line in lines])


@pytest.fixture
def lake(tmp_path: Path, clock: Clock) -> Looped:
    made = Looped(tmp_path / "lake")
    made.has(SOME, "lake/a", "lake/b", "lake/c")
    return made


# --- what is looked at ---


def test_what_nobody_has_looked_at_is_looked_at_and_then_nothing_is(lake: Looped, instance: dg.DagsterInstance) -> None:
    assert lake.asks_for(instance) == ["*"]
    lake.evaluates()
    found = lake.tick(instance)
    assert (found.run_requests, found.skip_message) == ([], "Nothing has changed among 3 datasets.")


OPEN = {"transaction": "S4", "type": "APPEND", "status": "OPEN", "opened_at": text_of(AS_OF)}
AB = "{name: %s, datasets: {include: ['lake/%s']}, select: {older_than: %s}}"
# by name a change after everything was judged, and the datasets that are judged again
CHANGES: dict[str, tuple[Callable[[Looped], object], list[str]]] = {
    "one log": (lambda lake: lake.adds("lake/b", OPEN), ["lake/b"]),
    "a branch": (lambda lake: lake.branches("feature", "S1", "lake/a"), ["lake/a"]),
    "a new dataset, for which nobody has added a partition": (lambda lake: lake.has(SOME, "lake/d"), ["lake/d"]),
    "a name with the marks of a glob, as itself": (lambda lake: lake.has(SOME, "lake/[ab]"), ["lake/[[]ab]"]),
    "a dataset that vanished": (lambda lake: (lake.folder / "log" / "lake-b.jsonl").unlink(), []),
    "another policy": (lambda lake: lake.says(f"{OLD}, {AB % ('more', '[bc]', '40d')}"), ["lake/b", "lake/c"]),
    "a policy that a person revoked": (lambda lake: lake.within(lambda one: one.policy_book.revoke("old", "ann", "early")), ["*"]),
    "a realm that is purged": (lambda lake: lake.within(lambda one: one.realms.change("acme", "PURGING", "ann", "left")), ["*"]),
    "a mark that was taken back": (
        lambda lake: lake.within(lambda one: one.unmark.transactions("lake/b", ["S1"], "ann", "by mistake")), ["lake/b"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_is_looked_at_and_no_other(lake: Looped, instance: dg.DagsterInstance, change: str) -> None:
    lake.evaluates()
    make, names = CHANGES[change]
    make(lake)
    assert lake.asks_for(instance) == names


def test_without_a_token_it_is_looked_at_again(
    lake: Looped, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that can't tell may hide any change."""
    lake.evaluates()
    kind = type(lake.stores["lake"])
    tokens = kind.tokens
    monkeypatch.setattr(kind, "tokens", lambda self, names: {n: t for n, t in tokens(self, names).items() if n != "lake/c"})
    assert lake.asks_for(instance) == ["lake/c"]


def test_a_log_that_cannot_be_trusted_waits_for_another_one(lake: Looped, clock: Clock, instance: dg.DagsterInstance) -> None:
    lake.adds("lake/b", {"branch": "odd", "head": "nowhere"})
    lake.evaluates()
    clock.goes_on(2 * HOUR)
    assert lake.asks_for(instance) == []
    lake.adds("lake/b", {"transaction": "nowhere", "type": "APPEND", "status": "OPEN", "opened_at": text_of(AS_OF)})
    assert lake.asks_for(instance) == ["lake/b"]


def test_a_log_that_could_not_be_read_is_tried_again_after_a_while() -> None:
    """Its token may be the same when it can be read."""
    datasets = pa.table({"dataset": ["lake/a", "lake/b"], "fault": ["cannot be read: OSError: away", "cycle"]})
    types = {"dataset": pa.string(), "next_look": pa.timestamp("us", "UTC"), "again": pa.bool_()}
    nothing = pa.schema(types).empty_table()
    evaluations = evaluations_of(datasets, {"lake/a": "1", "lake/b": "1"}, ["r", "r"], nothing, AS_OF)
    assert evaluations["next_look"].to_pylist() == [AS_OF + HOUR, None]


# --- rules ---


def test_policies_that_are_as_they_were_and_others_that_give_the_credit(lake: Looped, instance: dg.DagsterInstance) -> None:
    one, other = AB % ("one", "[ab]", "30d"), AB % ("other", "[bc]", "30d")
    lake.says(f"{one}, {other}")
    lake.evaluates()
    lake.says(f"{one}, {AB % ('other', '[bc]', '40d')}")
    assert lake.asks_for(instance) == ["lake/b", "lake/c"]
    lake.says(f"{one}, {other}")
    assert lake.asks_for(instance) == []
    # In another order the other one selects first.
    lake.says(f"{other}, {one}")
    assert lake.asks_for(instance) == ["lake/b"]


def hold(name: str, dataset: str, until: datetime | None = None) -> Hold:
    said = {"name": name, "datasets": dataset, "reason": "a law", "owner": "ann"}
    return Hold.model_validate({**said, **({"until": text_of(until)} if until else {})})


def test_a_hold_placed_released_or_ended_is_a_change_where_it_reaches(
    lake: Looped, clock: Clock, instance: dg.DagsterInstance
) -> None:
    lake.evaluates()
    with lake.opened() as ledger:
        ledger.holds.place(hold("h", "lake/a"), "ann")
        ledger.holds.place(hold("g", "lake/b", AS_OF + HOUR), "ann")
    assert lake.asks_for(instance) == ["lake/a", "lake/b"]
    lake.evaluates()
    assert lake.asks_for(instance) == []
    with lake.opened() as ledger:
        ledger.holds.release("h", "ann", "over")
    assert lake.asks_for(instance) == ["lake/a"]
    lake.evaluates(only="lake/a")
    clock.goes_on(HOUR - timedelta(microseconds=1))
    assert lake.asks_for(instance) == []
    clock.goes_on(timedelta(microseconds=1))
    assert lake.asks_for(instance) == ["lake/b"]
    lake.evaluates(clock.time, only="lake/b")
    assert lake.asks_for(instance) == []


def test_a_hold_in_a_file_is_a_change_and_so_is_its_end(lake: Looped, clock: Clock, instance: dg.DagsterInstance) -> None:
    lake.evaluates()
    lake.says(OLD, f"{{datasets: 'lake/c', reason: law, until: '{text_of(AS_OF + HOUR)}'}}")
    assert lake.asks_for(instance) == ["lake/c"]
    lake.evaluates(only="lake/c")
    assert lake.asks_for(instance) == []
    clock.goes_on(HOUR)
    assert lake.asks_for(instance) == ["lake/c"]


# --- time ---


@pytest.mark.parametrize(("granularity", "after"), [(None, HOUR), ("1s", timedelta(seconds=1)), ("1d", timedelta(hours=12))])
def test_time_alone_brings_a_dataset_back_at_the_next_full_hour(
    lake: Looped, clock: Clock, instance: dg.DagsterInstance, granularity: str | None, after: timedelta
) -> None:
    """Of a day at midnight, which is twelve hours later. It loops not: what was judged then comes back no more."""
    lake.has(YOUNG, "lake/young")
    lake.evaluates()
    lake.configures(automation=dict(everything="1y", **({"granularity": granularity} if granularity else {})))
    clock.goes_on(timedelta(days=10) + after - timedelta(microseconds=1))
    assert lake.asks_for(instance) == []
    clock.goes_on(timedelta(microseconds=1))
    assert lake.asks_for(instance) == ["lake/young"]
    lake.evaluates(clock.time, only="lake/young")
    assert lake.statuses("lake/young") == {"S1": "MARKED"}
    assert lake.asks_for(instance) == []


def test_everything_is_looked_at_once_in_a_while(lake: Looped, clock: Clock, instance: dg.DagsterInstance) -> None:
    lake.evaluates()
    lake.configures(automation={"everything": "3d"})
    clock.goes_on(timedelta(days=2))
    lake.evaluates(clock.time, only="lake/a")
    clock.goes_on(timedelta(days=1) - timedelta(microseconds=1))
    assert lake.asks_for(instance) == []
    clock.goes_on(timedelta(microseconds=1))
    assert lake.asks_for(instance) == ["lake/b", "lake/c"]


def test_a_look_from_the_future_says_nothing_of_the_present(lake: Looped, clock: Clock, instance: dg.DagsterInstance) -> None:
    lake.evaluates(AS_OF + timedelta(minutes=4))
    assert lake.asks_for(instance) == []
    lake.evaluates(AS_OF + timedelta(days=4), only="lake/b")
    assert lake.asks_for(instance) == ["lake/b"]


# --- marks that were taken away ---


def test_a_mark_that_a_hold_had_spared_is_made_again_when_the_hold_was_never_looked_at(
    lake: Looped, instance: dg.DagsterInstance, clock: Clock
) -> None:
    """Placed and released between two evaluations: the rules are as they were when the marks were made."""
    lake.evaluates()
    with lake.opened() as ledger:
        ledger.holds.place(hold("h", "lake/b"), "ann")
    clock.goes_on(timedelta(days=6, hours=23))
    lake.sweeps(AS_OF + timedelta(days=7))
    assert set(lake.statuses("lake/b").values()) == {"SPARED"}
    with lake.opened() as ledger:
        ledger.holds.release("h", "ann", "over")
    assert "lake/b" in lake.asks_for(instance)
    lake.evaluates(AS_OF + timedelta(days=7), only="lake/b")
    assert lake.statuses("lake/b") == {"S1": "MARKED", "S2": "MARKED"}


# --- runs, stores and restarts ---


@pytest.mark.parametrize(
    ("job", "status", "launches"),
    [
        ("act_evaluate", dg.DagsterRunStatus.QUEUED, False),
        ("act_evaluate", dg.DagsterRunStatus.STARTED, False),
        ("act_evaluate", dg.DagsterRunStatus.SUCCESS, True),
        ("act_evaluate", dg.DagsterRunStatus.FAILURE, True),
        ("delete_cycle", dg.DagsterRunStatus.STARTED, False),
        ("delete_sweep", dg.DagsterRunStatus.STARTED, True),
    ],
)
def test_while_a_run_judges_no_other_is_launched_by_either_sensor(
    lake: Looped, instance: dg.DagsterInstance, job: str, status: dg.DagsterRunStatus, launches: bool
) -> None:
    """Two ticks in a row ask for one run; a changed policy file is asked about once, by whoever comes first. The machine of a run may
    be gone, and then nobody but a person or run monitoring ends it: every tick would wait for ever.
    """
    made = create_run(instance, build_defs(lake.settings).resolve_job_def(job), status)
    record = instance.get_run_record_by_id(made.run_id)
    assert record
    for name in ("evaluation_loop", "policy_files", "evaluation_loop"):
        found = tick(lake.settings, instance, name)
        assert bool(found.run_requests) == launches
        if not launches:
            since = f"{job} {made.run_id} is running since {record.create_timestamp:%Y-%m-%d %H:%M} UTC."
            assert (since in found.skip_message, found.cursor) == (True, None)
            assert "terminate the run in Dagster" in found.skip_message


@pytest.mark.parametrize(
    ("assets", "status", "waits"),
    [
        (["candidate_marks"], dg.DagsterRunStatus.STARTED, True),
        (["transaction_log", "candidate_marks"], dg.DagsterRunStatus.QUEUED, True),
        (["candidate_marks"], dg.DagsterRunStatus.SUCCESS, False),
        (["transaction_log"], dg.DagsterRunStatus.STARTED, False),
    ],
)
def test_a_partition_that_somebody_judges_by_hand_is_waited_for(
    lake: Looped, instance: dg.DagsterInstance, assets: list[str], status: dg.DagsterRunStatus, waits: bool
) -> None:
    job = build_defs(lake.settings).resolve_implicit_global_asset_job_def()
    made = create_run(instance, job, status, assets)
    found = lake.tick(instance)
    assert bool(found.run_requests) != waits
    assert not waits or found.skip_message.startswith(f"__ASSET_JOB {made.run_id} is running")


def test_a_store_that_is_away_hides_its_own_alone(lake: Looped, instance: dg.DagsterInstance) -> None:
    lake.configures(AWAY)
    assert lake.asks_for(instance) == ["lake/*"]


def test_a_large_round_is_cut_into_runs_the_longest_unseen_first(
    lake: Looped, clock: Clock, instance: dg.DagsterInstance
) -> None:
    lake.configures(automation={"datasets_per_run": 2, "everything": "1d"})
    lake.evaluates(only="lake/a")
    clock.goes_on(timedelta(days=2))
    assert lake.asks_for(instance) == ["lake/b", "lake/c"]
    for name in "bc":
        lake.evaluates(clock.time, only=f"lake/{name}")
    assert lake.asks_for(instance) == ["lake/a"]


# --- as the daemon turns it ---


@pytest.mark.usefixtures("local_spark")
def test_the_loop_turns_by_itself(lake: Looped, clock: Clock, instance: dg.DagsterInstance) -> None:
    """A round over everything; nothing; one log; a policy of some; a hold; time. Each request is run, and nothing is left."""

    def turn(*expected: str) -> None:
        requests = lake.tick(instance).run_requests
        assert [name for one in requests for name in typed(one)["datasets"]] == list(expected)
        assert {one.tags["retention/automation"] for one in requests} == {"evaluate"}
        for request in requests:
            config = {**typed(request), "as_of": text_of(clock.time)}
            ran = run(lake.settings, instance, "act_evaluate", config)
            assert ran.success
            seen = [one.materialization for one in ran.get_asset_materialization_events()]
            about = {one.partition for one in seen if one.asset_key == dg.AssetKey("candidate_marks")}
            assert about == {None, *(["lake/a", "lake/b", "lake/c", "lake/young"] if "*" in expected else expected)}
        assert lake.asks_for(instance) == []

    lake.has(YOUNG, "lake/young")
    turn("*")
    lake.branches("kept", "S1", "lake/b")
    turn("lake/b")
    lake.says(f"{OLD}, {AB % ('more', '[ac]', '85d')}")
    turn("lake/a", "lake/c")
    with lake.opened() as ledger:
        ledger.holds.place(hold("h", "lake/c"), "ann")
    turn("lake/c")
    lake.configures(automation={"everything": "1y"})
    clock.goes_on(timedelta(days=10, hours=1))
    # The line of 85 days passes a transaction of these two as well, which another policy has marked: early, and nothing is new.
    turn("lake/a", "lake/c", "lake/young")
    assert lake.statuses("lake/young") == {"S1": "MARKED"}
    assert lake.verified() == ()


@pytest.mark.usefixtures("local_spark")
@pytest.mark.parametrize(("job", "beside"), [("act_evaluate", True), ("delete_cycle", False)])
def test_a_dataset_without_a_transaction_is_looked_at_like_any_other(
    lake: Looped, clock: Clock, instance: dg.DagsterInstance, job: str, beside: bool
) -> None:
    """An empty table, or one that a sweep has emptied: it launches one run, which succeeds, and then none until it changes."""
    table = lake.folder / "ods.db"
    with sqlite3.connect(table) as connection:
        connection.execute("CREATE TABLE unit (id TEXT PRIMARY KEY, began TEXT, ended TEXT)")
    connection.close()
    root = {"table": "unit", "key": "id", "opened_at": "began", "closed_at": "ended"}
    store = {"name": "ods", "kind": "records", "url": f"sqlite:///{table}", "root": root, "children": []}
    file = lake.folder / "retention.yaml"
    data = json.loads(file.read_text())
    file.write_text(json.dumps({**data, "stores": [*(data["stores"] if beside else ()), store]}))
    # One that asks for attributes and one with a limit: neither knows any of a dataset without lines.
    lake.says(
        "{name: rows, datasets: {include: ['ods/*']}, select: {older_than: 30d}, limits: {transactions: 5}},"
        "{name: some, datasets: {include: ['*'], with: {team: a}}, select: {older_than: 30d}, limits: {transactions: 5}}"
    )

    def turn() -> list[str]:
        requests = lake.tick(instance).run_requests
        for request in requests:
            config = {**typed(request), "as_of": text_of(clock.time)}
            assert run(lake.settings, instance, job, config).success
        assert lake.asks_for(instance) == []
        return [name for one in requests for name in typed(one)["datasets"]]

    def do(statement: str) -> None:
        with sqlite3.connect(table) as connection:
            connection.execute(statement)
        connection.close()

    assert turn() == ["*"]
    with lake.opened() as ledger:
        assert "ods/unit" in ledger.publications.datasets("candidate_marks")
    one = ["ods/unit"] if beside else ["*"]
    do("INSERT INTO unit VALUES ('U1', '2020-01-01 00:00:00', '2020-01-02 00:00:00')")
    assert turn() == one
    assert lake.statuses("ods/unit") == {"U1": "MARKED"}
    do("DELETE FROM unit")
    assert turn() == one
    assert lake.verified() == ()

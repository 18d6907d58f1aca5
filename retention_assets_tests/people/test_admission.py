"""The one door to deletion: the same ledgers give a run, a plan, `restore`, `trash empty` and `replay` their refusals by one table.

Belongs here: what stops whom, and that the words are the same. What is asked under a lease is tested where the sweep asks it.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from retention_assets.people.audit import AcceptRequest, audit_accept
from retention_assets.policy import text_of
from retention_assets.stores.protocol import IN_FOLDER
from retention_assets_tests.dagster.launch import run as launch
from retention_assets_tests.ledger.states import take_lease, write_past_ledger
from retention_assets_tests.people.conftest import DONE, Run
from retention_assets_tests.stores.aspects.environments import Table
from retention_assets_tests.sweep.lakes import DUE, FIVE, MARKED, OLD, Lake

DAY = timedelta(days=1)
NOW = DUE + 8 * DAY
WHY = ("--reason", "we need them")
UNKNOWN_KEY = "policies: [{name: a, datasets: {include: ['*']}, select: all, graze: 1d}]"
UNDO = OLD.replace("sweep:", "undo: 30d, sweep:").replace("['lake/*']", "['*']")
EVERYBODY, ALL_BUT_RESTORE = "plan run restore empty replay", "plan run empty replay"
SIX = FIVE.replace("S1:", "S0:SNAPSHOT@95d=10 - S1:")
AT_ONCE = OLD.replace("name: old", "name: at-once").replace("30d}", "93d}")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def lake(lake: Lake) -> Lake:
    """Of one dataset S0 is there again, S1 and S2 are set aside, and S3, S4 and S5 are due. Heads and place are noted, as by a run."""
    others = "{older_than: 75d, where: \"transaction <> 'S0'\"}"
    lake.has(SIX).says(f"{AT_ONCE}, {UNDO.replace('{older_than: 30d}', others)}")
    store: Any = lake.stores["lake"]
    with lake.environment.ledger() as ledger:
        # as on a file system that numbers no folders
        place = store.store_place(claim=True).partition(IN_FOLDER)[0]
        ledger.places.note({"lake": place}, "ann", "A run found it there.", {})
    assert lake.marks(MARKED) == 3
    shutil.copytree(lake.place("lake/d", "S0"), lake.folder / "backup")
    lake.sweeps(DUE)
    shutil.copytree(lake.folder / "backup", lake.place("lake/d", "S0"))
    lake.says(UNDO)
    assert lake.marks(DUE) == 3
    with lake.environment.ledger() as ledger:
        # a witnessed act notes the head everywhere
        ledger.objections.object({"lake/z": "no"}, "c", "run")
    return lake


class Callers:
    """All who ask the door; each tells in lines what stands in its way, and nothing where it does all that there is to do."""

    names = ("plan", "run", "restore", "empty", "replay")

    def __init__(self, lake: Lake, run: Run, instance: dg.DagsterInstance) -> None:
        self.lake, self._run, self.instance = lake, run, instance

    def told(self, caller: str) -> list[str]:
        told: list[str] = getattr(self, caller)()
        return told

    def plan(self) -> list[str]:
        return self.told_by("plan")

    def restore(self) -> list[str]:
        return self.told_by("restore", "lake/d", "S1", *WHY)

    def empty(self) -> list[str]:
        return self.told_by("trash", "empty", *WHY)

    def replay(self) -> list[str]:
        return self.told_by("replay", "--yes")

    def told_by(self, *command: str) -> list[str]:
        code, _, err = self._run(*command, "--as-of", text_of(NOW))
        # 3: there is something to do
        return err.splitlines() if code not in (DONE, 3) else []

    def run(self) -> list[str]:
        """The job that sweeps, which is a part of what `retention run` runs."""
        result = launch(self.lake.settings, self.instance, "delete_sweep", {"as_of": text_of(NOW)})
        failures = [event.step_failure_data.user_failure_data for event in result.get_step_failure_events()]
        pages = [event.materialization.metadata for event in result.all_events if event.is_step_materialization]
        data: list[Any] = [page["data"].value for page in pages if "data" in page]
        refused = [row.get("refused") for each in data for row in each.get("by_dataset", ())]
        return [*(str(one.description) for one in failures if one), *filter(None, refused)]


# --- what there may be ---


def edits(statement: str, rows: int = 1) -> Callable[[Lake], None]:
    def edit(lake: Lake) -> None:
        with lake.opened() as ledger:
            assert write_past_ledger(ledger, statement) >= rows

    return edit


def file_of_head(lake: Lake) -> Path:
    return lake.folder / "warehouse" / "HEAD.json"


def head_becomes_a_folder(lake: Lake) -> None:
    file_of_head(lake).unlink()
    file_of_head(lake).mkdir()


def knows(position: int, ledger_id: str = "", beside: bool = False) -> Callable[[Lake], None]:
    def write(lake: Lake) -> None:
        file = lake.environment.head_files()[beside]
        (head,) = file.heads()
        file.write(replace(head, ledger=ledger_id or head.ledger, position=position, hash="a" * 64))

    return write


def objects(dataset: str, *, passes: bool = False) -> Callable[[Lake], None]:
    def write(lake: Lake) -> None:
        with lake.opened() as ledger:
            ledger.objections.object({dataset: "two are needed"}, "some_check", "run 1")
            if passes:
                ledger.objections.withdraw([dataset], "some_check", "run 2")

    return write


def writes_policies(text: str) -> Callable[[Lake], None]:
    def write(lake: Lake) -> None:
        (lake.folder / "policies" / "p.yaml").write_text(text)

    return write


def other_policies(lake: Lake) -> None:
    (lake.folder / "others").mkdir()
    (lake.folder / "others" / "p.yaml").write_text("policies: [{name: other, datasets: {include: ['*']}, select: all}]")
    lake.configures(policies="others")


def sets(**settings: Any) -> Callable[[Lake], None]:
    def write(lake: Lake) -> None:
        lake.configures(**settings)

    return write


def sets_store(**changes: Any) -> Callable[[Lake], None]:
    def write(lake: Lake) -> None:
        settings = json.loads(lake.settings_file.read_text())
        settings["stores"][0] |= changes
        lake.settings_file.write_text(json.dumps(settings))

    return write


def moves(lake: Lake) -> None:
    shutil.copytree(lake.folder / "data", lake.folder / "other")
    sets_store(data="other/{dataset}/{transaction}")(lake)


def renames(folder: str) -> Callable[[Lake], None]:
    def rename(lake: Lake) -> None:
        (lake.folder / folder).rename(lake.folder / "elsewhere")

    return rename


def leased(lake: Lake) -> None:
    with lake.opened() as ledger:
        take_lease(ledger, "lake/d", "bob", 3600)


def unsound(lake: Lake) -> None:
    lake.branches("main", "S1")


def goes_on(lake: Lake) -> None:
    """The simulated clock has shown a later day."""
    with lake.opened() as ledger:
        clock = lake.settings.clock
        assert ledger.clock.check(NOW + 9 * DAY, None, clock.max_ahead, clock.max_skew) is None


def root_file(lake: Lake) -> Path:
    return lake.folder / "data" / ".retention-store"


def renames_root(lake: Lake) -> None:
    (lake.folder / "data").rename(lake.folder / "renamed")
    sets_store(data="renamed/{dataset}/{transaction}")(lake)


def accepts(**what: Any) -> Callable[[Lake], None]:
    def accept(lake: Lake) -> None:
        audit_accept(AcceptRequest(actor="ann", reason="we know", **what), lake.environment)

    return accept


def in_turn(*happen: Callable[[Lake], None]) -> Callable[[Lake], None]:
    def all_happen(lake: Lake) -> None:
        for each in happen:
            each(lake)

    return all_happen


def datahub_is_unreadable(lake: Lake) -> None:
    """Another store has something due, and what somebody wrote in DataHub may keep it. Of the lake nothing is due any more."""
    lake.sweeps(NOW)
    (lake.folder / "hub.db").touch()
    table = Table(f"sqlite:///{lake.folder}/hub.db")
    table.chain("urn:li:dataset:a", "status", {1: 50, 2: 40, 0: 10})
    lake.configures({"name": "meta", "kind": "aspects", "url": table.url, "table": table.name, "datahub_policies": "read"})
    of_lake, of_hub = UNDO.replace("['*']", "['lake/*']"), OLD.replace("name: old", "name: hub").replace("lake/*", "meta/*")
    lake.says(f"{of_lake}, {of_hub}")
    assert lake.marks(DUE) == 2
    urn = "urn:li:dataHubRetention:(dataset,status)"
    for aspect in ("dataHubRetentionKey", "dataHubRetentionConfig"):
        table.add(urn, aspect, 0, DUE, "no JSON")


NOBODY: dict[str, str] = {}
RULES, MARKED_WRONGLY = {"rules_are_as_recorded failed. ": EVERYBODY}, {"marks_have_a_policy_and_a_reason failed. ": EVERYBODY}
UNKNOWN_ROOT = {".retention-store is missing": ALL_BUT_RESTORE, "the data of lake is at ": "plan restore"}
# By name: what happens, and whom it stops, by words of the sentence that all of these are told.
LEDGERS: dict[str, tuple[Callable[[Lake], object], dict[str, str]]] = {
    "nothing is wrong": (lambda _: None, NOBODY),
    # heads
    "the head is missing": (lambda lake: file_of_head(lake).unlink(), {"HEAD.json is missing": ALL_BUT_RESTORE}),
    "the head is ahead": (knows(99), {"HEAD.json knows row 99": ALL_BUT_RESTORE}),
    "the head is damaged": (lambda lake: file_of_head(lake).write_text("?"), {"HEAD.json is damaged": ALL_BUT_RESTORE}),
    "the head can't be read": (head_becomes_a_folder, {"HEAD.json can't be read": ALL_BUT_RESTORE}),
    "the head is another ledger's": (knows(1, "another"), {"HEAD.json belongs to ledger another": ALL_BUT_RESTORE}),
    "the head beside the data is ahead": (knows(99, beside=True), {".retention-store knows row 99": ALL_BUT_RESTORE}),
    # the record
    "marks were edited": (edits("UPDATE marks SET bytes = bytes + 1"), {"due_marks_are_as_recorded failed. ": EVERYBODY}),
    "marks have no policy": (edits("UPDATE marks SET policy_version = 7"), MARKED_WRONGLY),
    "marks have no reason": (edits("UPDATE marks SET reason = 'BECAUSE'"), MARKED_WRONGLY),
    "marks are due early": (edits("UPDATE marks SET due_at = marked_at"), {"mark_times_are_monotonic failed. ": EVERYBODY}),
    "a mark went without a batch": (edits("UPDATE marks SET status = 'SWEPT', outcome = 'DELETED' WHERE \"transaction\" = 'S5'"), {"nothing_is_swept_before_it_is_due failed. ": EVERYBODY}),
    "a policy was edited": (edits("UPDATE policy_versions SET written_by = 'x'"), RULES),
    "the clock was edited": (edits("UPDATE clock SET newest_seen_at = 1"), RULES),
    "an objection was edited": (edits("UPDATE objections SET withdrawn_at = raised_at"), RULES),
    "an objection was removed": (edits("DELETE FROM objections"), RULES),
    # checks of evaluations
    "a check failed": (objects("lake/d"), {"nothing of lake/d is swept: some_check failed in run 1: two are needed. Mend": "run empty replay"}),
    "a check of another dataset failed": (objects("lake/e"), NOBODY),
    "a check passes again": (objects("lake/d", passes=True), NOBODY),
    # policies
    "a policy file is broken": (writes_policies("policies: ["), {"p.yaml:2: is not valid YAML": ALL_BUT_RESTORE}),
    "a policy has an unknown key": (writes_policies(UNKNOWN_KEY), {"p.yaml:1: policy 'a': ": ALL_BUT_RESTORE}),
    "the policy folder is missing": (renames("policies"), {"policies: is not there": ALL_BUT_RESTORE}),
    "a hold has an unknown key": (writes_policies("holds: [{name: a, datasets: ['*'], reason: r, untill: 1}]"), {"p.yaml:1: ": ALL_BUT_RESTORE}),
    "a file of holds can't be read": (lambda lake: (lake.folder / "policies" / "holds.yaml").write_bytes(b"holds: \xff"), {"holds.yaml": ALL_BUT_RESTORE}),
    "policies in DataHub can't be read": (datahub_is_unreadable, {"nothing of meta is swept: ": "plan run"}),
    "the policies are others": (other_policies, {"The policies at ": ALL_BUT_RESTORE}),
    "other policies are accepted": (in_turn(other_policies, accepts(policies=True)), NOBODY),
    # stores and places
    "the settings lead elsewhere": (sets_store(data="new/{dataset}/{transaction}"), {"the data of lake is at ": EVERYBODY}),
    "the store is a copy": (moves, {"the data of lake is at ": EVERYBODY}),
    "the data is another ledger's": (knows(1, "another", beside=True), {".retention-store belongs to ledger another": EVERYBODY}),
    "the log is away": (renames("log"), {"the store lake failed": EVERYBODY}),
    # the root is known by a file in it, whose head is missed as well
    "the root is away": (renames("data"), UNKNOWN_ROOT),
    "the root has lost its file": (lambda lake: root_file(lake).unlink(), UNKNOWN_ROOT),
    "the root was renamed": (renames_root, UNKNOWN_ROOT),
    "the store is a copy that was accepted": (in_turn(moves, accepts(store="lake")), NOBODY),
    "the log is not sound": (unsound, {"two branches of one name": EVERYBODY}),
    "the settings lack the store": (sets_store(name="other"), {"The settings have no store named lake": EVERYBODY}),
    # amounts
    "far more than usual would go": (sets(brake={"usual": 10, "share": 0.1}), {"nothing of lake is swept: it would lose ": "plan run replay"}),
    "the brake is off": (sets(brake="off"), NOBODY),
    # clocks
    "the simulated clock was later": (goes_on, {"The clock of this environment is simulated and stands at": EVERYBODY}),
    "the settings have the real clock": (sets(clock={}), {"The ledger was made with a simulated clock": EVERYBODY}),
    # others at work
    "somebody has the lease": (leased, {"lake/d is being swept by bob": "empty restore replay"}),
}  # fmt: skip


@pytest.mark.parametrize("case", LEDGERS)
def test_one_table_says_whom_a_ledger_stops_and_the_words_are_the_same(
    case: str, lake: Lake, run: Run, instance: dg.DagsterInstance
) -> None:
    happens, refusals = LEDGERS[case]
    happens(lake)
    callers, said = Callers(lake, run, instance), dict[str, list[str]]()
    for caller in Callers.names:
        before, is_stopped = lake.left(), any(caller in stopped.split() for stopped in refusals.values())
        said[caller] = callers.told(caller)
        assert bool(said[caller]) == is_stopped, said
        assert lake.left() == before or not (is_stopped or caller == "plan")
    for words, stopped in refusals.items():
        sentences = {sentence_with(words, said[caller]) for caller in stopped.split()}
        assert len(sentences) == 1, sentences


def test_of_two_refusals_everybody_is_told_the_first(lake: Lake, run: Run, instance: dg.DagsterInstance) -> None:
    moves(lake)
    objects("lake/d")(lake)
    callers = Callers(lake, run, instance)
    for caller in Callers.names:
        told = callers.told(caller)
        assert ["the data of lake is at " in line for line in told if "lake" in line] == [True], told


@pytest.mark.parametrize("case", ["the head is ahead", "a policy was edited", "far more than usual would go"])
def test_a_run_of_all_steps_is_told_the_same_as_the_job_that_sweeps(
    case: str, lake: Lake, run: Run, instance: dg.DagsterInstance
) -> None:
    happens, refusals = LEDGERS[case]
    happens(lake)
    before, callers = lake.left(), Callers(lake, run, instance)
    (words,) = refusals
    assert sentence_with(words, callers.told_by("run", "--yes")) == sentence_with(words, callers.run())
    assert lake.left() == before


def sentence_with(words: str, lines: Sequence[str]) -> str:
    """The rest of the line that has these words, without numbers: the record goes on, and each order is about other marks."""
    found = [words + line.partition(words)[2] for line in lines if words in line]
    assert found, (words, lines)
    rests = [line.partition("`retention audit verify`")[2] if words.endswith("failed. ") else line for line in found]
    alike = {re.sub(r"[0-9]+", "9", rest) for rest in rests}
    assert len(alike) == 1, alike
    return alike.pop()

"""The asset `swept_transactions` without Dagster around it: what it refuses, what it is told to look at, and what it says.

Belongs here: the step, and the small resources by which it talks to people. What is deleted is tested with the sweep.
"""

import os
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from retention_assets.dagster import checks
from retention_assets.dagster import sweeping as assets
from retention_assets.dagster.assets import candidate_marks, transaction_log
from retention_assets.dagster.check_queries import CHECKS, Check, CheckScope
from retention_assets.dagster.partitions import DatasetPage, RetentionAsset
from retention_assets.dagster.step import Step, sentences_of_faults
from retention_assets.dagster.sweeping import report_progress, report_store_warnings, swept_transactions
from retention_assets.datasets import DatasetFilter
from retention_assets.environment import Environment
from retention_assets.errors import Refused
from retention_assets.ledger import Publication, Violation
from retention_assets.ledger.ledger import LedgerHead
from retention_assets.outcomes import Outcome
from retention_assets.people.audit import AcceptRequest, audit_accept
from retention_assets.pipeline import sweep_stage
from retention_assets.pipeline.warehouse import Warehouse
from retention_assets.policy import Hold
from retention_assets.stores.files.settings import FilesSettings
from retention_assets.stores.files.store import FilesStore
from retention_assets.stores.protocol import SweptTarget, Target
from retention_assets.sweep import SweepResult
from retention_assets_tests.ledger.states import write_past_ledger
from retention_assets_tests.local_spark import LocalSpark
from retention_assets_tests.sweep.lakes import DUE, Lake

SOME = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@1d=10"
ALL = {"S1", "S2", "S3"}
CHECK = "limits_are_respected"


@dataclass
class Said:
    """What a run said to people."""

    infos: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def info(self, words: str) -> None:
        self.infos.append(words)

    def warning(self, words: str) -> None:
        self.warnings.append(words)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Two datasets with two marks each that are due."""
    lake = Lake(tmp_path / "lake").has(SOME).has(SOME, "lake/e")
    assert lake.marks() == 4
    return lake


def running(lake: Lake, instance: dg.DagsterInstance, *globs: str, prefix: Sequence[str] = ()) -> tuple[Step, Said]:
    """The step of a run over some datasets, and what it says."""
    said = Said()
    run = dg.DagsterRun(job_name="delete_sweep", run_id="0b7c1c5e-2f0e-4f9e-9d70-3f1ab2d6a1c4")
    key, warehouse = dg.AssetKey([*prefix, "swept_transactions"]), Warehouse(root=str(lake.folder / "warehouse"))
    log: Any = said
    nothing: Any = None
    about = DatasetFilter(globs or ("*",))
    return Step(key, run, instance, log, Environment(lake.settings), nothing, warehouse, about, DUE), said


def swept(run: Step) -> Any:
    """The data of a step that sweeps."""
    with run.within_ledger() as opened:
        return swept_transactions.work(*opened)["data"].value


def rows(metadata: Any) -> list[dict[str, Any]]:
    return list(metadata["by_dataset"])


def test_only_what_was_chosen_is_swept_and_what_went_wrong_stands_first(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.has(SOME, "lake/g").has(SOME, "lake/zz").marks()
    lake.branches("rescue", "S2")
    lake.branches("older", "S1")
    lake.branches("main", "S1", "lake/zz")
    run, said = running(lake, instance, "lake/d", "lake/e", "lake/zz")
    metadata = swept(run)
    numbers = ("datasets", "refused", "stopped", "deleted", "already_gone", "failed", "spared", "expiring")
    assert [metadata[name] for name in numbers] == [3, 1, False, 2, 0, 0, 2, 0]
    assert (lake.there(), lake.there("lake/e"), lake.there("lake/g"), lake.there("lake/zz")) == (ALL, {"S3"}, ALL, ALL)
    found = rows(metadata)
    assert [(row["dataset"], row["deleted"], row["spared"]) for row in found] == [
        ("lake/zz", 0, 0), ("lake/d", 0, 2), ("lake/e", 2, 0),
    ]  # fmt: skip
    assert "its log is not sound" in found[0]["refused"]
    assert [row["refused"] for row in found[1:]] == ["", ""]
    assert metadata["bytes_freed"] == sum(row["bytes_freed"] for row in found) > 0
    assert said.warnings == [f"lake/zz: {found[0]['refused']}"]
    assert said.infos[-1].startswith("lake/zz: 0 deleted, 0 already gone")
    assert "lake/d: 0 deleted, 0 already gone, 0 failed, 2 spared" in " ".join(said.infos)
    assert metadata["as_of"] == DUE.isoformat()
    # By whom, so that the record names the run.
    assert [(row["dataset"], row["marks"]) for row in metadata["spared_at_the_door"]] == [("lake/d", 1)] * 2
    with lake.opened() as ledger:
        changed = {row["changed_by"] for row in ledger.marks.table(statuses=["SWEPT", "SPARED"]).to_pylist()}
    assert changed == {run.actor}


def test_what_failed_and_what_a_store_has_to_say_are_warnings_of_the_run(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sweep(_: FilesStore, dataset: str, targets: Sequence[Target], *__: object) -> list[SweptTarget]:
        outcome = Outcome.FAILED if dataset == "lake/e" else Outcome.DELETED
        return [
            SweptTarget(one.transaction, outcome, 0, f"{one.transaction} is odd" if one.transaction == "S2" else None)
            for one in targets
        ]

    monkeypatch.setattr(FilesStore, "warnings", lambda _: ["an index is missing"])
    monkeypatch.setattr(FilesStore, "sweep", sweep)
    run, said = running(lake, instance)
    metadata = swept(run)
    assert said.warnings == ["lake: an index is missing", "lake/d: S2 is odd", "lake/e: S2 is odd"]
    assert [(row["dataset"], row["failed"], row["errors"]) for row in rows(metadata)] == [
        ("lake/e", 2, "S2 is odd"), ("lake/d", 0, ""),
    ]  # fmt: skip
    assert (metadata["failed"], metadata["deleted"], metadata["refused"]) == (2, 2, 0)


def interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch that goes is followed by a signal."""
    sweep, signals = FilesStore.sweep, [signal.SIGTERM]

    def interrupted(*about: Any) -> Any:
        swept = sweep(*about)
        # A second one would end the tests.
        if signals:
            os.kill(os.getpid(), signals.pop())
        return swept

    monkeypatch.setattr(FilesStore, "sweep", interrupted)


def test_a_signal_ends_the_sweep_after_the_batch_and_the_run_says_so(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupts(monkeypatch)
    metadata = swept(running(lake, instance)[0])
    # Both were planned together, and the batch in flight was of one of them.
    assert (metadata["stopped"], metadata["datasets"], metadata["deleted"]) == (True, 2, 2)
    assert (lake.there(), lake.there("lake/e")) == ({"S3"}, ALL)


def test_a_signal_ends_the_tasks_of_a_sweep_as_well(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is asked to end is not who sweeps: the word goes through the ledger, also while a task waits for its next batch."""
    monkeypatch.setattr(assets, "is_for_tasks", lambda *_: True)
    monkeypatch.setattr(sweep_stage, "_SECONDS", 0.05)
    slow = "{name: old, datasets: {include: ['lake/*']}, select: {older_than: 30d}, sweep: {every: 20s, batch: 1}}"
    lake = Lake(tmp_path / "slow", policies=slow).has(SOME)
    assert lake.marks() == 2
    interrupts(monkeypatch)
    spark: Any = LocalSpark()
    metadata = swept(replace(running(lake, instance)[0], pyspark=spark))
    assert (metadata["stopped"], metadata["datasets"], metadata["deleted"]) == (True, 1, 1)
    assert lake.there() == {"S2", "S3"}


# --- objections of checks ---


def judged(lake: Lake, *datasets: str) -> None:
    """Verdicts of some datasets are published, by an earlier run."""
    with lake.opened() as ledger:
        ledger.publications.publish([Publication("candidate_marks", name, "w/c/r1", "r1") for name in datasets], "run r1")


def check_of(*violations: Violation, fault: Exception | None = None, name: str = CHECK, blocking: bool = True) -> Check:
    """A check of what was judged, with what it finds."""

    def limits_are_respected(_: CheckScope) -> Sequence[Violation]:
        if fault:
            raise fault
        return violations

    return Check(name, "", "None.", limits_are_respected, blocking)


def query(lake: Lake, instance: dg.DagsterInstance, check: Check) -> Any:
    """The result of a check in a run."""
    with lake.opened() as ledger:
        return checks.query(CheckScope(running(lake, instance)[0], ledger), check)


def evaluate(lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, *violations: Violation) -> None:
    """The check is evaluated in a run, and says this."""
    check = check_of(*violations)
    monkeypatch.setitem(CHECKS, "candidate_marks", (check,))
    query(lake, instance, check)


WRONG = Violation("lake/d", "five, not three")


def test_a_dataset_that_a_check_objects_to_is_not_swept_by_any_run_and_the_others_are(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(lake, "lake/d", "lake/e")
    evaluate(lake, instance, monkeypatch, WRONG)
    # Another instance, which knows of no run and no check.
    with dg.DagsterInstance.ephemeral() as other:
        run, said = running(lake, other)
        done = swept(run)
    assert (done["deleted"], done["refused"], done["datasets"]) == (2, 1, 2)
    assert (lake.there(), lake.there("lake/e")) == (ALL, {"S3"})
    (refused,) = [row["refused"] for row in rows(done) if row["dataset"] == "lake/d"]
    assert refused.startswith(f"nothing of lake/d is swept: {CHECK} failed in run 0b7c1c5e")
    assert "five, not three" in refused
    assert "retention run --mark-only" in refused
    assert said.warnings == [f"lake/d: {refused}"]
    assert set(lake.statuses().values()) == {"MARKED"}
    assert lake.verified() == ()


def test_a_check_that_names_no_dataset_or_could_not_be_evaluated_objects_to_all_that_were_judged(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(lake, "lake/d")
    check = check_of(fault=ZeroDivisionError("by nothing"))
    monkeypatch.setitem(CHECKS, "candidate_marks", (check,))
    with pytest.raises(ZeroDivisionError):
        query(lake, instance, check)
    done = swept(running(lake, instance)[0])
    assert (done["refused"], done["deleted"]) == (1, 2)
    (refused,) = [row["refused"] for row in rows(done) if row["dataset"] == "lake/d"]
    assert "it could not be evaluated: ZeroDivisionError: by nothing" in refused
    lake.has(SOME, "lake/g").marks()
    judged(lake, "lake/d", "lake/g")
    evaluate(lake, instance, monkeypatch, Violation("", "the clock is odd"))
    assert swept(running(lake, instance)[0])["refused"] == 2
    assert (lake.there(), lake.there("lake/g")) == (ALL, ALL)


def test_an_objection_is_taken_back_when_the_check_passes_for_that_dataset_and_not_before(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(lake, "lake/d", "lake/e")
    evaluate(lake, instance, monkeypatch, WRONG, Violation("lake/e", "nor is this"))
    evaluate(lake, instance, monkeypatch, WRONG)
    assert standing(lake) == ["lake/d"]
    # A check of something else takes nothing back, nor does one that only warns.
    query(lake, instance, check_of(name="another"))
    query(lake, instance, check_of(blocking=False))
    assert standing(lake) == ["lake/d"]
    evaluate(lake, instance, monkeypatch)
    assert standing(lake) == []
    assert swept(running(lake, instance)[0])["deleted"] == 4
    # It may object again.
    evaluate(lake, instance, monkeypatch, WRONG)
    assert standing(lake) == ["lake/d"]
    assert lake.verified() == ()


def standing(lake: Lake) -> list[str]:
    with lake.opened() as ledger:
        return [one.dataset for one in ledger.objections.standing()]


def test_a_run_takes_back_nothing_of_datasets_that_it_did_not_judge(
    lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged(lake, "lake/d", "lake/e")
    evaluate(lake, instance, monkeypatch, WRONG)
    with lake.opened() as ledger:
        mine = running(lake, instance)[0].run.run_id
        ledger.publications.publish([Publication("candidate_marks", "lake/e", "w/c/r2", mine)], f"run {mine}")
    evaluate(lake, instance, monkeypatch)
    assert standing(lake) == ["lake/d"]


# --- a ledger that is not what was recorded, or not the newest ---


TAMPERED = {
    "a hold": ("UPDATE holds SET content = replace(content, 'lake/x', 'lake/y')", "rules_are_as_recorded", "of holds was changed past the ledger"),
    "a hold that was removed": ("DELETE FROM holds", "rules_are_as_recorded", "of holds was removed past the ledger"),
    "a policy": ("UPDATE policy_versions SET written_by = 'x'", "rules_are_as_recorded", "of policy_versions was changed"),
    "the clock": ("UPDATE clock SET newest_seen_at = 1", "rules_are_as_recorded", "Row 1 of clock was changed"),
    "a due mark": ("UPDATE marks SET \"transaction\" = 'S3' WHERE id = 1", "due_marks_are_as_recorded", "Mark 1 (S3 of lake/d) was changed"),
    "a mark's policy": ("UPDATE marks SET policy_version = 7", "marks_have_a_policy_and_a_reason", "4 violations in 2 datasets. lake/d: "),
    "a mark's reason": ("UPDATE marks SET reason = 'BECAUSE'", "marks_have_a_policy_and_a_reason", "4 violations in 2 datasets. lake/d: "),
    "a mark's time": ("UPDATE marks SET marked_at = marked_at - 1, due_at = due_at - 1 WHERE id = 1", "mark_times_are_monotonic", "violation"),
    "when a mark is due": ("UPDATE marks SET due_at = marked_at WHERE dataset = 'lake/d'", "mark_times_are_monotonic", "lake/d: S1 is due"),
    "an objection": ("UPDATE objections SET withdrawn_at = raised_at", "rules_are_as_recorded", "Row lake/z, c of objections was changed"),
}  # fmt: skip


@pytest.mark.parametrize("case", TAMPERED)
def test_a_sweep_of_a_ledger_that_was_tampered_with_sweeps_nothing_and_names_the_row(
    lake: Lake, instance: dg.DagsterInstance, case: str
) -> None:
    statement, check, sentence = TAMPERED[case]
    with lake.opened() as ledger:
        held = {"name": "h", "datasets": ["lake/x"], "reason": "r", "owner": "ann"}
        ledger.holds.place(Hold.model_validate(held), "ann")
        ledger.objections.object({"lake/z": "a reason"}, "c", "run")
        assert write_past_ledger(ledger, statement)
    with pytest.raises(dg.Failure) as failure, sentences_of_faults():
        swept_transactions.do(running(lake, instance)[0])
    said = str(failure.value.description)
    assert said.startswith(f"Nothing is swept. {check} failed. ")
    assert sentence in said
    assert "retention audit accept --reason" in said
    assert failure.value.allow_retries is False
    assert (lake.there(), lake.there("lake/e")) == (ALL, ALL)


def test_a_ledger_that_is_not_the_newest_of_its_warehouse_sweeps_nothing(lake: Lake, instance: dg.DagsterInstance) -> None:
    with lake.opened() as ledger:
        newer = LedgerHead(ledger.id, 99, "a" * 64)
    Environment(lake.settings).head_file.write(newer)
    with pytest.raises(Refused, match=r"Nothing is swept\. .*HEAD\.json knows row 99 .*an older copy of the ledger"):
        swept(running(lake, instance)[0])
    assert (lake.there(), lake.there("lake/e")) == (ALL, ALL)
    run, said = running(lake, instance)
    with lake.opened() as ledger:
        assert run.clean_warehouse(ledger, ["transaction_log"]) == 0
    assert said.warnings[0].startswith("No folder of the warehouse was removed. ")
    audit_accept(AcceptRequest(actor="ann", reason="restored"), Environment(lake.settings))
    assert swept(running(lake, instance)[0])["deleted"] == 4


@pytest.mark.parametrize("asset", [swept_transactions, candidate_marks, transaction_log])
def test_no_step_begins_in_a_warehouse_of_another_ledger(
    lake: Lake, instance: dg.DagsterInstance, asset: RetentionAsset
) -> None:
    Environment(lake.settings).head_file.write(LedgerHead("another", 1, "a" * 64))
    with pytest.raises(Refused, match=r"Nothing is written or removed there: .* belongs to ledger another"):
        asset.do(running(lake, instance)[0])
    assert lake.there() == ALL


def test_marks_that_were_tampered_with_stop_a_sweep_of_their_dataset_and_no_other(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    with lake.opened() as ledger:
        assert write_past_ledger(ledger, "UPDATE marks SET reason = 'BECAUSE' WHERE dataset = 'lake/d'") == 2
    with pytest.raises(Refused, match=r"Nothing is swept\. marks_have_a_policy_and_a_reason failed"):
        swept(running(lake, instance)[0])
    assert (lake.there(), lake.there("lake/e")) == (ALL, ALL)
    assert swept(running(lake, instance, "lake/e")[0])["deleted"] == 2
    assert (lake.there(), lake.there("lake/e")) == (ALL, {"S3"})


def test_no_store_is_opened_that_nothing_is_swept_of(lake: Lake) -> None:
    opened = Environment(lake.settings)
    assert (list(opened.stores(["lake", "ods"])), opened.stores(["ods"]), list(opened.stores())) == (["lake"], {}, ["lake"])


# --- what people are told ---


class Remarks(FilesStore):
    """A store of which only the remarks are asked."""

    def __init__(self, name: str, said: list[str] | None) -> None:
        super().__init__(FilesSettings(name=name, log="log", data="data/{dataset}/{transaction}"))
        self.said = said

    def warnings(self) -> list[str]:
        if self.said is None:
            raise OSError("away")
        return self.said


def test_a_store_that_is_away_hides_no_others_remarks() -> None:
    said = Said()
    stores = [Remarks("a", ["one", "two"]), Remarks("b", None), Remarks("c", ["three"])]
    log: Any = said
    report_store_warnings(stores, log)
    assert said.warnings == ["a: one", "a: two", "c: three"]


RESULT = SweepResult("lake/d", 9, bytes_freed=70)
RESULT.outcomes.update({Outcome.DELETED: 3, Outcome.ALREADY_GONE: 1, Outcome.FAILED: 2, Outcome.EXPIRING: 1})


def test_a_log_is_told_each_number_what_was_only_hidden_and_why_nothing_more_was_done() -> None:
    lines: list[str] = []
    with report_progress(lines.append) as tell:
        tell(RESULT)
        tell(replace(RESULT, refused="Somebody has it."))
        tell(replace(RESULT, outcomes=Counter({Outcome.HIDDEN: 2, Outcome.DELETED: 1}), bytes_hidden=50))
    told = "lake/d: 3 deleted, 1 already gone, 2 failed, 0 spared, 1 expiring, 70 B freed."
    hidden = "lake/d: 1 deleted, 0 already gone, 2 hidden, 0 failed, 0 spared, 0 expiring, 70 B freed, 50 B hidden."
    assert lines == [told, f"{told} Somebody has it.", hidden]


def test_a_terminal_has_one_bar_for_the_dataset_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    lines: list[str] = []
    with report_progress(lines.append) as tell:
        tell(RESULT)
        tell(SweepResult("lake/e", 2))
        tell(replace(RESULT, dataset="lake/e"))
    assert lines == []
    assert "lake/e" in terminal.getvalue()


# --- partitions that get a page ---


def pages(run: Step, name: str, refused: str = "", /, **numbers: int) -> list[DatasetPage]:
    """The pages of a sweep that had one dataset to do."""
    row = {**dict.fromkeys([*(outcome.value.lower() for outcome in Outcome), "bytes_freed"], 0), "errors": ""}
    assert swept_transactions.pages
    data = dg.MetadataValue.json({"by_dataset": [{"dataset": name, **row, **numbers, "refused": refused}]})
    with run.retention.ledger() as ledger:
        return list(swept_transactions.pages(run, ledger, {"data": data}))


@pytest.mark.parametrize("outcome", [outcome.value.lower() for outcome in Outcome])
def test_a_dataset_to_which_a_sweep_did_something_gets_a_page(lake: Lake, instance: dg.DagsterInstance, outcome: str) -> None:
    run, _ = running(lake, instance)
    assert [page.dataset for page in pages(run, "lake/d", **{outcome: 1})] == ["lake/d"]
    assert pages(run, "lake/d", bytes_freed=1) == []
    assert [page.summary for page in pages(run, "lake/d", "its store is away")] == ["**Not swept**: its store is away"]

"""What a run and its tasks tell each other by way of the ledger."""

from datetime import timedelta

from retention_assets.ledger import SILENCE, Ledger, scan_lease
from retention_assets.ledger.schema import LEASES, TASK_PROGRESS
from retention_assets.policy.model import Hold
from retention_assets_tests.ledger.states import T0, take_lease, write_past_ledger

RUN = "run 1"


def test_a_task_hears_that_it_has_to_stop_and_the_first_reason_stands(ledger: Ledger) -> None:
    runs = ledger.sweep_runs
    runs.beat(RUN)
    runs.beat("run 2")
    assert runs.report(RUN, 0, "a") is None
    runs.stop(RUN, "They said so.")
    runs.stop(RUN, "Others too.")
    assert (runs.report(RUN, 0, "b"), runs.stop_requested(RUN)) == ("They said so.", "They said so.")
    assert runs.report("run 2", 0, "c") is None


def test_a_task_stops_when_whoever_started_its_run_is_silent(ledger: Ledger) -> None:
    runs = ledger.sweep_runs
    assert "was not heard of" in (runs.report(RUN, 0, "") or "")
    runs.beat(RUN)
    assert runs.report(RUN, 0, "") is None
    with ledger.database.reading() as connection:
        told = max(row.told_at for row in connection.execute(TASK_PROGRESS.select()))
    for seconds, is_silent in ((SILENCE / 2, False), (SILENCE + 1, True)):
        earlier = TASK_PROGRESS.update().where(TASK_PROGRESS.c.task < 0)
        write_past_ledger(ledger, earlier.values(told_at=told - timedelta(seconds=seconds)))
        assert (runs.stop_requested(RUN) is not None) == is_silent


def test_a_task_that_is_started_once_more_takes_the_others_place(ledger: Ledger) -> None:
    runs = ledger.sweep_runs
    runs.beat(RUN)
    for task, words in ((1, "b"), (0, "a"), (1, "more of b")):
        runs.report(RUN, task, words)
    runs.report("run 2", 0, "another")
    assert runs.progress(RUN) == ["a", "more of b"]


def test_what_is_abandoned_was_this_runs_and_is_over(ledger: Ledger) -> None:
    for dataset in ("lake/held", "lake/lost", "lake/given up", scan_lease("blobs")):
        lease = take_lease(ledger, dataset, RUN)
        if dataset == "lake/given up":
            ledger.leases.give_up([lease])
    take_lease(ledger, "lake/another's", "run 2")
    for dataset in ("lake/lost", "lake/another's", scan_lease("blobs")):
        write_past_ledger(
            ledger, LEASES.update().where(LEASES.c.dataset == dataset).values(expires_at=T0 - timedelta(days=9_000))
        )
    assert ledger.sweep_runs.abandoned(RUN) == ["lake/lost"]


def test_a_hold_of_a_file_changes_what_protects_and_is_read_back_as_it_was(ledger: Ledger) -> None:
    until = T0 + timedelta(days=9)
    holds = (
        Hold.model_validate({"name": "court", "reason": "r", "datasets": {"include": ["lake/*"], "with": {"realm": "x"}}}),
        Hold.model_validate({"reason": "r", "until": until, "datasets": {"include": ["*"]}, "transactions": ("T1*",)}),
    )
    said = [ledger.leases.protections()]
    for some in (holds[:1], holds, holds[1:], ()):
        ledger.holds.note_files(some, "me")
        assert sorted(map(str, ledger.holds.of_files())) == sorted(map(str, some))
        said.append(ledger.leases.protections())
    assert len(set(said[:4])) == 4
    assert said[4] == said[0]

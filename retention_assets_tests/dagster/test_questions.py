"""The questions as jobs: what each answers, that it changes nothing, and that whoever mistypes a name is helped."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from retention_assets.definitions import build_defs
from retention_assets.people.operation import KIND_TAG
from retention_assets.policy.durations import text_of
from retention_assets.policy.model import Datasets, Hold
from retention_assets.settings.model import Settings
from retention_assets_tests.dagster.launch import run
from retention_assets_tests.sweep.lakes import DUE, MARKED, Lake

# S1 and S2 are marked; S3 is the latest view, and S2 is 20 days younger than S1.
SOME = "main: S1:SNAPSHOT@90d=1024 - S2:SNAPSHOT@70d=2048 - S3:SNAPSHOT@1d=10"
SCHEDULED = "This transaction has been scheduled for deletion."
DELETED = "Transaction data has been deleted."
ALL: tuple[tuple[str, dict[str, Any]], ...] = (
    ("upcoming", {}), ("explain", {"dataset": "lake/a"}), ("explain", {"dataset": "lake/a", "transaction": "S1"}),
    ("history", {"dataset": "lake/a"}), ("preview", {}),
)  # fmt: skip


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake").has(SOME, "lake/a").has(SOME.replace("1024", "4096"), "lake/b")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


def shown(lake: Lake, instance: dg.DagsterInstance, job: str, **config: Any) -> Mapping[str, Any]:
    """What the run shows; its answer, which stands first, is `answer`."""
    ran = run(lake.settings, instance, job, config)
    assert ran.success
    (event,) = [event for event in ran.all_events if event.is_successful_output]
    assert next(iter(event.step_output_data.metadata)) == "answer"
    return {name: value.value for name, value in event.step_output_data.metadata.items()}


def answer(lake: Lake, instance: dg.DagsterInstance, job: str, **config: Any) -> str:
    return str(shown(lake, instance, job, **config)["answer"])


def refusal(lake: Lake, instance: dg.DagsterInstance, job: str, **config: Any) -> str:
    (event,) = run(lake.settings, instance, job, config).get_step_failure_events()
    failed = event.step_failure_data.user_failure_data
    assert failed is not None
    return str(failed.description)


def hold(lake: Lake, name: str, *transactions: str, **datasets: Any) -> None:
    placed = Hold(
        name=name, datasets=Datasets(**{"include": ("lake/a",), **datasets}), transactions=transactions or None, reason="r"
    )
    with lake.opened() as ledger:
        ledger.holds.place(placed, "bob")


@pytest.mark.parametrize(("job", "config"), ALL)
def test_who_looks_changes_nothing(job: str, config: dict[str, Any], lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.marks()
    with lake.opened() as ledger:
        before = list(ledger.audit_lines())
    answer(lake, instance, job, **config)
    with lake.opened() as ledger:
        assert list(ledger.audit_lines()) == before


@pytest.mark.parametrize(("job", "config"), ALL)
def test_who_looks_where_there_is_no_ledger_makes_none(
    job: str, config: dict[str, Any], lake: Lake, instance: dg.DagsterInstance
) -> None:
    assert answer(lake, instance, job, **config)
    assert not (lake.folder / "ledger.db").exists()


# --- what goes next ---


def test_what_goes_is_told_by_name_and_size_the_largest_first(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.marks()
    found = shown(lake, instance, "upcoming")
    assert found["answer"].startswith(
        "**4 transactions (9.0 KiB) of 2 datasets go until 2026-04-07 12:00 UTC.**\n\n"
        "| dataset | transactions | size | first due | policies |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| `lake/b` | 2 | 6.0\u00a0KiB | 2026-04-07 12:00 UTC | `old` |\n"
        "| `lake/a` | 2 | 3.0\u00a0KiB | 2026-04-07 12:00 UTC | `old` |\n\n"
        "| due | transactions | size |\n"
        "| --- | --- | --- |\n"
        "| 2026-04-07 (in 7 days) | 4 | 9.0\u00a0KiB |\n\n"
    )
    rows = [(row.data["dataset"], row.data["transaction"], row.data["bytes"]) for row in found["first"].records]
    assert rows == [("lake/a", "S1", 1024), ("lake/a", "S2", 2048), ("lake/b", "S1", 4096), ("lake/b", "S2", 2048)]


@pytest.mark.parametrize(
    ("config", "datasets", "amount"),
    [
        ({"days": 6}, 0, 0),
        ({"datasets": ["lake/[b-z]"]}, 1, 2),
        ({"days": 0, "as_of": text_of(DUE)}, 2, 4),
    ],
)
def test_what_goes_is_narrowed_by_days_and_names(
    config: dict[str, Any], datasets: int, amount: int, lake: Lake, instance: dg.DagsterInstance
) -> None:
    lake.marks()
    found = shown(lake, instance, "upcoming", **config)
    assert (found["datasets"], found["transactions"]) == (datasets, amount)
    assert ("due already" in found["answer"]) == ("as_of" in config)


def test_what_a_hold_keeps_does_not_go(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.marks()
    hold(lake, "audit", "S1")
    hold(lake, "tagged", **{"with": {"tier": "gold"}})
    found = shown(lake, instance, "upcoming")
    assert (found["transactions"], found["held"]) == (3, 1)
    assert "* 1 that fall due as well are kept by the hold `audit`." in found["answer"]
    assert "* The hold `tagged` asks for attributes of datasets" in found["answer"]
    lake.says(lake.policies, "{name: filed, datasets: 'lake/*', reason: law}")
    assert answer(lake, instance, "upcoming").startswith("**Nothing goes until")


def test_days_have_bounds(lake: Lake, instance: dg.DagsterInstance) -> None:
    assert refusal(lake, instance, "upcoming", days=-1) == "days: is out of bounds (found -1); expected at least 0"


# --- why ---


def test_of_what_is_marked_the_message_is_said_with_when_and_how_to_take_it_back(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    lake.marks()
    found = shown(lake, instance, "explain", dataset=" lake/a ", transaction="S1")
    assert found["answer"].startswith(
        f"**S1 of lake/a: {SCHEDULED}**\n\n"
        "It is due at 2026-04-07T12:00:00Z, by policy old@1. To keep it: the job `keep`, or `retention keep lake/a S1 --reason …`."
    )
    assert (
        "Judged at 2026-03-31T12:00:00Z: **mark** by policy `old`. Policy 'old' selects it and nothing protects it: it is marked"
        in found["answer"]
    )
    assert "* Branch `main`: 2 views behind the latest one" in found["answer"]
    assert (found["message"], found["mark"], found["verdict"]) == (SCHEDULED, "MARKED", "mark")


def test_of_what_is_swept_the_message_is_said(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.marks()
    lake.sweeps()
    said = answer(lake, instance, "explain", dataset="lake/a", transaction="S1")
    assert said.startswith(f"**S1 of lake/a: {DELETED}**\n\nIt was deleted at 20")
    assert "* Branch" not in said


def test_what_is_in_no_log_any_more_is_explained_by_the_ledger(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.marks()
    lake.sweeps()
    log = lake.folder / "log" / "lake-a.jsonl"
    log.write_text(log.read_text().replace("S1", "S0"))
    assert DELETED in answer(lake, instance, "explain", dataset="lake/a", transaction="S1")
    log.unlink()
    assert DELETED in answer(lake, instance, "explain", dataset="lake/a", transaction="S1")
    said = answer(lake, instance, "explain", dataset="lake/a")
    assert said == "**lake/a is in no store any more: 2 deleted (3.0 KiB).**"


def test_of_what_is_held_since_it_was_marked_it_is_said_that_the_sweep_spares_it(
    lake: Lake, instance: dg.DagsterInstance
) -> None:
    lake.marks()
    hold(lake, "audit", "S1")
    said = answer(lake, instance, "explain", dataset="lake/a", transaction="S1")
    assert "held by audit, so it is not swept" in said
    assert (
        "**spare** by policy `old`. Policy 'old' selects it, but something protects it: it is spared. It is marked: the sweep looks"
        in said
    )


def test_what_is_kept_says_by_what(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.marks()
    said = answer(lake, instance, "explain", dataset="lake/a", transaction="S3")
    assert said.startswith("**S3 of lake/a: No policy selects it, so it stays.**")
    assert "* It is younger than policy 'old' asks for." in said


def test_a_dataset_is_told_in_a_summary(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.marks()
    with lake.opened() as ledger:
        ledger.unmark.transactions("lake/a", ["S2"], "bob", "r")
    lake.sweeps()
    hold(lake, "audit")
    found = shown(lake, instance, "explain", dataset="lake/a")
    assert found["answer"].startswith(
        "**lake/a has 3 transactions (3.0 KiB): 1 spared (2.0 KiB), 1 kept (10 B), 1 deleted (1.0 KiB).**"
    )
    assert found["states"] == {"SWEPT": 1, "keep": 1, "spare": 1}
    assert f"| `S1` | SNAPSHOT | 2025-12-31 12:00 UTC | 1.0\u00a0KiB | deleted | {DELETED} |" in found["answer"]
    assert "* Held by `audit`." in found["answer"]


def test_what_falls_due_next_stands_in_the_summary(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.marks()
    said = answer(lake, instance, "explain", dataset="lake/a")
    assert f"{SCHEDULED} That is said of these, which fall due next:" in said
    assert "| `S1` | 1.0\u00a0KiB | 2026-04-07 12:00 UTC (in 7 days) | `old` |" in said


def test_a_new_transaction_under_an_old_id_is_not_told_as_deleted(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.marks()
    lake.sweeps()
    lake.comes_again("S1", "lake/a", closed_at="2026-01-01T00:00:00Z")
    assert shown(lake, instance, "explain", dataset="lake/a")["states"] == {"SWEPT": 1, "keep": 1, "mark": 1}


def test_that_a_dataset_is_refused_is_an_answer(lake: Lake, instance: dg.DagsterInstance) -> None:
    log = lake.folder / "log" / "lake-a.jsonl"
    log.write_text(log.read_text().replace('"S1"', '"S0"', 1))
    said = answer(lake, instance, "explain", dataset="lake/a")
    assert said.startswith("**lake/a is refused: ")
    assert said.endswith("Until then nothing of it is judged, marked or swept.")


@pytest.mark.parametrize("job", ["explain", "history"])
@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        ("", "dataset: is empty (found ''); expected a dataset, as store/name"),
        ("b", "the settings have no store named b (found 'b'). Did you mean lake/b?"),
        ("lake/c", "dataset 'lake/c' is not in store lake. Did you mean lake/b or lake/a?"),
        ("LAKE/A", "the settings have no store named LAKE (found 'LAKE/A'). Did you mean lake/a?"),
    ],
)
def test_a_name_that_is_not_there_is_answered_with_those_that_are_near(
    job: str, dataset: str, words: str, lake: Lake, instance: dg.DagsterInstance
) -> None:
    lake.marks()
    assert refusal(lake, instance, job, dataset=dataset).endswith(words)


# --- what happened ---


def test_what_happened_last_stands_first(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.marks()
    lake.sweeps()
    found = shown(lake, instance, "history", dataset="lake/a")
    assert found["answer"].startswith("**lake/a: 2 deleted, 1 never marked.**\n\nWhat changed last stands first.")
    assert found["answer"].index("| `S1` |") < found["answer"].index("| `S3` |")
    rows = [row.data for row in found["history"].records]
    assert {row["transaction"]: (row["mark"], row["message"]) for row in rows} == {
        "S1": ("SWEPT", DELETED), "S2": ("SWEPT", DELETED), "S3": ("", ""),
    }  # fmt: skip


def test_the_history_of_some_is_told_alone(lake: Lake, instance: dg.DagsterInstance) -> None:
    lake.marks()
    with lake.opened() as ledger:
        ledger.unmark.transactions("lake/a", ["S2"], "bob", "still | needed")
    said = answer(lake, instance, "history", dataset="lake/a", transactions=["S2"])
    assert said.startswith("**lake/a: 1 taken back.**")
    assert "by bob: still \\| needed |" in said


def test_what_is_older_than_the_visibility_mark_is_counted(lake: Lake, instance: dg.DagsterInstance) -> None:
    run(lake.settings, instance, "advance_visibility", {"dataset": "lake/a", "retention": "1d", "as_of": text_of(MARKED)})
    found = shown(lake, instance, "history", dataset="lake/a")
    assert (found["transactions"], found["hidden"]) == (1, 2)
    assert "2 more are older than the visibility mark" in found["answer"]


# --- all jobs ---


def test_every_job_says_what_kind_it_is_and_those_that_delete_say_it_aloud() -> None:
    jobs = [job for job in build_defs(Settings()).get_repository_def().get_all_jobs() if not job.name.startswith("__ASSET")]
    kinds = {job.name: job.tags[KIND_TAG] for job in jobs}
    assert {name for name, kind in kinds.items() if kind == "delete"} == {"sweep", "sweep_partitions", "cycle"}
    assert {name for name, kind in kinds.items() if kind == "look"} == {"upcoming", "explain", "history", "preview", "forecast"}
    begins = {
        "look": "Looks, and changes nothing. ",
        "act": "Changes the record, and deletes nothing. ",
        "delete": "DELETES DATA. ",
    }
    assert [job.name for job in jobs if not (job.description or "").startswith(begins[kinds[job.name]])] == []


def test_every_field_of_a_form_says_what_it_is() -> None:
    for job in build_defs(Settings()).get_repository_def().get_all_jobs():
        if job.config_mapping is not None and KIND_TAG in job.tags:
            form: Any = job.config_mapping.config_schema.config_type
            assert [name for name, one in form.fields.items() if not one.description] == [], job.name

"""What `retention run` says went wrong: everything, also what a table that was cut no longer shows."""

import logging
from pathlib import Path

import pytest

from retention_assets.clock import now
from retention_assets.dagster.headless import _troubles, run_job
from retention_assets.dagster.step import mask_and_escape
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.sweep.lakes import Lake


def row(dataset: str, refused: str = "", failed: int = 0) -> dict[str, object]:
    return {"dataset": dataset, "refused": refused, "failed": failed, "errors": "disk on fire" if failed else ""}


@pytest.mark.parametrize(
    ("swept", "said"),
    [
        ({"by_dataset": [row("lake/d")], "refused": 0, "failed": 0}, []),
        ({"by_dataset": [row("lake/d", "by another")], "refused": 1, "failed": 0}, ["lake/d was not swept: by another"]),
        (
            {"by_dataset": [row("lake/d", failed=2)], "refused": 0, "failed": 2},
            ["lake/d: 2 could not be deleted; the next run tries again: disk on fire"],
        ),
        (
            {"by_dataset": [row("lake/d", "no")], "refused": 7, "failed": 3},
            [
                "lake/d was not swept: no",
                "… and 6 more datasets were not swept.",
                "… and 3 more transactions could not be deleted.",
            ],
        ),
        ({"by_dataset": [], "stopped": True}, ["The sweep was stopped early. The next run continues it."]),
    ],
)
def test_nothing_that_went_wrong_is_left_unsaid(swept: dict[str, object], said: list[str]) -> None:
    failed, refused = _troubles({"swept_transactions": swept})
    assert sorted([*failed, *refused]) == sorted(said)
    assert [words for words in refused if "not swept" not in words] == []


def test_a_refused_dataset_is_no_failure_and_a_store_that_is_away_is_one() -> None:
    rows = [
        {"dataset": "lake/d", "fault": "cycle", "transaction": "X"},
        {"dataset": "gone/*", "fault": "no route", "transaction": ""},
    ]
    read = {"refused_datasets": rows, "stores_away": 1}
    refused = ("lake/d was refused: cycle (transaction X)",)
    assert _troubles({"transaction_log": read}) == (("gone/* was not read: no route",), refused)
    assert _troubles({"transaction_log": {"refused_datasets": rows[:1], "stores_away": 0}}) == ((), refused)
    swept = {"by_dataset": [row("lake/d", "no answer")], "refused": 1, "failed": 0}
    assert _troubles({"swept_transactions": {**swept, "stores_away": 0}}) == ((), ("lake/d was not swept: no answer",))
    assert _troubles({"swept_transactions": {**swept, "stores_away": 1}}) == (("lake/d was not swept: no answer",), ())


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    return Lake(tmp_path / "lake")


def test_who_asks_for_everything_reads_the_trace(lake: Lake, capfd: pytest.CaptureFixture[str]) -> None:
    lake.says("{name: p}")
    run_job(lake.settings, "evaluate", AS_OF, log_level="debug")
    said = capfd.readouterr().err
    assert "Traceback" in said or "Stack Trace" in said
    assert " DEBUG " in said
    # Each entry begins with its instant; what else stands in it is indented, so that no name can look like an entry.
    assert {line[:2] for line in said.splitlines()} == {f"{now().year}"[:2], "  "}


def test_a_failure_says_its_step_and_its_sentence(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retention_assets.dagster.assets.load_rules", full_disk)
    ran = run_job(lake.settings, "evaluate", AS_OF)
    assert (ran.bad_input, ran.refused) == ((), ())
    assert ran.failed == (
        "retention_policies failed: cannot go on: no space is left. Make room, then run again: the run finishes "
        "what was begun ([Errno 28] No space left on device: '/data/x').",
    )


def full_disk(*_: object) -> None:
    raise OSError(28, "No space left on device", "/data/x")


def test_a_log_gives_no_orders_to_whoever_reads_it() -> None:
    logger = logging.getLogger("a-test-of-names")
    seen: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    logger.addFilter(mask_and_escape)
    logger.warning("lake/\x1b[2J%s\u202e")
    assert seen == ["lake/\\x1b[2J%s\\u202e"]

"""Which datasets a scanned store has for those who only ask: what its scans found, and none while its newest one failed."""

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from retention_assets.environment import Environment
from retention_assets.errors import Refused
from retention_assets.evaluation.changes import (
    ChangeReason,
    Listing,
    datasets_to_evaluate,
    list_datasets,
)
from retention_assets.ledger import EVALUATION_ROWS, Ledger, ScanClosing, ScanEnd, ScanStatus, scan_lease
from retention_assets.ledger.schema import SCANS
from retention_assets.settings import load_settings
from retention_assets.settings.sections import AutomationSettings
from retention_assets.stores.objects.scan_result import ObjectClass
from retention_assets.stores.objects.store import ObjectsStore
from retention_assets_tests.ledger.states import LATER, take_lease, write_past_ledger
from retention_assets_tests.stores.objects.scanner import Found

STORE = {
    "name": "blobs", "kind": "objects", "listing": {"path": "objects"}, "references": [{"lines": "refs"}], "dataset": "{0}",
}  # fmt: skip
SCANNED = Found({ObjectClass.REFERENCED: ["a/1", "b/1"]}).result("blobs").as_json()


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """A store whose objects can't be listed in passing."""
    (tmp_path / "retention.yaml").write_text(json.dumps({"ledger": f"sqlite:///{tmp_path}/ledger.db", "stores": [STORE]}))

    def datasets(_: ObjectsStore) -> list[str]:
        raise Refused("listed anew")

    def tokens(_: ObjectsStore, names: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(names, "today")

    monkeypatch.setattr(ObjectsStore, "datasets", datasets, raising=False)
    monkeypatch.setattr(ObjectsStore, "tokens", tokens, raising=False)
    return Environment(load_settings(tmp_path / "retention.yaml"))


def scanned(ledger: Ledger, status: ScanStatus, result: str | None = None) -> None:
    lease = take_lease(ledger, scan_lease("blobs"), "run")
    end = ScanEnd(status, "no last line" if status is ScanStatus.FAILED else None, {}, result)
    ledger.scans.publish([ScanClosing(lease, ledger.scans.begin(lease), end)], (), "run")
    ledger.leases.give_up([lease])


def test_a_store_that_was_never_scanned_is_asked_itself(environment: Environment) -> None:
    assert list_datasets(environment).away == {"blobs": "listed anew"}
    with environment.ledger():
        assert list_datasets(environment, with_tokens=True).away == {"blobs": "listed anew"}


@pytest.mark.parametrize("status", [ScanStatus.KEPT, ScanStatus.BRAKED])
def test_what_a_whole_scan_found_is_there_and_nothing_is_listed_anew(environment: Environment, status: ScanStatus) -> None:
    with environment.ledger() as ledger:
        scanned(ledger, status, SCANNED)
        found = list_datasets(environment, with_tokens=True)
    assert (found.names, found.away) == (("blobs/a", "blobs/b"), {})
    assert found.tokens == {"blobs/a": "today", "blobs/b": "today"}
    assert list_datasets(environment).names == ("blobs/a", "blobs/b")


def test_a_scan_that_failed_is_not_tried_at_every_tick_and_is_after_a_while(environment: Environment) -> None:
    with environment.ledger() as ledger:
        scanned(ledger, ScanStatus.KEPT, SCANNED)
        scanned(ledger, ScanStatus.FAILED)
        (away,) = list_datasets(environment, with_tokens=True).away.values()
        assert away.startswith("scan 2 failed: no last line; the next try is at 20")
        ended = ledger.scans.of("blobs", 2).ended_at
        assert ended
        earlier = SCANS.update().where(SCANS.c.id == 2).values(ended_at=ended - timedelta(minutes=61))
        write_past_ledger(ledger, earlier)
    assert list_datasets(environment, with_tokens=True).names == ("blobs/a", "blobs/b")
    # Whoever asks what there is can't know.
    assert list_datasets(environment).away == {"blobs": "scan 2 failed: no last line"}


HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("token", "looked", "then", "why"),
    [
        ("1", HOUR, HOUR / 2, {"lake/a": ChangeReason.TIME}),
        ("1", HOUR, HOUR, {"blobs/a": ChangeReason.TIME, "lake/a": ChangeReason.TIME}),
        ("2", HOUR, HOUR / 2, {"blobs/a": ChangeReason.LOG, "lake/a": ChangeReason.LOG}),
    ],
    ids=("an object turns old enough", "somebody asked for it", "another day"),
)
def test_time_alone_scans_nothing_again(token: str, looked: timedelta, then: timedelta, why: dict[str, ChangeReason]) -> None:
    """`looked` and `then` are so long ago."""
    names = ("blobs/a", "lake/a")
    present = Listing(names, {}, dict.fromkeys(names, token), frozenset({"blobs"}))
    look = {"token": "1", "rules": "r", "looked_at": LATER - looked, "next_look": LATER - then}
    looks = pa.Table.from_pylist([{"dataset": name, **look} for name in names], schema=EVALUATION_ROWS)
    automation = AutomationSettings.model_validate({"granularity": "1s"})
    assert datasets_to_evaluate(present, ["r", "r"], looks, LATER, automation, timedelta()) == why

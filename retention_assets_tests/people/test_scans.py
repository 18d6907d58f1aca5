"""`scans`: what is listed, what may be accepted and by whom, through the command and the job alike."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from retention_assets.definitions import build_defs
from retention_assets.ledger import Ledger
from retention_assets.ledger.scans import ScanClosing, ScanEnd, ScanRecord, ScanStatus, scan_lease
from retention_assets.pipeline.scans import scan_totals
from retention_assets.settings.model import load_settings
from retention_assets.stores.objects.scan_result import ObjectClass
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets_tests.dagster.launch import without_run
from retention_assets_tests.ledger.states import take_lease
from retention_assets_tests.people.conftest import Json, Run
from retention_assets_tests.stores.objects.scanner import Found

BLOBS = {
    "name": "blobs",
    "kind": "objects",
    "listing": {"path": "objects"},
    "references": [{"lines": "refs/*.jsonl"}],
    "scans_kept": 3,
}
HERE = {"folder": Path(".")}
ODD = "9 of 10 references name nothing"
RESULT = Found(
    {
        ObjectClass.REFERENCED: ["a/1", "b/1"], ObjectClass.UNREFERENCED: ["b/2"], ObjectClass.YOUNG: ["a/2"],
        ObjectClass.UNHANDLED: ["a/3"], ObjectClass.REALM_PURGE: ["c/1", "c/2"],
    }
).result("blobs")  # fmt: skip
WHY = ("--reason", "the prefix moved", "--actor", "ann")


@pytest.fixture
def ledger(ledger: Ledger) -> Ledger:
    """That of settings with two scanned stores and one that is not."""
    files = {"name": "lake", "kind": "files", "log": "log", "data": "data/{dataset}/{transaction}"}
    stores = [BLOBS, {**BLOBS, "name": "my objects", "listing": {"path": "more"}}, files]
    with open("retention.yaml", "w") as file:
        file.write(json.dumps({"stores": stores}))
    return ledger


def scanned(
    ledger: Ledger, status: ScanStatus = ScanStatus.KEPT, reason: str | None = None, store: str = "blobs", **judged: Any
) -> ScanRecord:
    lease = take_lease(ledger, scan_lease(store), "run 1")
    counted = (None, None) if status is ScanStatus.FAILED else (scan_totals(RESULT), replace(RESULT, **judged).as_json())
    closing = ScanClosing(lease, ledger.scans.begin(lease), ScanEnd(status, reason, *counted))
    (done,) = ledger.scans.publish([closing], (), "run 1")
    ledger.leases.give_up([lease])
    return done


def braked(ledger: Ledger, store: str = "blobs") -> ScanRecord:
    return scanned(ledger, ScanStatus.BRAKED, ODD, store)


def other_settings(ledger: Ledger) -> ScanRecord:
    """The realms of the store are other ones since it was scanned, and so are its brakes, which change nothing."""
    before = ObjectsSettings.model_validate({**BLOBS, "realm": "{1}", "brakes": {"unreferenced_fraction": 0.1}}, context=HERE)
    return scanned(ledger, ScanStatus.BRAKED, ODD, judging=before.judging)


def no_longer_purged(ledger: Ledger) -> ScanRecord:
    """A realm was being purged when the store was scanned."""
    return scanned(
        ledger, ScanStatus.BRAKED, ODD, judging=ObjectsSettings.model_validate(BLOBS, context=HERE).judging, purging=["c"]
    )


def superseded(ledger: Ledger) -> ScanRecord:
    """Another scan has ended since."""
    braked(ledger)
    return scanned(ledger)


def job(reason: str = "the prefix moved", **form: Any) -> tuple[dict[str, Any], str]:
    """What a run of the job shows, and the sentence with which it fails."""
    made = build_defs(load_settings()).resolve_job_def("scan_accept")
    with dg.DagsterInstance.ephemeral() as instance:
        ran = made.execute_in_process(
            run_config={"actor": "ann", "reason": reason, **form}, instance=instance, raise_on_error=False
        )
    if ran.success:
        (event,) = [event for event in ran.all_events if event.is_successful_output]
        return {name: without_run(value.value) for name, value in event.step_output_data.metadata.items()}, ""
    (event,) = ran.get_step_failure_events()
    failed = event.step_failure_data.user_failure_data
    assert failed
    return {}, without_run(failed.description)


def acts(ledger: Ledger) -> list[tuple[str, str, str | None]]:
    lines = map(json.loads, ledger.audit_lines())
    return [(line["deed"], line["actor"], line["reason"]) for line in lines if line["deed"] == "ACCEPT_SCAN"]


def test_where_nothing_was_scanned_the_list_says_so_and_makes_no_ledger(run: Run, found: Json) -> None:
    code, out, _ = run("scans")
    assert (code, out.strip().splitlines()[0]) == (0, "Nothing was ever scanned: `retention run` does it")
    assert found("scans") == []


def test_the_list_has_the_newest_of_each_store_and_classes_add_up(ledger: Ledger, run: Run) -> None:
    for _ in range(4):
        scanned(ledger)
    scanned(ledger, ScanStatus.FAILED, "no last line", "my objects")
    code, out, err = run("scans")
    head, *rows = ([cell.strip() for cell in line[1:-1].split(mark)] for line in out.splitlines() if (mark := line[0]) in "┃│")
    assert head == [
        "store",
        "id",
        "when",
        "status",
        "scanned",
        "referenced",
        "unreferenced",
        "young",
        "others",
        "bytes",
        "reason",
    ]
    assert [row[:2] for row in rows] == [["blobs", "4"], ["blobs", "3"], ["blobs", "2"], ["my objects", "5"]]
    assert rows[0][3:] == ["kept", "7", "2", "1", "1", "3", "70 B", ""]
    assert (int(rows[0][4]), code, err) == (sum(map(int, rows[0][5:9])), 0, "")
    assert rows[3][3:] == ["failed", "", "", "", "", "", "", "no last line"]
    assert "my objects" not in run("scans", "blobs")[1]


def test_json_has_all_counts_by_realm_kind_and_class(ledger: Ledger, found: Json) -> None:
    scanned(ledger)
    scanned(ledger, ScanStatus.FAILED, "no last line")
    failed, kept = found("scans", "blobs")
    assert (failed["id"], failed["status"], failed["reason"], "result" in failed) == (2, "failed", "no last line", False)
    assert (kept["totals"]["scanned"], kept["started_at"][:2]) == (7, "20")
    counts = {(one["realm"], one["kind"], one["name"]): one["objects"] for one in kept["result"]["classes"]}
    assert counts["c", "", "realm_purge"] == 2
    assert sum(counts.values()) == 7
    assert kept["result"]["sources"][0]["label"] == "lines refs"


def test_what_waits_for_a_person_is_said_until_it_was_accepted(ledger: Ledger, run: Run) -> None:
    braked(ledger, "my objects")
    scanned(ledger)
    assert run("scans")[2] == "Next: `retention scans 'my objects' accept 1 -r …` lets it mark.\n"
    ledger.scans.accept("my objects", 1, "ann", "as agreed")
    code, out, err = run("scans")
    assert (code, err) == (0, "")
    assert f"{ODD} (accepted by ann and not judged yet: as agreed)" in out


def test_the_command_and_the_job_accept_a_scan_alike(ledger: Ledger, found: Json, run: Run) -> None:
    braked(ledger)
    by_command = found("scans", "blobs", "accept", "1", *WHY)
    braked(ledger)
    by_job, _ = job(store="blobs", scan=2)
    same = ("store", "status", "reason", "accepted_by", "accept_reason")
    assert {name: by_command[name] for name in same} == {name: by_job[name] for name in same}
    assert [(deed, without_run(actor), reason) for deed, actor, reason in acts(ledger)] == [
        ("ACCEPT_SCAN", "ann", "the prefix moved")
    ] * 2
    assert "is accepted, though 9 of 10 references name nothing." in by_job["answer"]


def test_who_accepts_a_scan_is_told_what_was_odd_and_what_comes_next(ledger: Ledger, run: Run) -> None:
    braked(ledger)
    assert run("scans", "blobs", "accept", "1", *WHY) == (
        0, f"Scan 1 of blobs is accepted, though {ODD}.\n",
        "Next: the next `retention run` judges it, and marks what its policies select.\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("prepare", "arguments", "form", "words", "code"),
    [
        (scanned, ("blobs", "accept", "1", *WHY), {"store": "blobs", "scan": 1}, "Scan 1 of blobs is kept: only a braked one", 1),
        (superseded, ("blobs", "accept", "1", *WHY), {"store": "blobs", "scan": 1}, "Scan 1 of blobs is not the newest: scan 2 has ended since, and is kept", 1),
        (other_settings, ("blobs", "accept", "1", *WHY), {"store": "blobs", "scan": 1}, "says nothing of the present any more: its settings are other ones by now (realm). Nothing was changed", 1),
        (no_longer_purged, ("blobs", "accept", "1", *WHY), {"store": "blobs", "scan": 1}, "says nothing of the present any more: no longer PURGING: c. Nothing was changed", 1),
        (braked, ("blobs", "accept", "1", "-r", "x", "--actor", "::system"), {"store": "blobs", "scan": 1, "reason": "x", "actor": "::system"}, "actor: begins with ::", 2),
        (braked, ("blobs", "accept", "9", *WHY), {"store": "blobs", "scan": 9}, "blobs has no scan 9. `retention scans blobs` lists", 1),
        (braked, ("blob", "accept", "1", *WHY), {"store": "blob", "scan": 1}, "store: is no store that is scanned (found blob); expected one of blobs, my objects. Did you mean blobs?", 2),
        (braked, ("lake", "accept", "1", *WHY), {"store": "lake", "scan": 1}, "store: is no store that is scanned (found lake)", 2),
        (braked, ("blobs", "accept", "1", "-r", " ", "--actor", "ann"), {"store": "blobs", "scan": 1, "reason": " "}, "reason: is empty (found ' '); expected some words", 2),
    ],
    ids=("kept", "superseded", "other settings", "no longer purged", "the system", "not there", "a wrong name", "not scanned", "no reason"),
)  # fmt: skip
def test_both_refuse_with_the_same_sentence_and_change_nothing(
    prepare: Callable[[Ledger], object],
    arguments: tuple[str, ...],
    form: dict[str, Any],
    words: str,
    code: int,
    ledger: Ledger,
    run: Run,
) -> None:
    prepare(ledger)
    before = ledger.verify().head
    ended, out, err = run("scans", *arguments)
    shown, by_job = job(**form)
    assert (ended, out, shown) == (code, "", {})
    assert err.strip() == by_job
    assert words in by_job
    assert ledger.verify().head == before


def test_there_is_nothing_to_accept_without_a_ledger(run: Run) -> None:
    with open("retention.yaml", "w") as file:
        file.write(json.dumps({"stores": [BLOBS]}))
    code, _, err = run("scans", "blobs", "accept", "1", *WHY)
    assert (code, "no ledger yet" in err, "no ledger yet" in job(store="blobs", scan=1)[1]) == (1, True, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("blobs", "accept", "1"), "name it and say why"),
        (("blobs", "accept", "-r", "x"), "name it and say why"),
        (("blobs", "export"), "say where"),
        (("blobs", "--realm", "acme"), "--realm, --all and --to say what is exported"),
        (("blobs", "accept", "1", "-r", "x", "--all"), "--realm, --all and --to say what is exported"),
        (("blobs", "-r", "x"), "--reason says why a scan is accepted"),
        (("blobs", "show"), "'show' is not one of"),
    ],
)
def test_what_does_not_go_together_is_said(arguments: tuple[str, ...], words: str, ledger: Ledger, run: Run) -> None:
    code, out, err = run("scans", *arguments)
    assert (code, out) == (2, "")
    assert words in err

"""Scans in the ledger, on both databases: one at a time, whole in one write, accepted by a person once."""

import json
from collections.abc import Callable
from datetime import timedelta

import pyarrow as pa
import pytest

from retention_assets.errors import Refused
from retention_assets.ledger import (
    EVALUATION_ROWS,
    Lease,
    LeaseLost,
    Ledger,
    Publication,
    ScanClosing,
    ScanEnd,
    ScanRecord,
    ScanStatus,
    scan_lease,
)
from retention_assets.ledger.schema import LEASES
from retention_assets_tests.ledger.states import T0, candidates, change_leases, take_lease, write_past_ledger

KEPT = ScanEnd(ScanStatus.KEPT, None, {"scanned": 5}, '{"scanned": 5}')
BRAKED = ScanEnd(ScanStatus.BRAKED, "9 of 10", {"scanned": 10}, '{"scanned": 10}')
FAILED = ScanEnd(ScanStatus.FAILED, "no last line")
LOG = [Publication("transaction_log", "blobs/a", "w/r1", "r1"), Publication("transaction_log", "blobs/b", "w/r1", "r1")]


def leased(ledger: Ledger, store: str = "blobs", holder: str = "run 1") -> Lease:
    return take_lease(ledger, scan_lease(store), holder)


def scanned(ledger: Ledger, end: ScanEnd, store: str = "blobs") -> ScanRecord:
    lease = leased(ledger, store)
    (done,) = ledger.scans.publish([ScanClosing(lease, ledger.scans.begin(lease), end)], LOG, "run 1")
    ledger.leases.give_up([lease])
    return done


def expire(ledger: Ledger, lease: Lease) -> None:
    over = LEASES.update().where(LEASES.c.dataset == lease.dataset).values(expires_at=T0 - timedelta(days=9_000))
    change_leases(ledger, over)


def acts(ledger: Ledger) -> list[tuple[str, str, str | None]]:
    lines = map(json.loads, ledger.audit_lines())
    return [(line["deed"], line["actor"], line["reason"]) for line in lines]


def test_what_cannot_be_published_is_not_kept_either(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = leased(ledger)
    scan = ledger.scans.begin(lease)

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("retention_assets.ledger.stores.publish", full)
    with pytest.raises(OSError, match="no space"):
        ledger.scans.publish([ScanClosing(lease, scan, KEPT)], LOG, "run 1")
    assert ledger.scans.of("blobs", scan.id).status == "running"


def test_ids_are_counted_over_all_stores_and_lists_begin_with_the_newest(ledger: Ledger) -> None:
    for store, end in (("blobs", KEPT), ("ice", FAILED), ("blobs", BRAKED)):
        scanned(ledger, end, store)
    assert [(one.id, one.store) for one in ledger.scans.newest()] == [(3, "blobs"), (2, "ice"), (1, "blobs")]
    assert [one.id for one in ledger.scans.newest("blobs", most=1)] == [3]
    with pytest.raises(Refused, match=r"ice has no scan 1\. `retention scans ice` lists"):
        ledger.scans.of("ice", 1)


def test_scans_of_several_stores_are_published_together_or_not_at_all(ledger: Ledger) -> None:
    mine, lost = leased(ledger), leased(ledger, "more")
    closings = [ScanClosing(lease, ledger.scans.begin(lease), KEPT) for lease in (mine, lost)]
    expire(ledger, lost)
    with pytest.raises(LeaseLost):
        ledger.scans.publish(closings, LOG, "run 1")
    assert {one.status for one in ledger.scans.newest()} == {"running"}
    assert ledger.publications.of("transaction_log") == []


def test_a_scan_ends_once(ledger: Ledger) -> None:
    lease = leased(ledger)
    scan = ledger.scans.begin(lease)
    ledger.scans.end(lease, scan, FAILED)
    with pytest.raises(Refused, match="Scan 1 of blobs has ended already"):
        ledger.scans.end(lease, scan, KEPT)


def test_a_scan_does_not_count_as_a_sweep(ledger: Ledger) -> None:
    leased(ledger)
    assert ledger.leases.held() == []


def test_an_accepted_scan_is_used_once(ledger: Ledger) -> None:
    scan = scanned(ledger, BRAKED)
    assert ledger.scans.usable("blobs") is None
    accepted = ledger.scans.accept("blobs", scan.id, "ann", "the prefix moved")
    assert (accepted.accepted_by, accepted.accept_reason, accepted.used_at) == ("ann", "the prefix moved", None)
    assert ledger.scans.usable("blobs") == accepted
    lease = leased(ledger, holder="run 2")
    closing = ScanClosing(lease, accepted, None)
    (used,) = ledger.scans.publish([closing], LOG, "run 2")
    assert (used.status, used.used_at is None, ledger.scans.usable("blobs")) == ("braked", False, None)
    with pytest.raises(Refused, match="Scan 1 of blobs was judged by another run"):
        ledger.scans.publish([closing], LOG, "run 2")
    assert ("ACCEPT_SCAN", "ann", "the prefix moved") in acts(ledger)
    assert ledger.verify().faults == ()


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda ledger: scanned(ledger, KEPT), "Scan 1 of blobs is kept: only a braked scan can be accepted"),
        (lambda ledger: scanned(ledger, FAILED), "Scan 1 of blobs is failed: only a braked scan can be accepted"),
        (lambda ledger: ledger.scans.begin(leased(ledger)), "Scan 1 of blobs is running"),
        (lambda ledger: scanned(ledger, BRAKED, "ice"), "blobs has no scan 1"),
        (
            lambda ledger: [scanned(ledger, end) for end in (BRAKED, KEPT)],
            "is not the newest: scan 2 has ended since with status kept",
        ),
        (
            lambda ledger: [scanned(ledger, end) for end in (BRAKED, FAILED)],
            "is not the newest: scan 2 has ended since with status failed",
        ),
        (lambda ledger: ledger.scans.accept("blobs", scanned(ledger, BRAKED).id, "bob", "r"), "was accepted by bob at "),
    ],
    ids=("kept", "failed", "running", "of another store", "a newer scan", "one that failed since", "accepted"),
)
def test_what_cannot_be_accepted_changes_nothing(ledger: Ledger, prepare: Callable[[Ledger], object], words: str) -> None:
    prepare(ledger)
    before = ledger.verify().head
    with pytest.raises(Refused, match=words):
        ledger.scans.accept("blobs", 1, "ann", "r")
    assert ledger.verify().head == before


def test_one_that_was_begun_and_never_ended_does_not_void_an_acceptance(ledger: Ledger) -> None:
    scan = scanned(ledger, BRAKED)
    lost = leased(ledger)
    ledger.scans.begin(lost)
    expire(ledger, lost)
    ledger.scans.accept("blobs", scan.id, "ann", "r")
    usable = ledger.scans.usable("blobs")
    assert usable
    assert usable.id == scan.id


def test_an_accepted_scan_is_not_used_once_a_newer_one_has_ended(ledger: Ledger) -> None:
    lease = leased(ledger)
    first = ledger.scans.end(lease, ledger.scans.begin(lease), BRAKED)
    second = ledger.scans.begin(lease)
    ledger.scans.accept("blobs", first.id, "ann", "r")
    ledger.scans.end(lease, second, KEPT)
    assert ledger.scans.usable("blobs") is None


@pytest.mark.parametrize("tampered", [False, True])
def test_of_older_scans_the_sums_alone_are_kept_and_the_record_stays_intact(ledger: Ledger, tampered: bool) -> None:
    """But for the last whole one, by which the next is judged, and those of another store."""
    scanned(ledger, KEPT, "ice")
    scanned(ledger, BRAKED)
    scanned(ledger, KEPT)
    for _ in range(2):
        scanned(ledger, FAILED)
    if tampered:
        write_past_ledger(ledger, "UPDATE scans SET totals = '{}' WHERE id = 2")
    lease = leased(ledger)
    closing = ScanClosing(lease, ledger.scans.begin(lease), BRAKED, kept=2)
    ledger.scans.publish([closing], (), "run 2")
    assert ledger.scans.results(range(1, 7)).keys() == {1, 3, 6}
    assert ledger.scans.of("blobs", 2).totals == ({} if tampered else {"scanned": 10})
    assert bool(ledger.verify().faults) is tampered
    # Once is enough.
    again = ScanClosing(lease, ledger.scans.begin(lease), BRAKED, kept=2)
    ledger.scans.publish([again], (), "run 2")
    dropped = [json.loads(line)["detail"].get("dropped") for line in ledger.audit_lines()]
    assert [one for one in dropped if one] == [[2]]


def test_what_was_accepted_is_looked_at_at_once_and_nothing_else_is(ledger: Ledger) -> None:
    names = ["blobs/a", "blobs/b", "blobs2/a", "Blobs/a", "blobs"]
    look = {"token": "t", "rules": "r", "looked_at": T0, "next_look": T0 + timedelta(days=9)}
    rows = pa.Table.from_pylist([{"dataset": name, **look} for name in names], schema=EVALUATION_ROWS)
    ledger.marks.mark(candidates([]), T0, "evaluation", evaluations=rows)
    ledger.scans.accept("blobs", scanned(ledger, BRAKED).id, "ann", "r")
    looks = ledger.evaluations.all()
    due = {name for name, at in zip(looks["dataset"].to_pylist(), looks["next_look"].to_pylist(), strict=True) if at == T0}
    assert due == {"blobs/a", "blobs/b"}

"""Objects swept by the engine: what is looked at once more before it goes, and what becomes of it in the ledger."""

import os
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.clock import now
from retention_assets.ledger import FOUND_ROWS, VerdictCount, counts_text
from retention_assets.ledger.evaluations import record_evaluations
from retention_assets.ledger.stores import Scans
from retention_assets.outcomes import Outcome
from retention_assets.stores.objects.listings import PathObjects as LocalListing
from retention_assets.stores.objects.references import open_references
from retention_assets.stores.objects.scan_result import ScanResult, SourceCount, own_peaks
from retention_assets.stores.objects.sources.files import LineSource
from retention_assets.sweep import read_fresh
from retention_assets.sweep.read import Wanted, among_asked
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.stores.objects.cycle import DUE, UNREFERENCED, Meanwhile, ObjectsCycle, Scanned
from retention_assets_tests.stores.objects.environments import OLD, LocalObjects, write_lines

LATER = OLD + timedelta(days=1)
STORE_CLOCK = "retention_assets.stores.objects.store.now"
Happens = Callable[[LocalObjects], object]


def outcomes(result: Any) -> dict[Outcome, int]:
    return {one: times for one, times in Counter(result.outcomes).items() if times}


def meanwhile(cycle: ObjectsCycle, before: Happens) -> Meanwhile:
    store = Meanwhile(cycle.objects.store(**cycle.changes).settings)
    folder = cycle.objects
    assert isinstance(folder, LocalObjects)
    store.before = lambda: before(folder)
    return store


@pytest.mark.parametrize("referenced", [[], ["d/4"], ["d/0"]], ids=["nobody", "the newest", "a due one"])
def test_objects_are_counted_along_all_that_nothing_refers_to_when_they_go(folder: LocalObjects, referenced: list[str]) -> None:
    for number in range(5):
        folder.put(f"d/{number}", b"x", OLD + timedelta(days=number))
    select = {"unreferenced": True, "older_than": "30d", "beyond": {"transactions": 2}}
    cycle = ObjectsCycle(folder, {**UNREFERENCED, "datasets": {"include": ["blobs/d"]}, "select": select})
    assert cycle.marks() == 3
    folder.refers(*referenced)
    (result,) = cycle.sweeps().values()
    assert result.refused is None
    # Who is referred to leaves the line, so that the next one is among its newest two.
    left = {"d/4": {"d/2", "d/3", "d/4"}, "d/0": {"d/0", "d/3", "d/4"}}.get("".join(referenced), {"d/3", "d/4"})
    assert {key for key in folder.data() if key.startswith("d/")} == left


@pytest.mark.parametrize(
    ("edges", "said"),
    [
        ([], "refs/*.jsonl: doc 7"),
        ([{"from": "a/one", "to": "x"}, {"from": "x", "to": "a/two"}], "over the edge from a/one, which doc 7 refers to"),
    ],
)
def test_what_is_referenced_between_mark_and_sweep_is_spared_with_its_witness(
    folder: LocalObjects, edges: list[dict[str, str]], said: str
) -> None:
    cycle = ObjectsCycle(folder, edges=[{"lines": str(write_lines(folder.folder / "edges.jsonl", *edges))}])
    assert cycle.marks() == 3
    folder.refers("a/one", **{"from": "doc 7"})
    (result,) = cycle.sweeps().values()
    spared = {"a/one", "a/two"} if edges else {"a/one"}
    assert {key for key, status in cycle.statuses().items() if status == "SPARED"} == spared
    assert folder.data().keys() == spared
    why = cycle.why("a/two" if edges else "a/one")
    assert said in why
    assert outcomes(result) == {Outcome.SPARED: len(spared), Outcome.DELETED: 3 - len(spared)}


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(lambda folder: folder.put("a/one", b"a/one", LATER), id="written anew"),
        pytest.param(lambda folder: (folder.take("a/one"), folder.put("a/one", b"a/one", LATER)), id="deleted and made again"),
        pytest.param(lambda folder: folder.put("a/one", b"longer than before"), id="of the same time and longer"),
    ],
)
@pytest.mark.parametrize("when", ["before the second look", "between plan and deletion"])
def test_another_object_under_the_key_is_spared(cycle: ObjectsCycle, happens: Happens, when: str) -> None:
    assert cycle.marks() == 3
    if when == "before the second look":
        assert isinstance(cycle.objects, LocalObjects)
        happens(cycle.objects)
        (result,) = cycle.sweeps().values()
        assert "another transaction of the same name" in cycle.why("a/one")
    else:
        (result,) = cycle.sweeps(store=meanwhile(cycle, happens)).values()
        assert cycle.why("a/one") == "another object now"
    assert outcomes(result) == {Outcome.SPARED: 1, Outcome.DELETED: 2}
    assert cycle.objects.data().keys() == {"a/one"}


@pytest.fixture
def at_midnight(folder: LocalObjects, monkeypatch: pytest.MonkeyPatch) -> ObjectsCycle:
    """Five marks of two datasets with a batch each; a store is asked before each batch, and what it said yesterday is over."""
    for key in ("b/one", "b/two"):
        folder.put(key, b"b")
    monkeypatch.setattr("retention_assets.sweep.checked.ASKED_LATELY", 0.0)
    # Nothing else saves an object that is written anew.
    cycle = ObjectsCycle(folder, {**UNREFERENCED, "sweep": {"every": "0s", "batch": 3}}, delete={"condition": "none"})
    assert cycle.marks() == 5
    return cycle


def test_a_dataset_that_begins_after_midnight_is_read_again(
    at_midnight: ObjectsCycle, folder: LocalObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    def passes(folder: LocalObjects) -> None:
        folder.put("b/one", b"anew", LATER)
        monkeypatch.setattr(STORE_CLOCK, lambda: now() + timedelta(days=1))

    results = at_midnight.sweeps(store=meanwhile(at_midnight, passes))
    assert {name: outcomes(one) for name, one in results.items()} == {
        "blobs/a": {Outcome.DELETED: 3},
        "blobs/b": {Outcome.DELETED: 1, Outcome.SPARED: 1},
    }
    assert "another transaction of the same name" in at_midnight.why("b/one")
    assert folder.data() == {"b/one": b"anew"}


def test_a_dataset_that_cannot_be_read_again_is_refused_alone(
    at_midnight: ObjectsCycle, folder: LocalObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    def passes(_: LocalObjects) -> None:
        monkeypatch.setattr(STORE_CLOCK, lambda: now() + timedelta(days=1))
        monkeypatch.setattr(LocalListing, "find", fails)

    def fails(*_: Any) -> Any:
        raise OSError("the disk is away")

    results = at_midnight.sweeps(store=meanwhile(at_midnight, passes))
    assert (results["blobs/a"].refused, outcomes(results["blobs/a"])) == (None, {Outcome.DELETED: 3})
    assert "the disk is away" in str(results["blobs/b"].refused)
    assert folder.data().keys() == {"b/one", "b/two"}


@pytest.mark.parametrize("last", ["", '{"complete": true, "count": 5}\n'])
def test_while_a_source_is_not_whole_nothing_is_swept(cycle: ObjectsCycle, last: str) -> None:
    cycle.marks()
    (cycle.folder / "refs" / "b.jsonl").write_text(f'{{"object": "elsewhere"}}\n{last}')
    (result,) = cycle.sweeps().values()
    assert result.refused
    assert "b.jsonl" in result.refused
    assert result.store_failed
    assert cycle.objects.data().keys() == {"a/one", "a/two", "a/three"}
    assert set(cycle.statuses().values()) == {"MARKED"}


def test_a_source_that_shrank_since_the_last_scan_ends_the_sweep(cycle: ObjectsCycle, monkeypatch: pytest.MonkeyPatch) -> None:
    (source,) = open_references(cycle.objects.store().settings)
    counts = [SourceCount(source.label, 9, 9)]
    last = ScanResult("blobs", DUE, DUE, DUE, DUE, salt="", filter="fingerprints", effective_fpp=0.0, sources=counts)
    last.peaks = own_peaks(last)
    cycle.objects.refers("elsewhere")
    cycle.marks()
    monkeypatch.setattr(Scans, "last_whole_result", lambda *_: last.as_json())
    (result,) = cycle.sweeps().values()
    assert "had 9 references last time and has 1" in str(result.refused)
    assert len(cycle.objects.data()) == 3


def test_what_is_gone_before_anybody_began_on_it_is_spared(cycle: ObjectsCycle) -> None:
    cycle.marks()
    cycle.objects.take("a/one")
    (result,) = cycle.sweeps().values()
    assert outcomes(result) == {Outcome.SPARED: 1, Outcome.DELETED: 2}
    assert "does not have it any more" in cycle.why("a/one")


def test_a_sweep_lists_nothing_and_asks_each_source_once_for_all_datasets(
    folder: LocalObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.put("b/one", b"b")
    folder.refers("a/three", "b/one")
    cycle = ObjectsCycle(folder)
    folder.refers("a/three")
    cycle.marks()
    asked: list[str] = []
    monkeypatch.setattr(LocalListing, "read", lambda *_: pytest.fail("everything was listed"))
    read = LineSource.read

    def counted(self: LineSource, share: Any) -> Any:
        asked.append(str(share))
        return read(self, share)

    monkeypatch.setattr(LineSource, "read", counted)
    results = cycle.sweeps()
    assert {name: outcomes(one) for name, one in results.items()} == {
        "blobs/a": {Outcome.DELETED: 2},
        "blobs/b": {Outcome.DELETED: 1},
    }
    assert len(asked) == 1


def test_what_a_sweep_has_found_out_for_itself_is_gone_when_it_ends(
    cycle: ObjectsCycle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "here"))
    seen: list[str] = []
    store = meanwhile(cycle, lambda _: seen.extend(os.listdir(tmp_path / "here")))
    cycle.marks()
    cycle.sweeps(store=store)
    assert [name.startswith("retention-look-") for name in seen] == [True]
    assert os.listdir(tmp_path / "here") == []
    assert not store.has_looked


def test_a_sweep_that_is_killed_before_it_settles_is_finished_by_the_next(cycle: ObjectsCycle) -> None:
    """Its objects are gone: also of those whose keys are used or named again since, what was planned is gone."""
    cycle.marks()
    cycle.dies_before("ledger.batches.Sweeps.settle")
    assert (cycle.objects.data(), set(cycle.statuses().values())) == ({}, {"SWEEPING"})
    cycle.objects.put("a/one", b"anew", LATER)
    cycle.objects.refers("a/two")
    cycle.hold("blobs/a", "a/three")
    (result,) = cycle.sweeps().values()
    assert (result.refused, outcomes(result)) == (None, {Outcome.ALREADY_GONE: 3})
    # Of what is another object now nobody knows who replaced it.
    assert result.bytes_freed == len("a/two") + len("a/three")
    assert set(cycle.statuses().values()) == {"SWEPT"}
    assert cycle.objects.data() == {"a/one": b"anew"}
    with cycle.opened() as ledger:
        assert ledger.verify().faults == ()
        (report,) = ledger.reports.of(DUE.date())
    assert (report["already_gone"], report["failed"], report["bytes_freed"]) == (3, 0, result.bytes_freed)


REALM = {"realm": "{0}", "min_age": "3h"}


@pytest.fixture
def purged(tmp_path: Path) -> ObjectsCycle:
    """A realm that is being purged: four objects, all young, two of them referenced, and a hold on one."""
    folder = LocalObjects(tmp_path)
    for name in ("one", "two", "three", "four"):
        folder.put(f"a/{name}", name.encode(), now())
    folder.refers("a/one", "a/two")
    cycle = ObjectsCycle(folder, **REALM)
    (cycle.folder / "policies" / "h.yaml").write_text(
        "holds: [{name: case-7, reason: in court, datasets: {include: ['*']}, transactions: [a/four]}]"
    )
    with cycle.opened() as ledger:
        ledger.realms.change("a", "PURGING", "test", "they left")
    return cycle


def test_of_a_realm_that_is_being_purged_neither_age_nor_references_are_asked(purged: ObjectsCycle) -> None:
    as_of = now() + timedelta(days=1)
    store = Scanned(purged.objects.store(**REALM), "a")
    assert purged.marks(as_of, store) == 3
    (result,) = purged.sweeps(as_of=as_of + timedelta(days=1)).values()
    assert (result.refused, outcomes(result)) == (None, {Outcome.DELETED: 3})
    assert purged.objects.data().keys() == {"a/four"}


def test_a_realm_that_is_active_again_keeps_what_is_marked(purged: ObjectsCycle) -> None:
    as_of = now() + timedelta(days=1)
    purged.marks(as_of, Scanned(purged.objects.store(**REALM), "a"))
    with purged.opened() as ledger:
        ledger.realms.change("a", "ACTIVE", "test", "they stay")
    (result,) = purged.sweeps(as_of=as_of + timedelta(days=1)).values()
    assert outcomes(result) == {Outcome.SPARED: 3}
    assert len(purged.objects.data()) == 4


def judged(cycle: ObjectsCycle, *counts: VerdictCount) -> None:
    row = {"dataset": "blobs/a", "token": "t", "rules": "r", "looked_at": AS_OF, "next_look": None, "fault": None}
    with cycle.opened() as ledger:
        rows = pa.Table.from_pylist([{**row, "counts": counts_text(counts)}], FOUND_ROWS)
        ledger.database.write(lambda tx: record_evaluations(tx, rows, {}))


COUNTS = (VerdictCount("mark", "orphans", 2, 10), VerdictCount("keep", "", 1, 7), VerdictCount("open", "", 4, 7))


@pytest.mark.parametrize("known", [True, False])
def test_limits_are_held_against_all_of_a_log_and_not_against_what_was_read(folder: LocalObjects, known: bool) -> None:
    """Two of three are marked, of which the second look sees two. Where nobody knows how many there were, nothing goes."""
    cycle = ObjectsCycle(folder, {**UNREFERENCED, "limits": {"fraction": 0.7}})
    folder.refers("a/three")
    assert cycle.marks() == 2
    if known:
        judged(cycle, *COUNTS)
    (result,) = cycle.sweeps().values()
    assert outcomes(result) == ({Outcome.DELETED: 2} if known else {})
    assert ("over its limits" in (result.refused or "")) is not known


def test_the_report_of_a_day_counts_all_that_was_judged(folder: LocalObjects) -> None:
    cycle = ObjectsCycle(folder)
    folder.refers("a/three")
    cycle.marks()
    judged(cycle, *COUNTS)
    cycle.sweeps()
    with cycle.opened() as ledger:
        (report,) = ledger.reports.of(DUE.date())
    assert {name: amount for name, amount in report["classes"].items() if amount} == {"due": 2, "kept": 1, "open": 4}


def test_what_becomes_due_after_the_second_look_waits_for_the_next_sweep(cycle: ObjectsCycle) -> None:
    """It was not asked about, so that nobody knows whether it is there."""
    cycle.marks()
    store = cycle.objects.store()
    with cycle.opened() as ledger:
        wanted = Wanted.by(ledger, ["blobs/a", "blobs/b"], DUE)
        assert {name: keys.to_pylist() for name, keys in wanted.transactions.items()} == {
            "blobs/a": ["a/one", "a/three", "a/two"],
            "blobs/b": [],
        }
        some = Wanted.of(ledger, {"blobs/a": pa.array(["a/one"])})
        marks = ledger.marks.table(["blobs/a"])
    (reading, *_) = read_fresh(store, ["blobs/a"], some).datasets
    assert reading.asked is not None
    assert among_asked(marks, [reading])["transaction"].to_pylist() == ["a/one"]
    assert len(among_asked(marks, [replace(reading, dataset="blobs/b")])) == 3

"""Scans: which class each object is in, what a scan counts, and what makes it fail."""

from collections.abc import Generator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets.errors import Refused
from retention_assets.frames import candidate_marks, sound_log
from retention_assets.policy import Duration, Policy, purge_of
from retention_assets.stores.objects import folder as listed_objects
from retention_assets.stores.objects import matching as judging
from retention_assets.stores.objects import scan as scans
from retention_assets.stores.objects import sources
from retention_assets.stores.objects.fingerprints import Fingerprints
from retention_assets.stores.objects.matching import Bloom
from retention_assets.stores.objects.references import ShareEnd
from retention_assets.stores.objects.scan import Scan
from retention_assets.stores.objects.scan_result import ScanFailed, ScanResult
from retention_assets_tests.stores.objects.scan.environments import (
    AS_OF,
    OLD,
    Listed,
    Source,
    edge,
    edges,
    finished,
    judge,
    listed,
    log_of,
    named,
    scan_of,
    source,
    stored,
)

CUT_OFF = AS_OF - timedelta(hours=3)
FILTERS = ({"kind": "fingerprints"}, {"kind": "bloom", "expected": 1000, "max_fpp": 1e-4})


def _old(*keys: str, realm: str | None = None) -> Listed:
    return listed(*(stored(key, realm) for key in keys))


@pytest.mark.parametrize("filter_", FILTERS, ids=lambda one: one["kind"])
def test_what_references_name_is_referenced(filter_: dict[str, object]) -> None:
    found = judge(
        scan_of(_old("a", "b", "c", "d", "e"), source(named("a"), named("c"), named("c"), named("gone")), filter=filter_)
    )
    assert found.counts == {"referenced": 2, "unreferenced": 3}
    assert found.result.scanned == 5 == found.result.scanned_bytes
    assert (found.result.distinct_references, found.result.unresolved_references) == (3, 1)
    assert [(one.rows, one.distinct, one.realms) for one in found.result.sources] == [(4, 3, 0)]
    assert found.result.filter == filter_["kind"]
    assert (found.result.effective_fpp == 3 / 2**64) == (filter_["kind"] == "fingerprints")


def test_bytes_that_pass_64_bits_together_are_counted_whole() -> None:
    result = judge(scan_of(listed(*(stored(key, size=2**62) for key in "abc")), source(named("a")))).result
    counts = [(count.name, count.objects, count.bytes) for count in result.classes]
    assert counts == [("referenced", 1, 2**62), ("unreferenced", 2, 2**63)]


def test_a_reference_without_a_realm_names_its_key_in_every_realm() -> None:
    objects = listed(stored("o1", "r1"), stored("o1", "r2"), stored("o1"), stored("o2", "r1"))
    found = judge(scan_of(objects, source(named("o1"))))
    assert (found["r1:o1"], found["r2:o1"], found["o1"], found["r1:o2"]) == (*["referenced"] * 3, "unreferenced")
    found = judge(scan_of(objects, source(named("o1", "r1"), named("c", "ab")), source(named("o1", "r2"))))
    assert (found["r1:o1"], found["r2:o1"], found["o1"]) == ("referenced", "referenced", "unhandled")
    # References of both kinds, read together.
    found = judge(scan_of(objects, source(named("o1", "r1"), named("o2"))))
    assert (found["r1:o1"], found["r2:o1"], found["r1:o2"]) == ("referenced", "unreferenced", "referenced")


def test_bytes_are_counted_beyond_those_of_32_bits() -> None:
    found = judge(
        scan_of(listed(*(stored(key, size=3 << 30) for key in "abcd"), stored("e", size=5 << 40)), source(named("e")))
    )
    assert {str(one.name): one.bytes for one in found.result.classes} == {"unreferenced": 12 << 30, "referenced": 5 << 40}
    assert found.result.scanned_bytes == (12 << 30) + (5 << 40)


@pytest.mark.parametrize(
    ("at", "answer"),
    [(CUT_OFF, "unreferenced"), (CUT_OFF + timedelta(microseconds=1), "young"), (None, "young"), (OLD, "unreferenced")],
)
def test_what_is_exactly_old_enough_is_judged(at: object, answer: str) -> None:
    assert judge(scan_of(listed(stored("a", at=at)), source(named("b"))))["a"] == answer  # type: ignore[arg-type]


def test_a_listing_of_the_future_makes_nothing_older() -> None:
    ahead = replace(listed(stored("a", at=AS_OF.replace(year=2999))), as_of=AS_OF.replace(year=3999))
    found = judge(scan_of(ahead, source(named("b"))))
    assert found["a"] == "young"
    assert found.result.cut_off < found.result.started_at < found.result.listing_as_of


def test_what_was_young_when_a_day_was_to_be_judged_is_young() -> None:
    scan = scan_of(listed(stored("a", at=AS_OF - timedelta(hours=4)), stored("b")), source(named("x")))
    assert judge(scan).counts == {"unreferenced": 2}
    assert judge(replace(scan, as_of=AS_OF - timedelta(hours=2))).counts == {"unreferenced": 1, "young": 1}


def test_a_realm_that_no_source_speaks_for_is_unhandled() -> None:
    objects = listed(stored("a", "r1"), stored("a", "r2"), stored("b"))
    found = judge(scan_of(objects, source(named("x", "r1"))))
    assert (found["r1:a"], found["r2:a"], found["b"]) == ("unreferenced", "unhandled", "unhandled")
    # Where no object has a realm, there is none to speak for.
    assert judge(scan_of(objects, source(named("x", "r1")), listing={"path": "/lake/blobs"}))["b"] == "unreferenced"
    # And what a reference says of it is nothing to them.
    assert judge(scan_of(_old("b"), source(named("b", "r1")), listing={"path": "/lake/blobs"}))["b"] == "referenced"
    # One that was empty and gives no realms speaks for all; one whose settings say where its realms are, for none.
    assert judge(scan_of(objects, source()))["r2:a"] == "unreferenced"
    with_realms = [{"parquet": "refs/*.parquet", "realm": "tenant"}]
    assert judge(scan_of(objects, source(), references=with_realms))["r2:a"] == "unhandled"
    assert judge(scan_of(objects, source(named("x")), references=with_realms))["r2:a"] == "unreferenced"


def test_each_object_is_in_the_first_class_that_fits() -> None:
    objects = listed(
        stored("a", "::own", at=AS_OF), stored("a", "::system::"), stored("a", "acme", "x", at=AS_OF), stored("a", "acme/eu"),
        stored("a", "acme-eu"), stored("young", "beta", "x", at=AS_OF), stored("kind", "beta", "x"), stored("a", "beta", "m"),
        stored("b", "beta", "m", size=7),
    )  # fmt: skip
    found = judge(scan_of(objects, source(named("a")), purging=["acme", "::own"], known_kinds=["m"]))
    assert {f"{realm}:{key}": name for (realm, key), name in found.classes.items()} == {
        "::own:a": "reserved",
        "::system:::a": "unknown_kind",
        "acme:a": "realm_purge",
        "acme/eu:a": "realm_purge",
        "acme-eu:a": "unknown_kind",
        "beta:young": "young",
        "beta:kind": "unknown_kind",
        "beta:a": "referenced",
        "beta:b": "unreferenced",
    }
    # The reserved one is counted apart.
    assert (found.result.scanned, found.result.scanned_bytes) == (8, 14)
    assert sum(found.counts.values()) == 9


def test_a_source_that_names_folders_means_what_is_below_them() -> None:
    objects = _old("a/b/c", "a/b/d/e", "a/bc", "a", "x/y", "a/b/")
    found = judge(scan_of(objects, source(named("a/b/"), names_folders=True)))
    assert [found[key] for key in ("a/b/c", "a/b/d/e", "a/b/")] == ["referenced"] * 3
    assert [found[key] for key in ("a/bc", "a", "x/y")] == ["unreferenced"] * 3
    assert found.result.unresolved_references == 0
    assert judge(scan_of(objects, source(named("a/b/"))))["a/b/c"] == "unreferenced"
    assert judge(scan_of(objects, source(named("/"), names_folders=True))).counts == {"referenced": 6}


@pytest.mark.parametrize("filter_", FILTERS, ids=lambda one: one["kind"])
def test_edges_are_followed_to_the_end_within_a_realm(filter_: dict[str, object]) -> None:
    objects = listed(*(stored(key, realm) for realm in ("r1", "r2") for key in ("o1", "o2")))
    two = scan_of(objects, source(named("o1", "r1"), named("o1", "r2")), over=[edges(edge("o1", "o2", "r1"))], filter=filter_)
    assert judge(two).counts == {"referenced": 3, "unreferenced": 1}
    assert judge(replace(two, edges=[edges(edge("o1", "o2"))])).counts == {"referenced": 4}
    # What references name in every realm leads on in that of an edge.
    in_all = judge(replace(two, references=[source(named("o1"))]))
    assert (in_all["r1:o2"], in_all["r2:o2"]) == ("referenced", "unreferenced")
    # It counts once, in all realms or in some.
    both = judge(replace(two, references=[source(named("o1"))], edges=[edges(edge("o1", "o2"), edge("o1", "o2", "r1"))]))
    assert both.result.over_edges == 1
    ring = [edges(edge("a", "b"), edge("b", "c"), edge("c", "a"), edge("c", "c"))]
    assert judge(scan_of(_old("a", "b", "c"), source(named("x")), over=ring, filter=filter_)).counts == {"unreferenced": 3}
    found = judge(scan_of(_old("a", "b", "c"), source(named("a")), over=ring, filter=filter_))
    assert (found.counts, found.result.edges, found.result.distinct_references) == ({"referenced": 3}, 4, 1)


def test_equal_fingerprints_keep_garbage_and_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Fingerprints.of
    monkeypatch.setattr(Fingerprints, "of", lambda *args, **keys: np.zeros_like(real(*args, **keys)))
    assert judge(scan_of(_old("a", "b", "c"), source(named("a")))).counts == {"referenced": 3}


@pytest.mark.parametrize("filter_", FILTERS, ids=lambda one: one["kind"])
def test_many_ranges_and_runs_give_the_same(filter_: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """As where there are more objects and references than fit into memory, or at least more than one task puts in order."""
    keys = [f"k{number}" for number in range(500)]
    named_twice = source(*(named(key) for key in keys[::6]), size=50)
    over = [edges(edge(keys[3], keys[4]))]
    one = scan_of(
        listed(*map(stored, keys), size=64), source(*(named(key) for key in keys[::3]), size=50), named_twice, over=over,
        filter=filter_,
    )  # fmt: skip
    for module, name, value in (
        (scans, "_TOGETHER", 40), (judging, "_ASKED", 20), (judging, "_CELL", 4),
        # A part is read in two tables, each of which is asked about by itself.
        (listed_objects, "ROWS", 16), (sources, "_MOST", 32),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr("retention_assets.stores.objects.hits._RUN", 20)
    found = judge(one)
    assert {key for _, key in found.classes if found[key] == "referenced"} == {*keys[::3], keys[4]}
    assert (found.result.distinct_references, found.result.unresolved_references) == (167, 0)
    assert [source.distinct for source in found.result.sources] == [167, 84]


@pytest.mark.parametrize(
    ("scan", "last", "words"),
    [
        (scan_of(_old("a"), source(named("a"), named("b"), fails_at=0)), False, "refs/1.jsonl:0 is cut off"),
        (scan_of(listed(), source(named("a"))), True, "nothing is listed, and the last scan had 1 objects"),
        (scan_of(_old("a", realm="::own"), source(named("a"))), True, "nothing is listed, and the last scan had 1 objects"),
        (scan_of(_old("a"), source(named("a"), changes=9)), False, r"lines refs/\*.jsonl changed each of the 5 times"),
        (scan_of(_old("a"), replace(source(named("a")), rows=cast(Any, None))), False, r"lines refs/\*.jsonl: AttributeError"),
        (scan_of(replace(_old("a"), rows=cast(Any, None)), source(named("a"))), False, "the listing: AttributeError"),
    ],
    ids=["source", "empty", "empty but for what is reserved", "changing", "broken source", "broken listing"],
)  # fmt: skip
def test_a_scan_that_is_not_whole_fails(scan: Scan, last: bool, words: str) -> None:
    before = judge(scan_of(_old("a"), source(named("a")))).result if last else None
    with pytest.raises(ScanFailed, match=words) as fault:
        judge(scan, before)
    assert isinstance(fault.value, Refused)
    assert fault.value.store == "blobs"


def test_objects_are_listed_and_references_read_no_faster_than_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(sources, "moment", lambda: SimpleNamespace(running=clock[0]))
    monkeypatch.setattr(sources, "sleep", lambda seconds: clock.append(clock.pop() + seconds))
    references = source(*(named(f"k{number}") for number in range(60)), size=20)
    judge(scan_of(_old("k1"), references, rates={"references": 4}))
    assert clock == [15]
    judge(scan_of(_old("k1"), references))
    assert clock == [15]
    judge(scan_of(_old(*(f"k{number}" for number in range(12))), references, rates={"scan": 4}))
    assert clock == [18]


def test_a_bloom_filter_that_is_too_full_is_refused_and_sized_anew() -> None:
    keys = [f"k{number}" for number in range(1_500)]
    objects, bloom = _old("k1", "other"), {"kind": "bloom", "expected": 1_000, "fpp": 1e-5, "max_fpp": 5e-5}
    with pytest.raises(ScanFailed, match=r"sized for 1,000 references, and 1,500 .* above max_fpp 5e-05.* for 1,650") as fault:
        judge(scan_of(objects, source(*map(named, keys), size=999), filter=bloom))
    assert fault.value.references == 1_500
    scan = scan_of(objects, source(*map(named, keys), size=999), filter=bloom)
    assert judge(replace(scan, refused=1_500)).result.effective_fpp < 1e-5
    # What edges lead to is in it as well.
    over = edges(*(edge("k0", f"e{number}") for number in range(500)), size=999)
    with pytest.raises(ScanFailed, match=r"sized for 1,000 references, and 1,500 "):
        judge(scan_of(objects, source(*map(named, keys[:1_000]), size=999), over=[over], filter=bloom))
    # Ten times the same is one element; and what the last scan found says what this one expects.
    same = judge(scan_of(objects, source(*(named(key) for key in keys[:1_000] * 10), size=9_999), filter=bloom)).result
    assert (same.distinct_references, round(same.effective_fpp, 6)) == (1_000, 1e-5)
    assert judge(scan, replace(same, distinct_references=1_400)).result.effective_fpp < 2e-5


def test_a_bloom_filter_says_what_is_referenced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bloom, "has", lambda _, hashes: np.ones(len(hashes), dtype=bool))
    assert judge(scan_of(_old("a", "b"), source(named("a")), filter=FILTERS[1])).counts == {"referenced": 2}


@dataclass(frozen=True)
class Meddling(Source):
    """References during whose reading the list is written anew."""

    folder: str = ""

    def read(self, share: int) -> Generator[pa.RecordBatch, None, ShareEnd]:
        there = pq.read_table(f"{self.folder}/list.parquet")
        pq.write_table(there.take(pa.array(range(len(there))[::-1])), f"{self.folder}/list.parquet", row_group_size=4)
        return (yield from super().read(share))


def test_a_list_that_changes_while_references_are_read_is_judged_as_it_was(tmp_path: Path) -> None:
    rows = [stored(f"k{number}", "r") for number in range(20)]
    meddling = Meddling(source(named("k3", "r")).rows, folder=str(tmp_path))
    scan = scan_of(listed(*rows), meddling, dataset="{realm}")
    judged = judge(finished(scan, rows, tmp_path))
    assert pq.read_table(tmp_path / "list.parquet")["key"].to_pylist() == [row["key"] for row in rows[::-1]]
    assert judged.counts == {"referenced": 1, "unreferenced": 19}
    assert judged["r:k3"] == "referenced"


# --- the log ----------------------------------------------------------------------------------------------------------

POLICIES = [
    Policy.model_validate({"name": name, "datasets": {"include": ["*"]}, "select": select})
    for name, select in (
        ("all", "all"), ("opened", {"older_than": {"age": "1d", "of": "opened"}}),
        ("unfinished", {"older_than": "1d", "terminal_only": False}), ("either", {"older_than": {"age": "1d", "of": "closed_or_opened"}}),
        ("types", {"types": ["OBJECT"]}), ("unreferenced", {"unreferenced": True, "older_than": "1d"}),
    )
]  # fmt: skip


def _every_class(rows_up_to: int = 100) -> Scan:
    objects = listed(
        stored("gone", "beta", "m", size=5), stored("kept", "beta", "m"), stored("new", "beta", "m", at=AS_OF),
        stored("odd", "beta", "x"), stored("alone", "gamma", "m"), stored("purged", "acme", "m", at=AS_OF), stored("own", "::own", "m"),
    )  # fmt: skip
    return scan_of(
        objects, source(named("kept", "beta")), purging=["acme"], known_kinds=["m"], dataset="{realm}", rows_up_to=rows_up_to
    )  # fmt: skip


DATASETS = ["blobs/beta", "blobs/gamma", "blobs/acme", "blobs/::own"]


def test_only_what_may_go_is_ever_marked() -> None:
    result, lines = log_of(_every_class(), *DATASETS)
    assert {one.name: (one.realm, one.rows) for one in result.datasets} == {
        "blobs/beta": ("beta", 4), "blobs/gamma": ("gamma", 1), "blobs/acme": ("acme", 1), "blobs/::own": ("::own", 1),
    }  # fmt: skip
    log = sound_log(lines)
    assert log.datasets["fault"].null_count == 4
    for policy in POLICIES:
        verdicts = candidate_marks(log.transactions, log.datasets, [policy], [], AS_OF + timedelta(days=400)).to_pylist()
        marked = {row["transaction"] for row in verdicts if row["verdict"] == "mark"}
        # By age alone what is to be purged would go as well: it is old enough in 400 days.
        assert marked == {"gone", "purged"}, policy.name
        kept = next(row for row in verdicts if row["transaction"] == "kept")
        assert kept["verdict"] == ("keep" if policy.name == "unreferenced" else "spare")
    purge = purge_of("acme", POLICIES[0].grace, Duration())
    verdicts = candidate_marks(log.transactions, log.datasets, [purge], [], AS_OF).to_pylist()
    assert {row["transaction"] for row in verdicts if row["verdict"] == "mark"} == {"purged"}


def test_a_large_store_has_lines_only_for_what_may_go() -> None:
    result, lines = log_of(_every_class(rows_up_to=3), *DATASETS)
    rows = [row for row in lines.to_pylist() if row["transaction"]]
    assert {row["transaction"]: row["dataset"] for row in rows} == {"gone": "blobs/beta", "purged": "blobs/acme"}
    assert {one.name: one.rows for one in result.datasets} == dict(zip(DATASETS, (1, 0, 1, 0), strict=True))
    gone = next(row for row in rows if row["transaction"] == "gone")
    facts = {"type": "OBJECT", "status": "COMMITTED", "bytes": 5, "opened_at": OLD, "closed_at": OLD}
    assert {name: gone[name] for name in facts} == facts
    assert dict(gone["attributes"]) == {"class": "unreferenced", "referenced": "false", "kind": "m", "realm": "beta"}
    only = log_of(_every_class(), "blobs/gamma")[1].to_pylist()
    assert [(row["transaction"], row["realm"], row["status"]) for row in only] == [
        (None, "gamma", None),
        ("alone", None, "OPEN"),
    ]


def test_a_key_that_is_listed_twice_makes_its_dataset_unsound() -> None:
    _, lines = log_of(scan_of(_old("a", "b", "a"), source(named("b"))), "blobs/blobs")
    assert sound_log(lines).datasets["fault"].to_pylist() == ["duplicate id"]


def test_the_numbers_of_a_scan_travel_as_text() -> None:
    result = judge(_every_class()).result
    assert ScanResult.from_json(result.as_json()) == result


def test_a_bloom_filter_is_sized_for_what_edges_reach_as_well() -> None:
    reached = [f"chunk {number}" for number in range(300)]
    bloom = {"kind": "bloom", "expected": 310, "fpp": 1e-4, "max_fpp": 2e-4}
    over = [edges(*(edge("manifest", key) for key in reached))]
    scan = scan_of(listed(stored("manifest"), *map(stored, reached)), source(named("manifest")), over=over, filter=bloom)
    first = judge(scan)
    assert first.counts == judge(scan, first.result).counts == {"referenced": 301}

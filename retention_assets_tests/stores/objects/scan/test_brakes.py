"""What fails a scan, what brakes it, and what is as usual: cases with the numbers on both sides of each limit."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from retention_assets.stores.objects.scan_result import (
    ClassCount,
    ObjectClass,
    ScanResult,
    SourceCount,
    find_brakes,
    find_source_faults,
    own_peaks,
    peaks_of,
)
from retention_assets.stores.objects.settings import Brakes

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def result(
    referenced: int = 5,
    unreferenced: int = 5,
    unresolved: int = 0,
    sources: dict[str, int] | None = None,
    distinct: int | None = None,
    sizes: tuple[int, int] = (0, 0),
    shards: int = 0,
    **others: int,
) -> ScanResult:
    """A result with so many objects of each class, and sources with so many distinct references."""
    said = {"refs": 100} if sources is None else sources
    classes = [
        ClassCount("", "", ObjectClass.REFERENCED, referenced, sizes[0]),
        ClassCount("", "", ObjectClass.UNREFERENCED, unreferenced, sizes[1]),
        *(ClassCount("", "", ObjectClass(name), count, count) for name, count in others.items()),
    ]
    # Each reference is there twice.
    counts = [SourceCount(label, 2 * number, number, shards=shards) for label, number in said.items()]
    total = sum(said.values()) if distinct is None else distinct
    return remembered(
        ScanResult(
            "blobs", T0, T0, T0, T0, "", "fingerprints", 0.0,
            distinct_references=total, unresolved_references=unresolved, classes=classes, sources=counts,
        )
    )  # fmt: skip


def remembered(one: ScanResult) -> ScanResult:
    return replace(one, peaks=own_peaks(one))


def with_edges(one: ScanResult, edges: int) -> ScanResult:
    return remembered(replace(one, edge_sources=[SourceCount("edges by links", edges, edges)]))


@dataclass
class Case:
    """A scan, the one before it, and the beginnings of what is found."""

    scan: ScanResult
    last: ScanResult | None = None
    faults: tuple[str, ...] = ()
    brakes: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)


EMPTY = "refs has no reference at all"
SHRANK = "refs had 1,000 references last time and has 799, 20.1 % fewer, and brakes.references_shrink is 20 %"
TOGETHER = "all sources together had 1,000 references last time and has 799"
UNRESOLVED = "9 of 10 references name no listed object, 90 %, and brakes.unresolved_references is 50 %"
CASES = {
    "as usual": Case(result()),
    # Sources: the scan failed.
    "an empty source in the first scan": Case(result(sources={"refs": 0, "more": 3}), faults=(EMPTY,)),
    "an empty source that may be": Case(result(0, 1, sources={"refs": 0}), settings={"empty_source": "allow"}, brakes=("nothing refers to 1 of 1",)),
    "one that may be empty and was not": Case(
        result(sources={"refs": 0}), result(sources={"refs": 7}), ("refs had 7 references last time and has 0, 100 % fewer",),
        ("all sources together had 7",), {"empty_source": "allow"},
    ),
    "1,000 become 799": Case(result(sources={"refs": 799}), result(sources={"refs": 1000}), (SHRANK,), (TOGETHER,)),
    "1,000 become 801": Case(result(sources={"refs": 801}), result(sources={"refs": 1000})),
    "1,000 become 800": Case(result(sources={"refs": 800}), result(sources={"refs": 1000})),
    "a source of edges shrinks": Case(with_edges(result(), 79), with_edges(result(), 100), ("edges by links had 100 references last time",)),
    "a source of edges has no file more": Case(with_edges(result(), 0), with_edges(result(), 9), ("edges by links had 9",)),
    "one of ten files is missing": Case(
        result(shards=9), result(shards=10), ("refs is not whole: it had 10 files or shares last time and has 9. Restore the missing ones",)
    ),
    "more files": Case(result(shards=11), result(shards=10)),
    "files that come and go": Case(result(shards=0), result(shards=10)),
    "nothing refers to any, as the settings say": Case(result(0, 9, sources={})),
    "the settings say so for the first time": Case(result(0, 9, sources={}), result(), brakes=("all sources together had 100",)),
    "one of two sources shrinks": Case(
        result(sources={"refs": 1, "more": 900}), result(sources={"refs": 9, "more": 900}), ("refs had 9",)
    ),
    "a source that is new": Case(result(sources={"refs": 9, "more": 1}), result(sources={"refs": 9})),
    # The whole: the scan is braked.
    "a source is taken out of the settings": Case(
        result(sources={"refs": 100}), result(sources={"refs": 100, "more": 900}), brakes=("all sources together had 1,000",)
    ),
    "sources that overlap": Case(
        result(sources={"a": 600, "b": 600}, distinct=600), result(sources={"a": 1000, "b": 1000}, distinct=2000),
        brakes=("all sources together had 2,000 references last time and has 600, 70 % fewer",), settings={"references_shrink": 0.5},
    ),
    "9 of 10 objects": Case(result(1, 9)),
    "10 of 11 objects": Case(result(1, 10), brakes=("nothing refers to 10 of 11 judged objects, 90.91 %, and brakes.unreferenced_fraction is 90 %",)),
    "few objects that are most bytes": Case(
        result(9, 1, sizes=(90, 911)), brakes=("nothing refers to 911 of 1,001 judged bytes, 91.01 %",)
    ),
    "few objects that are many bytes": Case(result(9, 1, sizes=(100, 900))),
    "what is young or nobody's does not count": Case(result(0, 1, young=90, unhandled=90, realm_purge=90), brakes=("nothing refers to 1 of 1",)),
    "9 of 10 references name no listed object": Case(result(1, 4, unresolved=9, sources={"refs": 10}), brakes=(UNRESOLVED,)),
    "half of the references name no listed object": Case(result(unresolved=5, sources={"refs": 10})),
    "two brakes at once": Case(result(1, 10, unresolved=9, sources={"refs": 10}), brakes=("nothing refers to 10 of 11", UNRESOLVED)),
    "nothing is judged": Case(result(0, 0, unresolved=100, young=9), result(distinct=900)),
    "a limit that no binary number is": Case(result(29, 71, unresolved=29), settings={"unresolved_references": 0.29}),
    "a limit of nothing": Case(result(unresolved=1), settings={"unresolved_references": 0.0}, brakes=("1 of 100 references",)),
    "a limit of all": Case(
        result(0, 9, unresolved=100), settings={"unreferenced_fraction": 1.0, "unresolved_references": 1.0}
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_brakes(case: Case) -> None:
    brakes = Brakes(**case.settings)
    for found, expected in (
        (find_source_faults(brakes, case.scan, case.last), case.faults),
        (find_brakes(brakes, case.scan, case.last), case.brakes),
    ):
        assert len(found) == len(expected), found
        assert all(one.startswith(words) for one, words in zip(found, expected, strict=True)), found


def test_what_fails_a_scan_says_which_setting_lets_it_pass() -> None:
    empty, shrunk = result(sources={"refs": 0}), result(sources={"refs": 1})
    assert find_source_faults(Brakes(), empty, None)[0].endswith("if that is right, set brakes.empty_source of blobs to allow")
    assert find_source_faults(Brakes(), shrunk, result())[0].endswith("raise brakes.references_shrink of blobs")


@dataclass
class Scans:
    """Scans one after the other, each held against what the last kept one remembers."""

    last: ScanResult | None = None
    day: int = 0

    def takes(self, references: int, days: int = 1, **settings: Any) -> str:
        """What becomes of one that finds so many references some days later."""
        self.day += days
        scan = replace(result(sources={"refs": references}), started_at=T0 + timedelta(days=self.day))
        brakes = Brakes(**settings)
        scan.references_shrink = brakes.references_shrink
        if find_source_faults(brakes, scan, self.last):
            return "failed"
        scan.peaks = peaks_of(brakes, scan, self.last)
        self.last = ScanResult.from_json(scan.as_json())
        return "kept"


def test_small_steps_add_up_against_the_largest_scan_of_the_last_days() -> None:
    scans = Scans()
    assert [scans.takes(number) for number in (1000, 900, 850, 790)] == ["kept", "kept", "kept", "failed"]
    # The largest one is forgotten after its days, and then the next one.
    assert (scans.takes(719, days=28), scans.takes(720, days=0), scans.takes(680)) == ("failed", "kept", "kept")


def test_a_scan_that_is_old_counts_as_long_as_it_is_the_last() -> None:
    scans = Scans()
    scans.takes(1000)
    assert (scans.takes(799, days=400), scans.takes(800)) == ("failed", "kept")


def test_how_far_back_scans_count_is_a_setting() -> None:
    scans = Scans()
    found = [scans.takes(number, within="60h") for number in (1000, 900, 800, 700)]
    assert found == ["kept", "kept", "kept", "failed"]
    assert scans.takes(640, within="1h") == "kept"


def test_whoever_lets_references_be_fewer_once_begins_anew() -> None:
    scans = Scans()
    scans.takes(1000)
    assert [scans.takes(300), scans.takes(300, references_shrink=0.8), scans.takes(290)] == ["failed", "kept", "kept"]


def test_a_scan_that_somebody_accepts_begins_anew() -> None:
    scans = Scans(result(sources={"refs": 10}))
    assert (scans.takes(8), scans.takes(7)) == ("kept", "failed")

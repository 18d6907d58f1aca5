"""What fails a scan, what brakes it, and what is as usual: cases with the numbers on both sides of each limit."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from retention_assets.stores.objects.scan.brakes import find_brakes, find_source_faults
from retention_assets.stores.objects.scan_result import ClassCount, ObjectClass, ScanResult, SourceCount
from retention_assets.stores.objects.settings import Brakes

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def result(
    referenced: int = 5,
    unreferenced: int = 5,
    unresolved: int = 0,
    sources: dict[str, int] | None = None,
    distinct: int | None = None,
    sizes: tuple[int, int] = (0, 0),
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
    counts = [SourceCount(label, 2 * number, number) for label, number in said.items()]
    total = sum(said.values()) if distinct is None else distinct
    return ScanResult(
        "blobs", T0, T0, T0, T0, "", "fingerprints", 0.0,
        distinct_references=total, unresolved_references=unresolved, classes=classes, sources=counts,
    )  # fmt: skip


@dataclass
class Case:
    """A scan, the one before it, and the beginnings of what is found."""

    scan: ScanResult
    last: ScanResult | None = None
    faults: tuple[str, ...] = ()
    brakes: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)


EMPTY = "refs has no reference at all"
SHRANK = "refs had 1,000 references last time and has 400, 60 % fewer, and brakes.references_shrink is 50 %"
TOGETHER = "all sources together had 1,000 references last time and has 400"
UNRESOLVED = "9 of 10 references name nothing that is listed, 90 %, and brakes.unresolved_references is 50 %"
CASES = {
    "as usual": Case(result()),
    # Sources: the scan failed.
    "an empty source in the first scan": Case(result(sources={"refs": 0, "more": 3}), faults=(EMPTY,)),
    "an empty source that may be": Case(result(0, 1, sources={"refs": 0}), settings={"empty_source": "allow"}, brakes=("nothing refers to 1 of 1",)),
    "one that may be empty and was not": Case(
        result(sources={"refs": 0}), result(sources={"refs": 7}), ("refs had 7 references last time and has 0, 100 % fewer",),
        ("all sources together had 7",), {"empty_source": "allow"},
    ),
    "1,000 become 400": Case(result(sources={"refs": 400}), result(sources={"refs": 1000}), (SHRANK,), (TOGETHER,)),
    "1,000 become 501": Case(result(sources={"refs": 501}), result(sources={"refs": 1000})),
    "1,000 become 500": Case(result(sources={"refs": 500}), result(sources={"refs": 1000})),
    "1,000 become 499": Case(
        result(sources={"refs": 499}), result(sources={"refs": 1000}), ("refs had 1,000",), ("all sources together had 1,000",)
    ),
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
        brakes=("all sources together had 2,000 references last time and has 600, 70 % fewer",),
    ),
    "9 of 10 objects": Case(result(1, 9)),
    "10 of 11 objects": Case(result(1, 10), brakes=("nothing refers to 10 of 11 judged objects, 90.91 %, and brakes.unreferenced_fraction is 90 %",)),
    "few objects that are most bytes": Case(
        result(9, 1, sizes=(90, 911)), brakes=("nothing refers to 911 of 1,001 judged bytes, 91.01 %",)
    ),
    "few objects that are many bytes": Case(result(9, 1, sizes=(100, 900))),
    "what is young or nobody's does not count": Case(result(0, 1, young=90, unhandled=90, realm_purge=90), brakes=("nothing refers to 1 of 1",)),
    "9 of 10 references name nothing": Case(result(1, 4, unresolved=9, sources={"refs": 10}), brakes=(UNRESOLVED,)),
    "half of the references name nothing": Case(result(unresolved=5, sources={"refs": 10})),
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
    assert find_source_faults(Brakes(), empty, None)[0].endswith(
        "where that is right, set brakes.empty_source of blobs to allow"
    )
    assert find_source_faults(Brakes(), shrunk, result())[0].endswith("set brakes.references_shrink of blobs higher")

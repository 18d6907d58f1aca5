"""Brakes: numbers of a scan that look so odd that it must not mark.

Belongs here: holding a result against the brakes of the settings and against the last whole scan, pure.
Does not belong here: counting (classes.py), and what becomes of a scan that is braked (ledger/scans.py).

There are two degrees. A source that is empty, or that shrank, has most likely lost what it had: the scan failed, for what was
read of it can't be trusted (`find_source_faults`). If each source looks as usual, and the whole does not, the scan is braked
(`find_brakes`): its counts are published, and a person may accept it. So where one source is all there is, references that
shrank fail the scan. The shares are limits that may be reached: only what is beyond one brakes. A scan in which nothing was old
enough to be judged marks nothing, so nothing brakes it; and nothing shrinks in the first one.
"""

from collections.abc import Mapping
from fractions import Fraction

from retention_assets.stores.objects.scan_result import JUDGED, ObjectClass, ScanResult
from retention_assets.stores.objects.settings import Brakes


def find_source_faults(brakes: Brakes, result: ScanResult, last: ScanResult | None) -> list[str]:
    """Why sources can't be trusted, with their numbers: the scan failed."""
    before = {one.label: one.distinct for one in last.sources} if last else {}
    found = []
    for source in result.sources:
        if source.rows == 0 and brakes.empty_source == "refuse":
            remedy = f"where that is right, set brakes.empty_source of {result.store} to allow"
            found.append(f"{source.label} has no reference at all; {remedy}")
        elif shrunk := _shrunk(brakes, before.get(source.label, 0), source.distinct):
            remedy = f"where that is right, set brakes.references_shrink of {result.store} higher"
            found.append(f"{source.label} {shrunk}; {remedy}")
    return found


def find_shrunk(brakes: Brakes, before: Mapping[str, int], rows: Mapping[str, int]) -> list[str]:
    """Which sources, by label, have fewer rows than the last whole scan had distinct references, by more than the brake.

    Rows may repeat, so that it is certain of these, and not of others.
    """
    found = ((label, _shrunk(brakes, before.get(label, 0), count)) for label, count in rows.items())
    return [f"{label} {shrunk}" for label, shrunk in found if shrunk]


def find_brakes(brakes: Brakes, result: ScanResult, last: ScanResult | None) -> list[str]:
    """What about the scan as a whole is odd, each with both numbers; nothing: it is as usual."""
    objects, size = result.total(*JUDGED)
    if not objects:
        return []
    found = []
    if shrunk := _shrunk(brakes, last.distinct_references if last else 0, result.distinct_references):
        found.append(f"all sources together {shrunk}")
    unreferenced, unreferenced_size = result.total(ObjectClass.UNREFERENCED)
    most = brakes.unreferenced_fraction
    if _is_beyond(unreferenced, objects, most):
        found.append(
            f"nothing refers to {unreferenced:,} of {objects:,} judged objects, {_percent(unreferenced, objects)}, and"
            f" brakes.unreferenced_fraction is {_percent_of(most)}"
        )
    elif _is_beyond(unreferenced_size, size, most):
        found.append(
            f"nothing refers to {unreferenced_size:,} of {size:,} judged bytes, {_percent(unreferenced_size, size)}, and"
            f" brakes.unreferenced_fraction is {_percent_of(most)}"
        )
    unresolved, distinct, most = result.unresolved_references, result.distinct_references, brakes.unresolved_references
    if _is_beyond(unresolved, distinct, most):
        found.append(
            f"{unresolved:,} of {distinct:,} references name nothing that is listed, {_percent(unresolved, distinct)}, and"
            f" brakes.unresolved_references is {_percent_of(most)}: is a prefix wrong?"
        )
    return found


def _shrunk(brakes: Brakes, before: int, now: int) -> str | None:
    most = brakes.references_shrink
    if not _is_beyond(before - now, before, most):
        return None
    fewer = f"{_percent(before - now, before)} fewer, and brakes.references_shrink is {_percent_of(most)}"
    return f"had {before:,} references last time and has {now:,}, {fewer}"


def _is_beyond(part: int, whole: int, most: float) -> bool:
    """Whether a part of a whole is more than a share, exactly: 0.29 of 100 is 29."""
    return part > Fraction(str(most)) * whole


def _percent(part: int, whole: int) -> str:
    return _percent_of(part / whole)


def _percent_of(share: float) -> str:
    return f"{100 * share:.4g} %"

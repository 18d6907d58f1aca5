"""Result of a scan in numbers, as the ledger keeps it, and brakes: a scan whose numbers look wrong must not mark.

There are two degrees. A source that is empty or shrank has probably lost references: the scan fails, as its input cannot be
trusted (`find_source_faults`). If every source looks usual but the whole does not, the scan is braked (`find_brakes`): its
counts are published, and a person may accept it. With a single source, shrunken references therefore fail the scan. Small steps
add up: each scan carries on the largest counts of the last days (`peaks_of`). Shares are inclusive limits. A scan in which
nothing was old enough to be judged marks nothing, so nothing brakes it; and nothing shrinks in the first scan.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from fractions import Fraction

from pydantic import TypeAdapter

from retention_assets.errors import Refused
from retention_assets.policy.durations import text_of
from retention_assets.stores.objects.settings import Brakes


class ObjectClass(StrEnum):
    """Class of a listed object: the first of these that fits."""

    RESERVED = "reserved"
    REALM_PURGE = "realm_purge"
    YOUNG = "young"
    UNKNOWN_KIND = "unknown_kind"
    REFERENCED = "referenced"
    UNREFERENCED = "unreferenced"
    UNHANDLED = "unhandled"


# classes whose age and kind let references decide
JUDGED = (ObjectClass.REFERENCED, ObjectClass.UNREFERENCED)


class ScanFailed(Refused):
    """A scan that is not whole or cannot be trusted: nothing is marked, and no realm becomes PURGED. `references` is the number
    of distinct ones if they were too many for the filter: the next scan is sized for it."""

    def __init__(self, store: str, why: str, references: int | None = None) -> None:
        super().__init__(f"The scan of the store {store} failed, so it marks nothing: {why}")
        self.store, self.why, self.references = store, why, references


@dataclass
class ClassCount:
    """Objects and bytes of a class, realm and kind ("" is none)."""

    realm: str
    kind: str
    name: ObjectClass
    objects: int = 0
    bytes: int = 0


@dataclass
class ScannedDataset:
    """A dataset with listed objects: its realm ("" is none) and its rows in the log."""

    name: str
    realm: str
    rows: int


@dataclass
class SourceCount:
    """Counts of a source; `realms` are those it covers, `shards` its files or shares (0 if these come and go). In looks, and of
    edges, `distinct` counts all rows."""

    label: str
    rows: int = 0
    distinct: int = 0
    realms: int = 0
    seconds: float = 0.0
    shards: int = 0


@dataclass
class Peak:
    """Number of references of a source in a kept scan that no later scan reached; the label "" is all sources together."""

    label: str
    at: datetime
    references: int


@dataclass
class ScanResult:
    store: str
    started_at: datetime
    finished_at: datetime
    listing_as_of: datetime
    cut_off: datetime
    salt: str  # hexadecimal
    filter: str
    # rate at which an unreferenced object is taken for referenced
    effective_fpp: float
    scanned: int = 0
    scanned_bytes: int = 0
    # distinct over all sources; unresolved ones name nothing listed
    distinct_references: int = 0
    unresolved_references: int = 0
    classes: list[ClassCount] = field(default_factory=list)
    sources: list[SourceCount] = field(default_factory=list)
    edges: int = 0
    datasets: list[ScannedDataset] = field(default_factory=list)
    # digests of settings by key (ObjectsSettings.judging), and realms that were PURGING
    judging: dict[str, str] = field(default_factory=dict)
    purging: list[str] = field(default_factory=list)
    # number of fingerprints that edges retain and no reference does
    over_edges: int = 0
    edge_sources: list[SourceCount] = field(default_factory=list)
    # compared with by later scans; `references_shrink` is the brake that applied to this one
    peaks: list[Peak] = field(default_factory=list)
    references_shrink: float = 1.0

    def total(self, *classes: ObjectClass) -> tuple[int, int]:
        """Objects and bytes of the classes; by default of all but reserved ones."""
        wanted = classes or tuple(name for name in ObjectClass if name is not ObjectClass.RESERVED)
        counts = [count for count in self.classes if count.name in wanted]
        return sum(count.objects for count in counts), sum(count.bytes for count in counts)

    def outdated(self, judging: Mapping[str, str], purging: Collection[str]) -> list[str]:
        """Reasons why the result no longer holds: changed settings, and realms no longer PURGING. Objects in such realms were
        checked neither for age nor for references."""
        keys = [key for key, digest in judging.items() if self.judging.get(key, digest) != digest]
        changed = [f"its settings have changed ({', '.join(keys)})"] if keys else []
        stopped = sorted(set(self.purging).difference(purging))
        return changed + ([f"no longer PURGING: {', '.join(stopped)}"] if stopped else [])

    def as_json(self) -> str:
        return _RESULT.dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str) -> "ScanResult":
        return _RESULT.validate_json(text)


_RESULT = TypeAdapter(ScanResult)


def find_source_faults(brakes: Brakes, result: ScanResult, last: ScanResult | None) -> list[str]:
    """Reasons why sources cannot be trusted, with their numbers; any of them fails the scan."""
    is_empty = {source.label: source.rows == 0 and brakes.empty_source == "refuse" for source in result.sources}
    remedy = f"if that is right, set brakes.empty_source of {result.store} to allow"
    faults = [f"{label} has no reference at all; {remedy}" for label, empty in is_empty.items() if empty]
    filled = [source for source in (*result.sources, *result.edge_sources) if not is_empty.get(source.label)]
    return faults + find_losses(brakes, filled, last, result.started_at)


def find_losses(brakes: Brakes, sources: Iterable[SourceCount], last: ScanResult | None, at: datetime) -> list[str]:
    """Sources that have probably lost something: files or shares since the last kept scan, or more references than the brake
    allows since the largest one. A look counts rows, not distinct references: as rows may repeat, the losses that it finds are
    certain, but it may miss others."""
    if last is None:
        return []
    peaks, losses = _most_before(brakes, last, at), list[str]()
    shards = {source.label: source.shards for source in (*last.sources, *last.edge_sources)}
    for source in sources:
        if 0 < source.shards < shards.get(source.label, 0):
            remedy = "Restore the missing ones. If they come and go, write `shards: changing` beside the source"
            losses.append(
                f"{source.label} is not whole: it had {shards[source.label]:,} files or shares last time and has"
                f" {source.shards:,}. {remedy}"
            )
        elif shrunk := _shrunk(brakes, peaks.get(source.label), source.distinct, last):
            remedy = f"if that is right, raise brakes.references_shrink of {last.store}"
            losses.append(f"{source.label} {shrunk}; {remedy}")
    return losses


def own_peaks(result: ScanResult) -> list[Peak]:
    """Peaks of a scan alone, as after a person accepted it."""
    counts = ((source.label, source.distinct) for source in (*result.sources, *result.edge_sources))
    return [Peak(label, result.started_at, count) for label, count in (("", result.distinct_references), *counts)]


def peaks_of(brakes: Brakes, result: ScanResult, last: ScanResult | None) -> list[Peak]:
    """Peaks of a kept scan: its own counts, and larger ones of the last days. Peaks that the last scan's brake would have
    refused are dropped: the brake was relaxed since, so they start anew."""
    own = own_peaks(result)
    if last is None:
        return own
    present, oldest = {peak.label: peak.references for peak in own}, brakes.within.before(result.started_at)
    return own + [
        peak
        for peak in last.peaks or own_peaks(last)
        if peak.at >= oldest and present.get(peak.label, peak.references) < peak.references
        and not _is_beyond(peak.references - present[peak.label], peak.references, last.references_shrink)
    ]  # fmt: skip


def _most_before(brakes: Brakes, last: ScanResult, at: datetime) -> dict[str, Peak]:
    # by label; the last scan counts whatever its age
    oldest = brakes.within.before(at)
    peaks = [peak for peak in last.peaks or own_peaks(last) if peak.at == last.started_at or peak.at >= oldest]
    return {peak.label: peak for peak in sorted(peaks, key=lambda peak: peak.references)}


def find_brakes(brakes: Brakes, result: ScanResult, last: ScanResult | None) -> list[str]:
    """Reasons, with numbers, why the scan as a whole looks wrong; empty if it is usual."""
    objects, size = result.total(*JUDGED)
    if not objects:
        return []
    reasons = []
    peak = _most_before(brakes, last, result.started_at).get("") if last else None
    if last and (shrunk := _shrunk(brakes, peak, result.distinct_references, last)):
        reasons.append(f"all sources together {shrunk}")
    unreferenced, unreferenced_size = result.total(ObjectClass.UNREFERENCED)
    # Without sources, nothing is referred to by definition.
    most = brakes.unreferenced_fraction if result.sources else 1.0
    for part, whole, unit in ((unreferenced, objects, "objects"), (unreferenced_size, size, "bytes")):
        if _is_beyond(part, whole, most):
            reasons.append(
                f"nothing refers to {part:,} of {whole:,} judged {unit}, {_percent_of(part / whole)}, and"
                f" brakes.unreferenced_fraction is {_percent_of(most)}"
            )
            break
    unresolved, distinct, most = result.unresolved_references, result.distinct_references, brakes.unresolved_references
    if _is_beyond(unresolved, distinct, most):
        reasons.append(
            f"{unresolved:,} of {distinct:,} references name no listed object, {_percent_of(unresolved / distinct)}, and "
            f"brakes.unresolved_references is {_percent_of(most)}: is a prefix wrong?"
        )
    return reasons


def _shrunk(brakes: Brakes, peak: Peak | None, now: int, last: ScanResult) -> str | None:
    most = brakes.references_shrink
    if peak is None or not _is_beyond(peak.references - now, peak.references, most):
        return None
    share = _percent_of((peak.references - now) / peak.references)
    fewer = f"{share} fewer, and brakes.references_shrink is {_percent_of(most)}"
    when = "last time" if peak.at == last.started_at else f"at {text_of(peak.at)}"
    return f"had {peak.references:,} references {when} and has {now:,}, {fewer}"


def _is_beyond(part: int, whole: int, most: float) -> bool:
    # exact: 0.29 of 100 is 29
    return part > Fraction(str(most)) * whole


def _percent_of(share: float) -> str:
    return f"{100 * share:.4g} %"

"""Result of a scan in numbers, as the ledger keeps it and brakes check it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from pydantic import TypeAdapter

from retention_assets.errors import Refused


class ObjectClass(StrEnum):
    """What a listed object is. Each is in the first that fits."""

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
        super().__init__(f"The scan of the store {store} failed, and nothing of it is marked: {why}")
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
    """Counts of a source; `realms` are those it covers, `shards` its files or shares (0 if these come and go). Of edges, rows
    are counted."""

    label: str
    rows: int = 0
    distinct: int = 0
    realms: int = 0
    seconds: float = 0.0
    shards: int = 0


@dataclass
class Peak:
    """Number of references of a source in a kept scan that no later one reached; the label "" is all sources together."""

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
    # hexadecimal
    salt: str
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
    # retained over edges, but by no reference
    over_edges: int = 0
    edge_sources: list[SourceCount] = field(default_factory=list)
    # compared with by later scans; `references_shrink` is the brake that applied to this one
    peaks: list[Peak] = field(default_factory=list)
    references_shrink: float = 1.0

    def total(self, *classes: ObjectClass) -> tuple[int, int]:
        """Objects and bytes of the classes; by default of all but reserved ones."""
        wanted = classes or tuple(one for one in ObjectClass if one is not ObjectClass.RESERVED)
        found = [one for one in self.classes if one.name in wanted]
        return sum(one.objects for one in found), sum(one.bytes for one in found)

    def outdated(self, judging: Mapping[str, str], purging: Collection[str]) -> list[str]:
        """Reasons why the result no longer holds: changed settings, and realms no longer PURGING. Objects in such realms were
        checked neither for age nor for references."""
        keys = [key for key, digest in judging.items() if self.judging.get(key, digest) != digest]
        changed = [f"its settings are other ones by now ({', '.join(keys)})"] if keys else []
        stopped = sorted(set(self.purging).difference(purging))
        return changed + ([f"no longer PURGING: {', '.join(stopped)}"] if stopped else [])

    def as_json(self) -> str:
        return _RESULT.dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str) -> "ScanResult":
        return _RESULT.validate_json(text)


_RESULT = TypeAdapter(ScanResult)

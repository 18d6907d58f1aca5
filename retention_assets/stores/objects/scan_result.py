"""What a scan found, in numbers: what the ledger keeps of it, and what brakes are held against.

Belongs here: classes of objects, counts, and their form as JSON.
Does not belong here: counting (classes.py), judging the numbers (scan/brakes.py), keeping them (the ledger).
"""

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


# Those whose age and kind let them be judged by references.
JUDGED = (ObjectClass.REFERENCED, ObjectClass.UNREFERENCED)


class ScanFailed(Refused):
    """A scan that is not whole, or can't be trusted: nothing is marked, and no realm is PURGED.

    `references` is how many distinct ones were found where they were too many: the next scan can be sized for them.
    """

    def __init__(self, store: str, why: str, references: int | None = None) -> None:
        super().__init__(f"The scan of the store {store} failed, and nothing of it is marked: {why}")
        self.store, self.why, self.references = store, why, references


@dataclass
class ClassCount:
    """Objects of one class, of one realm and kind ("" is none), and their bytes."""

    realm: str
    kind: str
    name: ObjectClass
    objects: int = 0
    bytes: int = 0


@dataclass
class ScannedDataset:
    """A dataset of which something was listed: its realm ("" is none) and its rows in the log."""

    name: str
    realm: str
    rows: int


@dataclass
class SourceCount:
    """What one source said: rows, distinct references, realms that it speaks for, how long it took to read, and of how many
    files or shares it is; 0 where these come and go. Of edges the rows count.
    """

    label: str
    rows: int = 0
    distinct: int = 0
    realms: int = 0
    seconds: float = 0.0
    shards: int = 0


@dataclass
class Peak:
    """How many references a source had in a kept scan, and no later one had as many; "" is all sources together."""

    label: str
    at: datetime
    references: int


@dataclass
class ScanResult:
    """One whole scan."""

    store: str
    started_at: datetime
    finished_at: datetime
    listing_as_of: datetime
    cut_off: datetime
    # Hexadecimal, from the system's random source.
    salt: str
    filter: str
    # The rate at which an object that nothing refers to is taken for referenced.
    effective_fpp: float
    scanned: int = 0
    scanned_bytes: int = 0
    # Over all sources, each counted once; and those of them that name nothing that was listed.
    distinct_references: int = 0
    unresolved_references: int = 0
    classes: list[ClassCount] = field(default_factory=list)
    sources: list[SourceCount] = field(default_factory=list)
    edges: int = 0
    datasets: list[ScannedDataset] = field(default_factory=list)
    # By what it was judged: digests of settings by their keys (ObjectsSettings.judging), and the realms that were PURGING.
    judging: dict[str, str] = field(default_factory=dict)
    purging: list[str] = field(default_factory=list)
    # What is retained over edges, and by no reference itself.
    over_edges: int = 0
    edge_sources: list[SourceCount] = field(default_factory=list)
    # What later scans are held against, and by which share references might be fewer in this one.
    peaks: list[Peak] = field(default_factory=list)
    references_shrink: float = 1.0

    def total(self, *classes: ObjectClass) -> tuple[int, int]:
        """Objects and bytes of some classes; of all that are counted where none is named."""
        wanted = classes or tuple(one for one in ObjectClass if one is not ObjectClass.RESERVED)
        found = [one for one in self.classes if one.name in wanted]
        return sum(one.objects for one in found), sum(one.bytes for one in found)

    def outdated(self, judging: Mapping[str, str], purging: Collection[str]) -> list[str]:
        """Why it says nothing of the present any more: settings that are other ones by now, realms that are purged no longer.

        Objects of those were asked neither for their age nor for references.
        """
        keys = [key for key, digest in judging.items() if self.judging.get(key, digest) != digest]
        changed = [f"its settings are other ones by now ({', '.join(keys)})"] if keys else []
        stopped = sorted(set(self.purging).difference(purging))
        return changed + ([f"no longer PURGING: {', '.join(stopped)}"] if stopped else [])

    def as_json(self) -> str:
        """As the ledger keeps it."""
        return _RESULT.dump_json(self).decode()

    @classmethod
    def from_json(cls, text: str) -> "ScanResult":
        """What the ledger kept."""
        return _RESULT.validate_json(text)


_RESULT = TypeAdapter(ScanResult)

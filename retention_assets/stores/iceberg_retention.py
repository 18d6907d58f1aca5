"""What an Iceberg table says about its own retention, in its properties and on its refs.

Belongs here: reading those numbers, with the defaults that Iceberg gives them.
Does not belong here: applying them. A table's wish becomes a deletion only through a policy that asks for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType

from retention_assets.problems import Expected, shown

MAX_SNAPSHOT_AGE = "history.expire.max-snapshot-age-ms"
MIN_SNAPSHOTS = "history.expire.min-snapshots-to-keep"
MAX_REF_AGE = "history.expire.max-ref-age-ms"
_FIVE_DAYS = 5 * 24 * 60 * 60 * 1000
# Iceberg writes "for ever" as the largest long.
_FOR_EVER = 2**63 - 1


@dataclass(frozen=True)
class OwnWindow:
    """How long a history is kept: snapshots younger than an age, and always the newest few."""

    max_snapshot_age_ms: int = _FIVE_DAYS
    min_snapshots_to_keep: int = 1
    # None: the ref itself never ages.
    max_ref_age_ms: int | None = None


@dataclass(frozen=True)
class OwnRetention:
    """The window of a table, and of each branch and tag that overrides any of its numbers."""

    table: OwnWindow
    branches: Mapping[str, OwnWindow]
    tags: Mapping[str, OwnWindow]


def own_retention(properties: Mapping[str, str], refs: Mapping[str, SnapshotRef]) -> OwnRetention:
    """The table's own windows. Raises Expected for a property that is not a number above zero."""
    default = OwnWindow()
    table = OwnWindow(
        _number(properties, MAX_SNAPSHOT_AGE, default.max_snapshot_age_ms),
        _number(properties, MIN_SNAPSHOTS, default.min_snapshots_to_keep),
        _ending(_number(properties, MAX_REF_AGE, _FOR_EVER)),
    )
    windows = {name: _of_ref(name, ref, table) for name, ref in refs.items()}
    own = {name: window for name, window in windows.items() if window != table}
    return OwnRetention(
        table,
        {name: window for name, window in own.items() if refs[name].snapshot_ref_type is SnapshotRefType.BRANCH},
        {name: window for name, window in own.items() if refs[name].snapshot_ref_type is SnapshotRefType.TAG},
    )


def own_attributes(properties: Mapping[str, str]) -> dict[str, str]:
    """The same numbers as attributes of the dataset, as they are in force: a default stands where the table says nothing.

    A number that cannot be read is shown as it is written: it keeps no history from being read.
    """
    default = OwnWindow()
    said = {MAX_SNAPSHOT_AGE: str(default.max_snapshot_age_ms), MIN_SNAPSHOTS: str(default.min_snapshots_to_keep)}
    return said | {name: properties[name] for name in (MAX_SNAPSHOT_AGE, MIN_SNAPSHOTS, MAX_REF_AGE) if name in properties}


def _of_ref(name: str, ref: SnapshotRef, table: OwnWindow) -> OwnWindow:
    ref_age = table.max_ref_age_ms if ref.max_ref_age_ms is None else _ending(ref.max_ref_age_ms)
    return OwnWindow(
        ref.max_snapshot_age_ms or table.max_snapshot_age_ms,
        ref.min_snapshots_to_keep or table.min_snapshots_to_keep,
        # Iceberg never drops the main branch for its age, whatever the table says.
        None if name == MAIN_BRANCH else ref_age,
    )


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name)
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number <= 0:
        raise Expected(f"is a table property that cannot be read: {shown(text)}", "a whole number above zero", key=name)
    return number


def _ending(age: int) -> int | None:
    return None if age >= _FOR_EVER else age

"""What an Iceberg table says about its own retention, in its properties and on its refs, as attributes of its dataset.

Belongs here: those attributes, with the defaults that Iceberg gives them.
Does not belong here: applying them. A table's wish becomes a deletion only through a policy that asks for it (`from_table`).
"""

from collections.abc import Mapping

from pyiceberg.table.refs import SnapshotRef

from retention_assets.policy.table_windows import MAX_AGE, MIN_SNAPSHOTS, attribute

_FIVE_DAYS = 5 * 24 * 60 * 60 * 1000
_DEFAULTS = {attribute(MAX_AGE): str(_FIVE_DAYS), attribute(MIN_SNAPSHOTS): "1"}
_MAX_REF_AGE = attribute("max-ref-age-ms")


def own_attributes(properties: Mapping[str, str], refs: Mapping[str, SnapshotRef]) -> dict[str, str]:
    """The table's numbers as they are in force, and what branches say otherwise.

    A number that cannot be read is shown as it is written: it keeps no history from being read, and nothing is judged by it.
    """
    said = {name: properties[name] for name in (*_DEFAULTS, _MAX_REF_AGE) if name in properties}
    return {**_DEFAULTS, **said, **_of_branches(refs)}


def _of_branches(refs: Mapping[str, SnapshotRef]) -> dict[str, str]:
    """What branches say about their own history. Tags have none, and PyIceberg reads no tag that says anything about it."""
    said = {
        attribute(number, name): value
        for name, ref in refs.items()
        for number, value in ((MAX_AGE, ref.max_snapshot_age_ms), (MIN_SNAPSHOTS, ref.min_snapshots_to_keep))
    }
    return {name: str(value) for name, value in said.items() if value is not None}

"""Lists every file that a table reaches from its current metadata, by class; orphans are compared with it.

Data comes from every manifest of every snapshot, including staged ones and those of every ref; an entry marked as deleted
reaches nothing. Files of the metadata log are named and not followed: what only they name was expired.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyiceberg.table import Table

from retention_assets.stores.concurrency import map_concurrently
from retention_assets.stores.iceberg.log import collects_garbage
from retention_assets.stores.iceberg.manifests import Manifest, live_files, manifest_list

# manifests whose files are in memory at once
_AT_ONCE = 64


@dataclass(frozen=True)
class ReachedFiles:
    """Files of one class, or folders that count as reached with everything in them."""

    what: str
    locations: tuple[str, ...]
    folders: bool = False


def files_reached(table: Table, parallelism: int) -> Iterator[ReachedFiles]:
    """Yield files class by class; one may come several times. Raises Unreadable for a file that can't be read."""
    metadata = table.metadata
    yield ReachedFiles("metadata file", (table.metadata_location,))
    yield ReachedFiles("metadata log", tuple(entry.metadata_file for entry in metadata.metadata_log))
    yield ReachedFiles("version hint", _version_hints(table))
    if not collects_garbage(metadata):
        written = (metadata.properties.get(key) for key in ("write.data.path", "write.metadata.path"))
        places = (metadata.location, *(place for place in written if place))
        yield ReachedFiles("gc.enabled is not true, so that everything stays", places, folders=True)
    yield ReachedFiles("statistics", tuple(one.statistics_path for one in metadata.statistics))
    yield ReachedFiles("partition statistics", tuple(one.statistics_path for one in metadata.partition_statistics))
    lists = tuple(dict.fromkeys(snapshot.manifest_list for snapshot in metadata.snapshots))
    yield ReachedFiles("manifest list", lists)
    known: dict[str, Manifest] = {}
    with ThreadPoolExecutor(parallelism) as threads:
        for at in range(0, len(lists), _AT_ONCE):
            map_concurrently(threads, lambda location: manifest_list(table.io, location, known), lists[at : at + _AT_ONCE])
        manifests = list(known.values())
        yield ReachedFiles("manifest", tuple(manifest.location for manifest in manifests))
        for at in range(0, len(manifests), _AT_ONCE):
            some = manifests[at : at + _AT_ONCE]
            held = map_concurrently(threads, lambda manifest: live_files(table.io, manifest), some)
            for manifest, files in zip(some, held, strict=True):
                what = "delete file" if manifest.deletes else "data file"
                yield ReachedFiles(what, tuple(file.location for file in files.values()))


def _version_hints(table: Table) -> tuple[str, ...]:
    """Files by which readers without a catalog find the newest metadata."""
    folders = (f"{table.location().rstrip('/')}/metadata", table.metadata_location.rpartition("/")[0])
    places = dict.fromkeys(f"{folder}/version-hint.text" for folder in folders)
    return tuple(place for place in places if _may_be_there(table, place))


def _may_be_there(table: Table, location: str) -> bool:
    try:
        return table.io.new_input(location).exists()
    # an error means unknown, not absent
    except Exception:  # noqa: BLE001
        return True

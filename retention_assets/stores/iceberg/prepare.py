"""Prepares a sweep of one Iceberg table: a note for each snapshot, and the bytes that will become free."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from pyiceberg.table import Table

from retention_assets.stores.iceberg.commit import refs_by_snapshot
from retention_assets.stores.iceberg.log import MAX_REF_AGE_PROPERTY, collects_garbage
from retention_assets.stores.iceberg.manifests import Unreadable
from retention_assets.stores.iceberg.notes import SnapshotNote, notes_of, notes_of_expired, snapshot_id
from retention_assets.stores.iceberg.parsed import ParsedFiles
from retention_assets.stores.iceberg.reachability import Reachability, files_of_notes, staying_lists
from retention_assets.stores.protocol import PreparedTarget

# counting bytes reads what the sweep reads again; above this it is not worth the time
_MOST_SNAPSHOTS = 4_000
_MOST_MANIFESTS = 4_000


def prepare_table(table: Table, transactions: Sequence[str], parallelism: int, parsed: ParsedFiles) -> list[PreparedTarget]:
    """Return a note for each snapshot, and the bytes that deleting all of them would free, each file counted once."""
    if not collects_garbage(table.metadata):
        return [PreparedTarget(transaction, 0) for transaction in transactions]
    ids = {transaction: snapshot_id(transaction) for transaction in transactions}
    notes, refs = notes_of(table.metadata), refs_by_snapshot(table.metadata)
    # already expired, by an incomplete sweep or by somebody else
    notes |= notes_of_expired(table, {one for one in ids.values() if one is not None and one not in notes})
    going = {transaction: notes[one] for transaction, one in ids.items() if one in notes and one not in refs}
    sizes = _sizes(table, going, parallelism, parsed)
    always = MAX_REF_AGE_PROPERTY in table.metadata.properties
    ending = {
        one for one, note in notes.items() if note.refs and all(always or ref.max_ref_age_ms for ref in note.refs.values())
    }

    def size_of(name: str, one: int | None) -> int | None:
        if sizes is None or (one in ending and one != table.metadata.current_snapshot_id):
            # its ref may be over and be dropped with it; the planner knows
            return None
        # a snapshot with a ref will be spared, and an unknown one is gone: neither frees anything
        return sizes.get(name, 0)

    return [PreparedTarget(name, size_of(name, one), notes[one].text() if one in notes else None) for name, one in ids.items()]


def _sizes(table: Table, going: Mapping[str, SnapshotNote], parallelism: int, parsed: ParsedFiles) -> dict[str, int] | None:
    if len(table.metadata.snapshots) > _MOST_SNAPSHOTS:
        return None
    with ThreadPoolExecutor(parallelism) as threads:
        reach = Reachability(table.io, threads, parsed)
        try:
            lists = staying_lists(table.metadata, going.values())
            if len(reach.find_manifests(lists)) > _MOST_MANIFESTS:
                return None
            return {name: owned.bytes for name, owned in files_of_notes(reach, table.metadata, going, lists).items()}
        except Unreadable:
            # the sweep will refuse and give the reason; only the number is lost here
            return None

"""Lists, moves and deletes the files of a table. Nothing else of this store deletes."""

import hashlib
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from retention_assets.outcomes import Order
from retention_assets.stores.concurrency import map_concurrently
from retention_assets.stores.places import TRASH, DeletionPace, DueObject, Entry, Place
from retention_assets.stores.protocol import Permit, SweptTarget


@dataclass(frozen=True)
class TableFiles:
    """The files in the folder of a table, and the permit and the number of threads to change any."""

    place: Place
    permit: Permit
    parallelism: int

    def listing(self) -> dict[str, Entry]:
        """List the folder. Raises Refused if it can't be listed completely."""
        shares = self.place.shares(self.parallelism)
        with ThreadPoolExecutor(max(1, self.parallelism)) as threads:
            listed = map_concurrently(threads, lambda share: list(self.place.entries(share)), shares)
        return {entry.key: entry for part in listed for entry in part}

    def carry_out(
        self,
        order: Order,
        size_of: Callable[[str], int],
        names: Collection[str],
        listing: Mapping[str, Entry] | None = None,
    ) -> list[SweptTarget]:
        """Delete files, move them to the trash of their table or back, or delete them there; one outcome for each."""
        pace = DeletionPace(0)
        if order is Order.DELETE:
            entries = [(listing or {}).get(name) or Entry(name, None, None) for name in names]
            due = [DueObject(entry.key, entry.version, entry.etag) for entry in entries]
            return self.place.delete(due, lambda _: None, self.permit, pace, self.parallelism)

        def check(entry: Entry) -> str | None:
            size = sizes.get(entry.key, 0)
            return f"it has {entry.size} bytes, and not {size}" if size > 0 and entry.size != size else None

        aside = [DueObject(name, aside=_folder_in_trash(name)) for name in names]
        sizes = {one.key: size_of(one.key) for one in aside}
        sizes |= {f"{TRASH}/{one.aside}/{one.key.rpartition('/')[2]}": sizes[one.key] for one in aside}
        return self.place.carry_out(order, aside, check, self.permit, pace, self.parallelism)


def _folder_in_trash(name: str) -> str:
    # a hash in place of a mark: versions share files, so that a file in the trash belongs to no single mark
    return f"0/{int(hashlib.sha256(name.encode(errors='surrogateescape')).hexdigest()[:15], 16)}"

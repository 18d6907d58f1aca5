"""Deletes objects from any fsspec file system except local disks and S3, one by one. fsspec has no conditional deletion: a
writer may replace an object between the look in delete.py and its deletion."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from retention_assets.errors import Withheld
from retention_assets.outcomes import Outcome
from retention_assets.stores.concurrency import map_concurrently
from retention_assets.stores.files.delete_remote import with_patience
from retention_assets.stores.objects.notes import Look, PlannedObject
from retention_assets.stores.places.file_systems import FileSystem
from retention_assets.stores.places.pace import DeletionPace
from retention_assets.stores.protocol import Permit, SweptTarget, error_text


def delete_places(
    fs: FileSystem,
    root: str,
    objects: Sequence[PlannedObject],
    look: Look,
    parallelism: int,
    permit: Permit,
    pace: DeletionPace,
) -> list[SweptTarget]:
    """Delete objects below a root (in the file system's notation), one outcome for each. A look precedes each attempt."""

    def delete(one: PlannedObject) -> SweptTarget:
        place = f"{root.rstrip('/')}/{one.key}"

        def attempt() -> list[SweptTarget]:
            seen = look([one])
            if seen.same:
                permit()
                fs.rm_file(place)
            # The place may keep versions, so missing objects do not count as freed.
            return [*seen.spared, *(SweptTarget(gone.key, Outcome.ALREADY_GONE) for gone in seen.gone)]

        try:
            pace.wait(1)
            for other in with_patience(attempt):
                return other
            fs.invalidate_cache(fs._parent(place))
            if fs.exists(place):
                raise OSError("the file system says that it is deleted, and still has it")
        except FileNotFoundError:
            return SweptTarget(one.key, Outcome.ALREADY_GONE)
        except Withheld as fault:
            return SweptTarget(one.key, Outcome.WITHHELD, error=str(fault))
        except Exception as fault:  # noqa: BLE001 - drivers have exceptions of their own, and one fails alone
            return SweptTarget(one.key, Outcome.FAILED, error=error_text(fault))
        return SweptTarget(one.key, Outcome.DELETED, one.size)

    with ThreadPoolExecutor(max(1, parallelism)) as threads:
        return map_concurrently(threads, delete, objects)

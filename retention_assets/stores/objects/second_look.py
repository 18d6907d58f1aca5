"""The second look, right before a sweep: judges objects as they are now, by exact keys, and names who refers to them."""

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.stores.objects.look.due import within_realms
from retention_assets.stores.objects.look.hits import witness_words, witnesses_among
from retention_assets.stores.objects.look.look import ObjectsLook, rules_now
from retention_assets.stores.objects.scan.classes import CLASSES, NUMBER, classes_of
from retention_assets.stores.objects.scan.log_lines import lines_of, object_lines
from retention_assets.stores.objects.scan_result import ObjectClass
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.protocol import WITNESS


def second_look(
    settings: ObjectsSettings, look: ObjectsLook, objects: pa.Table, datasets: Sequence[str], purging: Collection[str]
) -> pa.Table:
    """Judge objects (rows of `tables.OBJECTS` with their dataset); return log lines, with one about each dataset. Raises
    SourceNotWhole unless every source proved that it was read completely."""
    # References do not matter to objects that go with their realm.
    asked = ~within_realms(objects["realm"], purging)
    witnesses = pa.nulls(len(objects), pa.string())
    if asked.any():
        look.check()
        mine = np.flatnonzero(asked)
        places, found = witnesses_among(look.hits, look.labels, objects.select(["realm", "key"]).take(pa.array(mine)))
        witnesses = _placed(witness_words(found), mine[places.to_numpy()], len(objects))
    rules = rules_now(settings, look, purging)
    retained = pc.is_valid(witnesses).to_numpy(zero_copy_only=False)
    codes = classes_of(objects["realm"], objects["kind"], objects["created_at"], retained, rules)
    # Not covered by the look: in a realm that was PURGING when it began, but is no longer.
    unknown = np.flatnonzero(codes == NUMBER[ObjectClass.UNREFERENCED])
    covered = look.covers(objects["key"].take(pa.array(unknown)).combine_chunks()) if len(unknown) else unknown.astype(bool)
    codes[unknown[~covered]] = NUMBER[ObjectClass.UNHANDLED]
    names = pa.array([str(name) for name in CLASSES]).take(pa.array(codes)).dictionary_encode()
    rows = objects.append_column("class", names).append_column(WITNESS, witnesses)
    return pa.concat_tables([_about_datasets(objects, datasets), object_lines(rows)])


def _placed(texts: pa.Array, places: np.ndarray[tuple[int], np.dtype[np.int64]], rows: int) -> pa.Array:
    at = np.full(rows, -1, dtype=np.int64)
    at[places] = np.arange(len(places))
    return texts.take(pa.array(at, mask=at < 0))


def _about_datasets(objects: pa.Table, datasets: Sequence[str]) -> pa.Table:
    """Lines with the realm of each dataset, if all of its known objects have the same."""
    found = objects.group_by("dataset").aggregate([("realm", "min"), ("realm", "max"), ("realm", "count"), ("key", "count")])
    realms = {
        row["dataset"]: row["realm_min"]
        for row in found.to_pylist()
        if row["realm_min"] == row["realm_max"] and row["realm_count"] == row["key_count"]
    }
    columns = {"dataset": pa.array(datasets, pa.string()), "realm": pa.array(map(realms.get, datasets), pa.string())}
    return lines_of(columns, len(datasets))

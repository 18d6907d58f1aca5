"""Log lines of a scan: one per logged object, and one per dataset about its realm. Only what a policy may select is COMMITTED.
Lines of objects that must not be judged (too young, of an unknown kind or an uncovered realm, reserved) are OPEN without an
opening time, so that no policy selects them."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.exchange.attributes import attribute_map
from retention_assets.frames.arrays import Bools, integers, join_chunks
from retention_assets.frames.log import ATTRIBUTES, LINES
from retention_assets.stores.objects.scan.classes import CLASSES, LOGGED
from retention_assets.stores.objects.scan.folder import ScanFolder, read_classes
from retention_assets.stores.objects.scan_result import ObjectClass, ScanResult
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.protocol import WITNESS

# attribute `referenced` by class; unknown for all others
REFERENCED = {
    ObjectClass.UNREFERENCED: "false",
    ObjectClass.REALM_PURGE: "false",
    ObjectClass.REFERENCED: "true",
}
UNKNOWN = "unknown"
_JUDGED = tuple(REFERENCED)
_COLUMNS = ("key", "realm", "kind", "dataset", "size", "created_at")


def log_lines(folder: ScanFolder, result: ScanResult, settings: ObjectsSettings, datasets: Sequence[str]) -> pa.Table:
    tables = [LINES.empty_table(), _about_datasets(result, datasets)]
    classes = tuple(CLASSES) if result.scanned <= settings.rows_up_to else LOGGED
    for rows in _chosen(folder, classes, datasets):
        tables.append(object_lines(rows))
    return pa.concat_tables(tables)


def _chosen(folder: ScanFolder, classes: Sequence[ObjectClass], datasets: Sequence[str]) -> Iterator[pa.Table]:
    wanted, names = pa.array([str(name) for name in classes]), pa.array(sorted(datasets), pa.string())
    for rows in read_classes(folder, _COLUMNS):
        kept = _is_in(rows["class"], wanted) & _is_in(rows["dataset"], names)
        if kept.any():
            yield rows if kept.all() else rows.filter(pa.array(kept))


def _is_in(column: pa.ChunkedArray, words: pa.Array) -> Bools:
    array = join_chunks(column)
    there = np.append(pc.is_in(array.dictionary, words).to_numpy(zero_copy_only=False), False)
    kept: Bools = there[integers(array.indices, len(array.dictionary))]
    return kept


def _about_datasets(result: ScanResult, datasets: Sequence[str]) -> pa.Table:
    wanted = set(datasets)
    known = [one for one in result.datasets if one.name in wanted and one.realm]
    rows = {"dataset": [one.name for one in known], "realm": [one.realm for one in known]}
    return lines_of({name: pa.array(values, pa.string()) for name, values in rows.items()}, len(known))


def object_lines(rows: pa.Table) -> pa.Table:
    words = join_chunks(rows["class"]).dictionary_decode().cast(pa.string())
    created = join_chunks(rows["created_at"])
    judged = pc.is_in(words, pa.array([str(name) for name in _JUDGED]))
    columns = {
        "dataset": join_chunks(rows["dataset"]).cast(pa.string()),
        "transaction": join_chunks(rows["key"]),
        # Otherwise the previous line would become the parent.
        "parent_given": pa.repeat(True, len(rows)),
        "type": pa.repeat("OBJECT", len(rows)),
        "status": pc.if_else(judged, "COMMITTED", "OPEN"),
        "opened_at": pc.if_else(judged, created, pa.scalar(None, created.type)),
        "closed_at": created,
        "bytes": join_chunks(rows["size"]),
        "attributes": _attributes(words, join_chunks(rows["kind"]), join_chunks(rows["realm"]), _witnesses_of(rows)),
    }
    return lines_of(columns, len(rows))


def lines_of(columns: dict[str, pa.Array], rows: int) -> pa.Table:
    """Build a table of lines; missing columns are null."""
    return pa.table(
        [columns[field.name].cast(field.type) if field.name in columns else pa.nulls(rows, field.type) for field in LINES],
        schema=LINES,
    )


def _witnesses_of(rows: pa.Table) -> pa.Array:
    return join_chunks(rows[WITNESS]) if WITNESS in rows.column_names else pa.nulls(len(rows), pa.string())


def _attributes(classes: pa.Array, kinds: pa.Array, realms: pa.Array, witnesses: pa.Array) -> pa.Array:
    said = pa.array([REFERENCED.get(name, UNKNOWN) for name in CLASSES])
    number = pc.index_in(classes, pa.array([str(name) for name in CLASSES]))
    texts = {"class": classes, "referenced": said.take(number), "kind": _text(kinds), "realm": _text(realms)}
    return attribute_map({**texts, WITNESS: witnesses}).cast(ATTRIBUTES)


def _text(column: pa.Array) -> pa.Array:
    return (column.dictionary_decode() if pa.types.is_dictionary(column.type) else column).cast(pa.string())

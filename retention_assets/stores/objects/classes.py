"""Class of each object (the first that fits, in the order of `ObjectClass`), and the log lines of a scan: one per logged
object, and one per dataset about its realm. Only what a policy may select is COMMITTED. Lines of objects that must not be
judged (too young, of an unknown kind or an uncovered realm, reserved) are OPEN without an opening time, so that no policy
selects them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.exchange.attributes import attribute_map
from retention_assets.frames.arrays import NEVER, Bools, Small, as_micros, join_chunks
from retention_assets.frames.log import ATTRIBUTES, LINES, holds_dataset
from retention_assets.policy.durations import micros
from retention_assets.policy.globs import protecting
from retention_assets.policy.model import Hold, Keeper, RetainRule
from retention_assets.policy.realms import REALM, is_reserved, is_within_any
from retention_assets.stores.objects.folder import ScanFolder, mask_of, read_classes
from retention_assets.stores.objects.scan_result import ObjectClass, ScanResult
from retention_assets.stores.objects.settings import FLOOR, ObjectsSettings
from retention_assets.stores.protocol import WITNESS

CLASSES = tuple(ObjectClass)
CLASS_NAMES = pa.array([str(name) for name in CLASSES])
LOGGED = (ObjectClass.UNREFERENCED, ObjectClass.REALM_PURGE)  # classes logged for every store, however large
NUMBER = {name: np.int8(number) for number, name in enumerate(CLASSES)}
_REASONS = {
    ObjectClass.RESERVED: "is of a reserved realm",
    ObjectClass.YOUNG: "is young",
    ObjectClass.UNKNOWN_KIND: "has an unknown kind",
    ObjectClass.UNHANDLED: "is in a realm that no source covers",
}
_REASON_OF = pa.array([_REASONS.get(name) for name in CLASSES], pa.string())


@dataclass(frozen=True)
class ClassRules:
    """Input of `classes_of` besides the objects.

    `handled`: realms that some source covers; None if one covers all. A source covers the realms of its references. It covers
    all realms if one of its references has none, or if it had no reference at all and provides no realms. If objects have
    realms, an object without one is covered only by a source that covers all. Otherwise every source covers all objects.
    """

    cut_off: int
    purging: frozenset[str] = frozenset()
    known_kinds: frozenset[str] | None = None
    handled: frozenset[str] | None = None
    # A held object keeps what its edges lead to; holds change no class.
    holds: Sequence[Keeper] = ()


def class_rules(
    settings: ObjectsSettings,
    present: datetime,
    purging: Collection[str],
    source_realms: Iterable[Collection[str | None]] | None,
) -> ClassRules:
    """Rules by the settings. `source_realms` has the realms of each source's references; None if no source was read."""
    return ClassRules(
        cut_off=micros(min(settings.min_age.before(present), FLOOR.before(present))),
        purging=frozenset(purging),
        known_kinds=None if settings.known_kinds is None else frozenset(settings.known_kinds),
        handled=None if source_realms is None else _covered_realms(settings, source_realms),
    )


def _covered_realms(settings: ObjectsSettings, source_realms: Iterable[Collection[str | None]]) -> frozenset[str] | None:
    if not settings.has_realms or not settings.references:
        return None
    handled = set[str | None]()
    for realms, source in zip(source_realms, settings.references, strict=True):
        # The settings tell whether a source provides realms, so that an empty one covers none.
        if None in realms or (not realms and getattr(source, "realm", None) is None):
            return None
        handled.update(realms)
    return frozenset(name for name in handled if name is not None)


def classes_of(objects: pa.Table, retained: Bools, rules: ClassRules) -> Small:
    """Index of each object's class. Objects of unknown age are young."""
    created = as_micros(objects["created_at"])
    young = (created > rules.cut_off) | (created == NEVER)
    classes = np.full(len(objects), NUMBER[ObjectClass.UNREFERENCED])
    if rules.handled is not None:
        classes[~mask_of(objects["realm"], rules.handled.__contains__)] = NUMBER[ObjectClass.UNHANDLED]
    classes[retained] = NUMBER[ObjectClass.REFERENCED]
    if rules.known_kinds is not None:
        classes[~mask_of(objects["kind"], rules.known_kinds.__contains__)] = NUMBER[ObjectClass.UNKNOWN_KIND]
    classes[young] = NUMBER[ObjectClass.YOUNG]
    classes[mask_of(objects["realm"], lambda name: is_within_any(name, rules.purging))] = NUMBER[ObjectClass.REALM_PURGE]
    classes[mask_of(objects["realm"], is_reserved)] = NUMBER[ObjectClass.RESERVED]
    return classes


def why_kept(objects: pa.Table, rules: ClassRules) -> pa.Array:
    """Reason why each object is kept, null if it is not; `objects` has the columns of `KEPT`."""
    reasons = _REASON_OF.take(pa.array(classes_of(objects, np.zeros(len(objects), dtype=bool), rules)))
    return pc.coalesce(reasons, held_by(objects, rules.holds)) if rules.holds else reasons


def held_by(objects: pa.Table, holds: Sequence[Keeper]) -> pa.Array:
    datasets, realms = (join_chunks(objects[name]).cast(pa.string()) for name in ("dataset", "realm"))
    codes = pc.binary_join_element_wise(datasets, pc.fill_null(realms, ""), "\n").dictionary_encode()
    places = [text.rsplit("\n", 1) for text in codes.dictionary.to_pylist()]
    reasons = pa.nulls(len(objects), pa.string())
    for hold in holds:
        is_held = [holds_dataset(hold, name, {REALM: realm} if realm else {}) for name, realm in places]
        mask = pa.array(is_held, pa.bool_()).take(codes.indices)
        if isinstance(hold, Hold) and hold.transactions is not None and pc.any(mask).as_py():
            rows = pc.indices_nonzero(mask)
            is_covered = np.zeros(len(objects), dtype=bool)
            is_covered[rows] = protecting(join_chunks(objects["key"]).take(rows).to_pylist(), hold.transactions)
            mask = pa.array(is_covered)
        # Only a whole log tells which objects of its datasets a rule keeps.
        is_rule = isinstance(hold, RetainRule)
        reason = f"may be kept by retain rule {hold.name}" if is_rule else f"is held by {hold.name or 'a hold without a name'}"
        reasons = pc.coalesce(reasons, pc.if_else(mask, reason, None))
    return reasons


# attribute `referenced` by class; unknown for all others
REFERENCED = {
    ObjectClass.UNREFERENCED: "false",
    ObjectClass.REALM_PURGE: "false",
    ObjectClass.REFERENCED: "true",
}
UNKNOWN = "unknown"


def log_lines(folder: ScanFolder, result: ScanResult, settings: ObjectsSettings, datasets: Sequence[str]) -> pa.Table:
    wanted = set(datasets)
    realms = {scanned.name: scanned.realm for scanned in result.datasets if scanned.name in wanted and scanned.realm}
    tables = [dataset_lines(realms)]
    classes = set(CLASSES if result.scanned <= settings.rows_up_to else LOGGED)
    for rows in read_classes(folder):
        mask = mask_of(rows["class"], classes.__contains__) & mask_of(rows["dataset"], wanted.__contains__)
        if mask.any():
            tables.append(object_lines(rows if mask.all() else rows.filter(pa.array(mask))))
    return pa.concat_tables(tables)


def dataset_lines(realms: Mapping[str, str | None]) -> pa.Table:
    return _lines_of({"dataset": pa.array([*realms], pa.string()), "realm": pa.array([*realms.values()], pa.string())})


def object_lines(rows: pa.Table) -> pa.Table:
    """Lines of objects (rows of `KEPT` and `class`), with their witnesses if there is a column of these."""
    columns = {name: join_chunks(rows[name]) for name in rows.column_names}
    classes, created = columns["class"].dictionary_decode().cast(pa.string()), columns["created_at"]
    number = pc.index_in(classes, CLASS_NAMES)
    judged = pc.is_in(classes, pa.array([str(name) for name in REFERENCED]))
    attributes = {
        "class": classes,
        "referenced": pa.array([REFERENCED.get(name, UNKNOWN) for name in CLASSES]).take(number),
        "kind": columns["kind"].cast(pa.string()),
        "realm": columns["realm"].cast(pa.string()),
        WITNESS: columns.get(WITNESS, pa.nulls(len(rows), pa.string())),
    }
    return _lines_of(
        {
            "dataset": columns["dataset"],
            "transaction": columns["key"],
            # Otherwise the previous line would become the parent.
            "parent_given": pa.repeat(True, len(rows)),
            "type": pa.repeat("OBJECT", len(rows)),
            "status": pc.if_else(judged, "COMMITTED", "OPEN"),
            "opened_at": pc.if_else(judged, created, pa.scalar(None, created.type)),
            "closed_at": created,
            "bytes": columns["size"],
            "attributes": attribute_map(attributes).cast(ATTRIBUTES),
        }
    )


def _lines_of(columns: Mapping[str, pa.Array]) -> pa.Table:
    rows = len(columns["dataset"])
    return pa.table(
        [columns[field.name].cast(field.type) if field.name in columns else pa.nulls(rows, field.type) for field in LINES],
        schema=LINES,
    )

"""The look of a sweep: finds, once for all due objects, who refers to them now. No key is judged by a look that did not ask
about it.

Due keys may be millions and references billions: so each step consists of numbered tasks that leave their results in a folder.
A fingerprint covers the key alone, as the ledger does not know realms, and only selects what is written down. Answers compare
whole keys and realms, so a collision of fingerprints costs a row and changes nothing.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.clock import now
from retention_assets.frames.arrays import Bools, flags, join_chunks
from retention_assets.stores.concurrency import Tasks, TasksHere
from retention_assets.stores.objects.classes import (
    CLASS_NAMES,
    NUMBER,
    ClassRules,
    class_rules,
    classes_of,
    dataset_lines,
    object_lines,
)
from retention_assets.stores.objects.edges import write_led_to
from retention_assets.stores.objects.folder import FOLDERS, ScanFolder
from retention_assets.stores.objects.hits import (
    DueFingerprints,
    GivenKeys,
    Hits,
    first_naming,
    text_of,
    within_realms,
)
from retention_assets.stores.objects.judge import Judge, Scan
from retention_assets.stores.objects.scan_result import ObjectClass
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.objects.sources import SourceNotWhole
from retention_assets.stores.places.own_files import temporary_folder
from retention_assets.stores.protocol import WITNESS, error_text

KEPT_LABEL = "edges"  # label of objects that are kept by rules or holds
OLDEST = timedelta(days=1)  # age above which a look says nothing about the present


@dataclass(frozen=True)
class ObjectsLook:
    """Result of a look: a small value that refers to the files in its folder."""

    folder: ScanFolder
    began: datetime
    listed_as_of: datetime
    due: DueFingerprints
    hits: Hits
    labels: tuple[str, ...] = ()
    # the realms of each source's references; None if no source was read because nothing is due
    source_realms: tuple[frozenset[str | None], ...] | None = None
    # reason why the result must not be used
    fault: str | None = None
    # realms whose objects it did not ask about
    purging: frozenset[str] = frozenset()

    def covers(self, keys: pa.Array) -> Bools:
        """Mask of the keys that the look covers: all references to them are among its hits."""
        return self.due.has(self.folder.fingerprints.of(keys))

    def check(self) -> None:
        if self.fault is not None:
            raise SourceNotWhole(self.fault)
        if now() - self.began > OLDEST:
            raise SourceNotWhole(f"its references were read at {self.began:%Y-%m-%d %H:%M}, too long ago. Sweep once more.")

    def rules(self, settings: ObjectsSettings, purging: Collection[str]) -> ClassRules:
        return class_rules(settings, self.listed_as_of, purging, self.source_realms)

    def witnesses(self, objects: pa.Table) -> pa.Array:
        """Say who refers to each object (realm, key), by exact keys; null: nobody. Raises SourceNotWhole unless every source
        proved that it was read completely."""
        self.check()
        first = first_naming(self.hits, objects)
        # white space collapsed to single spaces
        who = pc.replace_substring_regex(pc.fill_null(text_of(first["from"]), ""), r"\s+", " ")
        sources = pa.array(self.labels, pa.string()).take(join_chunks(first["source"]))
        words = pc.if_else(pc.equal(who, ""), sources, pc.binary_join_element_wise(sources, who, ": "))
        return words.take(pc.index_in(pa.array(np.arange(len(objects))), join_chunks(first["asked"])))

    def judge(
        self, settings: ObjectsSettings, objects: pa.Table, datasets: Sequence[str], purging: Collection[str]
    ) -> pa.Table:
        """Judge objects (rows of `tables.OBJECTS` with their dataset) as they are now, by exact keys. Return their log lines,
        with one about each dataset. Raises SourceNotWhole as `witnesses` does."""
        # Objects that go with their realm do, whatever refers to them.
        asked = np.flatnonzero(~within_realms(objects["realm"], purging))
        witnesses = pa.nulls(len(objects), pa.string())
        if len(asked):
            places = pc.index_in(pa.array(np.arange(len(objects))), pa.array(asked, pa.int64()))
            witnesses = self.witnesses(objects.select(["realm", "key"]).take(pa.array(asked))).take(places)
        rules = self.rules(settings, purging)
        codes = classes_of(objects, flags(pc.is_valid(witnesses)), rules)
        # Not covered by the look: in a realm that was PURGING when it began, but is no longer.
        unknown = np.flatnonzero(codes == NUMBER[ObjectClass.UNREFERENCED])
        covered = self.covers(join_chunks(objects["key"].take(pa.array(unknown))))
        codes[unknown[~covered]] = NUMBER[ObjectClass.UNHANDLED]
        names = CLASS_NAMES.take(pa.array(codes)).dictionary_encode()
        rows = objects.append_column("class", names).append_column(WITNESS, witnesses)
        # A dataset has a realm if all of its known objects have the same.
        counts = [("realm", "min"), ("realm", "max"), ("realm", "count"), ("key", "count")]
        realms = {
            group["dataset"]: group["realm_min"]
            for group in objects.group_by("dataset").aggregate(counts).to_pylist()
            if group["realm_min"] == group["realm_max"] and group["realm_count"] == group["key_count"]
        }
        return pa.concat_tables([dataset_lines({name: realms.get(name) for name in datasets}), object_lines(rows)])


def look_in(tasks: Tasks, scan: Scan, folder: ScanFolder) -> ObjectsLook:
    """Look, into an empty folder. A failure becomes the look's fault, so that it is raised where the look is used."""
    judge, began = Judge(tasks, scan, folder), now()
    folder, labels = judge.folder, (*(source.label for source in scan.references), KEPT_LABEL)
    look = ObjectsLook(folder, began, began, DueFingerprints(folder), Hits(folder, ()), labels, purging=scan.purging)
    try:
        folder.make(*FOLDERS)
        look = replace(look, due=judge.write_due())
        if not look.due.buckets:
            return look
        # Taken before sources are read: whatever is written later is younger.
        look = replace(look, listed_as_of=min(scan.listing.begin(), now()))
        judge.read(look.due)
        look = replace(look, source_realms=tuple(frozenset(each.realms) for each in judge.names))
        led_to = judge.walk(partial(write_led_to, labels), look.rules(scan.settings, scan.purging))
        return replace(look, hits=replace(judge.hits, runs=(*judge.hits.runs, *([led_to] if led_to else []))))
    except Exception as fault:  # noqa: BLE001 - a source may be anybody's, and so may what it raises
        return replace(look, fault=error_text(fault))


@contextmanager
def look_here(scan: Scan) -> Iterator[ObjectsLook]:
    """Look in this process; its files exist as long as the context."""
    with temporary_folder("look") as place:
        yield look_in(TasksHere(), scan, ScanFolder(place))


def find_witnesses(scan: Scan, objects: pa.Table) -> pa.Array:
    """Say who refers to each object (realm, key), as `ObjectsLook.witnesses`."""
    with look_here(replace(scan, due=GivenKeys(objects["key"]))) as look:
        return look.witnesses(objects)

"""The second look, right before a sweep: some objects as they are now, and who refers to them now, by their very keys.

Belongs here: asking every source once for all of these objects, and saying the answer as lines of a log. It is what a scan
finds, but for exact keys and with names: no fingerprint can err, and of what is needed it is said by whom.
Does not belong here: finding the objects (listings/), and what a sweep makes of the answer (sweep/).
"""

from collections.abc import Collection, Generator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.clock import now
from retention_assets.frames.arrays import Bools, flags, join_chunks
from retention_assets.policy.durations import micros
from retention_assets.policy.realms import is_within_any
from retention_assets.stores.objects.listings import ObjectListing
from retention_assets.stores.objects.references import RowSource, ShareEnd, open_edges, open_references
from retention_assets.stores.objects.references.witnesses import find_witnesses
from retention_assets.stores.objects.scan.classes import CLASSES, ClassRules, classes_of, spoken_for
from retention_assets.stores.objects.scan.log_lines import lines_of, object_lines
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets.stores.protocol import WITNESS


def second_look(
    settings: ObjectsSettings,
    listing: ObjectListing,
    objects: pa.Table,
    datasets: Sequence[str],
    purging: Collection[str],
) -> pa.Table:
    """Objects (rows of `tables.OBJECTS` with their dataset) as lines of a log, and a line about each dataset.

    Raises SourceNotWhole unless every source proves that it was read to its end.
    """
    sources = [_HeardSource(source) for source in open_references(settings)]
    purged = _is_in_realms(objects["realm"], purging)
    # Of what goes with its realm nobody asks who needs it.
    witnesses = _witnesses(sources, open_edges(settings), objects.select(["realm", "key"]), ~purged)
    heard = ((source.realms, said) for source, said in zip(sources, settings.references, strict=True))
    rules = ClassRules(
        cut_off=micros(settings.min_age.before(min(listing.begin(), now()))) if len(objects) else 0,
        purging=frozenset(purging),
        known_kinds=None if settings.known_kinds is None else frozenset(settings.known_kinds),
        handled=spoken_for(settings, heard) if not purged.all() else None,
    )
    retained = flags(pc.is_valid(witnesses))
    codes = classes_of(objects["realm"], objects["kind"], objects["created_at"], retained, rules)
    names = pa.array([str(name) for name in CLASSES]).take(pa.array(codes)).dictionary_encode()
    rows = objects.append_column("class", names).append_column(WITNESS, witnesses)
    return pa.concat_tables([_about_datasets(objects, datasets), object_lines(rows)])


def _is_in_realms(realms: pa.ChunkedArray, purging: Collection[str]) -> Bools:
    coded = join_chunks(realms).dictionary_encode()
    within = pa.array([is_within_any(name, purging) for name in coded.dictionary.to_pylist()], pa.bool_())
    return flags(within.take(coded.indices))


class _HeardSource:
    """A source of which is noted, as it is read, of which realms it speaks."""

    def __init__(self, source: RowSource) -> None:
        self._source = source
        self.label, self.names_folders = source.label, source.names_folders
        self.realms: set[str | None] = set()

    def shares(self, wanted: int) -> Sequence[Any]:
        """Those of the source."""
        return self._source.shares(wanted)

    def read(self, share: Any) -> Generator[pa.RecordBatch, None, ShareEnd]:
        """The rows of the source."""
        rows = self._source.read(share)
        while True:
            try:
                batch = next(rows)
            except StopIteration as end:
                found: ShareEnd = end.value
                return found
            self.realms.update(pc.unique(batch["realm"]).to_pylist())
            yield batch

    def finish(self, ends: Sequence[ShareEnd]) -> Sequence[Any]:
        """The proof of the source."""
        return self._source.finish(ends)


def _witnesses(sources: Sequence[RowSource], edges: Sequence[RowSource], objects: pa.Table, asked: Bools) -> pa.Array:
    """Of each object the first source that refers to it, and who there; null where none does."""
    if not asked.any():
        return pa.nulls(len(objects), pa.string())
    mine = objects.filter(pa.array(asked))
    keys = pa.table({"realm": mine["realm"], "key": mine["key"]})
    found = find_witnesses(sources, keys, edges)
    # Whoever calls himself by several lines is one witness all the same.
    words = pc.replace_substring_regex(pc.fill_null(found["from"], ""), r"\s+", " ")
    said = pc.if_else(pc.equal(words, ""), found["source"], pc.binary_join_element_wise(found["source"], words, ": "))
    at = pc.index_in(_whole_keys(objects), value_set=join_chunks(_whole_keys(found)))
    witnesses = join_chunks(said.take(at))
    return pc.if_else(pa.array(asked), witnesses, pa.scalar(None, pa.string()))


def _whole_keys(objects: pa.Table) -> pa.ChunkedArray:
    """Realm and key as one text. No realm holds what is between them, nor is any empty."""
    return pc.binary_join_element_wise(pc.fill_null(objects["realm"], ""), objects["key"], "\0")


def _about_datasets(objects: pa.Table, datasets: Sequence[str]) -> pa.Table:
    """A line about each dataset, with its realm where all that is known of it has one."""
    found = objects.group_by("dataset").aggregate([("realm", "min"), ("realm", "max"), ("realm", "count"), ("key", "count")])
    realms = {
        row["dataset"]: row["realm_min"]
        for row in found.to_pylist()
        if row["realm_min"] == row["realm_max"] and row["realm_count"] == row["key_count"]
    }
    columns = {"dataset": pa.array(datasets, pa.string()), "realm": pa.array(map(realms.get, datasets), pa.string())}
    return lines_of(columns, len(datasets))

"""A look: what it answers for, whatever is asked of it afterwards, and what it does not answer for."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets.clock import now
from retention_assets.errors import Refused
from retention_assets.stores.concurrency import TasksHere
from retention_assets.stores.objects import hits, look
from retention_assets.stores.objects.fingerprints import Fingerprints
from retention_assets.stores.objects.hits import GivenKeys
from retention_assets.stores.objects.look import ObjectsLook
from retention_assets.stores.objects.references import ShareEnd
from retention_assets.stores.objects.scan_result import ScanResult, SourceCount, own_peaks
from retention_assets.stores.objects.store import ObjectsStore
from retention_assets.stores.objects.tables import EDGES
from retention_assets_tests.stores.objects.environments import OLD, LocalObjects, SqlObjects, read_some, write_lines
from retention_assets_tests.stores.objects.look.test_witnesses import asked, scan_of, witnesses
from retention_assets_tests.stores.objects.references.sources import Said
from retention_assets_tests.stores.objects.scan.environments import Listed, listed, look_of
from retention_assets_tests.stores.objects.test_store import classes


@dataclass(frozen=True)
class InParts:
    """Keys of which each is a part of its own."""

    keys: Sequence[str]

    @property
    def parts(self) -> int:
        return len(self.keys)

    def read(self, part: int) -> Iterator[pa.RecordBatch]:
        """That one, twice."""
        for _ in range(2):
            yield pa.record_batch({"transaction": pa.array([self.keys[part]], pa.string())})


@pytest.fixture
def alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fingerprints, "of", lambda _, keys, *__, **___: np.full(len(keys), 7, dtype=np.uint64))


@pytest.mark.usefixtures("alike")
def test_keys_of_one_fingerprint_are_told_apart() -> None:
    """Neither is what nothing refers to kept, nor is what something refers to lost, over edges or not."""
    said = Said([("other", None, "x"), ("a", None, "mail"), ("b/", None, None), ("c", "r", None)], names_folders=True)
    # It means the key of that name, and no folder.
    plain = Said([("g/", None, None)])
    named = ((None, "a"), (None, "b/x"), ("s", "c"), (None, "d"), (None, "e"), (None, "f"), (None, "g/x"))
    texts = zip(named, witnesses([said, plain], asked(*named)), strict=True)
    assert [key for (_, key), text in texts if text] == ["a", "b/x"]
    over = [Said([("other", "e", None), ("a", "f", None), ("d", "c", None)], schema=EDGES)]
    texts = zip(named, witnesses([said], asked(*named), over), strict=True)
    assert [key for (_, key), text in texts if text] == ["a", "b/x", "e", "f"]


@pytest.mark.usefixtures("alike")
def test_a_sweep_with_one_fingerprint_for_all_judges_by_keys(folder: LocalObjects) -> None:
    folder.refers("a/two", "elsewhere")
    assert classes(folder.store(), "a/one", "a/two") == {"a/one": "unreferenced", "a/two": "referenced"}


def looked(store: ObjectsStore, folder: Path, *keys: str, purging: Sequence[str] = ()) -> ObjectsLook:
    some = pa.chunked_array([list(keys[at : at + 100]) for at in range(0, len(keys), 100)], pa.string())
    found = store.look(GivenKeys(some), purging, None, TasksHere(), str(folder))
    store.answer_by(found)
    return found


def test_a_store_among_tasks_answers_by_the_same_look(folder: LocalObjects, tmp_path: Path) -> None:
    store = folder.store()
    assert not store.has_looked
    looked(store, tmp_path / "look", "a/one")
    assert (store.has_looked, store.among(3).has_looked) == (True, True)


def test_what_becomes_due_after_a_look_is_nothing_that_it_answers_for(folder: LocalObjects, tmp_path: Path) -> None:
    store = folder.store()
    looked(store, tmp_path / "look", "a/one", "a/three")
    assert store.was_looked_at(pa.array(["a/one", "a/two", "a/three", "a"]), ()).to_pylist() == [True, False, True, False]
    # And should it be asked about all the same, it is not called unreferenced.
    folder.refers("a/two")
    assert classes(store, "a/one", "a/two") == {"a/one": "unreferenced", "a/two": "unhandled"}


@pytest.mark.parametrize("together", [1, 1 << 25])
def test_what_was_due_is_known_however_many_pieces_it_is_in(
    folder: LocalObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr(hits, "TOGETHER", together)
    monkeypatch.setattr(hits, "_RUN", together)
    store, keys = folder.store(), [f"k{number}" for number in range(600)]
    found = looked(store, tmp_path / "look", *keys)
    assert (len(found.due.buckets) > 1) == (together == 1)
    assert store.was_looked_at(pa.array([*keys, "other"]), ()).to_pylist() == [True] * 600 + [False]


def test_what_is_written_after_a_look_began_is_young(folder: LocalObjects, tmp_path: Path) -> None:
    """However long a sweep takes: what refers to it was not read."""
    store = folder.store()
    store.answer_by(replace(looked(store, tmp_path / "look", "a/one"), listed_as_of=OLD + timedelta(hours=2)))
    assert classes(store, "a/one") == {"a/one": "young"}


def test_a_finished_list_is_as_old_as_it_is(tmp_path: Path) -> None:
    """What is younger than the list is nothing that was looked for in time."""
    scan = scan_of([Said([])], due=InParts(["a"]), listing=listed(as_of=OLD))
    assert look_of(scan, tmp_path).listed_as_of == OLD
    # And none is of the future.
    ahead = replace(scan, listing=listed(as_of=now() + timedelta(days=9)))
    assert look_of(ahead, tmp_path / "ahead").listed_as_of <= now()


def test_the_time_is_asked_before_edges_and_these_before_references(tmp_path: Path) -> None:
    """What refers to an object after its source was read must find it young, and what an edge leads to is looked for."""
    asked: list[str] = []

    @dataclass
    class Noted(Said):
        def read(self, share: str) -> Generator[pa.RecordBatch, None, ShareEnd]:
            asked.append(self.label)
            return super().read(share)

    class Clock(Listed):
        def begin(self) -> datetime:
            asked.append("time")
            return super().begin()

    over = Noted([("a", "b", None)], "edges", schema=EDGES)
    said = Noted([], "references")
    scan = scan_of([said], [over], due=InParts(["b"]), listing=Clock(listed().rows, finds=True))
    look_of(scan, tmp_path)
    assert asked == ["time", "edges", "references"]


def test_a_source_that_shrank_is_not_made_up_for_by_another(tmp_path: Path) -> None:
    said = [Said([("x", None, None)], "one"), Said([(f"y{number}", None, None) for number in range(20)], "two")]
    scan = scan_of(said, due=InParts(["a"]), last=before(one=9, two=9))
    found = look_of(scan, tmp_path / "look")
    assert str(found.fault).startswith("one had 9 references last time and has 1, ")


def test_references_are_read_no_faster_than_the_settings_say(
    folder: LocalObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, place = [0.0], "retention_assets.stores.objects.sources"
    monkeypatch.setattr(f"{place}.moment", lambda: SimpleNamespace(running=clock[0]))
    monkeypatch.setattr(f"{place}.sleep", lambda seconds: clock.append(clock.pop() + seconds))
    settings = folder.store(rates={"references": 4}).settings
    scan = scan_of([Said([("x", None, None)] * 8)], due=InParts(["a"]), settings=settings)
    look_of(scan, tmp_path / "look")
    assert clock == [2.0]


def before(**references: int) -> ScanResult:
    counts = [SourceCount(label, number, number) for label, number in references.items()]
    result = ScanResult("blobs", OLD, OLD, OLD, OLD, salt="", filter="fingerprints", effective_fpp=0.0, sources=counts)
    return replace(result, peaks=own_peaks(result))


def test_a_look_of_the_day_before_is_no_look(folder: LocalObjects, tmp_path: Path) -> None:
    store = folder.store()
    found = looked(store, tmp_path / "look", "a/one")
    store.answer_by(replace(found, began=found.began - look.OLDEST))
    with pytest.raises(Refused, match="too long ago"):
        read_some(store, {"blobs/a": ["a/one"]})


REALMS: dict[str, Any] = {"realm": "{0}"}


def broken(objects: LocalObjects | SqlObjects) -> None:
    (objects.folder / "refs" / "a.jsonl").write_text("broken")


def test_of_what_goes_with_its_realm_no_source_is_asked(folder: LocalObjects, tmp_path: Path) -> None:
    broken(folder)
    store = folder.store(**REALMS)
    found = looked(store, tmp_path / "look", "a/one", "a/two", purging=["a"])
    assert (found.fault, found.source_realms, found.due.buckets) == (None, None, ())
    assert store.was_looked_at(pa.array(["a/one", "b/one"]), ["a"]).to_pylist() == [True, False]
    assert classes(store, "a/one", purging=("a",)) == {"a/one": "realm_purge"}


def test_a_realm_that_is_active_again_within_a_sweep_is_judged_by_nothing(folder: LocalObjects, tmp_path: Path) -> None:
    store = folder.store(**REALMS)
    looked(store, tmp_path / "look", "a/one", "a/two", purging=["a"])
    assert classes(store, "a/one", "a/two") == {"a/one": "unhandled", "a/two": "unhandled"}


def test_a_source_that_is_not_whole_concerns_only_those_that_need_it(folder: LocalObjects, tmp_path: Path) -> None:
    folder.put("b/one", b"b")
    broken(folder)
    store = folder.store(**REALMS)
    found = looked(store, tmp_path / "look", "a/one", "b/one", purging=["a"])
    assert found.fault is not None
    assert classes(store, "a/one", purging=("a",)) == {"a/one": "realm_purge"}
    with pytest.raises(Refused, match=r"a\.jsonl"):
        read_some(store, {"blobs/b": ["b/one"]}, ["a"])


def test_a_look_ends_when_it_is_told_to(tmp_path: Path) -> None:
    """In the middle of a source."""
    read: list[int] = []

    @dataclass
    class Long(Said):
        def read(self, share: str) -> Generator[pa.RecordBatch, None, ShareEnd]:
            for number in range(100):
                read.append(number)
                yield pa.record_batch([["a"], [None], [None]], schema=self.schema)
            return ShareEnd(share, 100)

    long = Long([])
    scan = scan_of([long], due=InParts(["a"]), is_stopped=lambda: len(read) >= 3)
    found = look_of(scan, tmp_path)
    assert found.fault == "the check of references was stopped"
    assert len(read) == 3


def test_an_object_that_is_newer_than_the_list_keeps_what_it_leads_to(folder: LocalObjects) -> None:
    """The list says the realms, so that it is asked for them, and does not know the object."""
    rows = [{"key": "a/one", "created_at": OLD, "size": 1, "tenant": "acme"}]
    pq.write_table(pa.Table.from_pylist(rows), folder.folder / "list.parquet")
    files = {"files": str(folder.folder / "list.parquet"), "as_of": now().isoformat(), "columns": {"realm": "tenant"}}
    lines = write_lines(folder.folder / "edges.jsonl", {"from": "a/new", "to": "a/one"})
    listing, edges = {**folder.listing, "parquet": files}, [{"lines": str(lines)}]
    store, wanted = folder.store(listing=listing, edges=edges, dataset="{realm}"), {"blobs/acme": ["a/one"]}
    assert classes(store, "a/one", dataset="blobs/acme") == {"a/one": "unreferenced"}
    folder.put("a/new", b".")
    assert classes(store, "a/one", dataset="blobs/acme") == {"a/one": "referenced"}
    assert "over the edge from a/new, which is not in the listing" in str(read_some(store, wanted)["attributes"])

"""The objects store: its datasets and tokens, the second look at some objects, and what is explained of one of them."""

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets.cli import main
from retention_assets.clock import now
from retention_assets.errors import Refused
from retention_assets.frames import INSTANT, sound_log
from retention_assets.outcomes import Outcome
from retention_assets.people.history import explain_transaction
from retention_assets.stores.objects.sources.finished import ParquetObjects
from retention_assets.stores.objects.store import ObjectsStore
from retention_assets.stores.protocol import is_same_place
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.stores.objects.cycle import ObjectsCycle
from retention_assets_tests.stores.objects.environments import OLD, LocalObjects, Objects, SqlObjects, read_some, write_lines
from retention_assets_tests.stores.objects.sweeps import planned, swept


def classes(store: ObjectsStore, *keys: str, dataset: str = "blobs/a", purging: tuple[str, ...] = ()) -> dict[str, str]:
    log = sound_log(read_some(store, {dataset: keys}, purging))
    assert log.datasets["fault"].to_pylist() == [None]
    return {row["transaction"]: dict(row["attributes"])["class"] for row in log.transactions.to_pylist()}


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"dataset": None}, ["blobs/blobs"]),
        ({"dataset": "all"}, ["blobs/all"]),
        ({}, ["blobs/a", "blobs/b"]),
        ({"dataset": "{realm}", "realm": "{0}"}, ["blobs/a", "blobs/b"]),
        ({"dataset": "{kind}", "kind_of": {"pattern": "(one|two)$"}}, ["blobs/blobs", "blobs/one", "blobs/two"]),
    ],
)
def test_datasets_are_those_that_keys_tell(objects: Objects, changes: dict[str, Any], names: list[str]) -> None:
    objects.put("b/one", b"b")
    store = objects.store(**changes)
    assert store.datasets() == names
    assert set(store.read(names)["dataset"].to_pylist()) == set(names)
    assert set(store.tokens(names)) == set(names)


def test_a_token_is_another_when_the_settings_are(objects: Objects) -> None:
    names = ["blobs/a"]
    assert objects.store().tokens(names) != objects.store(min_age="4h").tokens(names)
    assert objects.store(dataset=None).tokens(["blobs/a"]) == {}


def test_some_objects_are_what_a_scan_finds_them_to_be(objects: Objects) -> None:
    objects.put("a/young", b"x", now())
    objects.refers("a/two")
    store = objects.store()
    keys = ("a/one", "a/two", "a/three", "a/young", "a/gone")
    scanned = sound_log(store.read(["blobs/a"])).transactions
    looked = sound_log(read_some(store, {"blobs/a": keys})).transactions
    shared = ["transaction", "parent", "type", "status", "opened_at", "closed_at", "bytes"]
    assert looked.select(shared).sort_by("transaction").to_pylist() == scanned.select(shared).sort_by("transaction").to_pylist()
    assert classes(store, *keys) == {
        "a/one": "unreferenced", "a/two": "referenced", "a/three": "unreferenced", "a/young": "young",
    }  # fmt: skip


def test_where_objects_have_no_realms_those_of_references_and_edges_say_nothing(folder: LocalObjects) -> None:
    edges = write_lines(folder.folder / "edges.jsonl", {"from": "a/one", "to": "a/two", "realm": "s"})
    folder.refers("a/one", realm="r")
    store = folder.store(edges=[{"lines": str(edges)}])
    expected = {"a/one": "referenced", "a/two": "referenced", "a/three": "unreferenced"}
    scanned = sound_log(store.read(["blobs/a"])).transactions.to_pylist()
    assert {row["transaction"]: dict(row["attributes"])["class"] for row in scanned} == expected
    assert classes(store, *expected) == expected


def test_a_dataset_of_which_nothing_is_left_has_a_line(objects: Objects) -> None:
    log = sound_log(read_some(objects.store(), {"blobs/a": ["a/gone"], "blobs/b": []}))
    assert (log.datasets["dataset"].to_pylist(), len(log.transactions)) == (["blobs/a", "blobs/b"], 0)


def test_each_key_is_of_the_dataset_that_asked_for_it(objects: Objects) -> None:
    objects.put("b/one", b"b")
    log = sound_log(read_some(objects.store(), {"blobs/a": ["a/one", "b/one"], "blobs/b": ["a/two"]}))
    assert log.transactions["transaction"].to_pylist() == ["a/one"]


def test_classes_come_in_the_order_of_a_scan(folder: LocalObjects) -> None:
    """The realm that is purged before age, age before kind, kind before references."""
    for key in ("p/young", "p/named", "a/other", "a/x-known", "u/x-known", "a/x-named"):
        folder.put(key, b"x")
    folder.put("p/young", b"x", now())
    folder.put("a/x-young", b"x", now())
    lines = ({"object": key, "realm": key[0]} for key in ("p/named", "a/x-named", "a/other"))
    write_lines(folder.folder / "refs" / "a.jsonl", *lines)
    settings = {"dataset": None, "realm": "{0}", "kind_of": {"pattern": "/(x)-"}, "known_kinds": ["x"]}
    keys = {"p": ("p/young", "p/named"), "a": ("a/other", "a/x-known", "a/x-named", "a/x-young"), "u": ("u/x-known",)}
    found: dict[str, str] = {}
    for realm, names in keys.items():
        found |= classes(folder.store(**settings), *names, dataset=f"blobs/{realm}", purging=("p",))
    assert found == {
        "p/young": "realm_purge",
        "p/named": "realm_purge",
        "a/other": "unknown_kind",
        "a/x-known": "unreferenced",
        "u/x-known": "unhandled",
        "a/x-named": "referenced",
        "a/x-young": "young",
    }


def test_the_realm_of_a_dataset_is_that_of_its_objects(folder: LocalObjects) -> None:
    folder.put("b/one", b"b")
    store = folder.store(dataset=None, realm="{0}")
    for dataset, keys, realm in (("a", ["a/one", "a/two"], "a"), ("b", ["b/one"], "b"), ("a", ["gone"], None)):
        (row,) = sound_log(read_some(store, {f"blobs/{dataset}": keys})).datasets.to_pylist()
        assert dict(row["attributes"]).get("realm") == realm


def test_places_differ_where_data_does(folder: LocalObjects, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "t.db").touch()
    table = SqlObjects(other, f"sqlite:///{other}/t.db")
    places = [folder.store().place("blobs/a"), table.store().place("blobs/a")]
    assert all(places)
    assert "objs" in str(places[1])
    assert not is_same_place(str(places[0]), str(places[1]))
    assert folder.store(listing={"parquet": {"files": "x/*.parquet", "as_of": "2026-01-01T00:00:00Z"}}).place("blobs/a") is None


def test_an_empty_root_is_not_claimed(folder: LocalObjects) -> None:
    """It may be that of a disk that is not mounted."""
    folder.root.rename(folder.folder / "disk")
    folder.root.mkdir()
    folder.store().place("blobs/a", claim=True)
    assert folder.everything() == {}


def test_rewrites_are_warned_of(folder: LocalObjects) -> None:
    assert [said.partition(" (")[0] for said in folder.store(rewrites=True).warnings()] == [
        "Writers of the store blobs reuse existing objects"
    ]


def test_an_object_is_explained_by_who_refers_to_it(cycle: ObjectsCycle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without listing all others: not even limits keep anybody from that."""
    cycle.objects.refers("a/one", **{"from": "doc 7"})
    monkeypatch.setattr("retention_assets.stores.objects.store.scan_here", lambda _: pytest.fail("everything was read"))
    found = explain_transaction(cycle.environment, "blobs/a", "a/one", AS_OF).explanation
    assert found is not None
    assert len(found.witnesses) == 1
    assert found.witnesses[0].endswith("refs/*.jsonl: doc 7")
    assert found.witnesses[0] in found.summary
    assert found.verdict != "mark"
    told = explain_transaction(cycle.environment, "blobs/a", "a/two", AS_OF).explanation
    assert told is not None
    assert (told.verdict, told.witnesses) == ("mark", ())


def test_the_command_says_the_same(
    cycle: ObjectsCycle, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RETENTION_CONFIG", str(cycle.settings_file))
    monkeypatch.setattr("sys.argv", ["retention", "explain", "blobs/a", "a/one"])
    cycle.objects.refers("a/one", **{"from": "doc_7"})
    with pytest.raises(SystemExit) as left:
        main()
    text = capsys.readouterr().out
    assert (left.value.code in (0, None), "Referenced by" in text, "doc_7" in text) == (True, True, True)


@pytest.mark.parametrize("limits", [{"fraction": 0.1}, {"transactions": 1}])
def test_limits_are_left_aside_where_one_object_is_asked_about(folder: LocalObjects, limits: dict[str, Any]) -> None:
    policy = {
        "name": "p", "datasets": {"include": ["blobs/*"]}, "select": {"unreferenced": True, "older_than": "30d"}, "limits": limits,
    }  # fmt: skip
    cycle = ObjectsCycle(folder, policy)
    found = explain_transaction(cycle.environment, "blobs/a", "a/one", AS_OF).explanation
    assert found is not None
    assert found.verdict == "mark"


def test_a_young_object_is_explained_as_such(cycle: ObjectsCycle) -> None:
    cycle.objects.put("a/new", b"x", now())
    found = explain_transaction(cycle.environment, "blobs/a", "a/new", now() + timedelta(days=1)).explanation
    assert found is not None
    assert found.verdict not in ("mark", "spare")
    assert "min_age" in found.summary


def listed(folder: LocalObjects, *rows: tuple[str, str]) -> dict[str, Any]:
    """A list of objects with their realms that somebody made of the folder."""
    columns = {"key": [key for key, _ in rows], "tenant": [realm for _, realm in rows]}
    table = pa.table({**columns, "created_at": pa.array([OLD] * len(rows), INSTANT), "size": [5] * len(rows)})
    pq.write_table(table, folder.folder / "list.parquet")
    of = {"files": str(folder.folder / "*.parquet"), "as_of": "2026-01-01T00:00:00Z", "columns": {"realm": "tenant"}}
    return {"listing": {"parquet": of, "path": str(folder.root)}, "dataset": "{realm}"}


def test_of_a_list_with_realms_the_place_alone_is_asked_when_it_comes_to_deleting(
    folder: LocalObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list may have millions of rows, and a plan has hundreds of batches."""
    read, columns = ParquetObjects.read, list[Any]()

    def noted(self: ParquetObjects, share: Any, wanted: Any = None) -> Any:
        columns.append(wanted)
        return read(self, share, wanted)

    monkeypatch.setattr(ParquetObjects, "read", noted)
    store = folder.store(**listed(folder, ("a/one", "r1"), ("a/two", "r2")))
    read_some(store, {"blobs/r1": ["a/one", "a/two"]})
    # Whatever else is to be known of an object its place says.
    assert columns == [("realm", "kind")]
    targets = planned(store, "a/one", "a/two", dataset="blobs/r1")
    assert [one.note is None for one in targets] == [False, True]
    monkeypatch.setattr(ParquetObjects, "read", lambda *_: pytest.fail("the list was read"))
    assert swept(store, targets[:1], dataset="blobs/r1")["a/one"].outcome is Outcome.DELETED
    assert folder.data().keys() == {"a/two", "a/three"}


def test_an_object_that_is_listed_for_two_realms_is_refused(folder: LocalObjects) -> None:
    store = folder.store(**listed(folder, ("a/one", "r1"), ("a/one", "r2")))
    with pytest.raises(Refused, match=r"a/one.* more than once \(realms r1, r2\)"):
        read_some(store, {"blobs/r1": ["a/one"]})

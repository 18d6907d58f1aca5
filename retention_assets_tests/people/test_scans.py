"""`scans`: what is listed, what may be accepted, and what one found, written out with witnesses or classes."""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from retention_assets.clock import now
from retention_assets.environment import Environment
from retention_assets.errors import Refused
from retention_assets.ledger import Ledger, ScanClosing, ScanEnd, ScanRecord, ScanStatus, open_ledger, scan_lease
from retention_assets.people import scans as operation
from retention_assets.people.scans import ExportRequest, export_scan
from retention_assets.pipeline.file_systems import place_of
from retention_assets.pipeline.scans import scan_totals
from retention_assets.pipeline.warehouse import Warehouse
from retention_assets.policy import Datasets, Hold
from retention_assets.settings import load_settings
from retention_assets.stores.concurrency import TasksHere
from retention_assets.stores.objects import ObjectsSettings
from retention_assets.stores.objects.folder import ScanFolder
from retention_assets.stores.objects.scan import Scan, scan_in
from retention_assets.stores.objects.scan_result import ObjectClass
from retention_assets_tests.ledger.states import take_lease
from retention_assets_tests.people.conftest import Json, Run, error_of
from retention_assets_tests.stores.objects.environments import write_lines
from retention_assets_tests.stores.objects.scanner import Found

BLOBS = {
    "name": "blobs", "kind": "objects", "listing": {"path": "objects"}, "references": [{"lines": "refs/*.jsonl"}],
    "scans_kept": 3,
}  # fmt: skip
HERE = {"folder": Path(".")}
ODD = "9 of 10 references name no listed object"
RESULT = Found(
    {
        ObjectClass.REFERENCED: ["a/1", "b/1"], ObjectClass.UNREFERENCED: ["b/2"], ObjectClass.YOUNG: ["a/2"],
        ObjectClass.UNHANDLED: ["a/3"], ObjectClass.REALM_PURGE: ["c/1", "c/2"],
    }
).result("blobs")  # fmt: skip
WHY = ("--reason", "the prefix moved", "--actor", "ann")


@pytest.fixture
def ledger(ledger: Ledger) -> Ledger:
    """That of settings with two scanned stores and one that is not."""
    files = {"name": "lake", "kind": "files", "log": "log", "data": "data/{dataset}/{transaction}"}
    stores = [BLOBS, {**BLOBS, "name": "my objects", "listing": {"path": "more"}}, files]
    with open("retention.yaml", "w") as file:
        file.write(json.dumps({"stores": stores}))
    return ledger


def scanned(
    ledger: Ledger, status: ScanStatus = ScanStatus.KEPT, reason: str | None = None, store: str = "blobs", **judged: Any
) -> ScanRecord:
    lease = take_lease(ledger, scan_lease(store), "run 1")
    counted = (None, None) if status is ScanStatus.FAILED else (scan_totals(RESULT), replace(RESULT, **judged).as_json())
    closing = ScanClosing(lease, ledger.scans.begin(lease), ScanEnd(status, reason, *counted))
    (done,) = ledger.scans.publish([closing], (), "run 1")
    ledger.leases.give_up([lease])
    return done


def braked(ledger: Ledger, store: str = "blobs") -> ScanRecord:
    return scanned(ledger, ScanStatus.BRAKED, ODD, store)


def other_settings(ledger: Ledger) -> ScanRecord:
    """The realms of the store are other ones since it was scanned, and so are its brakes, which change nothing."""
    before = ObjectsSettings.model_validate({**BLOBS, "realm": "{1}", "brakes": {"unreferenced_fraction": 0.1}}, context=HERE)
    return scanned(ledger, ScanStatus.BRAKED, ODD, judging=before.judging)


def no_longer_purged(ledger: Ledger) -> ScanRecord:
    return scanned(
        ledger, ScanStatus.BRAKED, ODD, judging=ObjectsSettings.model_validate(BLOBS, context=HERE).judging, purging=["c"]
    )


def test_where_nothing_was_scanned_the_list_says_so_and_makes_no_ledger(run: Run, found: Json) -> None:
    code, out, _ = run("scans")
    assert (code, out.strip().splitlines()[0]) == (0, "No scan yet: `retention run` scans")
    assert found("scans") == []


def test_the_list_has_the_newest_of_each_store_and_classes_add_up(ledger: Ledger, run: Run) -> None:
    for _ in range(4):
        scanned(ledger)
    scanned(ledger, ScanStatus.FAILED, "no last line", "my objects")
    code, out, err = run("scans")
    head, *rows = ([cell.strip() for cell in line[1:-1].split(mark)] for line in out.splitlines() if (mark := line[0]) in "┃│")
    assert " ".join(head) == "store id when status scanned referenced unreferenced young others bytes reason"
    assert [row[:2] for row in rows] == [["blobs", "4"], ["blobs", "3"], ["blobs", "2"], ["my objects", "5"]]
    assert rows[0][3:] == ["kept", "7", "2", "1", "1", "3", "70 B", ""]
    assert (int(rows[0][4]), code, err) == (sum(map(int, rows[0][5:9])), 0, "")
    assert rows[3][3:] == ["failed", "", "", "", "", "", "", "no last line"]
    assert "my objects" not in run("scans", "blobs")[1]


def test_json_has_all_counts_by_realm_kind_and_class(ledger: Ledger, found: Json) -> None:
    scanned(ledger)
    scanned(ledger, ScanStatus.FAILED, "no last line")
    failed, kept = found("scans", "blobs")
    assert (failed["id"], failed["status"], failed["reason"], "result" in failed) == (2, "failed", "no last line", False)
    assert (kept["totals"]["scanned"], kept["started_at"][:2]) == (7, "20")
    counts = {(one["realm"], one["kind"], one["name"]): one["objects"] for one in kept["result"]["classes"]}
    assert counts["c", "", "realm_purge"] == 2
    assert sum(counts.values()) == 7
    assert kept["result"]["sources"][0]["label"] == "lines refs"


def test_what_waits_for_a_person_is_said_until_it_was_accepted(ledger: Ledger, run: Run) -> None:
    braked(ledger, "my objects")
    scanned(ledger)
    assert run("scans")[2] == "Next: `retention scans 'my objects' accept 1 -r …` lets it mark.\n"
    ledger.scans.accept("my objects", 1, "ann", "as agreed")
    code, out, err = run("scans")
    assert (code, err) == (0, "")
    assert f"{ODD} (accepted by ann and not judged yet: as agreed)" in out


def test_who_accepts_a_scan_is_told_what_was_odd_and_what_comes_next(ledger: Ledger, run: Run) -> None:
    braked(ledger)
    assert run("scans", "blobs", "accept", "1", *WHY) == (
        0, f"Scan 1 of blobs is accepted, although {ODD}.\n",
        "Next: the next `retention run` judges it, and marks what its policies select.\n",
    )  # fmt: skip
    acts = [json.loads(line) for line in ledger.audit_lines()]
    assert [(act["actor"], act["reason"]) for act in acts if act["deed"] == "ACCEPT_SCAN"] == [("ann", "the prefix moved")]


@pytest.mark.parametrize(
    ("prepare", "arguments", "words", "code"),
    [
        (
            other_settings,
            ("blobs", "accept", "1"),
            "out of date: its settings have changed (realm). Nothing was changed",
            1,
        ),
        (no_longer_purged, ("blobs", "accept", "1"), "out of date: no longer PURGING: c. Nothing was changed", 1),
        (braked, ("blob", "accept", "1"), "scanned (found blob); expected one of blobs, my objects. Did you mean blobs?", 2),
        (braked, ("lake", "accept", "1"), "store: is no store that is scanned (found lake)", 2),
    ],
    ids=("other settings", "no longer purged", "a wrong name", "not scanned"),
)
def test_what_may_not_be_accepted_is_refused_and_changes_nothing(
    prepare: Callable[[Ledger], object], arguments: tuple[str, ...], words: str, code: int, ledger: Ledger, run: Run
) -> None:
    prepare(ledger)
    before = ledger.verify().head
    assert words in error_of(run("scans", *arguments, *WHY), code)
    assert ledger.verify().head == before


def test_there_is_nothing_to_accept_without_a_ledger(run: Run) -> None:
    with open("retention.yaml", "w") as file:
        file.write(json.dumps({"stores": [BLOBS]}))
    code, _, err = run("scans", "blobs", "accept", "1", *WHY)
    assert (code, "no ledger yet" in err) == (1, True)


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("accept 1", "name it and say why"),
        ("accept -r x", "name it and say why"),
        ("export", "say where"),
        ("--realm acme", "--realm, --all and --to go with export"),
        ("accept 1 -r x --all", "--realm, --all and --to go with export"),
        ("-r x", "--reason goes with accept"),
        ("show", "'show' is not one of"),
    ],
)
def test_what_does_not_go_together_is_said(typed: str, words: str, run: Run) -> None:
    code, out, err = run("scans", "blobs", *typed.split())
    assert (code, out, words in err) == (2, "", True)


OLD = ("acme/a-1", "acme/sales/a-2", "acme/a-3", "acme-eu/b-1", "zeta/c-1")
RETAINED = {"acme/a-1": "invoice 7", "acme/sales/a-2": None, "acme-eu/b-1": "invoice 9"}
SIZES = {name: size for size, name in enumerate([*OLD, "acme/young"], 1)}


@dataclass
class Place:
    """Objects on a disk, references beside them, and a ledger."""

    folder: Path
    ledger: Ledger

    def __post_init__(self) -> None:
        settings = {
            "ledger": f"sqlite:///{self.folder}/ledger.db", "warehouse": str(self.folder / "warehouse"),
            "stores": [
                {
                    "name": "blobs", "kind": "objects", "listing": {"path": f"{self.folder}/objects/"}, "realm": "{0}",
                    "references": [{"lines": f"{self.folder}/refs/*.jsonl"}], "kind_of": {"pattern": "([a-z])-"},
                }
            ],
        }  # fmt: skip
        (self.folder / "retention.yaml").write_text(json.dumps(settings))
        before = (now() - timedelta(days=9)).timestamp()
        for name in SIZES:
            file = self.folder / "objects" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"." * SIZES[name])
            if name in OLD:
                os.utime(file, (before, before))
        self.refers(RETAINED)

    def refers(self, names: dict[str, str | None]) -> None:
        """What is referred to from now on, and by whom."""
        lines = ({"object": name, **({"from": who} if who else {})} for name, who in names.items())
        write_lines(self.folder / "refs" / "a.jsonl", *lines)

    @property
    def environment(self) -> Environment:
        return Environment(load_settings(self.folder / "retention.yaml"))

    def scan(self, status: ScanStatus = ScanStatus.KEPT, holds: Sequence[Hold] = ()) -> None:
        """A scan in this process, where a run leaves it."""
        (store,) = self.environment.settings.stores
        assert isinstance(store, ObjectsSettings)
        lease = take_lease(self.ledger, scan_lease("blobs"), "run")
        begun = self.ledger.scans.begin(lease)
        folder = ScanFolder(Warehouse(str(self.folder / "warehouse")).scan_folder("blobs", begun.id), place_of)
        result = scan_in(TasksHere(), Scan.of(store, holds=holds), folder)
        end = ScanEnd(status, None, scan_totals(result), result.as_json())
        self.ledger.scans.publish([ScanClosing(lease, begun, end)], (), "run")
        self.ledger.leases.give_up([lease])

    def export(self, **how: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """What is written, by object, and what is said of it."""
        to = self.folder / "out"
        done = export_scan(ExportRequest(store="blobs", to=str(to), **how), self.environment).data
        files = sorted(to.iterdir())
        assert len(files) == done["files"]
        rows = [row for file in files for row in pq.read_table(file).to_pylist()]
        assert (len(rows), sum(row["size"] for row in rows)) == (done["objects"], done["bytes"])
        return sorted(rows, key=lambda row: str(row["object"])), done


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db") as ledger:
        yield Place(tmp_path, ledger)


def test_what_is_retained_is_written_with_who_refers_to_it(place: Place) -> None:
    place.scan()
    rows, done = place.export()
    assert list(rows[0]) == ["object", "realm", "kind", "size", "witness"]
    assert {row["object"]: row["size"] for row in rows} == {name: SIZES[name] for name in RETAINED}
    witnesses = {row["object"]: row["witness"] for row in rows}
    source = witnesses["acme/sales/a-2"]
    assert source.startswith("lines ")
    assert witnesses == {name: f"{source}: {who}" if who else source for name, who in RETAINED.items()}
    assert {row["object"]: (row["realm"], row["kind"]) for row in rows}["acme/sales/a-2"] == ("acme", "a")
    assert (done["scan"], done["without_witness"]) == (1, 0)


@pytest.mark.parametrize(
    ("how", "objects"),
    [
        ({"realm": "acme"}, {"acme/a-1", "acme/sales/a-2"}),
        ({"realm": "acme-eu"}, {"acme-eu/b-1"}),
        ({"realm": "nobody"}, set()),
        ({"everything": True}, set(SIZES)),
        ({"everything": True, "realm": "acme"}, {"acme/a-1", "acme/sales/a-2", "acme/a-3", "acme/young"}),
    ],
)
def test_a_realm_alone_or_everything_with_its_class(place: Place, how: dict[str, Any], objects: set[str]) -> None:
    place.scan()
    rows, _ = place.export(**how)
    assert {row["object"] for row in rows} == objects
    if how.get("everything"):
        classes = {row["object"]: row["class"] for row in rows}
        expected = {name: "referenced" if name in RETAINED else "unreferenced" for name in OLD} | {"acme/young": "young"}
        assert classes == {name: expected[name] for name in objects}


def test_what_a_young_or_a_held_object_leads_to_names_it_as_its_witness(place: Place) -> None:
    settings = json.loads((file := place.folder / "retention.yaml").read_text())
    settings["stores"][0]["edges"] = [{"lines": f"{place.folder}/edges.jsonl"}]
    settings["policies"] = str(place.folder / "policies")
    file.write_text(json.dumps(settings))
    hold = Hold(
        name="audit", datasets=Datasets(include=("blobs/*",)), transactions=("acme/sales/a-2",), reason="an audit", owner="ann"
    )
    place.ledger.holds.place(hold, "ann")
    leads = {"acme/young": "acme/a-3", "acme/sales/a-2": "acme/a-1"}
    write_lines(place.folder / "edges.jsonl", *({"from": begin, "to": end} for begin, end in leads.items()))
    place.refers({})
    place.scan(holds=[hold])
    rows, done = place.export()
    assert {row["object"]: row["witness"] for row in rows} == {
        "acme/a-1": "edges: over the edge from acme/sales/a-2, which is held by audit",
        "acme/a-3": "edges: over the edge from acme/young, which is young",
    }
    assert done["without_witness"] == 0


def test_what_nothing_refers_to_any_more_has_no_witness(place: Place) -> None:
    place.scan()
    place.refers({"acme/a-1": "invoice 7"})
    rows, done = place.export()
    assert done["without_witness"] == 2
    assert [row["object"] for row in rows if row["witness"] is None] == ["acme-eu/b-1", "acme/sales/a-2"]


def test_many_objects_are_written_into_many_files(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation, "ROWS_PER_FILE", 4)
    place.scan()
    rows, done = place.export(everything=True)
    assert (done["files"], len(rows)) == (2, 6)


def test_another_scan_than_the_newest_whole_one_is_exported_by_its_number(place: Place) -> None:
    place.scan(ScanStatus.BRAKED)
    with pytest.raises(Refused, match="No scan of blobs was ever complete"):
        place.export()
    assert place.export(scan=1)[1]["objects"] == 3
    shutil.rmtree(place.folder / "out")
    place.scan()
    (place.folder / "warehouse" / "scans" / "blobs" / "1").rename(place.folder / "gone")
    with pytest.raises(Refused, match=r"The listing of scan 1 of blobs is no longer kept.*Leave the scan out"):
        place.export(scan=1)
    assert place.export()[1]["scan"] == 2


def test_nothing_is_written_over(place: Place) -> None:
    place.scan()
    (place.folder / "out").mkdir()
    (place.folder / "out" / "mine").write_text("mine")
    with pytest.raises(Refused, match=r"out is not empty\. Nothing was written"):
        place.export()
    assert [file.name for file in (place.folder / "out").iterdir()] == ["mine"]

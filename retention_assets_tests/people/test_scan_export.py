"""What a scan found, written out: what is retained with its witness, or everything with its class, of a realm or of all."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from retention_assets.clock import now
from retention_assets.environment import Environment
from retention_assets.errors import Refused
from retention_assets.ledger import Ledger, open_ledger
from retention_assets.ledger.scans import ScanClosing, ScanEnd, ScanStatus, scan_lease
from retention_assets.people import scans as operation
from retention_assets.people.scans import ExportRequest, export_scan
from retention_assets.pipeline.file_systems import place_of
from retention_assets.pipeline.scans import scan_totals
from retention_assets.pipeline.warehouse import Warehouse
from retention_assets.settings.model import load_settings
from retention_assets.stores.concurrency import TasksHere
from retention_assets.stores.objects.folder import ScanFolder
from retention_assets.stores.objects.listings import open_listing
from retention_assets.stores.objects.references import open_edges, open_references
from retention_assets.stores.objects.scan import Scan, scan_in
from retention_assets.stores.objects.settings import ObjectsSettings
from retention_assets_tests.ledger.states import take_lease

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
        lines: list[dict[str, Any]] = [{"object": name, **({"from": who} if who else {})} for name, who in names.items()]
        lines.append({"complete": True, "count": len(lines)})
        (self.folder / "refs").mkdir(exist_ok=True)
        (self.folder / "refs" / "a.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    @property
    def environment(self) -> Environment:
        return Environment(load_settings(self.folder / "retention.yaml"))

    def scan(self, status: ScanStatus = ScanStatus.KEPT) -> None:
        """A scan in this process, where a run leaves it."""
        (store,) = self.environment.settings.stores
        assert isinstance(store, ObjectsSettings)
        lease = take_lease(self.ledger, scan_lease("blobs"), "run")
        begun = self.ledger.scans.begin(lease)
        folder = ScanFolder(Warehouse(str(self.folder / "warehouse")).scan_folder("blobs", begun.id), place_of)
        result = scan_in(TasksHere(), Scan(store, open_listing(store), open_references(store), open_edges(store)), folder, None)
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


def label(who: str | None) -> str:
    """How a source and who refers are said; the source is the one that the settings have."""
    return f": {who}" if who else ""


def test_what_is_retained_is_written_with_who_refers_to_it(place: Place) -> None:
    place.scan()
    rows, done = place.export()
    assert list(rows[0]) == ["object", "realm", "kind", "size", "witness"]
    assert {row["object"]: row["size"] for row in rows} == {name: SIZES[name] for name in RETAINED}
    said = {row["object"]: row["witness"] for row in rows}
    (source,) = {said[name].removesuffix(label(who)) for name, who in RETAINED.items()}
    assert source.startswith("lines ")
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


def test_a_scan_that_is_no_longer_listed_is_not_exported(place: Place) -> None:
    place.scan()
    place.scan()
    (place.folder / "warehouse" / "scans" / "blobs" / "1").rename(place.folder / "gone")
    with pytest.raises(Refused, match=r"What scan 1 of blobs has listed is no longer there.*Leave the scan out"):
        place.export(scan=1)
    assert place.export()[1]["scan"] == 2


def test_a_braked_scan_is_exported_by_its_number(place: Place) -> None:
    place.scan(ScanStatus.BRAKED)
    with pytest.raises(Refused, match="No scan of blobs was ever whole"):
        place.export()
    assert place.export(scan=1)[1]["objects"] == 3


def test_nothing_is_written_over(place: Place) -> None:
    place.scan()
    (place.folder / "out").mkdir()
    (place.folder / "out" / "mine").write_text("mine")
    with pytest.raises(Refused, match=r"out is not empty\. Nothing was written"):
        place.export()
    assert [file.name for file in (place.folder / "out").iterdir()] == ["mine"]

"""Three datasets for sweeps that are killed: of files, an Iceberg table, and of objects, with five marks that are due in each.

Belongs here: building one, sweeping it in words that are the same for both, and what must be true of it at any moment.
"""

import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from retention_assets.environment import Environment
from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.frames.soundness import sound_log
from retention_assets.frames.verdicts.candidate_marks import candidate_marks
from retention_assets.frames.verdicts.decisions import new_marks
from retention_assets.ledger import Ledger
from retention_assets.ledger.marking import CANDIDATES
from retention_assets.pipeline.part_frames import write_already_marked
from retention_assets.settings.model import Settings, load_settings
from retention_assets.stores.protocol import Store
from retention_assets.sweep.engine import Sweeper
from retention_assets_tests.clocks import CLOCK
from retention_assets_tests.histories import AS_OF, history, to_lines
from retention_assets_tests.stores.iceberg.tables import Warehouse, append, content, head, reachable, reaches, replace

MARKED = AS_OF + timedelta(days=3 * 365)
DUE = MARKED + timedelta(days=7)
POLICY = "policies: [{name: p, datasets: {include: ['*']}, select: {beyond: {views: 1}}, sweep: {every: 0s, batch: 2}}]\n"


def evaluate(
    ledger: Ledger, stores: Iterable[Store], settings: Settings, as_of: datetime, warehouse: Path | None = None
) -> int:
    """Judge and mark all datasets of some stores, in one piece and without Spark; how many marks are new.

    As the asset does it, with what is marked already read from a warehouse, if one is given.
    """
    log = sound_log(pa.concat_tables([store.read(store.datasets()) for store in stores]))
    rules = load_rulebook(ledger, settings, "test").rules(log.datasets["dataset"].to_pylist(), as_of)
    again, judged = settings.hidden_again, (rules.policies, rules.holds, as_of)
    known = write_already_marked(ledger, rules.policies, log.datasets, str(warehouse), again) if warehouse else None
    marked = (known.of(log.datasets),) if known else ()
    verdicts = candidate_marks(log.transactions, log.datasets, *judged, *marked)
    marks: pa.Table = new_marks(verdicts, log.transactions, rules.policies, rules.versions)
    return ledger.marks.mark(marks.cast(CANDIDATES), as_of, "test", hidden_again=again).new


@lru_cache(64)
def settings_in(file: Path, text: bytes) -> Settings:
    """The settings of a file with this text, read once: most tests ask ten times."""
    assert file.read_bytes() == text
    return load_settings(file)


class SweptDataset(ABC):
    """One dataset in one folder. `saved` keeps it as it was built, so that each killed sweep begins with the same."""

    name: str
    # Which of its files the store may change or remove besides the bytes of what is planned.
    bookkeeping: tuple[str, ...] = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.saved = folder.with_name(f"{folder.name}-saved")
        (folder / "policies").mkdir(parents=True)
        (folder / "policies" / "p.yaml").write_text(POLICY)
        settings = {"clock": CLOCK, "stores": [self.build()]}
        (folder / "retention.yaml").write_text(json.dumps(settings))
        shutil.copytree(folder, self.saved)

    def restore(self) -> None:
        """As it was built."""
        shutil.rmtree(self.folder)
        shutil.copytree(self.saved, self.folder)

    @abstractmethod
    def build(self) -> dict[str, object]:
        """Write the dataset; the settings of its store."""

    @property
    @abstractmethod
    def going(self) -> dict[str, set[str]]:
        """As it was built: each transaction that is to go, and the files that nobody else needs."""

    @abstractmethod
    def is_whole(self) -> None:
        """Everything that is to stay reads back."""

    @abstractmethod
    def is_clean(self) -> None:
        """And after the end nothing else is there."""

    @property
    def settings(self) -> Settings:
        """The settings; the ledger is elsewhere."""
        file = self.folder / "retention.yaml"
        return settings_in(file, file.read_bytes())

    def files(self) -> dict[str, bytes]:
        """Everything below `data`, but the books that a store keeps over it."""
        found = {str(file.relative_to(self.folder)): file for file in (self.folder / "data").rglob("*") if file.is_file()}
        return {name: file.read_bytes() for name, file in found.items() if not name.endswith(self.bookkeeping or ("\0",))}

    def marks(self, ledger: Ledger) -> None:
        """Evaluate."""
        (store,) = Environment(self.settings).stores().values()
        evaluate(ledger, [store], self.settings, MARKED)

    def sweeps(self, ledger: Ledger) -> None:
        """Sweep what is due."""
        rulebook = load_rulebook(ledger, self.settings, "test")
        sweeper = Sweeper(ledger, Environment(self.settings).stores(), rulebook, DUE, "test")
        for result in sweeper.run(ledger.marks.datasets_to_sweep(DUE)):
            assert result.refused is None, result.refused
            assert result.errors == []


class Files(SweptDataset):
    """Five old views of a lake, two files in each."""

    name = "lake/d"
    bookkeeping = (".retention-store",)

    def build(self) -> dict[str, object]:
        names = [f"S{number}" for number in range(1, 7)]
        drawn = history(
            "main: " + " - ".join(f"{name}:SNAPSHOT@{60 - age}d" for age, name in enumerate(names)), dataset=self.name
        )
        (self.folder / "log").mkdir()
        (self.folder / "log" / "log.jsonl").write_text("".join(f"{line}\n" for line in to_lines([drawn])))
        for name in names:
            place = self.folder / "data" / "d" / name
            (place / "deep").mkdir(parents=True)
            (place / "a").write_text(name * 5)
            (place / "deep" / "b").write_text(name)
        return {"name": "lake", "kind": "files", "log": "log", "data": "data/{dataset}/{transaction}"}

    @property
    def going(self) -> dict[str, set[str]]:
        return {f"S{number}": {f"data/d/S{number}/a", f"data/d/S{number}/deep/b"} for number in range(1, 6)}

    def is_whole(self) -> None:
        assert (self.folder / "data" / "d" / "S6" / "a").read_text() == "S6" * 5
        assert (self.folder / "data" / "d" / "S6" / "deep" / "b").read_text() == "S6"

    def is_clean(self) -> None:
        assert set(self.files()) == {"data/d/S6/a", "data/d/S6/deep/b"}


class Iceberg(SweptDataset):
    """Seven snapshots of a table, of which a tag, a branch and the head keep three; the last one is appended to another."""

    name = "ice/db.t"
    bookkeeping = (".metadata.json",)

    def build(self) -> dict[str, object]:
        with Warehouse(self.folder) as warehouse:
            table = warehouse.table()
            made = [
                append(table, 0),
                append(table, 1),
                replace(table, 2),
                append(table, 3),
                replace(table, 4, 40),
                append(table, 5),
            ]
            with table.manage_snapshots() as change:
                change.create_tag(made[2], "year-end").create_branch(made[3], "audit")
            made += [replace(table, 6), append(table, 7)]
            rows, needed = content(table), {one.snapshot_id: reaches(table, one) for one in table.metadata.snapshots}
            kept = {made[2], made[3], head(table)}
            others = set().union(*(needed[one] for one in kept))
            self._going = {
                str(one): {self._name(file) for file in files - others} for one, files in needed.items() if one not in kept
            }
            self.kept = {one: rows[one] for one in kept}
            return {"name": "ice", "kind": "iceberg", "catalog": warehouse.properties}

    def _name(self, file: str) -> str:
        return str(Path(file).relative_to(self.folder))

    @property
    def going(self) -> dict[str, set[str]]:
        return self._going

    def is_whole(self) -> None:
        with Warehouse(self.folder) as warehouse:
            found = content(warehouse.load())
        assert {one: found[one] for one in self.kept} == self.kept

    def is_clean(self) -> None:
        with Warehouse(self.folder) as warehouse:
            table = warehouse.load()
            assert {str(one.snapshot_id) for one in table.metadata.snapshots} == set(map(str, self.kept))
            needed = {self._name(file) for file in reachable(table)}
        assert set(self.files()) == {name for name in needed if not name.endswith(self.bookkeeping)}


class Objects(SweptDataset):
    """Seven objects below a folder, one of which is referenced, and one over an edge."""

    name = "blobs/blobs"
    bookkeeping = (".retention-store",)

    def build(self) -> dict[str, object]:
        policy = POLICY.replace("beyond: {views: 1}", "unreferenced: true, older_than: 30d")
        (self.folder / "policies" / "p.yaml").write_text(policy)
        old = (MARKED - timedelta(days=365 * 6)).timestamp()
        for number in range(1, 8):
            place = self.folder / "data" / str(number % 3) / f"O{number}"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(f"O{number}" * number)
            os.utime(place, (old, old))
        for name, row in (("refs", {"object": "0/O6"}), ("edges", {"from": "0/O6", "to": "1/O7"})):
            lines = [row, {"complete": True, "count": 1}]
            (self.folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        references, edges = [{"lines": "refs.jsonl"}], [{"lines": "edges.jsonl"}]
        return {
            "name": "blobs", "kind": "objects", "listing": {"path": "data"}, "references": references, "edges": edges,
        }  # fmt: skip

    @property
    def going(self) -> dict[str, set[str]]:
        return {key: {f"data/{key}"} for key in ("1/O1", "2/O2", "0/O3", "1/O4", "2/O5")}

    def is_whole(self) -> None:
        assert (self.folder / "data" / "0" / "O6").read_text() == "O6" * 6
        assert (self.folder / "data" / "1" / "O7").read_text() == "O7" * 7

    def is_clean(self) -> None:
        assert set(self.files()) == {"data/0/O6", "data/1/O7"}

"""Links that are made while a sweep is on its way: what is below them is nobody's to delete."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from retention_assets.evaluation.rules_in_force import load_rulebook
from retention_assets.outcomes import Outcome
from retention_assets.sweep.engine import Sweeper
from retention_assets_tests.sweep.lakes import DUE, Lake


def link_warehouse(folder: Path) -> None:
    (folder / "data" / "w").mkdir()
    (folder / "warehouse").symlink_to(folder / "data" / "w")


def link_log_of_another(folder: Path) -> None:
    (folder / "data" / "rawlog").mkdir()
    (folder / "rawlog").symlink_to("data/rawlog")


def link_data(folder: Path) -> None:
    """The data is now where all the rest is."""
    (folder / "data").rename(folder / "moved")
    (folder / "data").symlink_to(folder)
    (folder / "d").symlink_to(folder / "moved" / "d")


@pytest.mark.parametrize(
    ("meanwhile", "said"),
    [
        (link_warehouse, "warehouse ("),
        (link_log_of_another, "stores[1].log ("),
        (link_data, "lies in stores[0].data ("),
        (lambda _: None, None),
    ],
)
def test_a_link_that_was_made_after_the_settings_were_read_sweeps_nothing(
    tmp_path: Path, meanwhile: Callable[[Path], None], said: str | None
) -> None:
    lake = Lake(tmp_path).has("main: T1:SNAPSHOT@90d - T2:SNAPSHOT@1d")
    file = tmp_path / "retention.yaml"
    settings = json.loads(file.read_text())
    raw = {"name": "raw", "kind": "files", "log": "rawlog", "data": "raw/{dataset}/{transaction}"}
    mark = lake.marks()
    file.write_text(json.dumps({**settings, "stores": [*settings["stores"], raw]}))
    with lake.opened() as ledger:
        stores, rulebook = lake.stores, load_rulebook(ledger, lake.settings, "test")
        meanwhile(tmp_path)
        before = {path for path in tmp_path.rglob("*") if "ledger" not in path.name}
        [result] = Sweeper(ledger, stores, rulebook, DUE, "test").run(["lake/d"])
        after = {path for path in tmp_path.rglob("*") if "ledger" not in path.name}
    assert mark == 1
    if said is None:
        assert (result.refused, result.outcomes) == (None, {Outcome.DELETED: 1})
        return
    assert result.refused is not None
    assert result.refused.startswith("nothing of lake is swept: ")
    assert said in result.refused
    assert (result.outcomes, before - after) == ({}, set())

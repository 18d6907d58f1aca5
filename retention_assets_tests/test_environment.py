"""Stores that tasks of one run hand on in one process: the same ones, to one at a time, and never what another run has left."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from retention_assets import environment
from retention_assets.environment import Environment
from retention_assets.settings import Settings, load_settings


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    environment._KEPT.clear()
    yield
    environment._KEPT.clear()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    data = "data/{dataset}/{transaction}"
    stores = [{"name": name, "kind": "files", "log": f"{name}/log", "data": f"{name}/{data}"} for name in "abc"]
    (tmp_path / "retention.yaml").write_text(json.dumps({"ledger": "sqlite:///ledger.db", "stores": stores}))
    return load_settings(tmp_path / "retention.yaml")


def test_the_next_task_of_a_run_gets_what_the_last_one_has_opened(settings: Settings) -> None:
    with Environment(settings).stores_of_run("run", ["a", "b"]) as first:
        assert sorted(first) == ["a", "b"]
    with Environment(settings.model_copy()).stores_of_run("run", ["b", "c"]) as second:
        assert sorted(second) == ["b", "c"]
        assert second["b"] is first["b"]
    with Environment(settings).stores_of_run("run", ["a", "c"]) as third:
        assert third["a"] is first["a"]
        assert third["c"] is second["c"]


@pytest.mark.parametrize("other", ["run", "settings"])
def test_another_run_opens_its_own_and_leaves_nothing_of_the_last(settings: Settings, other: str, tmp_path: Path) -> None:
    with Environment(settings).stores_of_run("run", ["a"]) as first:
        pass
    changed = settings.model_copy(update={"warehouse": str(tmp_path)}) if other == "settings" else settings
    with Environment(changed).stores_of_run("run" if other == "settings" else "another", ["a"]) as second:
        assert second["a"] is not first["a"]
    with Environment(settings).stores_of_run("run", ["a"]) as third:
        assert all(third["a"] is not one["a"] for one in (first, second))


def test_two_tasks_at_once_share_nothing(settings: Settings) -> None:
    with Environment(settings).stores_of_run("run", ["a"]):
        pass
    opened = Environment(settings)
    with opened.stores_of_run("run", ["a"]) as first, opened.stores_of_run("run", ["a"]) as second:
        assert first["a"] is not second["a"]


def test_what_a_failed_task_had_opened_is_not_handed_on(settings: Settings) -> None:
    with Environment(settings).stores_of_run("run", ["a"]):
        pass
    with pytest.raises(OSError, match="disk on fire"), Environment(settings).stores_of_run("run", ["a"]) as first:
        raise OSError("disk on fire")
    with Environment(settings).stores_of_run("run", ["a"]) as second:
        assert second["a"] is not first["a"]

"""A new kind of store needs its own code and one line of registration, and no other file changes: the toy kind (toy.py)
goes from `retention.yaml` through the registry to the contract that every store passes.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from retention_assets.errors import BadInput
from retention_assets.settings import Settings, load_settings
from retention_assets.stores.protocol import Store
from retention_assets.stores.registry import open_store
from retention_assets_tests.histories import history, to_lines
from retention_assets_tests.stores import toy
from retention_assets_tests.stores.contract import Contract, Environment
from retention_assets_tests.stores.test_registry import Site


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    site = Site(tmp_path / "site")
    site.install("toy", f"from {toy.__name__} import KIND", kind="toy")
    monkeypatch.syspath_prepend(site.folder)
    return read(tmp_path, "{name: box, kind: toy, root: box}")


def read(folder: Path, *stores: str) -> Settings:
    (folder / "retention.yaml").write_text(f"stores: [{', '.join(stores)}]")
    return load_settings(folder / "retention.yaml", {})


class Toys(Environment):
    datasets = ("box/a", "box/b", "box/c")

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        [self.of_store] = settings.stores
        self.root = Path(self.of_store.data_root or "")
        self.root.mkdir()
        (self.root / "log.jsonl").touch()

    def store(self) -> Store:
        return open_store(self.of_store)

    def write(self, dataset: str, drawing: str) -> dict[str, str]:
        drawn = history(drawing, dataset=dataset)
        self.put_lines([*self.lines(), *map(json.loads, to_lines([drawn]))])
        names = [row["transaction"] for row in drawn.transactions]
        for name in names:
            self.file(dataset, name).parent.mkdir(exist_ok=True)
            self.file(dataset, name).write_text(f"{dataset} {name}")
        return dict(zip(names, names, strict=True))

    def commit(self, dataset: str) -> str:
        lines = self.lines()
        [branch] = [line for line in lines if line["dataset"] == dataset and "branch" in line]
        [last] = [line for line in lines if line["dataset"] == dataset and line.get("transaction") == branch["head"]]
        new = {**last, "transaction": "T99", "parent": branch["head"]}
        self.put_lines([{**line, "head": "T99"} if line == branch else line for line in [*lines, new]])
        return "T99"

    def data(self) -> dict[str, bytes]:
        return {place: content for place, content in self.everything().items() if place != "log.jsonl"}

    def everything(self) -> dict[str, bytes]:
        return {str(file.relative_to(self.root)): file.read_bytes() for file in self.root.rglob("*") if file.is_file()}

    def owned(self, dataset: str, transaction: str) -> set[str]:
        return {str(self.file(dataset, transaction).relative_to(self.root))}

    @contextmanager
    def broken(self, dataset: str, transaction: str) -> Iterator[None]:
        file, aside = self.file(dataset, transaction), self.root.parent / "aside"
        file.rename(aside)
        file.mkdir()
        yield
        file.rmdir()
        aside.rename(file)

    def file(self, dataset: str, transaction: str) -> Path:
        return self.root / dataset.partition("/")[2] / transaction

    def lines(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in (self.root / "log.jsonl").read_text().splitlines()]

    def put_lines(self, lines: list[dict[str, str]]) -> None:
        (self.root / "log.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_the_example_of_the_documents_is_the_store_that_passes_the_contract() -> None:
    page = (Path(toy.__file__).parents[2] / "docs/stores/your-own.md").read_text()
    example = page.partition("```python\n")[2].partition("```")[0]
    assert example == Path(toy.__file__).read_text()
    assert len(example.splitlines()) <= 80


class TestToyStore(Contract):
    @pytest.fixture
    def environment(self, settings: Settings) -> Environment:
        return Toys(settings)


def test_the_data_of_any_two_kinds_may_not_overlap(settings: Settings, tmp_path: Path) -> None:
    lake = '{name: lake, kind: files, log: log, data: "box/inner/{dataset}/{transaction}"}'
    with pytest.raises(BadInput, match="the stores box and lake data in one folder"):
        read(tmp_path, "{name: box, kind: toy, root: box}", lake)
    beside = read(tmp_path, "{name: box, kind: toy, root: box}", lake.replace("box/inner", "box-inner"))
    assert [store.kind for store in beside.stores] == ["toy", "files"]

"""A new project of `dg`: the component is listed, scaffolded, checked and launched, on the sample that its scaffold brings."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from retention_assets.ledger import open_ledger
from retention_assets.settings import load_settings
from retention_assets_tests.people.conftest import ENVIRONMENT

# As create-dagster writes them, without what installs the project.
FILES = {
    "pyproject.toml": """\
[project]
name = "shop"
version = "0.1.0"
[tool.dg]
directory_type = "project"
[tool.dg.project]
root_module = "shop"
""",
    "src/shop/__init__.py": "",
    "src/shop/definitions.py": """\
from pathlib import Path
from dagster import definitions, load_from_defs_folder
@definitions
def defs():
    return load_from_defs_folder(path_within_project=Path(__file__).parent)
""",
    "src/shop/defs/__init__.py": "",
    "home/dagster.yaml": "telemetry: {enabled: false}\n",
}


@pytest.mark.program
@pytest.mark.long
@pytest.mark.spark
def test_a_person_scaffolds_checks_and_launches_and_sees_marks_and_every_byte(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    path = os.pathsep.join((str(tmp_path / "src"), ENVIRONMENT["PYTHONPATH"]))
    environment = {**ENVIRONMENT, "PYTHONPATH": path, "DAGSTER_HOME": str(tmp_path / "home"), "COLUMNS": "200"}

    def dg(*words: str, code: int = 0) -> str:
        command = [str(Path(sys.executable).with_name("dg")), *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    assert "Retention for versioned data" in dg("list", "components", "--package", "retention_assets")
    dg("scaffold", "defs", "retention_assets.RetentionComponent", "cleaning")
    said = dg("check", "defs")
    assert "All component YAML validated successfully." in said
    assert "All definitions loaded successfully." in said
    folder = tmp_path / "src" / "shop" / "defs" / "cleaning"
    settings = load_settings(folder / "retention.yaml")
    data = sorted((tmp_path / ".retention" / "cleaning" / "lake" / "data").rglob("*.bin"))
    dg("launch", "--job", "cleaning__act_evaluate")
    with open_ledger(settings.ledger) as ledger:
        marks = [row for batch in ledger.marks.read(None, ("MARKED",)) for row in batch.to_pylist()]
    assert {(row["dataset"], row["transaction"]) for row in marks} >= {("lake/raw.orders", name) for name in ("T1", "T2", "X1")}
    assert len(data) == 18
    assert all(file.exists() for file in data)

    text = (
        "type: retention_assets.RetentionComponent\nattributes:\n  settings:\n    stores:\n      - {name: lake, kind: file}\n"
    )
    (folder / "defs.yaml").write_text(text)
    assert "defs.yaml:5" in dg("check", "yaml", code=1)

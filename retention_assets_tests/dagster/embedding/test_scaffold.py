"""What `dg scaffold` writes: a folder that loads, names with a prefix, and no ledger where git would take it."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from dagster.components.testing.utils import DefsFolderSandbox, create_defs_folder_sandbox

from retention_assets.dagster.component import RetentionComponent
from retention_assets.settings.model import load_settings
from retention_assets_tests.dagster.embedding.test_component import keys

# What Dagster's own reading of defs.yaml says to pydantic; there is nothing here that could say it otherwise.
pytestmark = pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated")


def scaffold(sandbox: DefsFolderSandbox, name: str = "cleaning", **params: str) -> Path:
    return sandbox.scaffold_component(RetentionComponent, name, scaffold_params=params)


@pytest.mark.parametrize("format_", ["yaml", "python"])
def test_a_folder_is_left_that_loads(format_: Any) -> None:
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(RetentionComponent, "cleaning", scaffold_format=format_)
        assert {file.name for file in path.rglob("*.yaml")} >= {"retention.yaml", "policies.yaml"}
        if format_ == "python":
            file = path / "component.py"
            file.write_text(file.read_text().replace(": ...", ":\n    return RetentionComponent(key_prefix='cleaning')"))
        with sandbox.load_component_and_build_defs(path) as (_, defs):
            assert {key.partition("/")[0] for key in keys(defs)} == {"cleaning"}


def test_two_of_them_are_one_project_and_have_a_ledger_each() -> None:
    with create_defs_folder_sandbox() as sandbox:
        paths = [scaffold(sandbox, "eu"), scaffold(sandbox, "us", key_prefix="cold/us")]
        with sandbox.build_all_defs() as defs:
            assert {key.rpartition("/")[0] for key in keys(defs)} == {"eu", "cold/us"}
        assert len({load_settings(path / "retention.yaml").ledger for path in paths}) == 2


def test_whatever_retention_writes_lies_beside_the_code_where_git_ignores_it() -> None:
    with create_defs_folder_sandbox() as sandbox:
        settings = load_settings(scaffold(sandbox) / "retention.yaml")
        root = sandbox.project_root
        ledger, warehouse = Path(settings.ledger.removeprefix("sqlite:///")), Path(settings.warehouse)
        assert ledger.is_relative_to(root)
        assert not ledger.is_relative_to(sandbox.defs_folder_path)
        warehouse.mkdir(parents=True)
        for file in (ledger, warehouse / "head"):
            file.write_text("kept")
        git = shutil.which("git")
        assert git
        subprocess.run([git, "init", "-q"], cwd=root, check=True)
        status = [git, "status", "--short", "-uall", "--", ".retention"]
        seen = subprocess.run(status, cwd=root, check=True, capture_output=True, text=True).stdout
        # The file that says so has to be committed, or a clone would not have it.
        assert seen.split() == ["??", ".retention/.gitignore"]


def test_parameters_say_where_things_are() -> None:
    with create_defs_folder_sandbox() as sandbox:
        path = scaffold(sandbox, ledger="sqlite:////var/a #b/l.db", warehouse="s3://bucket/x")
        settings = load_settings(path / "retention.yaml")
        assert (settings.ledger, settings.warehouse) == ("sqlite:////var/a #b/l.db", "s3://bucket/x")


def test_a_variable_need_not_be_set_where_the_project_is_written() -> None:
    with create_defs_folder_sandbox() as sandbox:
        file = scaffold(sandbox, ledger="${LEDGER}") / "retention.yaml"
        assert load_settings(file, {"LEDGER": "postgresql://host/db"}).ledger == "postgresql://host/db"


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"ledger": "nowhere"}, "ledger: is not a URL .found 'nowhere'"),
        ({"warehouse": "~/w"}, "warehouse: .*expected a path or a URI"),
        ({"key_prefix": "a b"}, "key_prefix: can't be part of a name .found 'a b'"),
    ],
)
def test_a_parameter_of_which_nothing_can_be_made_is_refused_before_anything_is_written(
    params: dict[str, str], said: str
) -> None:
    with create_defs_folder_sandbox() as sandbox:
        with pytest.raises(ValueError, match=said):
            scaffold(sandbox, **params)
        assert not (sandbox.defs_folder_path / "cleaning").exists()
        assert not (sandbox.project_root / ".retention").exists()

"""`RetentionComponent`: how Dagster finds it, what its attributes mean, and the folder that `dg scaffold` writes."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import dagster as dg
import jsonschema
import pytest
from dagster._core.definitions.definitions_load_context import DefinitionsLoadType
from dagster._utils.test.definitions import scoped_definitions_load_context
from dagster.components.testing.utils import DefsFolderSandbox, component_defs, create_defs_folder_sandbox

import retention_assets
from retention_assets.dagster.component import RetentionComponent
from retention_assets.errors import BadInput
from retention_assets.settings import load_settings
from retention_assets_tests.dagster.launch import resource

# What Dagster's own reading of defs.yaml says to pydantic; there is nothing here that could say it otherwise.
pytestmark = pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated")
INLINE = {"stores": [{"name": "lake", "kind": "files", "log": "log", "data": "data/{dataset}/{transaction}"}]}


def keys(defs: dg.Definitions) -> set[str]:
    return {key.to_user_string() for key in defs.get_repository_def().asset_graph.get_all_asset_keys()}


def test_the_package_has_no_other_name_by_asking_for_it() -> None:
    with pytest.raises(AttributeError, match="no attribute 'RetentionComponents'"):
        _ = retention_assets.RetentionComponents  # type: ignore[attr-defined]


def test_it_says_what_it_is_and_what_it_brings() -> None:
    spec = RetentionComponent.get_spec()
    assert "sweeps it after its grace" in str(spec.description)
    assert {"asset", "asset_check", "job", "schedule", "sensor"} <= set(spec.produces)


def test_a_file_beside_the_component_is_found_and_its_prefix_holds() -> None:
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(RetentionComponent, "cleaning")
        (path / "defs.yaml").write_text("type: retention_assets.RetentionComponent\n")
        with (path / "retention.yaml").open("a") as file:
            file.write("dagster: {key_prefix: eu/cold}\n")
        with sandbox.load_component_and_build_defs(path) as (_, defs):
            assert {key.rpartition("/")[0].removesuffix("/store") for key in keys(defs)} == {"eu/cold"}


def test_two_of_them_stand_in_one_file() -> None:
    """As separate documents of one YAML file, each with settings of its own."""
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.defs_folder_path / "cleaning"
        folder.mkdir()
        entry = "type: retention_assets.RetentionComponent\nattributes:\n  key_prefix: {}\n  settings: {{warehouse: {}}}\n"
        (folder / "defs.yaml").write_text("---\n".join(entry.format(name, name) for name in ("eu", "us")))
        with sandbox.build_all_defs() as defs:
            assert {key.partition("/")[0] for key in keys(defs)} == {"eu", "us"}
            roots = {resource(defs, f"{name}__warehouse").root for name in ("eu", "us")}
            assert roots == {str(folder / "eu"), str(folder / "us")}


def test_settings_may_stand_in_the_attributes(tmp_path: Path) -> None:
    component = RetentionComponent.from_attributes_dict(attributes={"settings": INLINE, "key_prefix": ["a", "b"]})
    defs = component_defs(component=component)
    assert [store.name for store in resource(defs, "a__b__retention").settings.stores] == ["lake"]
    assert "a/b/purge_report" in keys(defs)


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"config": "nowhere.yaml"}, r"nowhere\.yaml: is not there; expected a settings file"),
        (
            {"config": "a.yaml", "settings": {}},
            "settings: stands beside config; expected either the keys here or a file with them",
        ),
        ({"settings": {"warehose": "w"}}, "warehose: is not a known key.*Did you mean warehouse"),
        ({"settings": {}, "key_prefix": "a b"}, "key_prefix: can't be part of a name .found 'a b'.; expected letters"),
        ({"settings": {}, "key_prefix": "a//b"}, "can't be part of a name .found ''"),
    ],
)
def test_each_mistake_is_named(attributes: dict[str, Any], said: str) -> None:
    component = RetentionComponent.from_attributes_dict(attributes=attributes)
    with pytest.raises(BadInput, match=said):
        component_defs(component=component)


@pytest.fixture
def broken_policies(tmp_path: Path) -> RetentionComponent:
    """A component whose policies nobody can understand."""
    (tmp_path / "p.yaml").write_text("policies: [{name: raw, datasets: {include: ['*']}, select: {older_than: 3x}}]")
    attributes = {"settings": {"policies": str(tmp_path / "p.yaml")}}
    return RetentionComponent.from_attributes_dict(attributes=attributes)


def test_broken_policies_keep_a_project_from_loading(broken_policies: RetentionComponent) -> None:
    """So that `dg check defs` finds them before they are deployed."""
    # A run that went before in this program has left it as if it were loaded by a run.
    with (
        scoped_definitions_load_context(DefinitionsLoadType.INITIALIZATION),
        pytest.raises(BadInput, match=r"p\.yaml:1: policy 'raw': select\.older_than"),
    ):
        component_defs(component=broken_policies)


def test_a_run_loads_beside_broken_policies(broken_policies: RetentionComponent) -> None:
    """One that puts a hold, or takes marks back, needs none of them."""
    with scoped_definitions_load_context(DefinitionsLoadType.RECONSTRUCTION):
        assert "purge_report" in keys(component_defs(component=broken_policies))


def test_dagster_checks_the_settings_in_the_attributes_by_their_schema() -> None:
    """As `dg check yaml` does: by what the component's model says of itself, without loading anything."""
    model = RetentionComponent.get_model_cls()
    assert model is not None
    validator = jsonschema.Draft202012Validator(model.model_json_schema())
    assert validator.is_valid({"settings": INLINE, "key_prefix": "eu"})
    assert validator.is_valid({"settings": "{{ settings_of_the_project }}"})
    broken = {"settings": {"stores": [{**INLINE["stores"][0], "kind": "file"}]}}
    (error,) = validator.iter_errors(broken)
    assert ".".join(map(str, error.absolute_path)) == "settings.stores.0.kind"
    assert error.message.startswith("'file' is not one of ['files'")


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
            assert {key.rpartition("/")[0].removesuffix("/store") for key in keys(defs)} == {"eu", "cold/us"}
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
        assert settings.stores == ()
        with sandbox.load_component_and_build_defs(path) as (_, defs):
            assert "cleaning/purge_report" in keys(defs)
        assert not (sandbox.project_root / ".retention" / "cleaning").exists()


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

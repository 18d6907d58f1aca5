"""`RetentionComponent`: how Dagster finds it, what its attributes mean, and the sentence for each mistake in them."""

from pathlib import Path
from typing import Any

import dagster as dg
import jsonschema
import pytest
from dagster._core.definitions.definitions_load_context import DefinitionsLoadType
from dagster._utils.test.definitions import scoped_definitions_load_context
from dagster.components.core.package_entry import discover_entry_point_package_objects
from dagster.components.testing.utils import component_defs, create_defs_folder_sandbox

import retention_assets
from retention_assets.dagster.component import RetentionComponent
from retention_assets.errors import BadInput
from retention_assets_tests.dagster.launch import resource

# What Dagster's own reading of defs.yaml says to pydantic; there is nothing here that could say it otherwise.
pytestmark = pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated")
INLINE = {"stores": [{"name": "lake", "kind": "files", "log": "log", "data": "data/{dataset}/{transaction}"}]}


def keys(defs: dg.Definitions) -> set[str]:
    return {key.to_user_string() for key in defs.get_repository_def().asset_graph.get_all_asset_keys()}


def test_dagster_lists_it_by_the_name_of_the_package() -> None:
    """`type: retention_assets.RetentionComponent`, wherever the package is installed."""
    found = {key.to_typename(): value for key, value in discover_entry_point_package_objects().items()}
    assert found["retention_assets.RetentionComponent"] is RetentionComponent


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
            assert {key.rpartition("/")[0] for key in keys(defs)} == {"eu/cold"}


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
        ({"config": "a.yaml", "settings": {}}, "settings: stands beside config; expected one of them"),
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

"""The files around the code agree with each other: dependencies, pins, targets."""

import ast
import importlib
import re
import sys
import tomllib
from collections.abc import Mapping
from importlib.metadata import distributions, packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from retention_assets_tests.source import imports

ROOT = Path(__file__).parent.parent
PROJECT: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
NEEDED = [Requirement(line) for line in PROJECT["dependencies"]]
EXTRAS = {name: [Requirement(line) for line in lines] for name, lines in PROJECT["optional-dependencies"].items()}
EXTRA = [need for needs in EXTRAS.values() for need in needs]
# What the package may import: what it needs, and what an extra for its users brings.
OFFERED = NEEDED + [need for name, needs in EXTRAS.items() if name not in ("dev", "docs") for need in needs]
PINS = [line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if line and not line.startswith("#")]

# A package without which another one's import does nothing, so that no import of ours shows it.
UNSEEN = {
    "dagster-webserver",  # `dagster dev` starts it
    "pandas",  # Spark's mapInArrow asks for it
}
# A package that is one half of another, which pins it exactly.
HALVES = {"pydantic-core"}


def modules(folder: str) -> dict[str, str]:
    files = (ROOT / folder).rglob("*.py")
    return {".".join(file.relative_to(ROOT).with_suffix("").parts): file.read_text("utf-8") for file in files}


def imported(folder: str) -> set[str]:
    tops = {name.partition(".")[0] for module, text in modules(folder).items() for _, name in imports(text, module)}
    known = packages_distributions()
    # The last is the project of somebody else that the tests embed the assets in.
    ours = {"benchmarks", "retention_assets", "retention_assets_tests", "shop"}
    return {canonicalize_name(dist) for top in tops - sys.stdlib_module_names - ours for dist in known.get(top, [top])}


def test_every_pin_is_one_exact_version_from_no_place_in_particular() -> None:
    assert [line for line in PINS if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_]+", line)] == []


def test_no_package_is_pinned_twice() -> None:
    names = [canonicalize_name(line.partition("==")[0]) for line in PINS]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("needed", [need for need in NEEDED + EXTRA if need.name != "retention-assets"], ids=str)
def test_what_is_needed_is_pinned_in_its_range(needed: Requirement) -> None:
    pins = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in PINS)}
    assert needed.specifier.contains(pins[canonicalize_name(needed.name)])


@pytest.mark.parametrize("backend", ["hatchling", "editables", "setuptools", "wheel"])
def test_what_builds_packages_is_pinned_too(backend: str) -> None:
    assert any(line.startswith(f"{backend}==") for line in PINS)


def test_what_the_package_imports_is_declared() -> None:
    declared = {canonicalize_name(need.name) for need in OFFERED}
    assert imported("retention_assets") - declared - HALVES == set()


def test_what_is_declared_is_imported() -> None:
    declared = {canonicalize_name(need.name) for need in NEEDED}
    assert declared - imported("retention_assets") - UNSEEN == set()


def test_what_the_tests_import_is_declared() -> None:
    declared = {canonicalize_name(need.name) for need in NEEDED + EXTRA}
    assert (imported("retention_assets_tests") | imported("benchmarks")) - declared == set()


def test_every_dependency_has_its_reason_on_its_line() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    block = text[text.index("\ndependencies = [") : text.index("[project.scripts]")]
    lines = [line for line in block.splitlines() if line.strip().startswith('"') and "retention-assets[" not in line]
    assert [line for line in lines if not re.search(r",? +# \S", line)] == []


def test_every_target_has_its_line_of_help() -> None:
    targets = re.findall(r"^([a-z-]+):(.*)$", (ROOT / "Makefile").read_text("utf-8"), flags=re.MULTILINE)
    assert {name for name, _ in targets} >= {
        "help",
        "check",
        "test",
        "test-all",
        "campaign",
        "demo",
        "dev",
        "docs",
        "bench",
        "lock",
        "clean",
    }
    assert [name for name, rest in targets if "## " not in rest] == []


def test_the_package_says_the_version_that_is_released() -> None:
    tree = ast.parse((ROOT / "retention_assets" / "__init__.py").read_text("utf-8"))
    values = [node.value for node in tree.body if isinstance(node, ast.Assign)]
    assert [value.value for value in values if isinstance(value, ast.Constant)] == [PROJECT["version"]]


IN_STRINGS = re.compile(r"^from (retention_assets[\w.]*) import (\w+)$", re.MULTILINE)


def test_what_a_program_in_a_string_imports_is_there() -> None:
    """Such a program starts in a Python of its own, where no type checker has looked at its imports."""
    trees = [ast.parse(text) for text in modules("benchmarks").values()]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    strings = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    found = {match.groups() for text in strings for match in IN_STRINGS.finditer(text)}
    assert ("retention_assets.dagster.headless", "run_job") in found
    assert sorted(f"{module}: {name}" for module, name in found if not hasattr(importlib.import_module(module), name)) == []


def test_every_pin_suits_the_oldest_python_that_is_supported() -> None:
    """A newer patch release at hand would hide a pin that 3.11.0 can't install."""
    needs = {found.name: found.metadata["Requires-Python"] or "" for found in distributions()}
    assert [name for name, versions in needs.items() if not SpecifierSet(versions).contains("3.11.0")] == []

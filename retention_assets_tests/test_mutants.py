"""Harmful changes: each kind of place is changed, the draw is the seed's, and a change is caught by a test that sees it, or said."""

import ast
from pathlib import Path

import pytest

from retention_assets_tests.mutants import PACKAGE, RELATED, ROOT, TESTS, Mutant, caught, draw, mutant, places, related

TEXT = """\
def f(a, b):
    if a < 1 and not b:
        a += 2
    return True
"""


def test_each_place_of_a_text_is_changed_alone() -> None:
    every = range(1, 9)
    changed = [mutant("m.py", TEXT, every, number) for number, _ in enumerate(places(ast.parse(TEXT), every))]
    assert sorted((one.line, one.before, one.after) for one in changed) == [
        (2, "1", "2"),
        (2, "a < 1", "a <= 1"),
        (2, "a < 1 and (not b)", "a < 1 or not b"),
        (2, "if a < 1 and (not b):", "if False:"),
        (2, "not b", "not not b"),
        (3, "2", "3"),
        (3, "a += 2", "a -= 2"),
        (4, "True", "False"),
    ]
    assert len({one.text for one in changed}) == len(changed)
    assert [node.lineno for node in places(ast.parse(TEXT), {4}) if hasattr(node, "lineno")] == [4]


def test_what_can_do_no_harm_is_not_changed() -> None:
    text = "@dataclass(frozen=True)\nclass A:\n    a: int | None = 49\n    b: int = 50\ndef f(a: int | str) -> int | None:\n    pass\n"
    assert [ast.unparse(node) for node in places(ast.parse(text), range(1, 9))] == ["49"]


def test_a_seed_draws_the_same_changes_and_another_one_others() -> None:
    modules = {f"{PACKAGE}/clock.py": range(1, 500), f"{PACKAGE}/datasets.py": range(1, 500)}
    one, again, other = ([str(drawn) for drawn in draw(modules, 5, seed)] for seed in (1, 1, 2))
    assert one == again != other
    assert len(set(one)) == 5


def test_each_folder_of_the_package_has_related_tests_that_are_there() -> None:
    assert [name for names in RELATED.values() for name in names if not (ROOT / TESTS / name).exists()] == []
    folders = {one.parent.name for one in (ROOT / PACKAGE).glob("*/__init__.py")}
    assert folders - RELATED.keys() == set()
    assert related(f"{PACKAGE}/stores/delta/log.py")[0] == f"{TESTS}/stores/delta"
    assert related(f"{PACKAGE}/stores/protocol.py")[0] == f"{TESTS}/stores"
    assert related(f"{PACKAGE}/clock.py") == [f"{TESTS}/."]


@pytest.mark.program
def test_a_change_is_caught_by_a_test_that_sees_it_and_taken_back(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("def f():\n    return 1\n")
    (tmp_path / "test_m.py").write_text("from m import f\n\ndef test_it():\n    assert f() in (1, 3)\n")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n"
        + "".join(f"    {name}\n" for name in ["spark", "long", "matrix", "program", "cluster", "screen"])
    )
    worse, no_worse = (Mutant("m.py", 2, "1", after, f"def f():\n    return {after}\n") for after in ("2", "3"))
    found = caught(tmp_path, worse, ["test_m.py"])
    assert found is not None
    assert found.startswith("FAILED test_m.py::test_it")
    assert caught(tmp_path, no_worse, ["test_m.py"]) is None
    assert (tmp_path / "m.py").read_text() == "def f():\n    return 1\n"

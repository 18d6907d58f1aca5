"""Which cases `make test` tries: choosing by lines and seconds, and the list as it is."""

from pathlib import Path

import pytest

from retention_assets_tests import selection
from retention_assets_tests.selection import choose, name_of, read_list, write_list

A, B, C = (("module.py", line) for line in (1, 2, 3))


def test_each_line_is_run_by_two_tests_and_quick_ones_are_always_tried() -> None:
    lines = {"quick": {A}, "wide": {A, B}, "dear": {A, B}, "twin": {A}, "alone": {C}}
    seconds = {"quick": 0.05, "wide": 1.0, "dear": 3.0, "twin": 0.2, "alone": 9.0, "without lines": 5.0}
    assert choose(seconds, lines) == {"quick", "twin", "wide", "dear", "alone"}
    assert choose(seconds, {**lines, "twin": {A, B}}) == {"quick", "twin", "wide", "alone"}


def test_what_adds_nothing_to_quick_ones_is_not_tried() -> None:
    assert choose({"quick": 0.01, "slow": 1.0}, {"quick": {A}, "slow": {A}}) == {"quick", "slow"}
    assert choose({"quick": 0.01, "too": 0.01, "slow": 1.0}, {"quick": {A}, "too": {A}, "slow": {A}}) == {"quick", "too"}


def test_a_case_has_the_name_that_the_report_has() -> None:
    assert name_of("tests/a/test_b.py::Kind::test_c[::x/y.py-z[0]]") == "tests.a.test_b.Kind.test_c[::x/y.py-z[0]]"


def test_what_is_always_tried_is_known_by_its_name() -> None:
    assert "x.test_killed.test_one" not in choose({"x.test_killed.test_one": 1.0}, {})
    assert "sweep.test_killed.test_one" in choose({"sweep.test_killed.test_one": 1.0}, {})


def test_a_list_names_what_is_worth_it_and_how_many_cases_are_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "LIST", tmp_path / "list.txt")
    assert read_list() == {}
    write_list({"a.t[1]": 0.2, "a.t[2]": 0.2, "a.t[3]": 0.2, "b.t": 0.09, "c.t": 4.0}, {"a.t[1]"})
    assert read_list() == {"a.t": 1, "c.t": 0}


def test_the_list_names_tests_that_are_there() -> None:
    files = {file.relative_to(selection.TESTS.parent).with_suffix(""): file for file in selection.TESTS.rglob("*.py")}
    texts = {".".join(name.parts): file.read_text("utf-8") for name, file in files.items()}
    every, named = "\n".join(texts.values()), read_list()
    assert named
    for name in named:
        # a class of a contract has its tests from elsewhere
        module, test = name.rpartition(".")[::2]
        assert module in texts or module.rpartition(".")[0] in texts, name
        assert f"def {test}(" in every, name

"""Mistakes in policy files: each is refused with its file, line, policy and key, and stops the command line with exit code 2.

Does not belong here: YAML below the language (settings/test_yaml.py), DataHub's resolution (test_datahub.py).
A mistake that passes is the worst that can happen here: a keep rule that is skipped is a deletion.
"""

import json
from pathlib import Path

import pytest

from retention_assets.cli import main
from retention_assets.errors import BadInput
from retention_assets.policy import load_policies
from retention_assets_tests.policy.broken_files import BROKEN, WIDE, datahub, datasets, hold, problems_of, select


def exit_code(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["retention", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    assert isinstance(left.value.code, int)
    return left.value.code


@pytest.mark.parametrize(("text", "line", "name", "key", "words"), BROKEN)
def test_a_broken_file_is_refused_with_place_key_and_expectation(
    text: str, line: int | None, name: str | None, key: str | None, words: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    file = tmp_path / "policies.yaml"
    file.write_text(text)
    found = problems_of(file)
    at_fault = [problem for problem in found if key is None or problem.key == key]
    assert at_fault, f"no problem names {key}: {[str(problem) for problem in found]}"
    problem = at_fault[0]
    assert (problem.file, problem.policy) == (str(file), name)
    assert problem.line == line, str(problem)
    assert words in str(problem)
    assert exit_code(monkeypatch, "validate", str(file)) == 2
    said = capsys.readouterr()
    assert str(problem).replace("\n", "\n  ") in said.err
    assert said.out == ""


def test_every_fault_of_every_file_is_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(select("{oldr_than: 30d, beyond: {views: 0}}"))
    (tmp_path / "b.yaml").write_text(hold("datasets: lake/d\nuntil: never"))
    (tmp_path / "c.yaml").write_text("polices: []\n")
    (tmp_path / "d.yaml").write_text(datahub("{version: {maxVersions: 0}}"))
    found = {(Path(problem.file or "").name, problem.key) for problem in problems_of(tmp_path)}
    assert found == {
        ("a.yaml", "select.oldr_than"), ("a.yaml", "select.beyond.views"), ("b.yaml", "until"), ("c.yaml", "polices"),
        ("d.yaml", "config.retention.version.maxVersions"),
    }  # fmt: skip


@pytest.mark.parametrize("what", ["policies", "holds"])
def test_one_name_in_two_files_is_refused_with_both_places(what: str, tmp_path: Path) -> None:
    text = WIDE.format(name="p") if what == "policies" else hold("datasets: lake/d")
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "b.yaml").write_text(f"# in another file\n{text}")
    [problem] = problems_of(tmp_path)
    assert (problem.file, problem.line, problem.key) == (str(tmp_path / "b.yaml"), 3, "name")
    assert f"{tmp_path / 'a.yaml'}:2" in str(problem)


def test_two_files_about_one_aspect_overlay_each_other(tmp_path: Path) -> None:
    for name, versions in (("a.yaml", 1), ("b.yaml", 5)):
        (tmp_path / name).write_text(datahub(f"{{version: {{maxVersions: {versions}}}}}"))
    [entry] = load_policies([tmp_path]).entries
    assert entry.config.retention.version is not None
    assert entry.config.retention.version.max_versions == 5


@pytest.mark.parametrize(
    ("glob", "remedy"),
    [("lak/raw.*", "Did you mean lake?"), ("warehouse/*", "Add the store"), ("Lake/d", "Did you mean lake?")],
)
@pytest.mark.parametrize("place", ["include", "exclude", "hold"])
def test_a_store_that_the_settings_do_not_have_is_refused(glob: str, remedy: str, place: str, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    if place == "hold":
        file.write_text(hold(f"datasets: [{glob}]"))
    else:
        file.write_text(
            datasets(f"{{include: [{glob}]}}" if place == "include" else f"{{include: [lake/*], exclude: [{glob}]}}")
        )
    [problem] = problems_of(file, stores={"lake", "ods"})
    assert problem.key == ("datasets.exclude" if place == "exclude" else "datasets.include")
    assert problem.policy == ("h" if place == "hold" else "p")
    assert problem.line == 2
    assert "one of the stores lake, ods" in str(problem)
    assert remedy in str(problem)


@pytest.mark.parametrize("glob", ["lake/d", "*", "*/raw.*", "l?ke/d", "[lo]*/d"])
def test_a_glob_over_stores_needs_no_store_of_that_name(glob: str, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(datasets(f"{{include: ['{glob}']}}"))
    assert len(load_policies([file], {"lake", "ods"}).policies) == 1


def test_an_unknown_store_stops_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "p.yaml").write_text(datasets("{include: [lak/d]}"))
    (tmp_path / "retention.yaml").write_text(
        "stores: [{name: lake, kind: files, log: log, data: 'data/{dataset}/{transaction}'}]\n"
    )
    assert exit_code(monkeypatch, "validate") == 2


def test_a_path_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [problem] = problems_of(tmp_path / "nowhere.yaml")
    assert (problem.file, problem.what) == (str(tmp_path / "nowhere.yaml"), "is not there")
    assert exit_code(monkeypatch, "validate", str(tmp_path / "nowhere.yaml")) == 2


def test_a_folder_without_a_policy_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not "no policies": the folder is most likely another one than was meant.
    (tmp_path / "notes.txt").write_text("policies: []")
    (tmp_path / ".hidden.yaml").write_text("policies: []")
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "p.yaml").write_text(WIDE.format(name="p"))
    [problem] = problems_of(tmp_path)
    assert problem.what == "holds no policy file"
    assert exit_code(monkeypatch, "validate", str(tmp_path)) == 2


def test_the_json_of_validate_carries_every_part_of_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.yaml").write_text(select("{beyond: {views: 0}}"))
    assert exit_code(monkeypatch, "validate", str(tmp_path), "--format", "json") == 2
    found = json.loads(capsys.readouterr().out)
    expected = {
        "what": "is out of bounds", "file": str(tmp_path / "p.yaml"), "line": 4, "policy": "p", "key": "select.beyond.views",
        "value": "0", "expected": "at least 1",
    }  # fmt: skip
    assert found == {"valid": False, "problems": [expected]}


GRACELESS = "policies: [{name: p, datasets: {include: [%s]%s}, select: {unreferenced: true}, grace: %s}]"


@pytest.mark.parametrize(
    ("include", "exclude", "grace", "refused"),
    [
        ("'blobs/*'", "", "0s, confirm: no-grace", True),
        ("'*'", "", "0s, confirm: no-grace", True),
        ("'b*/x'", "", "0s, confirm: no-grace", True),
        ("'*_archive'", "", "0s, confirm: no-grace", True),
        ("'bl*t'", "", "0s, confirm: no-grace", True),
        ("'*lake/x'", "", "0s, confirm: no-grace", True),
        ("'bl*s2/x'", "", "0s, confirm: no-grace", True),
        ("'blob?/[ab]*'", "", "0s, confirm: no-grace", True),
        ("'*'", ", exclude: ['blobs/*']", "0s, confirm: no-grace", False),
        ("'lake/*'", "", "0s, confirm: no-grace", False),
        ("'blobs/*'", "", "1d", False),
    ],
)
def test_a_grace_is_needed_where_writers_reuse(include: str, exclude: str, grace: str, refused: bool, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(GRACELESS % (include, exclude, grace))
    assert load_policies([file], {"lake", "blobs"}).policies
    if not refused:
        assert load_policies([file], {"lake", "blobs"}, {"blobs"}).policies
        return
    with pytest.raises(BadInput, match="policy 'p': grace: has no grace, but may match store blobs"):
        load_policies([file], {"lake", "blobs"}, {"blobs"})


NO_UNDO = {"ods": "A store of kind records can't set anything aside. Leave `undo` out for its datasets."}


@pytest.mark.parametrize(
    ("scope", "undo", "refused"),
    [
        ("{include: [ods/*]}", "14d", True),
        ("{include: ['*s/x'], exclude: [ods/y]}", "14d", True),
        ("{include: ['*'], exclude: [ods/*]}", "14d", False),
        ("{include: [lake/*]}", "14d", False),
        ("{include: ['*']}", None, False),
    ],
)
def test_undo_is_refused_where_a_store_cannot_set_aside(scope: str, undo: str | None, refused: bool, tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(datasets(scope) + (f"    undo: {undo}\n" if undo else ""))
    if not refused:
        assert load_policies([file], {"lake", "ods"}, undo_faults=NO_UNDO).policies
        return
    with pytest.raises(BadInput) as caught:
        load_policies([file], {"lake", "ods"}, undo_faults=NO_UNDO)
    assert str(caught.value) == (
        f"{file}:2: policy 'p': undo: may match store ods; expected stores that can set data aside. A store of kind records can't set"
        " anything aside. Leave `undo` out for its datasets, or exclude ods/*."
    )

"""`init`: what one begins with is complete, says what there is to do, and never takes the place of what is there."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from retention_assets.people.init import POLICIES, SETTINGS, write_folder
from retention_assets.policy import policy_schema
from retention_assets.settings import load_settings
from retention_assets_tests.people.conftest import Run

FILES = {"retention.yaml", "policies/retention.yaml", "policies/schema.json", ".gitignore"}


@pytest.fixture
def empty(run: Run) -> Run:
    Path("retention.yaml").unlink()
    return run


def files() -> set[str]:
    return {str(file) for file in Path().rglob("*") if file.is_file()}


def test_a_folder_is_one_to_begin_in(empty: Run) -> None:
    code, out, err = empty("init")
    assert (code, files()) == (0, FILES)
    assert all(name in out for name in FILES)
    assert err.startswith("Next: name the place of your data in retention.yaml")
    assert empty("validate")[0] == 0
    assert load_settings(Path("retention.yaml")).clock.simulated is False
    assert "/.retention/" in Path(".gitignore").read_text().splitlines()


def test_editors_find_the_schema_beside_the_policies_and_accept_them(empty: Run) -> None:
    for arguments in (("init", "plain"), ("init", "sample", "--sample")):
        assert empty(*arguments)[0] == 0
        policies = Path(arguments[1]) / "policies"
        text = (policies / "retention.yaml").read_text()
        named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", text)
        assert named is not None
        schema = json.loads((policies / named[1]).read_text())
        assert schema == json.loads(policy_schema())
        jsonschema.validate(yaml.safe_load(text), schema)


def test_every_store_of_the_comments_can_be_taken_out_of_them(tmp_path: Path) -> None:
    text = re.sub(r"^  # (?=- \{?name| {2}\w+: )", "  ", SETTINGS, flags=re.MULTILINE)
    assert text != SETTINGS
    (tmp_path / "retention.yaml").write_text(text)
    environ = dict.fromkeys(("CATALOG_TOKEN", "DATAHUB_PASSWORD", "ODS_PASSWORD"), "secret")
    settings = load_settings(tmp_path / "retention.yaml", environ)
    assert [store.kind for store in settings.stores] == ["files", "iceberg", "delta", "aspects", "records"]


@pytest.mark.parametrize("name", sorted(FILES))
def test_nothing_that_is_there_is_written_over(name: str, empty: Run) -> None:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text("mine\n")
    code, out, _ = empty("init")
    assert (code, Path(name).read_text(), files()) == (0, "mine\n", FILES)
    assert re.search(rf"^{re.escape(name)} +exists already and is unchanged$", out, re.MULTILINE)
    assert out.count("exists already") == 1


def test_a_link_is_not_written_through_and_a_gitignore_that_lacks_the_ledger_is_named(empty: Run, tmp_path: Path) -> None:
    Path("retention.yaml").symlink_to(tmp_path / "elsewhere")
    assert empty("init")[0] == 0
    assert not (tmp_path / "elsewhere").exists()
    Path(".gitignore").write_text("*.pyc\n")
    assert "Add /.retention/ to .gitignore" in empty("init")[2]
    Path(".gitignore").write_text("*.pyc\n.retention\n")
    assert "Add" not in empty("init")[2]


def test_another_folder_is_made_and_named_as_what_comes_next(empty: Run) -> None:
    code, _, err = empty("init", "a/b")
    assert code == 0
    assert {f"a/b/{name}" for name in FILES} == files()
    assert "`cd a/b`" in err
    Path("file").touch()
    code, out, err = empty("init", "file")
    assert (code, out, err.splitlines()) == (2, "", ["file: is not a folder; expected a folder, or a name that is free"])


@pytest.mark.parametrize("there", ["retention.yaml", "policies", "lake"])
def test_a_sample_is_written_whole_or_not_at_all(there: str, empty: Run) -> None:
    Path(there).mkdir()
    code, out, err = empty("init", "--sample")
    assert (code, out, files()) == (1, "", set())
    assert err.startswith(f"{there} in . would not fit the sample")


def test_the_log_of_the_sample_says_how_large_its_data_is(empty: Run) -> None:
    code, out, err = empty("init", "--sample")
    assert (code, "the data of 18 transactions" in out, "`retention preview`" in err) == (0, True, True)
    lines = [json.loads(line) for line in Path("lake/log/log.jsonl").read_text().splitlines()]
    sizes = {(one["dataset"].partition("/")[2], one["transaction"]): one["bytes"] for one in lines if "transaction" in one}
    data = [file for file in Path("lake/data").rglob("*") if file.is_file()]
    assert sizes == {(file.parts[-3], file.parts[-2]): file.stat().st_size for file in data}


def test_two_who_begin_at_once_do_not_write_over_each_other(tmp_path: Path) -> None:
    first = write_folder(tmp_path)
    second = write_folder(tmp_path, "theirs\n")
    assert (set(first), second) == (FILES, [])
    assert (tmp_path / "retention.yaml").read_text() == SETTINGS
    assert POLICIES in (tmp_path / "policies/retention.yaml").read_text()

"""Which settings a command works on: those of --config, of RETENTION_CONFIG, of the folder; and what it says without any."""

from pathlib import Path

import pytest

from retention_assets_tests.people.conftest import Run

POLICY = "policies: [{name: %s, datasets: {include: ['lake/*']}, select: {older_than: 30d}}]\n"


@pytest.fixture
def places(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Three settings files, each with a policy that is called like its folder; `here` is where commands run."""
    stores = "stores: [{name: lake, kind: files, log: l, data: 'd/{dataset}/{transaction}'}]\n"
    for name in ("here", "there", "named"):
        Path(name).mkdir()
        Path(name, "retention.yaml").write_text(f"policies: p.yaml\n{stores}")
        Path(name, "p.yaml").write_text(POLICY % name)
    monkeypatch.chdir("here")
    return run


@pytest.mark.parametrize(
    ("arguments", "policy"),
    [
        (("validate",), "here"),
        (("--config", "../there/retention.yaml", "validate"), "there"),
        (("validate", "--config", "../there/retention.yaml"), "there"),
        (("-c", "../there/retention.yaml", "validate"), "there"),
        (("-c", "../here/retention.yaml", "validate", "-c", "../there/retention.yaml"), "there"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else one,
)
def test_the_settings_are_those_that_were_named(arguments: tuple[str, ...], policy: str, places: Run) -> None:
    code, out, _ = places(*arguments)
    assert (code, out.splitlines()[0]) == (0, policy)


def test_what_is_typed_counts_more_than_the_environment(places: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETENTION_CONFIG", "../named/retention.yaml")
    assert places("validate")[1].splitlines()[0] == "named"
    assert places("--config", "../there/retention.yaml", "validate")[1].splitlines()[0] == "there"
    # The next call does not remember it.
    assert places("validate")[1].splitlines()[0] == "named"


@pytest.mark.parametrize("before", [True, False])
def test_a_group_and_what_stands_below_it_take_the_same_file(before: bool, places: Run) -> None:
    named = ("--config", "../there/retention.yaml")
    assert places(*named, "policies", "load")[0] == 0
    command = ("policies", *named, "show", "there") if before else ("policies", "show", "there", *named)
    assert places(*command)[0] == 0
    assert not Path(".retention").exists()
    assert Path("../there/.retention/ledger.db").is_file()


def test_a_file_that_is_not_there_is_bad_input(places: Run) -> None:
    code, out, err = places("validate", "--config", "nowhere.yaml")
    assert (code, out, err) == (2, "", "nowhere.yaml: is not there; expected a settings file\n")


@pytest.mark.parametrize(
    "arguments", [("run",), ("run", "--dry-run"), ("report",), ("marks", "--format", "json")], ids=" ".join
)
def test_without_settings_a_command_says_in_one_sentence_how_to_get_some(arguments: tuple[str, ...], run: Run) -> None:
    Path("retention.yaml").unlink()
    code, out, err = run(*arguments)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "`retention init`" in err
    assert "--config" in err

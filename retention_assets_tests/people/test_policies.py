"""`policies`: which version of a policy marks, who wrote it, and where files and book no longer say the same."""

from pathlib import Path

import pytest

from retention_assets.ledger import Ledger
from retention_assets_tests.ledger.states import T0, candidates
from retention_assets_tests.people.conftest import Json, Run

WHY = ("--reason", "agreed on Monday")


def policy(age: str, name: str = "p", more: str = "") -> str:
    return f"policies: [{{name: {name}, datasets: {{include: ['lake/*']}}, select: {{older_than: {age}}}{more}}}]\n"


@pytest.fixture
def files(run: Run) -> Path:
    """The policy file of the settings: p, 30 days."""
    Path("retention.yaml").write_text(
        "policies: p.yaml\nstores: [{name: lake, kind: files, log: l, data: 'd/{dataset}/{transaction}'}]\n"
    )
    Path("p.yaml").write_text(policy("30d"))
    return Path("p.yaml")


def entry(found: Json, name: str = "p") -> dict[str, object]:
    [row] = [row for row in found("policies")["entries"] if row["name"] == name]
    return dict(row)


def test_loading_writes_once_and_then_skips(files: Path, found: Json) -> None:
    [first] = found("policies", "load")
    assert (first["name"], first["outcome"], first["touched"]) == ("p", "WRITTEN", [{"include": ["lake/*"]}])
    [second] = found("policies", "load")
    assert (second["outcome"], second["touched"]) == ("SKIPPED", [])
    row = entry(found)
    assert {name: row[name] for name in ("version", "written_by", "system", "revoked", "files", "orphaned_marks")} == {
        "version": 1, "written_by": "ann", "system": True, "revoked": False, "files": "SKIPPED", "orphaned_marks": 0,
    }  # fmt: skip


def test_loading_as_a_table_says_why(files: Path, run: Run) -> None:
    code, out, err = run("policies", "load")
    assert (code, err) == (0, "Next: `retention run --mark-only` judges by them.\n")
    for words in ("WRITTEN", "is new", "lake/*"):
        assert words in out


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (policy("30d"), {"p": "SKIPPED"}),
        (policy("40d"), {"p": "WRITTEN"}),
        (policy("30d", "q"), {"p": "ABSENT", "q": "WRITTEN"}),
        ("policies: []\n", {"p": "ABSENT"}),
    ],
    ids=["the same", "changed", "another", "none"],
)
def test_the_book_is_compared_with_the_files_as_they_are_now(
    text: str, state: dict[str, str], files: Path, found: Json, run: Run
) -> None:
    found("policies", "load")
    files.write_text(text)
    assert {row["name"]: row["files"] for row in found("policies")["entries"]} == state
    assert run("policies")[0] == 0
    # Looking loads nothing.
    assert [row["version"] for row in found("policies")["entries"] if row["name"] == "q"] in ([], [None])


def test_what_a_person_wrote_is_drift_until_somebody_decides(files: Path, found: Json, run: Run) -> None:
    found("policies", "load")
    files.write_text(policy("40d"))
    assert found("policies", "overwrite", "p", *WHY)["version"] == 2
    files.write_text(policy("50d"))
    code, out, err = run("policies", "load")
    assert code == 0
    assert "DRIFTED" in out
    assert "which ann wrote at" in err
    assert entry(found)["files"] == "DRIFTED"
    assert "Drift" in run("policies")[1]
    assert found("policies", "load", "--overwrite-user-policies")[0]["outcome"] == "WRITTEN"
    row = entry(found)
    assert (row["version"], row["system"], row["files"]) == (3, True, "SKIPPED")
    # The settings may say so for every load.
    assert found("policies", "overwrite", "p", *WHY)["version"] == 4
    files.write_text(policy("60d"))
    Path("retention.yaml").write_text(f"{Path('retention.yaml').read_text()}overwrite_user_policies: true\n")
    assert entry(found)["files"] == "WRITTEN"
    assert found("policies", "load")[0]["outcome"] == "WRITTEN"


@pytest.mark.parametrize("name", ["p", "datahub:dataset.status"])
def test_overwriting_takes_the_files_entry_as_a_persons(name: str, files: Path, found: Json, run: Run) -> None:
    Path("retention.yaml").write_text(
        "policies: [p.yaml, d.yaml]\nstores: [{name: lake, kind: files, log: l, data: 'd/{dataset}/{transaction}'}]\n"
    )
    Path("d.yaml").write_text("- {entity: dataset, aspect: status, config: {retention: {version: {maxVersions: 1}}}}\n")
    code, out, _ = run("policies", "overwrite", name, *WHY, "--actor", "bob")
    assert (code, out) == (0, f"{name} is in force: version 1, by bob.\n")
    assert entry(found, name)["system"] is False


def test_every_version_is_shown_with_what_it_says(files: Path, found: Json, run: Run) -> None:
    found("policies", "load")
    files.write_text(policy("40d"))
    found("policies", "load", "--actor", "bob")
    found("policies", "revoke", "p", *WHY)
    rows = found("policies", "show", "p")
    assert [(row["version"], row["written_by"], row["revoked"]) for row in rows] == [
        (1, "ann", False), (2, "bob", False), (3, "ann", True),
    ]  # fmt: skip
    assert rows[0]["content"]["select"]["older_than"]["age"] == "30d"
    assert "more than 40 days ago" in rows[1]["sentence"]
    _, out, _ = run("policies", "show", "p")
    assert "revoked" in out
    assert "more than" in out


def test_revoking_leaves_marks_and_counts_them(files: Path, ledger: Ledger, found: Json, run: Run) -> None:
    found("policies", "load")
    ledger.marks.mark(candidates(["T1", "T2"]), T0, "evaluation")
    assert found("policies")["orphaned"] == []
    # Another policy has marks of its own, which were orphaned before.
    Path("q.yaml").write_text(policy("90d", "q"))
    Path("retention.yaml").write_text(Path("retention.yaml").read_text().replace("p.yaml", "[p.yaml, q.yaml]"))
    found("policies", "load")
    ledger.marks.mark(candidates(["T3"], policy="q"), T0, "evaluation")
    assert "those of its 1 open marks that no other policy in force selects" in run("policies", "revoke", "q", *WHY)[2]
    code, out, err = run("policies", "revoke", "p", *WHY)
    assert (code, out) == (0, "p is revoked: version 2, by ann.\n")
    assert "those of its 2 open marks that no other policy in force selects" in err
    assert found("policies")["orphaned"] == [
        {"policy": "p", "policy_version": 1, "marks": 2}, {"policy": "q", "policy_version": 1, "marks": 1},
    ]  # fmt: skip
    assert (entry(found)["revoked"], entry(found)["orphaned_marks"]) == (True, 2)
    _, out, _ = run("policies")
    assert "Orphaned marks" in out
    assert run("policies", "revoke", "p", *WHY)[0] == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("show", "pp"), "'pp' is not in the policy book. Did you mean p?"),
        (("overwrite", "pp", *WHY), "'pp' is not in the policy files. Did you mean p?"),
        (("overwrite", "p"), "Missing option '-r' / '--reason'"),
        (("revoke", "p"), "Missing option '-r' / '--reason'"),
        (("revoke",), "Missing argument"),
        (("approve", "p"), "No such command"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_what_is_not_there_or_not_said_is_bad_input(
    arguments: tuple[str, ...], words: str, files: Path, found: Json, run: Run
) -> None:
    found("policies", "load")
    code, out, err = run("policies", *arguments)
    assert (code, out) == (2, "")
    assert words in err


def test_a_broken_file_is_neither_compared_nor_loaded(files: Path, found: Json, run: Run) -> None:
    found("policies", "load")
    files.write_text(policy("0d"))
    assert [run("policies", *command)[0] for command in ((), ("load",), ("overwrite", "p", *WHY))] == [2, 2, 2]
    assert len(found("policies", "show", "p")) == 1

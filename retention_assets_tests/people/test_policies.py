"""`policies`, `validate` and `schema`: which version of a policy marks and who wrote it, where files and book differ, what a file means."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from retention_assets.environment import Environment
from retention_assets.ledger import Ledger
from retention_assets.policy import Duration, policy_schema
from retention_assets.settings import load_settings
from retention_assets_tests.ledger.states import T0, candidates
from retention_assets_tests.people.conftest import ROOT, Json, Run, error_of
from retention_assets_tests.people.logs import OLD
from retention_assets_tests.stores.records.environments import Units

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


def test_loading_writes_once_and_then_skips(files: Path, found: Json, run: Run) -> None:
    [first] = found("policies", "load")
    assert (first["name"], first["outcome"], first["touched"]) == ("p", "WRITTEN", [{"include": ["lake/*"]}])
    [second] = found("policies", "load")
    assert (second["outcome"], second["touched"]) == ("SKIPPED", [])
    row = entry(found)
    assert {name: row[name] for name in ("version", "written_by", "system", "revoked", "files", "orphaned_marks")} == {
        "version": 1, "written_by": "ann", "system": True, "revoked": False, "files": "SKIPPED", "orphaned_marks": 0,
    }  # fmt: skip
    files.write_text(policy("30d", "new"))
    code, out, err = run("policies", "load")
    assert (code, err) == (0, "Next: `retention run --mark-only` applies them.\n")
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
    code, _, err = run("policies", "revoke", "p", *WHY)
    assert (code, err) == (1, "No policy named p is in force. `retention policies` lists the policies in force.\n")


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
)
def test_what_is_not_there_or_not_said_is_bad_input(
    arguments: tuple[str, ...], words: str, files: Path, found: Json, run: Run
) -> None:
    found("policies", "load")
    assert words in error_of(run("policies", *arguments), 2)


def test_a_broken_file_is_neither_compared_nor_loaded(files: Path, found: Json, run: Run) -> None:
    found("policies", "load")
    files.write_text(policy("0d"))
    assert [run("policies", *command)[0] for command in ((), ("load",), ("overwrite", "p", *WHY))] == [2, 2, 2]
    assert len(found("policies", "show", "p")) == 1


def test_validate_prints_each_policy_as_a_sentence_and_says_the_same_as_json(run: Run) -> None:
    Path("p.yaml").write_text(OLD + "holds: [{name: h, datasets: lake/a}]\n")
    code, out, err = run("validate", "p.yaml")
    assert (code, err) == (0, "")
    assert out.startswith("old\n  Marks transactions of the datasets lake/*, when they closed more than 30 days ago.")
    assert "h\n  Holds everything of the datasets lake/a" in out
    assert out.endswith("1 policy and 1 hold are valid.\n")
    Path("d.yaml").write_text("- {entity: a, aspect: b, config: {retention: {indefinite: {}}}}\n")
    code, out, err = run("validate", "p.yaml", "d.yaml", "--format", "json")
    found = json.loads(out)
    assert (code, err, found["valid"]) == (0, "", True)
    assert [one["name"] for one in found["policies"]] == ["old", "datahub:a.b"]
    assert [one["name"] for one in found["holds"]] == ["h"]
    assert all(one["sentence"].endswith(".") for one in found["policies"] + found["holds"])


def test_validate_names_every_fault_on_stderr_and_stops_with_two(run: Run) -> None:
    Path("p.yaml").write_text("policies: [{name: p, datasets: {include: []}, select: {}}]\n")
    assert [line.partition(" expected")[0] for line in error_of(run("validate", "p.yaml"), 2).splitlines()] == [
        "p.yaml:1: policy 'p': datasets.include: is empty;",
        "p.yaml:1: policy 'p': select: has no line that narrows;",
    ]


def test_validate_names_a_view_among_the_sources_of_references(run: Run, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "refs.db")) as file:
        file.execute("CREATE TABLE mails (object TEXT, child TEXT)")
        file.execute("CREATE VIEW shown AS SELECT object FROM mails")
        file.execute("CREATE VIEW edges AS SELECT object, child FROM mails")
    (tmp_path / "blobs").mkdir()
    url = f"sqlite:///{tmp_path}/refs.db"
    sources = [{"sql": url, "table": name, "key": "object"} for name in ("mails", "shown")]
    edges = [{"sql": url, "table": "edges", "from": "object", "to": "child"}]
    listing = {"path": f"{tmp_path}/blobs"}
    store = {"name": "blobs", "kind": "objects", "listing": listing, "references": sources, "edges": edges}
    Path("retention.yaml").write_text(json.dumps({"policies": "rules", "stores": [store]}))
    Path("rules").mkdir()
    Path("rules/p.yaml").write_text("policies: []\n")
    code, _, err = run("validate")
    assert code == 0
    assert "The source shown of the store blobs is a view, which may hide rows" in err
    assert "The source edges of the store blobs is a view" in err
    assert "mails" not in err


def test_validate_says_what_a_database_would_do_besides_and_which_store_cannot_be_asked(run: Run) -> None:
    Path("ods.db").touch()
    units = Units("sqlite:///ods.db")
    with units.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE invoice (unit TEXT REFERENCES unit_of_work (id) ON DELETE CASCADE)")
    away = {**units.settings, "name": "away", "url": "sqlite:///away.db"}
    Path("rules").mkdir()
    Path("rules/p.yaml").write_text(OLD.replace("lake/*", "ods/*"))
    Path("retention.yaml").write_text(json.dumps({"policies": "rules", "stores": [units.settings, away]}))
    code, out, err = run("validate", "--format", "json")
    path = "unit_of_work -> invoice by (unit, ON DELETE CASCADE)"
    warnings = {one["store"]: one["text"] for one in json.loads(out)["warnings"]}
    assert (code, list(warnings)) == (0, ["ods", "away", "ledger"])
    assert f"would delete or change other rows as well: {path}" in warnings["ods"]
    assert "no SQLite file" in warnings["away"]
    assert "An old backup of ledger and warehouse together would not be noticed" in warnings["ledger"]
    assert err == "".join(f"{store}: {text}\n" for store, text in warnings.items())
    # Files that are named are looked at alone.
    assert json.loads(run("validate", "rules/p.yaml", "--format", "json")[1])["warnings"] == []


def test_the_shipped_settings_and_policies_are_valid_and_the_schema_is_printed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    code, out, _ = run("validate")
    assert (code, "nothing is marked" in out) == (0, True)
    assert run("schema") == (0, policy_schema(), "")


STORES = """stores:
  - {name: ods, kind: records, url: "sqlite:///ods.db", root: {table: t, key: id, opened_at: o, closed_at: c}}
  - {name: blobs, kind: objects, listing: {path: blobs}, references: [{lines: refs.jsonl}]}
  - {name: lake, kind: files, log: log, data: 'data/{dataset}/{transaction}'}
"""


def asking(include: str, lines: str) -> None:
    Path("retention.yaml").write_text(f"policies: rules\n{STORES}")
    Path("rules").mkdir(exist_ok=True)
    Path("rules/p.yaml").write_text(f"policies: [{{name: p, datasets: {{include: {include}}}, {lines}}}]\n")


@pytest.mark.parametrize(
    ("key", "lines"),
    [
        ("select.beyond.views", "select: {beyond: {views: 3}}"),
        ("select.in_views_older_than", "select: {in_views_older_than: 3d}"),
        ("select.superseded", "select: {superseded: true}"),
        ("select.older_than", "select: {older_than: {age: 3d, of: superseded}}"),
        ("select.window", "select: {older_than: 3d, window: complete}"),
        ("branches.only_in", "branches: {only_in: main}, select: all"),
        ("branches.not_in", "branches: {not_in: main}, select: all"),
        ("branches.windows", "branches: {windows: [{match: main, older_than: 3d}]}, select: all"),
        ("branches.include", "branches: {include: [main]}, select: all"),
        ("branches.exclude", "branches: {exclude: [dev]}, select: all"),
    ],
)
@pytest.mark.parametrize("named", [(), ("rules/p.yaml",)], ids=["of the settings", "named"])
def test_validate_refuses_what_asks_for_branches_where_there_are_none(
    run: Run, key: str, lines: str, named: tuple[str, ...]
) -> None:
    asking("['ods/*', 'b*/x']", lines)
    code, out, err = run("validate", *named)
    assert (code, out) == (2, "")
    assert f"rules/p.yaml:1: policy 'p': {key}: asks for views or branches, and the datasets of ods and blobs have none" in err
    # Of a store with histories they may be meant.
    asking("['*']", lines)
    code, _, err = run("validate", *named)
    assert (code, "without branches" in err) == (0, False)


def test_validate_warns_of_what_a_log_without_branches_would_not_give(run: Run) -> None:
    asking("['lake/*']", "branches: {reach: any}, select: {beyond: {views: 3}}")
    code, _, err = run("validate")
    assert code == 0
    assert "lake: policy p selects nothing in a dataset without branches, because of select.beyond.views." in err
    asking("['lake/*']", "branches: {reach: any}, select: {beyond: {transactions: 3}}")
    assert "without branches" not in run("validate")[2]


@pytest.mark.parametrize("named", [(), ("rules/p.yaml",)], ids=["of the settings", "named"])
def test_validate_refuses_undo_where_a_store_cannot_set_aside(run: Run, named: tuple[str, ...]) -> None:
    asking("['*']", "select: all, undo: 14d")
    code, out, err = run("validate", *named)
    assert (code, out) == (2, "")
    assert "policy 'p': undo: may match store ods" in err
    assert "Leave `undo` out for its datasets, or exclude ods/*." in err


NOT_THERE = "The folder is not there. Make it."
ODS = "ods: realms.undo does not reach this store, which can't set data aside: a purge deletes it.\n"


@pytest.mark.parametrize(
    ("realms", "undos", "fault", "code", "expected"),
    [
        ("0d", ("14d", "30d"), None, 0, "lake: It ends before 30 days.\n"),
        ("0d", ("14d",), NOT_THERE, 1, f"policy 'p0': undo: nothing of the store lake can be set aside. {NOT_THERE}\n"),
        ("60d", ("14d",), None, 0, f"{ODS}lake: It ends before 60 days.\n"),
        ("60d", (), NOT_THERE, 1, f"{ODS}realms.undo: nothing of the store lake can be set aside. {NOT_THERE}\n"),
        ("0d", (), None, 0, ""),
    ],
)
def test_validate_asks_stores_whether_they_can_set_aside(
    run: Run, monkeypatch: pytest.MonkeyPatch, realms: str, undos: tuple[str, ...], fault: str | None, code: int, expected: str
) -> None:
    def warn(_: object, undo: Duration) -> list[str]:
        return [f"It ends before {undo.words()}."]

    stores = STORES.replace("  - {name: blobs", "#")
    Path("retention.yaml").write_text(f"policies: p.yaml\nrealms: {{undo: {realms}}}\n{stores}")
    policy = {"datasets": {"include": ["lake/*"]}, "select": "all"}
    Path("p.yaml").write_text(
        json.dumps({"policies": [{"name": f"p{n}", "undo": undos[n], **policy} for n in range(len(undos))]})
    )
    kind = type(Environment(load_settings()).stores(["lake"])["lake"])
    answers: dict[str, Any] = {"undo_fault": lambda _: fault, "undo_warnings": warn}
    for name in ("undo_fault", "undo_warnings", "set_aside", "restore", "delete_aside"):
        monkeypatch.setattr(kind, name, answers.get(name, list), raising=False)
    found, out, err = run("validate")
    assert (found, "are valid" in out) == (code, code == 0)
    assert "".join(line for line in err.splitlines(keepends=True) if "ends before" in line or "undo" in line) == expected
    assert json.loads(run("validate", "--format", "json")[1])["valid"] is (code == 0)


@pytest.mark.parametrize("where", ["attributes['k'] = 'True'", "attributes['k'] <> 'False'", "'None' = attributes['k']",
                                   "attributes['k'] IN ('true', 'nan')"])  # fmt: skip
def test_validate_refuses_texts_that_no_attribute_is(run: Run, where: str) -> None:
    Path("p.yaml").write_text(
        json.dumps({"policies": [{"name": "p", "datasets": {"include": ["*"]}, "select": {"where": where}}]})
    )
    code, _, err = run("validate", "p.yaml")
    assert code == 2
    assert "is the text of no attribute" in err

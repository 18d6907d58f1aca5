"""`validate` and `schema`: what a policy file is said to mean, and what is refused.

Does not belong here: what a file may say (policy/test_language.py).
"""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from retention_assets.policy.language import policy_schema
from retention_assets_tests.people.conftest import ROOT, Run
from retention_assets_tests.people.logs import OLD
from retention_assets_tests.stores.records.environments import Units


def test_validate_prints_each_policy_as_a_sentence(run: Run) -> None:
    Path("p.yaml").write_text(OLD + "holds: [{name: h, datasets: lake/a}]\n")
    code, out, err = run("validate", "p.yaml")
    assert code == 0
    assert out.startswith("old\n  Marks transactions of the datasets lake/*, when they closed more than 30 days ago.")
    assert "h\n  Holds everything of the datasets lake/a" in out
    assert out.endswith("1 policy and 1 hold are valid.\n")
    assert err == ""


def test_validate_says_the_same_as_json(run: Run) -> None:
    Path("p.yaml").write_text(OLD + "holds: [{name: h, datasets: lake/a}]\n")
    Path("d.yaml").write_text("- {entity: a, aspect: b, config: {retention: {indefinite: {}}}}\n")
    code, out, err = run("validate", "p.yaml", "d.yaml", "--format", "json")
    found = json.loads(out)
    assert (code, err, found["valid"]) == (0, "", True)
    assert [one["name"] for one in found["policies"]] == ["old", "datahub:a.b"]
    assert [one["name"] for one in found["holds"]] == ["h"]
    assert all(one["sentence"].endswith(".") for one in found["policies"] + found["holds"])


def test_validate_names_every_fault_on_stderr_and_stops_with_two(run: Run) -> None:
    Path("p.yaml").write_text("policies: [{name: p, datasets: {include: []}, select: {}}]\n")
    code, out, err = run("validate", "p.yaml")
    assert (code, out) == (2, "")
    assert [line.partition(" expected")[0] for line in err.splitlines()] == [
        "p.yaml:1: policy 'p': datasets.include: is empty;",
        "p.yaml:1: policy 'p': select: has no line that narrows;",
    ]


def test_validate_says_when_nothing_is_in_force(run: Run) -> None:
    Path("p.yaml").write_text("policies: []\n")
    code, out, _ = run("validate", "p.yaml")
    assert code == 0
    assert "nothing will be marked" in out


def test_validate_names_a_view_among_the_sources_of_references(run: Run, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "refs.db")) as file:
        file.execute("CREATE TABLE mails (object TEXT, child TEXT)")
        file.execute("CREATE VIEW shown AS SELECT object FROM mails")
        file.execute("CREATE VIEW edges AS SELECT object, child FROM mails")
    (tmp_path / "blobs").mkdir()
    url = f"sqlite:///{tmp_path}/refs.db"
    sources = [{"sql": url, "table": name, "key": "object"} for name in ("mails", "shown")]
    edges = [{"sql": url, "table": "edges", "from": "object", "to": "child"}]
    store = {
        "name": "blobs",
        "kind": "objects",
        "listing": {"path": f"{tmp_path}/blobs"},
        "references": sources,
        "edges": edges,
    }
    Path("retention.yaml").write_text(json.dumps({"policies": "rules", "stores": [store]}))
    Path("rules").mkdir()
    Path("rules/p.yaml").write_text("policies: []\n")
    code, _, err = run("validate")
    assert code == 0
    assert "The source shown of the store blobs is a view, which may hide rows" in err
    assert "The source edges of the store blobs is a view" in err
    assert "mails" not in err


def test_validate_without_a_path_reads_the_policies_of_the_settings_and_knows_their_stores(run: Run) -> None:
    Path("retention.yaml").write_text(
        "policies: rules\nstores: [{name: lake, kind: files, log: log, data: 'data/{dataset}/{transaction}'}]\n"
    )
    Path("rules").mkdir()
    Path("rules/p.yaml").write_text(OLD)
    assert run("validate")[0] == 0
    Path("rules/p.yaml").write_text(OLD.replace("lake/*", "lak/*"))
    code, _, err = run("validate")
    assert code == 2
    assert "Did you mean lake?" in err


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
    assert f"would delete or change more than it is told to: {path}" in warnings["ods"]
    assert "no SQLite file" in warnings["away"]
    assert "a backup of ledger and warehouse together can't be told from the present" in warnings["ledger"]
    assert err == "".join(f"{store}: {text}\n" for store, text in warnings.items())
    # Files that are named are looked at alone.
    assert json.loads(run("validate", "rules/p.yaml", "--format", "json")[1])["warnings"] == []


def test_the_shipped_settings_and_policies_are_valid(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    code, out, _ = run("validate")
    assert (code, "nothing will be marked" in out) == (0, True)


def test_schema_prints_the_schema_and_nothing_else(run: Run) -> None:
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
    assert "lake: policy p selects nothing in a dataset without branches: select.beyond.views asks for them." in err
    asking("['lake/*']", "branches: {reach: any}, select: {beyond: {transactions: 3}}")
    assert "without branches" not in run("validate")[2]


@pytest.mark.parametrize("where", ["attributes['k'] = 'True'", "attributes['k'] <> 'False'", "'None' = attributes['k']",
                                   "attributes['k'] IN ('true', 'nan')"])  # fmt: skip
def test_validate_refuses_texts_that_no_attribute_is(run: Run, where: str) -> None:
    Path("p.yaml").write_text(
        json.dumps({"policies": [{"name": "p", "datasets": {"include": ["*"]}, "select": {"where": where}}]})
    )
    code, _, err = run("validate", "p.yaml")
    assert code == 2
    assert "is the text of no attribute" in err

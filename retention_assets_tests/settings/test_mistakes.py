"""Mistakes in a settings file: each is named with its file, line, key, value and what was expected."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from retention_assets.errors import BadInput
from retention_assets.settings import Settings, load_settings
from retention_assets.stores.aspects import AspectsSettings
from retention_assets_tests.settings.settings_files import LAKE, ROOTED, problems, read

FILE_STORE = "stores: [{name: lake, kind: files, log: log, data: '%s'}]"
DELTA = "stores: [{name: d, kind: delta, %s}]"
ASPECTS = "stores: [{name: m, kind: aspects, %s}]"
BLOBS = "stores: [{name: b, kind: objects, listing: {path: b}, references: none"
RECORDS = "stores: [{name: r, kind: records, url: sqlite:///r.db, %s}]"

CLUSTER = "{ledger: postgresql://h/d, spark: {master: 'spark://h:7077'}, %s}"

BAD = [
    # keys
    ("polices: x", "polices", None, "one of ledger, warehouse, policies"),
    ("spark: {mastr: yarn}", "spark.mastr", None, "one of master, conf"),
    ("automation: {discovr: true}", "automation.discovr", None, "one of discover, policies, sweep, report, housekeeping"),
    (LAKE.replace("log: log", "log: log, dat: x"), "stores[0].dat", None, "one of name, kind, realm, log, data"),
    (RECORDS % ROOTED.replace("ended", "ended, tpe: t"), "stores[0].root.tpe", None, "one of table, key, opened_at"),
    # types; YAML's own words are not guessed at
    ("ledger: 5", "ledger", "5", "a string"),
    ("ledger:", "ledger", None, "a value"),
    ("policies: [policies, 5]", "policies[1]", "5", "a path"),
    ("policies: []", "policies", None, "at least one entry"),
    ("spark: local", "spark", "'local'", "a mapping"),
    ("spark: {conf: {a: {b: c}}}", "spark.conf.a", None, "a single value"),
    ("overwrite_user_policies: 'yes'", "overwrite_user_policies", "'yes'", "true or false"),
    ("partition_by: table", "partition_by", "'table'", "'dataset' or 'store'"),
    ("dagster: {jobs: few}", "dagster.jobs", "'few'", "'usual' or 'all'"),
    ("stores: [lake]", "stores[0]", "'lake'", "a mapping with name, kind"),
    # places
    ("ledger: mysql://h/d", "ledger", "'mysql://h/d'", "a database URL"),
    ("ledger: ledger.db", "ledger", "'ledger.db'", "a database URL"),
    ("ledger: 'sqlite://'", "ledger", "'sqlite://'", "sqlite:///folder/file.db"),  # in memory: a record that forgets
    ("ledger: sqlite://ledger.db", "ledger", "'sqlite://ledger.db'", "sqlite:///folder/file.db"),  # would be a host
    ("ledger: postgres://h/d", "ledger", "'postgres://h/d'", "a database URL"),
    ("ledger: postgresql://h:port/d", "ledger", "'postgresql://h:port/d'", "a database URL"),
    ("ledger: 'postgresql://'", "ledger", "'postgresql://'", "a database URL"),
    ("warehouse: ''", "warehouse", "''", "a path or a URI"),
    ("warehouse: ~/w", "warehouse", "'~/w'", "a path or a URI"),  # would be a folder named ~
    ("policies: s3://bucket/policies", "policies", "'s3://bucket/policies'", "a local file or folder"),
    # words and lengths
    ("spark: {master: localhost}", "spark.master", "'localhost'", "local[*]"),
    ("spark: {conf: {spark.speculation: true}}", "spark.conf", None, "spark.speculation: false"),
    # What a task on another machine would not find, or would find another of.
    ("spark: {master: yarn}", "ledger", None, "postgresql://"),
    ("spark: {master: yarn, shared_disk: true}", "ledger", None, "postgresql://"),
    (CLUSTER % "warehouse: w", "warehouse", "'w'", "a place that all machines reach"),
    (CLUSTER % "warehouse: file:///w", "warehouse", "'file:///w'", "a place that all machines reach"),
    (CLUSTER % f"warehouse: s3://b/w, {LAKE}", "stores", None, "places that all machines reach"),
    (CLUSTER % f"warehouse: s3://b/w, {ASPECTS % 'url: sqlite:///m.db'}", "stores", None, "places that all machines reach"),
    ("clock: {max_skew: 5 minutes}", "clock.max_skew", "'5 minutes'", "a duration"),
    ("automation: {sweep: true}", "automation.sweep", "True", "a duration"),
    ("automation: {sweep: 0s}", "automation.sweep", "'0s'", "longer than 0s"),
    ("automation: {sweep: }", "automation.sweep", None, "a value"),
    # the loop must not ask for a run that the clock guard refuses
    ("automation: {evaluate: 5m, everything: 14d}", "automation", None, "shorter than clock.max_ahead"),
    ("automation: {evaluate: 5m}\nclock: {max_ahead: 7d}", "automation", None, "automation.everything and automation.evaluate"),
    ("automation: {evaluate: 5m, everything: 28d}\nclock: {max_ahead: 1mo}", "automation", None, "clock.max_ahead"),  # February
    # stores: name and kind
    (LAKE.replace("name: lake", "name: a/b"), "stores[0].name", "'a/b'", "a name without /"),  # where would the store end?
    (LAKE.replace("name: lake", "name: 'a*'"), "stores[0].name", "'a*'", "a name without / *"),  # as a glob: other stores too
    (LAKE.replace("name: lake", "name: ''"), "stores[0].name", "''", "1 to 100 printable"),
    (LAKE.replace("name: lake", "name: '..'"), "stores[0].name", "'..'", "1 to 100 printable"),
    (LAKE.replace("name: lake", "name: '::x'"), "stores[0].name", "'::x'", "a name of your own"),
    (LAKE.replace("name: lake, ", ""), "stores[0].name", None, "a value"),
    (LAKE.replace("kind: files, ", ""), "stores[0].kind", None, "one of files, iceberg, delta, aspects"),
    (LAKE.replace("kind: files", "kind: file"), "stores[0].kind", "'file'", "one of files, iceberg, delta, aspects"),
    (f"{BLOBS}, filter: {{kind: exact}}}}]", "stores[0].filter", None, "{kind: fingerprints} or {kind: bloom}"),
    (f"{BLOBS}, filter: exact}}]", "stores[0].filter", "'exact'", "{kind: fingerprints} or {kind: bloom}"),
    # files: a template that let two transactions share a folder would let a sweep take a neighbour's data
    (FILE_STORE % "data/{dataset}", "stores[0].data", "'data/{dataset}'", "data/lake/{dataset}/{transaction}"),
    (FILE_STORE % "d/{dataset}/{transaction}/{x}", "stores[0].data", "'d/{dataset}/{transaction}/{x}'", "data/lake/{dataset}"),
    (FILE_STORE % "d/{dataset}-{transaction}", "stores[0].data", "'d/{dataset}-{transaction}'", "data/lake/{dataset}"),
    (FILE_STORE % "d/{dataset}/../{transaction}", "stores[0].data", "'d/{dataset}/../{transaction}'", "data/lake/{dataset}"),
    (FILE_STORE % "s3://b/../c/{dataset}/{transaction}", "stores[0].data", "'s3://b/../c/{dataset}/", "data/lake/{dataset}"),
    (FILE_STORE % "{dataset}/{transaction}", "stores[0].data", "'{dataset}/{transaction}'", "data/lake/{dataset}"),
    (FILE_STORE % "s3://{dataset}/{transaction}", "stores[0].data", "'s3://{dataset}/{transaction}'", "data/lake/{dataset}"),
    # iceberg
    ("stores: [{name: i, kind: iceberg, catalog: {}}]", "stores[0].catalog", None, "the properties of a PyIceberg catalog"),
    ("stores: [{name: i, kind: iceberg, catalog: {a: [1]}}]", "stores[0].catalog.a", None, "a single value"),
    ("stores: [{name: i, kind: iceberg, catalog: {uri: 'sqlite://'}}]", "stores[0].catalog.uri", "'sqlite://'", "sqlite:///"),
    ("stores: [{name: i, kind: iceberg, catalog: {a: b}, model: state}]", "stores[0].model", "'state'", "'states' or 'deltas'"),
    ("stores: [{name: i, kind: iceberg, catalog: {a: b}, namespaces: []}]", "stores[0].namespaces", None, "at least one entry"),
    # delta: a sweep adds commits and must replace none
    (DELTA % "tables: []", "stores[0].tables", None, "at least one entry"),
    (DELTA % "tables: [gs://bucket/tables/*]", "stores[0].tables[0]", "'gs://bucket/tables/*'", "s3://bucket/tables/*"),
    (DELTA % "tables: [s3://bucket]", "stores[0].tables[0]", "'s3://bucket'", "s3://bucket/tables/*"),
    (DELTA % "tables: [t], announce: sometimes", "stores[0].announce", "'sometimes'", "'auto', 'always' or 'never'"),
    # aspects and records: names go into SQL
    (ASPECTS % "table: t", "stores[0].url", None, "a value"),
    (ASPECTS % "url: sqlite:///a.db, table: 't; drop u'", "stores[0].table", "'t; drop u'", "table or schema.table"),
    (ASPECTS % "url: sqlite:///a.db, current_counts: 1", "stores[0].current_counts", "1", "true or false"),
    (RECORDS % ROOTED.replace("id", "' id'"), "stores[0].root.key", "' id'", "1 to 63 printable"),
    (RECORDS % ROOTED.replace("unit", "a.b.c"), "stores[0].root.table", "'a.b.c'", "table or schema.table"),
    (RECORDS % f"{ROOTED}, ttl: {{column: c, document_ttl: 0d}}", "stores[0].ttl.document_ttl", "'0d'", "longer than 0s"),
    (RECORDS % f"{ROOTED}, ttl: {{column: c, expires_in_max_days: 0}}", "stores[0].ttl.expires_in_max_days", "0", "1"),
    (RECORDS % "root: {table: t, key: id}", "stores[0].root.opened_at", None, "a value"),
    (RECORDS % f"{ROOTED}, children: [{{table: c}}]", "stores[0].children[0].key", None, "a value"),
    (RECORDS % f"{ROOTED}, children: [{{table: unit, key: id}}]", "stores[0].children", None, "tables other than the root's"),
    (RECORDS % f"{ROOTED}, children: [&c {{table: c, key: k}}, *c]", "stores[0].children", None, "each table and key once"),
]


@pytest.mark.parametrize(("text", "key", "value", "expected"), BAD, ids=[f"{key}-{n}" for n, (_, key, *_) in enumerate(BAD)])
def test_a_mistake_is_named(tmp_path: Path, text: str, key: str, value: str | None, expected: str) -> None:
    (problem, *others) = [problem for problem in problems(tmp_path, text) if problem.key == key]
    assert not others
    assert problem.file == f"{tmp_path}/retention.yaml"
    assert problem.line == 1
    assert (problem.value or "").startswith(value or "")
    assert (problem.value is None) == (value is None)
    assert expected in (problem.expected or "")


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        pytest.param("polices: x", "Did you mean policies?", id="a key"),
        pytest.param(LAKE.replace("kind: files", "kind: file"), "Did you mean files?", id="a kind"),
        pytest.param("stores: [{name: a, kind: zzz}]", "Other kinds come with packages; is one not installed?", id="far off"),
        pytest.param("ledger: postgres://h/d", "Write postgresql:// instead of postgres://.", id="a scheme of old"),
        pytest.param("warehouse: ~/w", "Write ${HOME} instead.", id="a home folder"),
        pytest.param("ledger: sqlite://x.db", "Three slashes begin a relative path, four an absolute one.", id="two slashes"),
        pytest.param("ledger: postgresql://u:a/b@h/d",
                     "Characters such as @ / : # ? in a password are written percent-encoded.", id="slash"),
    ],
)  # fmt: skip
def test_a_message_says_what_to_do(tmp_path: Path, text: str, remedy: str) -> None:
    assert [problem.remedy for problem in problems(tmp_path, text)] == [remedy]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("automation: {evaluate: 5m, everything: 335h}", id="an hour shorter"),
        pytest.param("automation: {everything: 1y}", id="no loop"),
        pytest.param("clock: {max_ahead: 1d}", id="no loop either"),
        pytest.param("automation: {evaluate: 5m, everything: 27d}\nclock: {max_ahead: 1mo}", id="shorter than February"),
        pytest.param("automation: {evaluate: 5m, everything: 11mo}\nclock: {max_ahead: 1y}", id="months in a year"),
    ],
)
def test_a_loop_that_the_clock_guard_lets_run_is_taken(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text).automation.everything


def test_a_loop_that_the_clock_guard_would_refuse_says_what_to_change(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, "automation: {evaluate: 5m, everything: 30d}")
    assert problem.what == (
        "judges everything again after 30 days, which with the 5 minutes between two looks is not shorter than clock.max_ahead,"
        " 14 days: in a quiet environment the clock guard would refuse each of those runs"
    )
    assert problem.remedy == "Make automation.everything shorter, or clock.max_ahead longer."


def test_every_mistake_of_a_file_is_reported_at_once_in_the_order_of_its_lines(tmp_path: Path) -> None:
    text = """
    stores:
      - {name: lake, kind: nowhere}
      - {name: lake, kind: files, log: log, data: data}
      - {name: meta, kind: aspects, url: x, table: "a b"}
    ledger: x
    warehouse: ${NOT_SET}
    clock: {max_skew: soon, max_ahead: late}
    typo: 1
    """
    assert [(problem.line, problem.key) for problem in problems(tmp_path, text)] == [
        (3, "stores[0].kind"),
        (4, "stores[1].data"),
        (4, "stores[1].name"),  # the name is taken, whatever else is wrong with its first owner
        (5, "stores[2].url"),
        (5, "stores[2].table"),
        (6, "ledger"),
        (7, "warehouse"),
        (8, "clock.max_ahead"),
        (8, "clock.max_skew"),
        (9, "typo"),
    ]


def test_a_faulty_store_is_not_reported_as_missing_nor_moves_faults_to_another_line(tmp_path: Path) -> None:
    text = """
    stores:
      - {name: lake, kind: files, log: log}
      - {name: meta, kind: aspects, url: 'sqlite:///m.db'}
      - {name: blobs, kind: objects, listing: {path: blobs}, references: [{store: lake}]}
    """
    assert [(problem.line, problem.key) for problem in problems(tmp_path, text)] == [(3, "stores[0].data")]


@pytest.mark.parametrize("value", ["{currency: EUR, default: {gib_month: 0.02}}", "7"])
def test_prices_of_an_earlier_release_are_refused_with_their_line_and_what_to_do(value: str, tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, f"warehouse: there\nprices: {value}\n")
    assert (problem.line, problem.key, problem.remedy) == (2, "prices", "Remove it: nothing has a price any more.")


def test_settings_with_two_stores_of_one_name_cannot_be_built_in_code_either() -> None:
    store = AspectsSettings(name="a", url="sqlite:///a")
    with pytest.raises(ValidationError, match="two stores named a"):
        Settings(stores=(store, store))


SHARED = """
stores:
  - {name: lake, kind: files, log: log/a, data: "%s"}
  - {name: raw, kind: files, log: log/b, data: "%s"}
"""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("data/{dataset}/{transaction}", "data/{dataset}/{transaction}"),
        ("data/lake/{dataset}/{transaction}", "data/{dataset}/{transaction}"),
        ("data/{dataset}/{transaction}", "linked/{dataset}/{transaction}"),
        ("s3://bucket/a/{dataset}/{transaction}", "s3://bucket/a/b/{dataset}/{transaction}"),
    ],
)
def test_two_stores_never_share_a_folder_of_data(tmp_path: Path, one: str, other: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "data")
    (problem,) = problems(tmp_path, SHARED % (one, other))
    assert "data in one folder" in problem.what
    assert problem.key == "stores"


def test_folders_that_begin_alike_are_not_one(tmp_path: Path) -> None:
    text = SHARED % ("data/lake/{dataset}/{transaction}", "data/lake2/{dataset}/{transaction}")
    assert len(read(tmp_path, text).stores) == 2


@pytest.mark.parametrize("text", ["- entity: '*'\n  aspect: '*'\n", "just words", "5"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    (problem,) = problems(tmp_path, text)
    assert problem.file == f"{tmp_path}/retention.yaml"
    assert "a mapping with the keys ledger, warehouse" in (problem.expected or "")
    # DataHub calls its policy file retention.yaml too.
    assert ("DataHub" in (problem.remedy or "")) == text.startswith("- entity")


def test_a_file_that_is_not_there_is_refused_when_it_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=r"gone\.yaml: is not there; expected a settings file$"):
        load_settings(Path("gone.yaml"), {})
    with pytest.raises(BadInput, match=r"is not there; expected a settings file\. The variable RETENTION_CONFIG names it\."):
        load_settings(environ={"RETENTION_CONFIG": "gone.yaml"})
    (tmp_path / "retention.yaml").mkdir()
    with pytest.raises(BadInput, match="is not a file"):
        load_settings(environ={})

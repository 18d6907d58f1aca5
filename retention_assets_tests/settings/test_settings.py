"""`retention.yaml`: what it means, and that each mistake in it is named with its file, key, value and what was expected."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

import retention_assets
from retention_assets.errors import BadInput, InvalidValue, Problem
from retention_assets.policy.durations import Duration
from retention_assets.settings.environment import expand_text
from retention_assets.settings.model import AutomationSettings, Settings, load_settings
from retention_assets.settings.urls import Url, database_url, locate, mask_secrets
from retention_assets.stores.aspects.settings import AspectsSettings
from retention_assets.stores.files.settings import FilesSettings
from retention_assets.stores.iceberg.settings import IcebergSettings
from retention_assets.stores.records.settings import RecordsSettings

ROOT = Path(retention_assets.__file__).parents[1]

LAKE = 'stores: [{name: lake, kind: files, log: log, data: "data/{dataset}/{transaction}"}]'
ROOTED = "root: {table: unit, key: id, opened_at: began, closed_at: ended}"

# Section 9 of the design, with every key of every kind.
WHOLE = """
ledger: sqlite:///.retention/ledger.db
warehouse: s3://bucket/warehouse
policies: [policies, more/extra.yaml]
spark: {master: "spark://host:7077", conf: {spark.sql.shuffle.partitions: 8, spark.ui.enabled: false, spark.app.name: x}}
clock: {max_ahead: 2w, max_skew: PT10M}
overwrite_user_policies: true
partition_by: store
automation: {discover: true, policies: true, sweep: 15m, report: true, alerts: true}
stores:
  - {name: lake, kind: files, log: data/lake/log, data: "data/lake/{dataset}/{transaction}"}
  - {name: bucket, kind: files, log: "s3://b/log", data: "s3://b/data/{dataset}/{transaction}.parquet"}
  - name: ice
    kind: iceberg
    catalog: {type: sql, uri: "sqlite:///data/ice.db", warehouse: data/ice}
    namespaces: [a, "b.*"]
    model: deltas
  - {name: rest, kind: iceberg, catalog: {type: rest, uri: "https://catalog", warehouse: prod, s3.ssl: true}}
  - {name: meta, kind: aspects, url: "postgresql://datahub:pw@host/db", table: public.aspects, current_counts: true}
  - name: ods
    kind: records
    url: sqlite:////var/ods.db
    root: {table: unit_of_work, key: id, opened_at: began, closed_at: finished, archived_at: archived, type: journey_type}
    children: [{table: summary, key: unit_of_work_id}, {table: process_object, key: unit_of_work_id}]
"""


def read(folder: Path, text: str, **environ: str) -> Settings:
    folder.mkdir(exist_ok=True)
    (folder / "retention.yaml").write_text(text)
    return load_settings(folder / "retention.yaml", environ)


def problems(folder: Path, text: str, **environ: str) -> tuple[Problem, ...]:
    with pytest.raises(BadInput) as caught:
        read(folder, text, **environ)
    return caught.value.problems


# --- what a file means ---


def test_no_file_means_embedded_defaults_below_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load_settings(environ={})
    assert settings.ledger == f"sqlite:///{tmp_path}/.retention/ledger.db"
    assert settings.warehouse == f"{tmp_path}/.retention/warehouse"
    assert settings.policies == (tmp_path / "policies",)
    assert settings.spark.master == "local[*]"
    assert (settings.clock.max_ahead, settings.clock.max_skew) == (Duration(days=14), Duration(seconds=300))
    assert (settings.overwrite_user_policies, settings.partition_by, settings.stores) == (False, "dataset", ())
    assert settings.automation == AutomationSettings(discover=False, policies=False, sweep=None, report=False, alerts=False)


def test_the_given_path_wins_over_the_variable_and_the_variable_over_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("given", "variable", "here"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "retention.yaml").write_text(f"warehouse: {name}\n")
    monkeypatch.chdir(tmp_path / "here")
    environ = {"RETENTION_CONFIG": str(tmp_path / "variable" / "retention.yaml")}
    assert load_settings(tmp_path / "given" / "retention.yaml", environ).warehouse == f"{tmp_path}/given/given"
    assert load_settings(environ=environ).warehouse == f"{tmp_path}/variable/variable"
    assert load_settings(environ={"RETENTION_CONFIG": ""}).warehouse == f"{tmp_path}/here/here"  # empty is unset


def test_the_whole_file_of_the_design_is_read_and_its_places_are_meant_from_its_folder(tmp_path: Path) -> None:
    settings = read(tmp_path, WHOLE)
    assert settings.ledger == f"sqlite:///{tmp_path}/.retention/ledger.db"
    assert settings.warehouse == "s3://bucket/warehouse"
    assert settings.policies == (tmp_path / "policies", tmp_path / "more/extra.yaml")
    assert settings.spark.conf == {
        "spark.sql.shuffle.partitions": "8", "spark.ui.enabled": "false", "spark.app.name": "x",
    }  # fmt: skip
    assert (settings.clock.max_ahead, settings.clock.max_skew) == (Duration(days=14), Duration(seconds=600))
    assert (settings.overwrite_user_policies, settings.partition_by) == (True, "store")
    every = Duration(seconds=900)
    assert settings.automation == AutomationSettings(discover=True, policies=True, sweep=every, report=True, alerts=True)
    lake, bucket, ice, rest, meta, ods = settings.stores
    assert isinstance(lake, FilesSettings)
    assert (lake.log, lake.data) == (f"{tmp_path}/data/lake/log", f"{tmp_path}/data/lake/{{dataset}}/{{transaction}}")
    assert isinstance(bucket, FilesSettings)
    assert (bucket.log, bucket.data) == ("s3://b/log", "s3://b/data/{dataset}/{transaction}.parquet")
    assert isinstance(ice, IcebergSettings)
    assert ice.catalog == {"type": "sql", "uri": f"sqlite:///{tmp_path}/data/ice.db", "warehouse": f"{tmp_path}/data/ice"}
    assert (ice.namespaces, ice.model) == (("a", "b.*"), "deltas")
    assert isinstance(rest, IcebergSettings)
    # Here `warehouse` is a name, not a path.
    assert rest.catalog == {"type": "rest", "uri": "https://catalog", "warehouse": "prod", "s3.ssl": "true"}
    assert (rest.namespaces, rest.model) == (("*",), "states")
    assert isinstance(meta, AspectsSettings)
    assert (meta.url, meta.table, meta.current_counts) == ("postgresql://datahub:pw@host/db", "public.aspects", True)
    assert isinstance(ods, RecordsSettings)
    assert (ods.url, ods.root.table, ods.root.type) == ("sqlite:////var/ods.db", "unit_of_work", "journey_type")
    assert [(child.table, child.key) for child in ods.children] == [
        ("summary", "unit_of_work_id"),
        ("process_object", "unit_of_work_id"),
    ]


def test_the_keys_of_a_store_that_are_left_out_have_datahubs_own_values(tmp_path: Path) -> None:
    (meta,) = read(tmp_path, "stores: [{name: m, kind: aspects, url: 'sqlite:///m.db'}]").stores
    assert isinstance(meta, AspectsSettings)
    assert (meta.url, meta.table, meta.current_counts) == (f"sqlite:///{tmp_path}/m.db", "metadata_aspect_v2", False)


def test_a_store_is_found_by_its_name(tmp_path: Path) -> None:
    settings = read(tmp_path, WHOLE)
    assert (settings.kind_of("ods"), settings.kind_of("lake"), settings.kind_of("nowhere")) == ("records", "files", None)
    assert settings.store("meta") is settings.stores[4]
    assert settings.store("nowhere") is None


def test_the_shipped_file_says_what_no_file_says_and_adds_the_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line in the shipped file that shows a default would lie if the two could differ."""
    text = (ROOT / "retention.yaml").read_text()
    shipped = read(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "retention.yaml").unlink()
    assert shipped.model_copy(update={"stores": ()}) == load_settings(environ={})
    assert [(store.name, store.kind) for store in shipped.stores] == [("lake", "files")]
    assert [key for key in Settings.model_fields if f"\n{key}:" not in text] == []  # every key is shown


def test_the_commented_examples_of_the_shipped_file_are_valid(tmp_path: Path) -> None:
    lines = (ROOT / "retention.yaml").read_text().splitlines()
    examples = [line.replace("# ", "", 1) for line in lines if line.startswith(("  # - ", "  #   "))]
    environ = {"CATALOG_TOKEN": "t", "DATAHUB_PASSWORD": "d", "ODS_PASSWORD": "o"}
    settings = read(tmp_path, "\n".join(["stores:", *examples]), **environ)
    kinds = {store.name: store.kind for store in settings.stores}
    assert kinds == {"ice": "iceberg", "meta": "aspects", "ods": "records"}


def test_settings_survive_a_pickle_with_their_passwords(tmp_path: Path) -> None:
    """Dagster starts other programs; a masked password that travelled would lock them out."""
    settings = read(tmp_path, "ledger: postgresql://u:secret@h/d")
    copy = pickle.loads(pickle.dumps(settings))
    assert copy == settings
    assert copy.ledger == "postgresql://u:secret@h/d"


def test_settings_import_no_framework_and_no_driver() -> None:
    """Each of these costs more than the whole command that only wants to know where the policies are."""
    heavy = "{'dagster', 'pyspark', 'sqlalchemy', 'pandas', 'numpy', 'pyarrow', 'pyiceberg', 'lark'}"
    code = f"import sys, retention_assets.settings.model; print(sorted({heavy} & set(sys.modules)))"
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
    assert done.stdout.strip() == "[]"


# --- the environment ---


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        pytest.param("${A}", "one", id="the whole value"),
        pytest.param("x-${A}-y-${B}", "x-one-y-two", id="parts of it"),
        pytest.param("${A}${A}", "oneone", id="twice, side by side"),
        pytest.param("${NO:-other}", "other", id="a default for what is unset"),
        pytest.param("${EMPTY:-other}", "other", id="a default for what is empty, as in a shell"),
        pytest.param("${EMPTY}", "", id="set but empty is set"),
        pytest.param("${A:-other}", "one", id="no default needed"),
        pytest.param("${NO:-}", "", id="an empty default"),
        pytest.param("${NO:-a:-b}", "a:-b", id="a default may hold its own mark"),
        pytest.param("$$", "$", id="a dollar"),
        pytest.param("$${A}", "${A}", id="a dollar, then braces that are text"),
        pytest.param("$$$$", "$$", id="two dollars"),
        pytest.param("${NO:-pa$$word}", "pa$word", id="a dollar in a default"),
        pytest.param("${NESTED}", "${A} $$ $x", id="what is put in is not expanded again"),
        pytest.param("{dataset}", "{dataset}", id="braces alone are text"),
    ],
)
def test_a_value_is_expanded(text: str, answer: str) -> None:
    assert expand_text(text, {"A": "one", "B": "two", "EMPTY": "", "NESTED": "${A} $$ $x"}) == answer


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("$A", id="a shell's short form would silently stay text"),
        pytest.param("cost$", id="a dollar at the end"),
        pytest.param("${A", id="never closed"),
        pytest.param("${}", id="no name"),
        pytest.param("${1A}", id="no such name is possible"),
        pytest.param("${A-x}", id="a form that only shells know"),
        pytest.param("${NO:-${A}}", id="a variable in a default"),
    ],
)
def test_a_dollar_that_begins_no_variable_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"begins no variable"):
        expand_text(text, {"A": "one"})


def test_what_the_environment_puts_in_stays_text(tmp_path: Path) -> None:
    """A value that looks like YAML, or like a variable, is a value; only so can a password hold any character."""
    odd = "a: [1, 2] # ${OTHER} $$"
    settings = read(tmp_path, "spark: {conf: {spark.x: '${ODD}', spark.y: '${YES}'}}", ODD=odd, YES="true")
    assert settings.spark.conf == {"spark.x": odd, "spark.y": "true"}


def test_keys_are_not_expanded(tmp_path: Path) -> None:
    assert read(tmp_path, "spark: {conf: {'${A}': x}}", A="one").spark.conf == {"${A}": "x"}


def test_a_missing_variable_is_named_with_its_key_and_a_remedy_and_is_reported_once(tmp_path: Path) -> None:
    """The unexpanded text is no database URL either; a second complaint about it would only confuse."""
    (problem,) = problems(tmp_path, "\nledger: ${LEDGER}\n")
    assert problem == Problem(
        "the environment variable LEDGER is not set", file=f"{tmp_path}/retention.yaml", line=2, key="ledger",
        value="'${LEDGER}'", expected="a variable that is set",
        remedy="Set LEDGER, or write a default into the file: ${LEDGER:-…}.",
    )  # fmt: skip


def test_a_missing_variable_deep_in_a_store_is_found(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, "stores:\n- {name: m, kind: aspects,\n   url: 'postgresql://u:${PW}@h/d'}")
    assert (problem.key, problem.line) == ("stores[0].url", 3)
    assert "PW" in problem.what


def test_an_expanded_value_that_is_wrong_in_another_way_keeps_its_own_remedy(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, "ledger: ${URL}", URL="postgres://h/d")
    assert (problem.value, problem.remedy) == ("'${URL}'", "Write postgresql:// instead of postgres://.")


def test_a_boolean_cannot_come_from_the_environment_and_the_message_says_why(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, "overwrite_user_policies: ${YES}", YES="true")
    assert (problem.key, problem.value, problem.expected) == ("overwrite_user_policies", "'${YES}'", "true or false")
    assert problem.remedy == "A value from the environment is text; write this one into the file."


# --- mistakes ---

FILE_STORE = "stores: [{name: lake, kind: files, log: log, data: '%s'}]"
ASPECTS = "stores: [{name: m, kind: aspects, %s}]"
RECORDS = "stores: [{name: r, kind: records, url: sqlite:///r.db, %s}]"

BAD = [
    # keys
    ("polices: x", "polices", None, "one of ledger, warehouse, policies"),
    ("spark: {mastr: yarn}", "spark.mastr", None, "one of master, conf"),
    ("clock: {max_ahed: 1d}", "clock.max_ahed", None, "one of max_ahead, max_skew"),
    (
        "automation: {discovr: true}",
        "automation.discovr",
        None,
        "one of discover, policies, sweep, report, housekeeping, alerts, evaluate, everything, datasets_per_run",
    ),
    (LAKE.replace("log: log", "log: log, dat: x"), "stores[0].dat", None, "one of name, kind, log, data"),
    (RECORDS % ROOTED.replace("ended", "ended, tpe: t"), "stores[0].root.tpe", None, "one of table, key, opened_at"),
    # types; YAML's own words are not guessed at
    ("ledger: 5", "ledger", "5", "a string"),
    ("ledger:", "ledger", None, "a value"),
    ("policies: 5", "policies", "5", "a list"),
    ("policies: [policies, 5]", "policies[1]", "5", "a path"),
    ("policies: []", "policies", None, "at least one entry"),
    ("spark: local", "spark", "'local'", "a mapping"),
    ("spark: {conf: {a: {b: c}}}", "spark.conf.a", None, "a single value"),
    ("overwrite_user_policies: 'yes'", "overwrite_user_policies", "'yes'", "true or false"),
    ("automation: true", "automation", "True", "a mapping"),
    ("automation: {report: 'yes'}", "automation.report", "'yes'", "true or false"),
    ("partition_by: table", "partition_by", "'table'", "'dataset' or 'store'"),
    ("stores: {name: lake}", "stores", None, "a list"),
    ("stores: [lake]", "stores[0]", "'lake'", "a mapping with name, kind"),
    # places
    ("ledger: mysql://h/d", "ledger", "'mysql://h/d'", "a database URL"),
    ("ledger: ledger.db", "ledger", "'ledger.db'", "a database URL"),
    ("ledger: 'sqlite://'", "ledger", "'sqlite://'", "sqlite:///folder/file.db"),  # in memory: a record that forgets
    ("ledger: 'sqlite:///:memory:'", "ledger", "'sqlite:///:memory:'", "sqlite:///folder/file.db"),
    ("ledger: sqlite://ledger.db", "ledger", "'sqlite://ledger.db'", "sqlite:///folder/file.db"),  # would be a host
    ("ledger: postgres://h/d", "ledger", "'postgres://h/d'", "a database URL"),
    ("ledger: postgresql+asyncpg://h/d", "ledger", "'postgresql+asyncpg://h/d'", "a database URL"),
    ("ledger: postgresql://h:port/d", "ledger", "'postgresql://h:port/d'", "a database URL"),
    ("ledger: 'postgresql://'", "ledger", "'postgresql://'", "a database URL"),
    ("warehouse: ''", "warehouse", "''", "a path or a URI"),
    ("warehouse: ~/w", "warehouse", "'~/w'", "a path or a URI"),  # would be a folder named ~
    ("policies: s3://bucket/policies", "policies", "'s3://bucket/policies'", "a local file or folder"),
    # words and lengths
    ("spark: {master: localhost}", "spark.master", "'localhost'", "local[*]"),
    ("clock: {max_ahead: 14}", "clock.max_ahead", "14", "a duration"),
    ("clock: {max_skew: 5 minutes}", "clock.max_skew", "'5 minutes'", "a duration"),
    ("clock: {max_skew: -5m}", "clock.max_skew", "'-5m'", "a duration"),
    ("automation: {sweep: true}", "automation.sweep", "True", "a duration"),
    ("automation: {sweep: 0s}", "automation.sweep", "'0s'", "longer than 0s"),
    ("automation: {sweep: }", "automation.sweep", None, "a value"),
    # the loop must not ask for a run that the clock guard refuses
    ("automation: {evaluate: 5m, everything: 14d}", "automation", None, "shorter than clock.max_ahead"),
    ("automation: {evaluate: 2h, everything: 335h}", "automation", None, "shorter than clock.max_ahead"),
    ("automation: {evaluate: 5m}\nclock: {max_ahead: 7d}", "automation", None, "automation.everything and automation.evaluate"),
    ("automation: {evaluate: 5m, everything: 28d}\nclock: {max_ahead: 1mo}", "automation", None, "clock.max_ahead"),  # February
    # stores: name and kind
    (LAKE.replace("name: lake", "name: a/b"), "stores[0].name", "'a/b'", "a name without /"),  # where would the store end?
    (LAKE.replace("name: lake", "name: 'a*'"), "stores[0].name", "'a*'", "a name without / *"),  # as a glob: other stores too
    (LAKE.replace("name: lake", "name: 'a['"), "stores[0].name", "'a['", "a name without / *"),
    (LAKE.replace("name: lake", "name: ''"), "stores[0].name", "''", "1 to 100 printable"),
    (LAKE.replace("name: lake", "name: '..'"), "stores[0].name", "'..'", "1 to 100 printable"),
    (LAKE.replace("name: lake", "name: '::x'"), "stores[0].name", "'::x'", "a name of your own"),
    (LAKE.replace("name: lake, ", ""), "stores[0].name", None, "a value"),
    (LAKE.replace("kind: files, ", ""), "stores[0].kind", None, "one of files, iceberg, aspects, records"),
    (LAKE.replace("kind: files", "kind: 5"), "stores[0].kind", "5", "one of files, iceberg, aspects, records"),
    (LAKE.replace("kind: files", "kind: file"), "stores[0].kind", "'file'", "one of files, iceberg, aspects, records"),
    ("stores: [{name: o, kind: objects}]", "stores[0].kind", "'objects'", "one of files, iceberg, aspects, records"),
    # files: a template that let two transactions share a folder would let a sweep take a neighbour's data
    (FILE_STORE % "data/{dataset}", "stores[0].data", "'data/{dataset}'", "data/lake/{dataset}/{transaction}"),
    (FILE_STORE % "data/{transaction}", "stores[0].data", "'data/{transaction}'", "data/lake/{dataset}/{transaction}"),
    (FILE_STORE % "d/{dataset}/{transaction}/{x}", "stores[0].data", "'d/{dataset}/{transaction}/{x}'", "data/lake/{dataset}"),
    (FILE_STORE % "d/{dataset}/{dataset}/{transaction}", "stores[0].data", "'d/{dataset}/{dataset}", "data/lake/{dataset}"),
    (FILE_STORE % "d/{dataset}-{transaction}", "stores[0].data", "'d/{dataset}-{transaction}'", "data/lake/{dataset}"),
    (FILE_STORE % "d/{dataset}/../{transaction}", "stores[0].data", "'d/{dataset}/../{transaction}'", "data/lake/{dataset}"),
    (FILE_STORE % "s3://b/../c/{dataset}/{transaction}", "stores[0].data", "'s3://b/../c/{dataset}/", "data/lake/{dataset}"),
    (FILE_STORE % "{dataset}/{transaction}", "stores[0].data", "'{dataset}/{transaction}'", "data/lake/{dataset}"),
    (FILE_STORE % "/{dataset}/{transaction}", "stores[0].data", "'/{dataset}/{transaction}'", "data/lake/{dataset}"),
    (FILE_STORE % "s3://{dataset}/{transaction}", "stores[0].data", "'s3://{dataset}/{transaction}'", "data/lake/{dataset}"),
    # iceberg
    ("stores: [{name: i, kind: iceberg, catalog: {}}]", "stores[0].catalog", None, "the properties of a PyIceberg catalog"),
    ("stores: [{name: i, kind: iceberg, catalog: {a: [1]}}]", "stores[0].catalog.a", None, "a single value"),
    ("stores: [{name: i, kind: iceberg, catalog: {uri: 'sqlite://'}}]", "stores[0].catalog.uri", "'sqlite://'", "sqlite:///"),
    ("stores: [{name: i, kind: iceberg, catalog: {a: b}, model: state}]", "stores[0].model", "'state'", "'states' or 'deltas'"),
    ("stores: [{name: i, kind: iceberg, catalog: {a: b}, namespaces: []}]", "stores[0].namespaces", None, "at least one entry"),
    # aspects and records: names go into SQL
    (ASPECTS % "table: t", "stores[0].url", None, "a value"),
    (ASPECTS % "url: sqlite:///a.db, table: 't; drop u'", "stores[0].table", "'t; drop u'", "table or schema.table"),
    (ASPECTS % "url: sqlite:///a.db, table: a.b.c", "stores[0].table", "'a.b.c'", "table or schema.table"),
    (ASPECTS % "url: sqlite:///a.db, current_counts: 1", "stores[0].current_counts", "1", "true or false"),
    (RECORDS % ROOTED.replace("id", "' id'"), "stores[0].root.key", "' id'", "1 to 63 printable"),
    (RECORDS % ROOTED.replace("id", '"i\\td"'), "stores[0].root.key", "'i\\td'", "1 to 63 printable"),
    (RECORDS % ROOTED.replace("unit", "a.b.c"), "stores[0].root.table", "'a.b.c'", "table or schema.table"),
    (RECORDS % f"{ROOTED}, ttl: {{column: c, document_ttl: 0d}}", "stores[0].ttl.document_ttl", "'0d'", "longer than 0s"),
    (
        RECORDS % f"{ROOTED}, ttl: {{column: c, document_ttl: 9d, expires_in_max_days: 0}}",
        "stores[0].ttl.expires_in_max_days",
        "0",
        "1",
    ),
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
        "judges everything anew after 30 days, which with the 5 minutes between two looks is not shorter than clock.max_ahead,"
        " 14 days: where nothing changes for so long, the clock guard would refuse each of those runs"
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


def test_two_stores_of_one_name_are_refused_where_the_second_stands(tmp_path: Path) -> None:
    text = "stores:\n- {name: a, kind: aspects, url: sqlite:///a}\n- {name: a, kind: aspects, url: sqlite:///b}\n"
    (problem,) = problems(tmp_path, text)
    assert (problem.line, problem.key, problem.value) == (3, "stores[1].name", "'a'")


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
    assert "data that lies in one folder" in problem.what
    assert problem.key == "stores"


def test_folders_that_begin_alike_are_not_one(tmp_path: Path) -> None:
    (tmp_path / "retention.yaml").write_text(
        SHARED % ("data/lake/{dataset}/{transaction}", "data/lake2/{dataset}/{transaction}")
    )
    assert len(load_settings(tmp_path / "retention.yaml").stores) == 2


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


# --- secrets ---

SECRETS = """
ledger: postgresql://u:hunter2@h:x/d
partition_by: ${PW}
spark: {master: bad, conf: {spark.hadoop.fs.s3a.secret.key: hunter2, b: [hunter2]}}
stores:
  - {name: a, kind: aspects, url: "oracle://u:hunter2@h/d"}
  - {name: b, kind: aspects, url: "postgresql//u:hunter2@h/d"}
  - {name: c, kind: aspects, url: "postgresql://u:hunter2/@h/d"}
  - {name: d, kind: aspects, url: "postgresql://u:${PW}@h:x/d"}
  - {name: e, kind: aspects, url: "${ALL}"}
  - {name: f, kind: iceberg, catalog: {uri: "sqlite+bad://u:hunter2@h"}, model: x}
  - {name: g, kind: iceberg, catalog: {token: "${PW}"}, model: x}
  - {name: h, kind: aspects, url: "postgresql://h:x/d?password=hunter2&user=u"}
  - {name: j, kind: aspects, url: "postgresql://u:hunter2@${NOT_SET}/d"}
  - {name: i, kind: aspects, url: "oracle://u:a-very-long-password-that-fills-the-message-hunter2-hunter2@h/d"}
"""


def test_no_message_shows_a_password(tmp_path: Path) -> None:
    found = problems(tmp_path, SECRETS, PW="hunter2", ALL="oracle://u:hunter2@h/d")
    assert {problem.key for problem in found} >= {
        "ledger",
        *(f"stores[{n}].url" for n in (0, 1, 2, 3, 4, 7, 8, 9)),
        "partition_by",
    }
    assert "hunter2" not in str(BadInput(found))
    assert "hunter2" not in json.dumps([problem.as_dict() for problem in found])


def test_no_repr_shows_a_password(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        "ledger: postgresql://u:hunter2@h/d\nspark: {conf: {secret: hunter2}}\nstores:\n"
        "- {name: a, kind: aspects, url: 'postgresql://u:${PW}@h/d'}\n- {name: i, kind: iceberg, catalog: {token: hunter2}}",
        PW="hunter2",
    )
    ledger = settings.ledger
    texts = [repr(settings), str(settings), repr(settings.stores), repr(ledger), str(ledger), f"{ledger}", f"{ledger!r:>40}"]
    texts += [repr(settings.model_dump()["ledger"]), repr([ledger]), f"at {ledger:s}", "at %s" % ledger]  # noqa: UP031
    for text in texts:
        assert "hunter2" not in text
    assert json.loads(settings.model_dump_json(include={"ledger"})) == {"ledger": "postgresql://u:***@h/d"}
    assert isinstance(ledger, Url)
    assert ledger.exposed == "postgresql://u:hunter2@h/d"
    assert type(ledger.exposed) is str


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        pytest.param("postgresql://u:p@h/d", "postgresql://u:***@h/d", id="the usual place"),
        pytest.param("postgresql://u:p@q@h/d", "postgresql://u:***@h/d", id="an @ in the password"),
        pytest.param("postgresql://u:p/q:r@h/d", "postgresql://u:***@h/d", id="other marks in the password"),
        pytest.param("postgresql://:p@h/d", "postgresql://:***@h/d", id="no user"),
        pytest.param("postgresql:/u:p@h/d", "postgresql:***@h/d", id="a slash short: hides more"),
        pytest.param("postgresql://h/d?user=u&password=p&x=1", "postgresql://h/d?user=u&password=***&x=1", id="in the query"),
        pytest.param("postgresql://u@h:5432/d", "postgresql://u@h:5432/d", id="none there"),
        pytest.param("sqlite:///a/b.db", "sqlite:///a/b.db", id="a file"),
        pytest.param("s3://bucket/path", "s3://bucket/path", id="a bucket"),
        pytest.param("plain words", "plain words", id="no URL at all"),
    ],
)
def test_a_password_is_masked(text: str, answer: str) -> None:
    assert mask_secrets(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        pytest.param("sqlite:///a.db", "sqlite:////home/a.db", id="relative: from the folder"),
        pytest.param("sqlite:///../a.db", "sqlite:////a.db", id="up from the folder"),
        pytest.param("sqlite:////var/a.db", "sqlite:////var/a.db", id="absolute"),
        pytest.param("sqlite+pysqlite:///a.db", "sqlite+pysqlite:////home/a.db", id="the driver stays"),
        pytest.param("sqlite:///a.db?timeout=5", "sqlite:////home/a.db?timeout=5", id="the query stays"),
        pytest.param("postgresql+psycopg://u:p%40q@h:5432/d?sslmode=require", "postgresql+psycopg://u:p%40q@h:5432/d?sslmode=require",
                     id="PostgreSQL as it is"),
        pytest.param("postgresql:///d", "postgresql:///d", id="a socket"),
    ],
)  # fmt: skip
def test_a_database_url_is_resolved(text: str, answer: str) -> None:
    assert database_url(text, Path("/home")).exposed == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        pytest.param("a/b", "/home/a/b", id="relative"),
        pytest.param("./a/../b", "/home/b", id="tidied"),
        pytest.param("/a", "/a", id="absolute"),
        pytest.param("s3://b/x", "s3://b/x", id="a URI"),
        pytest.param("dbfs:/x", "dbfs:/x", id="a URI with one slash"),
        pytest.param("simplecache::s3://b/x", "simplecache::s3://b/x", id="a chain of fsspec"),
        pytest.param("a:b/c", "/home/a:b/c", id="a colon in a name is no scheme"),
    ],
)
def test_a_place_is_resolved(text: str, answer: str) -> None:
    assert locate(text, Path("/home")) == answer


def test_a_data_template_below_a_folder_with_braces_is_refused(tmp_path: Path) -> None:
    """The folder's braces would be read as placeholders when a transaction's place is written out."""
    (problem,) = problems(tmp_path / "{x}", LAKE)
    assert problem.what == "is meant from a folder whose name holds a brace"

"""The whole tree against the rules of the house, and each rule against sources that break it."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from retention_assets_tests.architecture import (
    ARROWS,
    BUDGETS,
    IMPORTS,
    OPENINGS,
    ability_faults,
    admission_faults,
    charter_faults,
    circles,
    clock_faults,
    deletion_faults,
    future_faults,
    import_faults,
    inner_imports,
    lines_by_place,
    order_faults,
    print_faults,
    private_faults,
    sleep_faults,
    vague_openings,
    word_faults,
)

Rule = Callable[[str, str], list[str]]
ROOT = Path(__file__).parent.parent
RULES: tuple[Rule, ...] = (
    import_faults,
    deletion_faults,
    order_faults,
    ability_faults,
    admission_faults,
    print_faults,
    private_faults,
    clock_faults,
    sleep_faults,
    future_faults,
    charter_faults,
    word_faults,
)


@pytest.fixture(scope="module")
def tree() -> Mapping[str, str]:
    """Every module of the package and of the tests, by its full name; a package's is `….__init__`."""
    files = [
        file
        for folder in ("retention_assets", "retention_assets_tests", "benchmarks")
        for file in (ROOT / folder).rglob("*.py")
    ]
    return {".".join(file.relative_to(ROOT).with_suffix("").parts): file.read_text("utf-8") for file in sorted(files)}


@pytest.fixture(scope="module")
def package(tree: Mapping[str, str]) -> Mapping[str, str]:
    return {module: text for module, text in tree.items() if module.startswith("retention_assets.")}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_tree_keeps_the_rule(tree: Mapping[str, str], rule: Rule) -> None:
    assert [fault for module, text in tree.items() for fault in rule(text, module)] == []


def test_the_tree_was_found(tree: Mapping[str, str]) -> None:
    assert {"retention_assets.__init__", "retention_assets.errors", __name__} <= tree.keys()


def test_every_place_keeps_its_budget_and_budgets_fall_with_what_is_subtracted(tree: Mapping[str, str]) -> None:
    lines = lines_by_place(tree)
    assert {place: count for place, count in lines.items() if count > BUDGETS[place]} == {}, "over budget"
    slack = {place: count for place, count in lines.items() if count < BUDGETS[place] * 0.97 - 10}
    assert slack == {}, "lower these budgets to what is left"


def test_openings_of_docstrings_and_imports_past_public_faces_only_become_fewer(tree: Mapping[str, str]) -> None:
    openings = [fault for module, text in tree.items() for fault in vague_openings(text, module)]
    assert len(openings) <= OPENINGS, openings
    assert len(inner_imports(tree)) <= ARROWS


def test_budgets_openings_and_imports_count_what_they_say() -> None:
    tree = {
        "retention_assets.frames.log": '"""Of a log the rows."""\nx = 1\n',
        "retention_assets.errors": '"""Errors."""\n\n\ndef which():\n    """Offers."""\n',
        "retention_assets_tests.test_log": "from retention_assets.frames.log import x\nfrom retention_assets.frames import y\n",
    }
    counted = {place: count for place, count in lines_by_place(tree).items() if count}
    assert counted == {"frames": 2, "(top)": 5, "retention_assets_tests": 2}
    assert [vague_openings(text, module) for module, text in tree.items()] == [
        ["retention_assets.frames.log:1 begins with Of"],
        [],
        [],
    ]
    assert inner_imports(tree) == {("retention_assets_tests.test_log", "retention_assets.frames.log")}


def test_no_two_places_may_import_each_other() -> None:
    assert [(a, b) for a, others in IMPORTS.items() for b in others if a < b and a in IMPORTS.get(b, set())] == []


def test_no_modules_import_each_other_in_a_circle(package: Mapping[str, str]) -> None:
    assert circles(package) == []


CHARTER = '"""What belongs here."""\n'

# What each rule refuses: a title, a module, a source that breaks the rule, what the fault must name
BROKEN: Mapping[Rule, tuple[tuple[str, str, str, str], ...]] = {
    import_faults: (
        ("a frame that knows Dagster", "frames.log", "import dagster as dg", "dagster"),
        ("and hides it in a function", "frames.log", "def f():\n    from dagster import asset", "dagster.asset"),
        ("and imports it by name", "frames.log", "import importlib\nimportlib.import_module('dagster')", "dagster"),
        ("a type counts as well", "frames.log",
         "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from dagster import AssetKey", "dagster.AssetKey"),
        ("a frame that reads files", "frames.log", "import pyarrow.parquet as pq", "pyarrow.parquet"),
        ("a frame that knows the ledger", "frames.log", "from retention_assets.ledger import marks", "ledger.marks"),
        ("a frame with a relative import", "frames.log", "from ..stores import files", "stores.files"),
        ("a policy that knows Spark", "policy.model", "from pyspark.sql import Column", "pyspark"),
        ("a policy with a database", "policy.book", "import sqlalchemy as sa", "sqlalchemy"),
        ("errors that know anything", "errors", "from retention_assets import policy", "policy"),
        ("a ledger that knows Dagster", "ledger.marks", "from dagster import AssetKey", "dagster"),
        ("a store that knows the ledger", "stores.files.log", "from retention_assets.ledger.marks import Mark", "ledger"),
        ("a store that knows PyIceberg", "stores.files.log", "import pyiceberg", "pyiceberg"),
        ("an operation that knows Dagster", "people.holds", "import dagster as dg", "dagster"),
        ("the package knows its tests", "demo", "from retention_assets_tests.histories import history", "tests"),
        ("a place that nobody planned", "extras.thing", "", "in no place of the table"),
    ),
    deletion_faults: (
        ("not even called", "dagster.swept", "from pathlib import Path\nlist(map(Path.unlink, []))", "pathlib.Path.unlink"),
        ("shutil.rmtree", "demo", "import shutil\nshutil.rmtree('x')", "shutil.rmtree"),
        ("in a store beside its delete module", "stores.files.log", "import shutil\nshutil.rmtree('/')", "shutil.rmtree"),
        ("in a module that only sounds like one", "stores.delete", "import shutil\nshutil.rmtree('/')", "shutil.rmtree"),
        ("by a name in a string", "stores.files.store", "def f(s3):\n    s3.call_s3('delete_objects')", "delete_objects"),
        ("by a dotted name in a string", "stores.files.store", "HOW = 'shutil.rmtree'", "shutil.rmtree"),
        ("by another name", "demo", "import shutil as s\ngone = s.rmtree", "shutil.rmtree"),
        ("os.remove", "cli", "import os\nos.remove('x')", "os.remove"),
        ("fs.rm", "pipeline.stage", "def f(fs):\n    fs.rm('x', recursive=True)", "fs.rm"),
        ("self._fs.remove", "pipeline.stage", "class A:\n    def f(self):\n        self._fs.remove('x')", "remove"),
        ("getattr", "dagster.jobs", "import os\ngetattr(os, 'remove')('x')", "os.remove"),
        ("SQL", "ledger.marks", "SQL = 'DELETE FROM marks WHERE id = 1'", "DELETE FROM"),
        ("SQL over lines", "ledger.marks", 'SQL = """\n  DELETE\n  FROM marks"""', "DELETE"),
        ("SQLAlchemy", "ledger.marks", "import sqlalchemy as sa\nsa.delete(None)", "sqlalchemy.delete"),
        ("a shell", "demo", "import subprocess\nsubprocess.run(['rm', '-r', 'x'])", "'rm'"),
        ("Iceberg's expiry", "dagster.swept", "def f(t):\n    t.maintenance.expire_snapshots()", "expire_snapshots"),
    ),
    order_faults: (
        ("a command that sweeps", "people.run", "def f(store):\n    store.sweep('d', [], 1)", "store.sweep"),
        ("the engine past its one door", "sweep.engine", "def f(a):\n    a.store.sweep('d', [], 1)", "a.store.sweep"),
        ("an order handed on", "people.holds", "def f(store):\n    return list(map(store.expire, []))", "store.expire"),
        ("an order by its name", "people.holds", "def f(s):\n    return getattr(s.store, 'sweep')", "s.store.sweep"),
        ("the sweep's module postpones", "sweep.execute", "def f(s):\n    s.postpone('d', [], 1, 2)", "s.postpone"),
    ),
    ability_faults: (
        ("by its type", "sweep.read", "def f(store):\n    return isinstance(store, LookingStore)", "LookingStore"),
        ("by one of several", "sweep.read", "def f(a):\n    return isinstance(a.store, Other | protocol.FilesStore)", "FilesStore"),
        ("by the base outside of its gate", "sweep.read", "def f(x):\n    return isinstance(x, Store)", "isinstance(x, Store)"),
        ("another type at the gate", "stores.registry", "def f(x):\n    return isinstance(x, FilesStore)", "FilesStore"),
        ("by its class", "people.trash", "def f(store):\n    return issubclass(type(store), FilesStore)", "FilesStore"),
        ("by a method", "sweep.read", "def f(a):\n    return hasattr(a.store, 'look')", "hasattr(a.store, 'look')"),
        ("by a method that may be missing", "sweep.read", "def f(store):\n    getattr(store, 'close', None)", "getattr(store"),
        ("by a new protocol", "stores.protocol", "class ShyStore(Store, Protocol): ...", "ShyStore"),
    ),
    admission_faults: (
        ("a command that asks for heads", "people.trash", "def f(e, ledger):\n    e.head_faults(ledger)", "e.head_faults"),
        ("a step that asks for places", "dagster.sweeping", "from x import place_faults\nplace_faults(1, [])", "place_faults"),
        ("the engine that asks for the record", "sweep.engine", "due_mark_faults(1, [], 2)", "due_mark_faults"),
    ),
    private_faults: (
        ("a private name", "stores.iceberg.sweep", "from pyiceberg.table.update import _apply", "pyiceberg.table.update._apply"),
        ("a private module", "stores.iceberg.sweep", "import pyiceberg._private.thing", "pyiceberg._private"),
        ("one of Dagster's", "dagster.build", "from dagster._core.events import Thing", "dagster._core.events.Thing"),
        ("a private attribute of a table", "stores.iceberg.sweep", "def f(table):\n    table._do_commit()", "table._do_commit"),
        ("elsewhere", "demo.ice", "from pyiceberg.table import _x", "pyiceberg.table._x"),
    ),
    clock_faults: (
        ("datetime.now by another name", "frames.log", "import datetime as d\nd.datetime.now()", "datetime.datetime.now"),
        ("datetime.now", "policy.durations", "from datetime import datetime, UTC\ndatetime.now(UTC)", "datetime.now"),
        ("as a default", "settings", "from datetime import datetime\ndef f(at=datetime.now): ...", "datetime.now"),
        ("time.time", "ledger.leases", "import time\ntime.time()", "time.time"),
        ("Spark's clock", "frames.log", "from pyspark.sql import functions as F\nF.current_timestamp()", "current_timestamp"),
        ("the database's clock in SQL", "ledger.marks", "SQL = 'SELECT CURRENT_TIMESTAMP'", "CURRENT_TIMESTAMP"),
        ("another module named clock", "frames.clock", "from datetime import datetime\ndatetime.now()", "datetime.now"),
    ),
    print_faults: (
        ("a table of rich", "people.plan", "from rich.table import Table", "rich.table.Table"),
        ("by another name", "people.plan", "import rich.table as t\nt.Table()", "rich.table.Table"),
        ("a table of Dagster", "dagster.jobs", "import dagster as dg\ndg.MetadataValue.table([])", "dagster.MetadataValue.table"),
        ("its rows", "dagster.checks", "import dagster as dg\ndg.TableRecord({})", "dagster.TableRecord"),
        ("Markdown", "render.summaries", "TEXT = '| a |\\n| --- |'", "---"),
        ("Markdown in parts", "render.summaries", "LINE = ' | '.join('---' for _ in 'ab')", "---"),
        ("HTML", "people.report", "TEXT = f'<table class=\"x\">{1}'", "<table"),
        ("a printer that knows a report", "render.html", "from retention_assets.render.report import COLUMNS", "report.COLUMNS"),
        ("or the state", "render.markdown", "from retention_assets.render.summaries import who_of", "summaries.who_of"),
    ),
    future_faults: (
        ("annotations as strings", "jobs", "from __future__ import annotations", "__future__"),
    ),
    charter_faults: (
        ("no charter", "jobs", "import json", "charter"),
    ),
    word_faults: (
        ("a module of leftovers", "frames.utils", CHARTER, "utils"),
        ("a class that manages", "ledger.marks", "class MarkManager: ...", "MarkManager"),
        ("a function that handles", "ledger.marks", "def handle_mark(): ...", "handle_mark"),
        ("a method that does", "ledger.marks", "class A:\n    async def _processRow(self): ...", "_processRow"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "module", "source", "named"),
    [pytest.param(rule, *case, id=f"{rule.__name__}: {title}") for rule, cases in BROKEN.items() for title, *case in cases],
)
def test_a_source_that_breaks_the_rule_is_refused(rule: Rule, module: str, source: str, named: str) -> None:
    faults = rule(source, f"retention_assets.{module}")
    assert any(named in fault for fault in faults), faults


# What each rule lets through: a title, a module, a source that looks like a fault and is none
SOUND: Mapping[Rule, tuple[tuple[str, str, str], ...]] = {
    import_faults: (
        ("frames on policies", "frames.log", "import numpy as np\nfrom retention_assets.policy.model import Policy"),
        ("the version", "errors", "from retention_assets import __version__"),
        ("a place's own modules", "stores.files.log", "from retention_assets.stores.protocol import Store"),
        ("an asset its frame", "dagster.assets", "import dagster\nfrom retention_assets.frames.log import LOG"),
        ("the jobs the assets", "dagster.jobs", "from retention_assets.dagster.assets import marks"),
        ("policies read YAML", "policy.language", "from retention_assets.settings.yaml import read_document"),
        ("Dagster's page in render", "render.dagster", "import dagster as dg"),
    ),
    deletion_faults: (
        ("a place", "stores.places.local", "import shutil\nshutil.rmtree('x')"),
        ("lists and sets remove", "frames.log", "def f(names):\n    names.remove('x')\n    {1}.remove(1)"),
        ("NumPy's delete copies", "frames.log", "import numpy as np\nnp.delete([1], 0)"),
        ("a charter speaks of it", "ledger.marks", '"""Never DELETE FROM marks, never rm."""'),
        ("a docstring as well", "ledger.marks", 'class A:\n    """DELETE FROM."""\n    def f(self):\n        """Or rm."""'),
        ("a sentence", "cli", "TEXT = 'There is nothing to delete from the store. Firm.'"),
        ("the type of a transaction", "policy.model", "TYPES = ('SNAPSHOT', 'DELETE')"),
        ("a mode of the policy language", "policy.model", "MODES = ('delete', 'ttl')"),
    ),
    order_faults: (
        ("the one caller", "sweep.execute", "def f(store):\n    store.sweep('d', [], 1)\n    store.expire('d', [], None, 1)"),
        ("the one who postpones", "sweep.postpone_expiry", "def f(store):\n    store.postpone('d', [], 1, 2)"),
        ("a store its own parts", "stores.aspects.store", "def f(deletion):\n    deletion.sweep([], 1)"),
        ("how a policy has its marks swept", "sweep.engine", "def f(policy):\n    return policy.sweep.every"),
    ),
    ability_faults: (
        ("the gate of foreign kinds", "stores.registry", "def f(store):\n    return isinstance(store, Store)"),
        ("an answer of the base", "sweep.read", "def f(store):\n    return store.expiry is not None"),
        ("settings, which have kinds", "people.scans", "def f(store):\n    return isinstance(store, ObjectsSettings)"),
        ("a driver's attribute", "stores.iceberg.commit", "def f(table):\n    return getattr(table, 'refs', None)"),
    ),
    admission_faults: (
        ("the door", "sweep.admission", "def f(e, ledger):\n    e.head_faults(ledger)"),
        ("for something else", "people.audit", "def f(e, ledger):\n    e.head_faults(ledger)"),
        ("a name alone", "people.trash", "from x import place_faults"),
    ),
    print_faults: (
        ("a printer", "render.terminal", "import rich.table\nrich.table.Table()"),
        ("with another", "render.dagster", "from retention_assets.render.markdown import listing"),
        ("with its declaration", "render.html", "from retention_assets.render.page import Table"),
        ("a declaration", "people.trash", "from retention_assets.render.page import Table\nTable('t', (), ())"),
        ("reading one", "dagster.stores", "import dagster as dg\nisinstance(1, dg.TableMetadataValue)"),
        ("a dash", "people.trash", "TEXT = 'a -- b --- c'"),
    ),
    private_faults: (
        ("the one module", "stores.iceberg.commit", "from pyiceberg.table.update import _apply"),
        ("the one of Dagster", "dagster.private", "from dagster._core.events import Thing"),
        ("one's own", "stores.iceberg.commit", "class A:\n    def f(self):\n        self._mine()"),
        ("another library", "stores.files.log", "def f(a):\n    a._theirs()"),
        ("what is public", "stores.iceberg.commit", "from pyiceberg.table import Table"),
    ),
    clock_faults: (
        ("the clock", "clock", "from datetime import UTC, datetime\ndef now():\n    return datetime.now(UTC)"),
        ("asking the clock", "cli", "from retention_assets.clock import now\nnow()"),
        ("asking it as a module", "cli", "from retention_assets import clock\nclock.now()"),
        ("how long something took", "cli", "import time\ntime.perf_counter()\ntime.monotonic()"),
        ("an instant that is given", "policy.durations", "from datetime import datetime\ndatetime.fromisoformat('2026-01-01')"),
    ),
    sleep_faults: (
        ("waiting outside of tests", "ledger.leases", "import time\ntime.sleep(1)"),
    ),
    future_faults: (
        ("another future", "jobs", "from __future__ import generator_stop"),
    ),
    word_faults: (
        ("words within words", "ledger.marks", "def misclassified(): ...\nclass Handlebar: ...\ndef utilised(): ..."),
        ("a name that a library chose", "pipeline.stage", "class Tables:\n    def handle_output(self): ..."),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "module", "source"),
    [pytest.param(rule, *case, id=f"{rule.__name__}: {title}") for rule, cases in SOUND.items() for title, *case in cases],
)
def test_a_source_that_keeps_the_rule_is_let_through(rule: Rule, module: str, source: str) -> None:
    assert rule(source, f"retention_assets.{module}") == []


def test_modules_in_a_circle_are_named() -> None:
    texts = {
        "retention_assets.a": "from retention_assets.b import thing",
        "retention_assets.b": "def f():\n    from retention_assets import c",
        "retention_assets.c": "import retention_assets.a",
        "retention_assets.d": "import retention_assets.a",
    }
    assert circles(texts) == ["retention_assets.a", "retention_assets.b", "retention_assets.c"]


@pytest.mark.parametrize(
    "source",
    ["import time\ntime.sleep(1)", "from time import sleep\nsleep(1)", "import time as t\nt.sleep(1)"],
    ids=["by its name", "by import", "by another name"],
)
def test_a_test_that_sleeps_is_refused(source: str) -> None:
    assert sleep_faults(source, "retention_assets_tests.test_leases")


def test_a_test_that_asks_for_the_time_is_refused() -> None:
    assert clock_faults("import datetime\ndatetime.datetime.now()", "retention_assets_tests.test_marks")

"""The rules of the house: each a function from a module's text and name to what is wrong in it, in sentences.

Belongs here: who may import what, who may delete, who may ask for the time, and the words of names. A rule sees one module's
text and nothing else, so that it can be tried on three bad lines. Which modules there are is test_architecture.py's.
A table that stops a good change is to be changed, in the same commit, with the reason.
"""

import ast
import re
import sys
from collections.abc import Container, Iterable, Mapping
from typing import Any, TypeGuard

from retention_assets_tests.source import imports, literals, mentions, nodes, tree

PACKAGE = "retention_assets"
TESTS = "retention_assets_tests"
BENCHMARKS = "benchmarks"
# Modules of the package that are in no folder.
TOP = "(top)"

# Who may import whom, by places below the package; a module belongs to the longest place that fits. Whoever is in a place may
# always import it.
IMPORTS: Mapping[str, set[str]] = {
    # Only when somebody asks for it: Dagster finds the component by the name of the package.
    "__init__": {"dagster"},
    "errors": set(),
    "outcomes": set(),
    # Codes of databases are told apart where statements are; loaded only once something has failed.
    "failures": {"errors", "settings.secrets", "settings.places", "sql"},
    "settings.yaml": {"errors", "settings.places"},
    "settings.secrets": set(),
    "silence": {"errors"},
    "settings.places": {"errors", "settings.secrets"},
    "policy": {"errors", "settings.yaml"},
    "clock": {"errors", "policy"},
    "datasets": {"policy"},
    "frames": {"errors", "policy"},
    "exchange": {"errors", "frames", "policy"},
    "sql": {"clock", "errors", "frames", "outcomes", "policy", "settings.secrets", "settings.places", "silence"},
    "ledger": {"clock", "errors", "outcomes", "policy", "settings.places", "sql"},
    # A removal stops at what other settings name.
    "stores": {
        "clock", "datasets", "errors", "exchange", "frames", "outcomes", "policy", "settings.places", "settings.secrets", "silence", "sql",
    },
    "settings": {"errors", "policy", "settings.places", "settings.secrets", "silence", "settings.yaml", "stores"},
    "environment": {"errors", "ledger", "pipeline", "policy", "settings", "silence", "stores"},
    "evaluation": {"datasets", "environment", "errors", "exchange", "frames", "ledger", "policy", "settings", "settings.yaml", "stores"},
    # The door asks for heads and places, which the environment knows.
    "sweep": {"clock", "datasets", "environment", "errors", "evaluation", "frames", "ledger", "outcomes", "policy", "settings", "settings.secrets", "stores"},
    "render": {"errors", "evaluation", "frames", "ledger", "outcomes", "policy"},
    # Places are remembered without passwords.
    "pipeline": {"clock", "datasets", "errors", "frames", "ledger", "policy", "settings.secrets", "settings.places", "stores"},
    # A task opens what it works on where it runs.
    "pipeline.preflight": {"environment", "errors", "pipeline", "settings", "stores"},
    "pipeline.sweep_stage": {
        "clock", "datasets", "environment", "errors", "evaluation", "ledger", "pipeline", "policy", "settings", "stores", "sweep",
    },
    # A lease that is kept alive is a sweep's as well.
    "pipeline.scans": {"datasets", "errors", "frames", "ledger", "pipeline", "policy", "stores", "sweep"},
    # A dry run scans as a run does.
    "pipeline.unrecorded_scans": {"errors", "frames", "ledger", "pipeline", "pipeline.scans", "policy", "settings", "stores"},
    # The pipeline only for what it has published: a hold says how much it is about.
    "people": {
        "clock", "datasets", "demo", "demo.lake", "environment", "errors", "evaluation", "exchange", "frames", "ledger", "outcomes",
        "pipeline", "pipeline.unrecorded_scans", "policy", "render", "settings", "settings.secrets", "settings.yaml",
        "stores", "sweep",
    },
    # `retention run` is a job of Dagster's.
    "people.run": {"dagster", "errors", "evaluation", "ledger", "people", "pipeline", "policy", "render"},
    # What `dg scaffold` writes has the sample lake in it.
    "dagster": {
        "clock", "datasets", "demo.lake", "environment", "errors", "evaluation", "failures", "frames", "ledger", "outcomes", "people",
        "pipeline", "pipeline.preflight", "pipeline.scans", "pipeline.sweep_stage", "policy", "render", "settings", "settings.secrets",
        "settings.places",
        "settings.yaml", "stores", "sweep",
    },
    "definitions": {"dagster", "environment", "pipeline"},
    "demo.lake": {"policy"},
    "demo": {"dagster", "demo.lake", "errors", "evaluation", "exchange", "ledger", "policy", "render", "settings"},
    "cli": {"errors", "failures", "people", "settings.secrets"},
}  # fmt: skip

# Pure places name every package they build on; all of them may use the standard library.
ALONE: Mapping[str, set[str]] = {
    "outcomes": set(),
    "errors": set(),
    "datasets": set(),
    "policy": {"lark", "pydantic"},
    "frames": {"numpy", "pyarrow"},
}
# What a frame would read or write with.
IO = {"io", "os", "pathlib", "shutil", "socket", "subprocess", "tempfile", "urllib"} | {
    f"pyarrow.{name}" for name in ("csv", "dataset", "feather", "flight", "fs", "ipc", "json", "orc", "parquet")
}

# Libraries with few homes, as places. For everything else in the package they do not exist.
HOMES: Mapping[str, set[str]] = {
    "dagster": {"dagster", "definitions", "demo", "render.dagster"},
    "dagster_pyspark": {"dagster"},
    "pyspark": {"dagster", "demo", "pipeline"},
    "sqlalchemy": {"demo", "ledger", "sql", "stores", "sweep"},
    "adbc_driver_manager": {"ledger", "sql", "stores"},
    "adbc_driver_postgresql": {"sql"},
    "adbc_driver_sqlite": {"sql"},
    "pyiceberg": {"demo", "stores.iceberg", "stores.objects.sources.finished"},
    "fsspec": {"demo", "pipeline", "stores.places"},
    "jinja2": {"render"},
}

# Who may delete besides places and the delete modules of the stores, by the full name of the module, and why.
DELETE_MODULES = re.compile(rf"{PACKAGE}\.stores\.(places\.(local|disk_trash|moves|s3|fsspec|own_files)|\w+\.delete(_\w+)?)")
MAY_DELETE: Mapping[str, str] = {
    f"{PACKAGE}.pipeline.warehouse": "removes its own folders, to which no dataset points any more",
    f"{PACKAGE}.sql.guarded_delete": "has the delete modules of stores delete rows, and counts them",
    f"{PACKAGE}.sql.staging": "drops staging tables of its own, by the form of their names",
    f"{PACKAGE}.demo.environment": "builds the demonstration anew, below a folder that carries its marker",
}
DELETES = {
    "delete", "delete_dir", "delete_dir_contents", "delete_file", "delete_files", "delete_object", "delete_objects",
    "delete_root_dir_contents", "drop_namespace", "drop_table", "expire_snapshots", "purge_table", "removedirs",
    "rm", "rm_file", "rmdir", "rmtree", "unlink",
}  # fmt: skip
_DELETES_NOTHING = {"numpy.delete"}
# `remove` is also what lists and sets do, so it needs a receiver that is about files.
_FILES = {"fs", "filesystem", "os", "path"}
_DELETES_SQL = re.compile(
    r"\b(DELETE\s+FROM|DROP\s+TABLE|TRUNCATE\s+TABLE)\b|(?:^|;)\s*(?i:delete\s+from|drop\s+table)\b|^rm(\s|$)"
)
# `delete` alone is also a word of the policy language (sweep.mode).
_DELETES_BY_NAME = re.compile(rf"(\w+\.)*({'|'.join(sorted(DELETES - {'delete', 'rm'}))})")

# The orders that a store takes, and the one module that gives each. Stores pass them on among their own parts.
ORDERS: Mapping[str, str] = {
    "sweep": f"{PACKAGE}.sweep.execute",
    "expire": f"{PACKAGE}.sweep.execute",
    "carry_out": f"{PACKAGE}.sweep.execute",
    "postpone": f"{PACKAGE}.sweep.postpone_expiry",
}

# Calls by which one would find out what a store is able to.
_ABILITIES = {"isinstance", "issubclass", "hasattr", "getattr"}
# What a sweep must be asked before it may begin. The door asks it, and besides it, for something else:
ADMISSION = f"{PACKAGE}.sweep.admission"
QUESTIONS: Mapping[str, Mapping[str, str]] = {
    "clock.check": {
        f"{PACKAGE}.sweep.engine": "asks with the newest time of the log that was read",
        f"{PACKAGE}.dagster.assets": "asks before it marks, and the rehearsal with it",
        f"{PACKAGE}.people.rehearsal": "marks in its copy",
    },
    "head_faults": {f"{PACKAGE}.people.audit": "has a person accept them"},
    "place_faults": {
        f"{PACKAGE}.environment": "has them from beside the data",
        f"{PACKAGE}.dagster.assets": "reads and marks nothing of a store at another place, and notes new ones",
        f"{PACKAGE}.people.rehearsal": "reads no such store either",
    },
    "place_conflicts": {},
    "store_fault": {f"{PACKAGE}.sweep.engine": "asks anew for each share of a store"},
    "due_mark_faults": {},
    "taken_by_day": {},
}

# Where the tables that results declare become text. Printers know columns and rows, and no result: what they may build on.
PRINTERS = frozenset(f"{PACKAGE}.render.{name}" for name in ("terminal", "markdown", "dagster", "html"))
PRINT_WITH = frozenset(f"{PACKAGE}.{name}" for name in ("policy", "render.page", "render.svg", "render.text"))
_DRAWN = re.compile(r"rich\.table\b.*|dagster\.(MetadataValue\.table|TableRecord)")
_MARKUP = re.compile(r"<t(able|head|body|r)\b|^\W*-{3,}\W*$|\|\s*:?-{3,}")

# Where names that a library keeps to itself are used, so that a new release of it is looked at in one place.
PRIVATE: Mapping[str, str] = {"pyiceberg": f"{PACKAGE}.stores.iceberg.commit", "dagster": f"{PACKAGE}.dagster.private"}

CLOCKS = (f"{PACKAGE}.clock", f"{TESTS}.test_clock")
_TIMES = {"current_date", "current_timestamp", "localtimestamp", "now", "today", "unix_timestamp", "utcnow"}
_TIME_CALLS = {f"time.{name}" for name in ("asctime", "ctime", "gmtime", "localtime", "strftime", "time", "time_ns")}
_TIMES_SQL = re.compile(r"\bCURRENT_(DATE|TIMESTAMP)\b|(?i:\bnow\(\))")

# Words that say nothing about what a thing is for, in all their forms.
_EMPTY_WORDS = re.compile(r"process(es|ed|ing|ors?)?|handl(es?|ed|ers?|ing)|managers?|util(s|ity|ities)?|helpers?|misc")
# Names that a library chose and its subclasses have to use.
GIVEN_NAMES = {
    "bind_processor", "handle_data", "handle_endtag", "handle_output", "handle_starttag", "process_bind_param",
    "process_result_value", "result_processor",
}  # fmt: skip


# Lines that a place may have; a module counts in the longest that fits. They only fall: whoever passes one subtracts elsewhere,
# or moves the number in the same commit with the reason; whoever subtracts lowers it.
BUDGETS: Mapping[str, int] = {
    "(top)": 851,
    "settings": 1_552,
    "policy": 2_987,
    "frames": 4_360,
    "exchange": 666,
    "sql": 2_456,
    "ledger": 7_197,
    "stores": 1_578,
    "stores.places": 2_933,
    "stores.files": 1_434,
    "stores.delta": 2_744,
    "stores.iceberg": 2_560,
    "stores.aspects": 1_091,
    "stores.records": 1_261,
    "stores.objects": 5_864,
    "evaluation": 1_914,
    "sweep": 3_510,
    "pipeline": 2_513,
    "people": 5_528,
    "render": 2_493,
    "dagster": 3_203,
    "demo": 821,
    "retention_assets_tests": 71_929,
}
# Measures of the house (`python -m retention_assets_tests.house_measures`). They only fall.
CEILINGS: Mapping[str, int] = {
    # a run that sweeps six files of the sample
    "modules entered": 148,
    "functions entered": 2_580,
    "read transactions of the ledger": 119,
    "times the ledger is opened": 2,
    "times a policy's text is parsed": 1,
    "calls up a floor": 119,
    # the tree
    "options of a store": 0,
    "answers to what is held": 2,
    "answers to which marks": 4,
    "places that decide whether a sweep may begin": 1,
    "ways to look ahead": 2,
    "ways to run the assets in Dagster": 1,
    "ways to judge a reference": 1,
    "declarations of tables": 1,
    "printers of tables": 4,
}
# Docstrings that begin with a word by which no sentence says what a thing is; and imports by tests of a module inside a folder.
OPENINGS, ARROWS = 0, 548
_OPENING = re.compile(r"(What|Which|Whether|Of|Those|As|So many|The same)\b")
_FACES = re.compile(rf"{PACKAGE}(\.stores)?(\.\w+)?")


def import_faults(text: str, module: str) -> list[str]:
    """Imports against the tables above, wherever in the module they stand and whatever they are for."""
    if not module.startswith(f"{PACKAGE}."):
        return []
    if place_of(module) is None:
        return [f"{module} is in no place of the table of imports"]
    return [f"{module}:{line} imports {target}" for line, target in imports(text, module) if not _allowed(module, target)]


def _allowed(module: str, target: str) -> bool:
    place, top = place_of(module), target.partition(".")[0]
    assert place is not None
    if top in (TESTS, BENCHMARKS):
        return False
    if top != PACKAGE:
        pure = place not in ALONE or top in ALONE[place] or top in sys.stdlib_module_names
        at_home = top not in HOMES or _below(_inside(module), HOMES[top])
        return at_home and pure and not (place == "frames" and _below(target, IO))
    other = place_of(target)
    # What is in no place is a name in the package's __init__, such as the version.
    return other in (place, None) or other in IMPORTS[place]


def circles(texts: Mapping[str, str]) -> list[str]:
    """Modules that import themselves through others, whenever that happens: at the top or in a function."""
    known = {name.removesuffix(".__init__") for name in texts}
    graph: dict[str, set[str]] = {}
    for name, text in texts.items():
        me = name.removesuffix(".__init__")
        targets = {target if target in known else target.rpartition(".")[0] for _, target in imports(text, name)}
        graph[me] = targets & known - {me}
    return [module for module in sorted(graph) if module in _reached(graph, module)]


def _reached(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        if (module := waiting.pop()) not in found:
            found.add(module)
            waiting += graph[module]
    return found


def deletion_faults(text: str, module: str) -> list[str]:
    """Only places and delete modules of stores delete: a name that deletes anything is a fault everywhere else, called or not, and so is
    one in a string, by which somebody else may be made to call it.
    """
    if not module.startswith(f"{PACKAGE}.") or DELETE_MODULES.fullmatch(module) or module in MAY_DELETE:
        return []
    faults = []
    for line, name in mentions(text, module):
        owner, _, last = name.rpartition(".")
        about_files = last == "remove" and owner.rpartition(".")[2].lower().strip("_") in _FILES
        if (last in DELETES or about_files) and name not in _DELETES_NOTHING:
            faults.append(f"{module}:{line} deletes: {name}")
    strings = (
        (line, said) for line, said in literals(text) if _DELETES_SQL.search(said) or _DELETES_BY_NAME.fullmatch(said.strip())
    )
    return faults + [f"{module}:{line} deletes: {said!r}" for line, said in strings]


def order_faults(text: str, module: str) -> list[str]:
    """Only one module tells a store to sweep, and one to postpone: a call of that name, or the method of a store handed on."""
    if not module.startswith(f"{PACKAGE}.") or module.startswith(f"{PACKAGE}.stores."):
        return []
    faults = []
    called = {(node.func.lineno, node.func.attr) for node in nodes(text) if _is_method_call(node)}
    for line, name in mentions(text, module):
        owner, _, last = name.rpartition(".")
        is_order = (line, last) in called or owner.rpartition(".")[2].lower().strip("_") in ("store", "stores", "?")
        if last in ORDERS and is_order and module != ORDERS[last]:
            faults.append(f"{module}:{line} gives an order to a store: {name}")
    return faults


def admission_faults(text: str, module: str) -> list[str]:
    """Only the door says that a sweep may begin: a call of what it asks is a fault elsewhere."""
    if not module.startswith(f"{PACKAGE}.") or module == ADMISSION:
        return []
    calls = ((node.lineno, ast.unparse(node.func)) for node in nodes(text) if isinstance(node, ast.Call))
    return [
        f"{module}:{line} decides whether a sweep may begin: {name}"
        for line, name in calls
        for asked, others in QUESTIONS.items()
        if f".{name}".endswith(f".{asked}") and module not in others
    ]


def print_faults(text: str, module: str) -> list[str]:
    """Only printers build tables, of a library or in markup; and they import no result."""
    if not module.startswith(f"{PACKAGE}."):
        return []
    if module in PRINTERS:
        named = ((line, name) for line, name in imports(text, module) if name.startswith(f"{PACKAGE}."))
        return [f"{module}:{line} knows a result: {name}" for line, name in named if not _prints_with(name)]
    return [f"{module}:{line} prints a table: {what}" for line, what in built_tables(text, module)]


def _prints_with(name: str) -> bool:
    return _below(name, PRINTERS | PRINT_WITH)


def built_tables(text: str, module: str) -> list[tuple[int, str]]:
    """Line and words of every table that is built of a library's parts or in markup."""
    found = [(line, name) for line, name in mentions(text, module) if _DRAWN.fullmatch(name)]
    return found + [(line, repr(said)) for line, said in literals(text) if _MARKUP.search(said)]


def _is_method_call(node: ast.AST) -> TypeGuard[Any]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)


def ability_faults(text: str, module: str) -> list[str]:
    """The base of stores has an answer for everything that a store may do: nobody asks for its type, or whether it has a method."""
    faults = []
    for node in nodes(text):
        if (
            isinstance(node, ast.ClassDef)
            and node.name.endswith("Store")
            and any(_name(base) == "Protocol" for base in node.bases)
        ):
            faults.append(f"{module}:{node.lineno} is a protocol of some stores: {node.name}")
        if not (isinstance(node, ast.Call) and len(node.args) > 1 and (asks := _name(node.func)) in _ABILITIES):
            continue
        who, what = node.args[:2]
        kinds = [name for part in ast.walk(what) if (name := _name(part)).endswith("Store")]
        about_store = "get" in asks or "has" in asks
        if about_store:
            # tests set and call methods by their names
            kinds = [_name(who)] * (module.startswith(f"{PACKAGE}.") and _name(who).lower().strip("_") in ("store", "stores"))
        if kinds and not (module == f"{PACKAGE}.stores.registry" and kinds == ["Store"]):
            faults.append(f"{module}:{node.lineno} asks a store what it is able to: {ast.unparse(node)}")
    return faults


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def private_faults(text: str, module: str) -> list[str]:
    """What PyIceberg or Dagster does not promise to keep is used in one module for each: private modules and names, and attributes
    of PyIceberg's values (in the Iceberg store everything private that is not one's own is taken for such).
    """
    if not module.startswith(f"{PACKAGE}."):
        return []
    at_iceberg = module.startswith(f"{PACKAGE}.stores.iceberg.")
    faults = []
    for line, name in mentions(text, module):
        parts = name.split(".")
        # What one calls one's own begins behind self, and what belongs to a value of one's own behind its name.
        theirs = parts[2:] if parts[0] in ("self", "cls") else parts[1:]
        library = "pyiceberg" if at_iceberg and parts[0] not in (PACKAGE, *PRIVATE) else parts[0]
        is_theirs = library in PRIVATE and module != PRIVATE[library]
        if is_theirs and any(part.startswith("_") and not part.startswith("__") for part in theirs):
            faults.append(f"{module}:{line} uses a private name of {library}: {name}")
    return faults


def clock_faults(text: str, module: str) -> list[str]:
    """Only clock.py asks for the time; in a test, a clock is an answer that changes by itself."""
    if module in CLOCKS:
        return []
    faults = [
        f"{module}:{line} asks for the time: {name}"
        for line, name in mentions(text, module)
        if (name.rpartition(".")[2] in _TIMES and not name.startswith(f"{PACKAGE}.clock.")) or name in _TIME_CALLS
    ]
    if module.startswith((TESTS, BENCHMARKS)):
        return faults
    return faults + [f"{module}:{line} asks for the time: {said!r}" for line, said in literals(text) if _TIMES_SQL.search(said)]


def sleep_faults(text: str, module: str) -> list[str]:
    if not module.startswith(TESTS):
        return []
    return [f"{module}:{line} sleeps: {name}" for line, name in mentions(text, module) if name.rpartition(".")[2] == "sleep"]


def future_faults(text: str, module: str) -> list[str]:
    return [
        f"{module}:{line} imports annotations from __future__"
        for line, name in imports(text, module)
        if name == "__future__.annotations"
    ]


def charter_faults(text: str, module: str) -> list[str]:
    return [] if ast.get_docstring(tree(text)) else [f"{module} does not open with its charter"]


def lines_by_place(texts: Mapping[str, str]) -> dict[str, int]:
    """Lines of each place that has a budget; those of a place without one count in the package's own."""
    lines = dict.fromkeys(BUDGETS, 0)
    for module, text in texts.items():
        if module.startswith(f"{PACKAGE}."):
            place = _longest(module, BUDGETS) or TOP
            lines[place] += len(text.splitlines())
        elif module.startswith(f"{TESTS}."):
            lines[TESTS] += len(text.splitlines())
    return lines


def vague_openings(text: str, module: str) -> list[str]:
    """Docstrings of the package that begin with a question word, or point at what stands elsewhere."""
    if not module.startswith(f"{PACKAGE}."):
        return []
    documented = (
        node for node in nodes(text) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return [
        f"{module}:{getattr(node, 'lineno', 1)} begins with {found[0]}"
        for node in documented
        if (found := _OPENING.match(ast.get_docstring(node) or ""))
    ]


def inner_imports(texts: Mapping[str, str]) -> set[tuple[str, str]]:
    """Tests and the modules that they import past the public face of a folder."""
    known = {name.removesuffix(".__init__") for name in texts}
    return {
        (module, target)
        for module, text in texts.items()
        if module.startswith(f"{TESTS}.")
        for _, name in imports(text, module)
        if name.partition(".")[0] == PACKAGE
        and not _FACES.fullmatch(target := name if name in known else name.rpartition(".")[0])
    }


def word_faults(text: str, module: str) -> list[str]:
    named = [(1, part) for part in module.split(".")]
    for node in nodes(text):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            named.append((node.lineno, node.name))
    return [
        f"{module}:{line} is named with an empty word: {name}"
        for line, name in named
        if name not in GIVEN_NAMES and any(_EMPTY_WORDS.fullmatch(word) for word in _words(name))
    ]


def _inside(module: str) -> str:
    return module.partition(".")[2] or "__init__"


def place_of(module: str) -> str | None:
    return _longest(module, IMPORTS)


def _longest(module: str, places: Container[str]) -> str | None:
    parts = _inside(module).split(".")
    return next((place for end in range(len(parts), 0, -1) if (place := ".".join(parts[:end])) in places), None)


def _below(name: str, roots: Iterable[str]) -> bool:
    return any(name == root or name.startswith(f"{root}.") for root in roots)


def _words(name: str) -> list[str]:
    return re.sub(r"([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])", r"\1\3_\2\4", name).lower().strip("_").split("_")

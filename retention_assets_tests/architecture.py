"""The rules of the house: each a function from a module's text and name to what is wrong in it, in sentences.

Belongs here: who may import what, who may delete, who may ask for the time, and the words of names. A rule sees one module's
text and nothing else, so that it can be tried on three bad lines. Which modules there are is test_architecture.py's.
A table that stops a good change is to be changed, in the same commit, with the reason.
"""

import ast
import re
import sys
from collections.abc import Iterable, Mapping

from retention_assets_tests.source import imports, literals, mentions, tree

PACKAGE = "retention_assets"
TESTS = "retention_assets_tests"

# Who may import whom, by the first name below the package. A part may always import itself (but see SIBLINGS).
_INPUT = {"document", "environment", "exchange", "in_force", "places", "policy", "problems", "settings"}
_RUN = _INPUT | {
    "assets",
    "catalog",
    "checks",
    "clock",
    "findings",
    "frames",
    "jobs",
    "ledger",
    "names",
    "outcomes",
    "partitions",
    "resources",
    "rulebook",
    "schedules",
    "sensors",
    "looking",
    "evaluation_loop",
    "ticks",
    "stores",
    "sweep",
}
_SHOWN = {"explain", "preview", "tables"}
IMPORTS: Mapping[str, set[str]] = {
    # Only when somebody asks for it: Dagster finds the component by the name of the package.
    "__init__": {"component"},
    "problems": set(),
    "outcomes": set(),
    "document": {"problems"},
    "policy": {"document", "problems"},
    "frames": {"policy", "problems"},
    "places": {"problems"},
    "environment": {"document", "places", "policy", "problems"},
    "catalog": {"problems", "stores"},
    "names": {"catalog", "problems"},
    "settings": {"catalog", "document", "environment", "places", "policy", "problems", "stores"},
    "clock": {"policy", "problems"},
    "exchange": {"frames", "policy", "problems"},
    "in_force": {"policy", "problems", "settings", "stores"},
    "preview": {"frames", "in_force", "policy", "problems"},
    "explain": {"frames", "in_force", "policy", "problems"},
    "tables": {"explain", "frames", "policy", "preview", "problems"},
    "ledger": {"clock", "outcomes", "places", "policy", "problems"},
    "stores": {"clock", "exchange", "frames", "outcomes", "places", "policy", "problems"},
    "housekeeping": {"frames", "ledger", "outcomes", "policy", "problems", "stores", "sweep"},
    "rulebook": {"document", "in_force", "ledger", "policy", "settings", "stores"},
    "sweep": {"frames", "in_force", "ledger", "outcomes", "policy", "problems", "rulebook", "settings", "stores"},
    "day_report": {"ledger", "policy"},
    "page_elements": {"policy"},
    "plots": {"ledger", "page_elements", "tables"},
    "report_page": {"day_report", "page_elements", "plots", "tables"},
    "shown": {"frames", "ledger", "plots", "policy", "tables"},
    "report_tables": {"day_report", "policy", "tables"},
    "resources": _INPUT | {"clock", "frames", "ledger", "names", "outcomes", "partitions", "stores", "sweep"},
    "partitions": {"names", "policy"},
    "drafts": {"catalog", "names", "partitions", "resources"},
    "by_hand": {"document", "policy", "problems"},
    "assets": _INPUT
    | {"clock", "day_report", "drafts", "findings", "frames", "ledger", "outcomes", "partitions", "report_page", "resources"}
    | {"plots", "rulebook", "shown"}
    | {"stores", "sweep"},
    "findings": {"frames", "ledger", "resources"},
    "checks": _RUN,
    "jobs": _RUN,
    "looking": {"frames", "policy", "resources", "stores", "sweep"},
    "ticks": set(),
    "evaluation_loop": {"clock", "looking", "resources", "rulebook", "ticks"},
    "schedules": _RUN,
    "sensors": _RUN,
    "alerts": {"names", "places", "sensors"},
    "act_jobs": {"names", "policy", "problems", "resources"},
    "housekeeping_job": {"act_jobs", "clock", "housekeeping", "policy", "problems", "resources", "rulebook"},
    "acts": _INPUT
    | {"act_jobs", "by_hand", "housekeeping_job", "clock", "frames", "names", "partitions", "resources", "rulebook", "sweep"},
    "definitions": _RUN | {"acts", "alerts"},
    "component": {"alerts", "definitions", "document", "problems", "settings"},
    "headless": {"definitions", "names", "policy", "settings"},
    "demo": _RUN | _SHOWN | {"day_report", "definitions", "headless", "report_page"},
    "ledger_tables": {"ledger", "policy", "tables"},
    "commands": _SHOWN
    | {
        "by_hand",
        "clock",
        "demo",
        "document",
        "exchange",
        "frames",
        "in_force",
        "ledger",
        "ledger_tables",
        "policy",
        "problems",
    }
    | {
        "day_report",
        "headless",
        "housekeeping",
        "plots",
        "report_page",
        "report_tables",
        "resources",
        "settings",
        "stores",
        "sweep",
    },
    "cli": {"commands", "problems"},
}

# Parts whose modules know nothing of each other; the part's own __init__ may know them all.
SIBLINGS = {"assets"}

# Pure parts name every package they build on; all of them may use the standard library.
ALONE: Mapping[str, set[str]] = {
    "outcomes": set(),
    "problems": set(),
    "policy": {"lark", "pydantic", "pydantic_core"},
    "frames": {"numpy", "pyarrow", "pyspark"},
}
# What a frame would read or write with.
IO = {"io", "os", "pathlib", "shutil", "socket", "subprocess", "tempfile", "urllib"} | {
    f"pyarrow.{name}" for name in ("csv", "dataset", "feather", "flight", "fs", "ipc", "json", "orc", "parquet")
}

# Libraries with few homes. For everything else in the package they do not exist.
_DAGSTER = {
    "act_jobs", "acts", "alerts", "assets", "checks", "component", "definitions", "demo", "drafts", "headless", "jobs", "names",
    "partitions", "resources", "schedules", "sensors", "shown", "evaluation_loop", "ticks",
    "housekeeping_job",
}  # fmt: skip
HOMES: Mapping[str, set[str]] = {
    "dagster": _DAGSTER,
    "dagster_pyspark": {"assets", "definitions", "resources"},
    "pyspark": {"assets", "checks", "demo", "frames", "resources", "stores"},
    "sqlalchemy": {"demo", "ledger", "stores", "sweep"},
    "alembic": {"ledger"},
    "adbc_driver_manager": {"ledger", "stores"},
    "adbc_driver_postgresql": {"ledger", "stores"},
    "adbc_driver_sqlite": {"ledger"},
    "pyiceberg": {"demo", "stores"},
    "fsspec": {"demo", "resources", "stores"},
}

# Who may delete besides the stores, by the full name of the module, and why.
MAY_DELETE: Mapping[str, str] = {
    f"{PACKAGE}.resources.warehouse": "removes its own folders, to which no dataset points any more",
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

CLOCKS = (f"{PACKAGE}.clock", f"{TESTS}.test_clock")
_TIMES = {"current_date", "current_timestamp", "localtimestamp", "now", "today", "unix_timestamp", "utcnow"}
_TIME_CALLS = {f"time.{name}" for name in ("asctime", "ctime", "gmtime", "localtime", "strftime", "time", "time_ns")}
_TIMES_SQL = re.compile(r"\bCURRENT_(DATE|TIMESTAMP)\b|(?i:\bnow\(\))")

# Words that say nothing about what a thing is for, in all their forms.
_EMPTY_WORDS = re.compile(r"process(es|ed|ing|ors?)?|handl(es?|ed|ers?|ing)|managers?|util(s|ity|ities)?|helpers?|misc")
# Names that a library chose and its subclasses have to use.
GIVEN_NAMES = {
    "handle_data", "handle_endtag", "handle_output", "handle_starttag", "process_bind_param", "process_result_value",
}  # fmt: skip


def import_faults(text: str, module: str) -> list[str]:
    """Imports against the tables above, wherever in the module they stand and whatever they are for."""
    if not module.startswith(f"{PACKAGE}."):
        return []
    part = _part(module)
    if part not in IMPORTS:
        return [f"{module} is of no part in the table of imports"]
    return [f"{module}:{line} imports {target}" for line, target in imports(text, module) if not _allowed(module, part, target)]


def _allowed(module: str, part: str, target: str) -> bool:
    top = target.partition(".")[0]
    if top == TESTS:
        return False
    if top != PACKAGE:
        pure = part not in ALONE or top in ALONE[part] or top in sys.stdlib_module_names
        return part in HOMES.get(top, {part}) and pure and not (part == "frames" and _below(target, IO))
    other = _part(target)
    if other != part:
        # What is no part is a name in the package's __init__, such as the version.
        return other in IMPORTS[part] or other not in IMPORTS
    return part not in SIBLINGS or module.split(".")[2] in ("__init__", *target.split(".")[2:3])


def deletion_faults(text: str, module: str) -> list[str]:
    """Only stores delete: a name that deletes anything is a fault everywhere else, called or not."""
    if not module.startswith(f"{PACKAGE}.") or _part(module) == "stores" or module in MAY_DELETE:
        return []
    faults = []
    for line, name in mentions(text, module):
        owner, _, last = name.rpartition(".")
        about_files = last == "remove" and owner.rpartition(".")[2].lower().strip("_") in _FILES
        if (last in DELETES or about_files) and name not in _DELETES_NOTHING:
            faults.append(f"{module}:{line} deletes: {name}")
    return faults + [f"{module}:{line} deletes: {said!r}" for line, said in literals(text) if _DELETES_SQL.search(said)]


def clock_faults(text: str, module: str) -> list[str]:
    """Only clock.py asks for the time; in a test, a clock is an answer that changes by itself."""
    if module in CLOCKS:
        return []
    faults = [
        f"{module}:{line} asks for the time: {name}"
        for line, name in mentions(text, module)
        if (name.rpartition(".")[2] in _TIMES and not name.startswith(f"{PACKAGE}.clock.")) or name in _TIME_CALLS
    ]
    if module.startswith(TESTS):
        return faults
    return faults + [f"{module}:{line} asks for the time: {said!r}" for line, said in literals(text) if _TIMES_SQL.search(said)]


def sleep_faults(text: str, module: str) -> list[str]:
    """A test that sleeps is slow where it works and wrong where the machine is slower."""
    if not module.startswith(TESTS):
        return []
    return [f"{module}:{line} sleeps: {name}" for line, name in mentions(text, module) if name.rpartition(".")[2] == "sleep"]


def future_faults(text: str, module: str) -> list[str]:
    """Annotations as strings break what Dagster reads from them (`context`), so nobody begins with it."""
    return [
        f"{module}:{line} imports annotations from __future__"
        for line, name in imports(text, module)
        if name == "__future__.annotations"
    ]


def charter_faults(text: str, module: str) -> list[str]:
    """A module that does not say what belongs in it collects what does not."""
    return [] if ast.get_docstring(tree(text)) else [f"{module} does not open with its charter"]


def word_faults(text: str, module: str) -> list[str]:
    """Names of modules, classes and functions, word by word."""
    named = [(1, part) for part in module.split(".")]
    for node in ast.walk(tree(text)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            named.append((node.lineno, node.name))
    return [
        f"{module}:{line} is named with an empty word: {name}"
        for line, name in named
        if name not in GIVEN_NAMES and any(_EMPTY_WORDS.fullmatch(word) for word in _words(name))
    ]


def loaded_by(module: str, texts: Mapping[str, str]) -> set[str]:
    """Everything outside the package that importing a module imports, through all modules of `texts` that it reaches."""
    seen: set[str] = set()
    outside: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for _, target in imports(texts[name], name, only_at_import=True):
            if target.partition(".")[0] != PACKAGE:
                outside.add(target)
                continue
            # Importing a.b.c runs a and a.b first. Names that are no module (a.b.c.function) fall out here.
            parts = target.split(".")
            for end in range(1, len(parts) + 1):
                above = ".".join(parts[:end])
                waiting += [known for known in (above, f"{above}.__init__") if known in texts]
    return outside


def _part(module: str) -> str:
    return [*module.split("."), "__init__"][1]


def _below(name: str, roots: Iterable[str]) -> bool:
    return any(name == root or name.startswith(f"{root}.") for root in roots)


def _words(name: str) -> list[str]:
    return re.sub(r"([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])", r"\1\3_\2\4", name).lower().strip("_").split("_")

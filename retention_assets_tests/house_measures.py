"""The measures of the house: `python -m retention_assets_tests.house_measures` prints them, with the ceilings that hold.

Belongs here: counts of the tree, from names that are declared here and from annotations. What a run enters is house_trace.py's;
the ceilings are architecture.py's. Whoever renames what is declared here renames it here.
"""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from retention_assets_tests.architecture import (
    ADMISSION,
    CEILINGS,
    PACKAGE,
    TESTS,
    admission_faults,
    built_tables,
    lines_by_place,
)
from retention_assets_tests.source import nodes, tree

ROOT = Path(__file__).parent.parent
PRINTED = "printers of tables"
OPTIONS, HELD, DECIDERS = "options of a store", "answers to what is held", "places that decide whether a sweep may begin"
PACKAGE_LINES, TEST_LINES = "lines of the package", "lines of the tests"
# Parts that do what one would do, by measure: modules, and functions, classes or methods of modules.
TWINS: Mapping[str, tuple[str, ...]] = {
    # each returns rows of marks, with columns of its own
    "answers to which marks": (
        "ledger.batches:Sweeps.planned",
        "ledger.batches:Sweeps.due",
        "ledger.batches:Sweeps.classed",
        "ledger.trash:Trash.marks",
    ),
    "ways to look ahead": (
        "people.plan:show_plan",
        "evaluation.preview",
    ),
    "ways to run the assets in Dagster": ("dagster.jobs:chain", "dagster.jobs:_list_job"),
    "ways to judge a reference": ("stores.objects.judge",),
    "declarations of tables": ("render.page:Table", "render.terminal:Column", "render.terminal:table", "people.operation:Rows"),
}
# annotations of holds and retain rules, as an answer of a function
_KEEPERS = re.compile(r"\b(list|tuple|Sequence|Iterator|Iterable|Mapping|dict)\[.*\b(Hold|Keeper)\b|\bDatasetKeepers\b")


def read_tree() -> dict[str, str]:
    """Every module of the package and of the tests, by its full name; a package's is `….__init__`."""
    files = sorted(file for folder in (PACKAGE, TESTS) for file in (ROOT / folder).rglob("*.py"))
    return {".".join(file.relative_to(ROOT).with_suffix("").parts): file.read_text("utf-8") for file in files}


def counts_of(texts: Mapping[str, str]) -> dict[str, int]:
    """Measure the tree by its text alone."""
    package = {module: text for module, text in texts.items() if module.startswith(f"{PACKAGE}.")}
    lines = lines_by_place(texts)
    return {
        OPTIONS: len(options_of_stores(package)),
        HELD: len(answers_about_holds(package)),
        DECIDERS: len(deciders(package)),
        **{name: len(still_there(package, declared)) for name, declared in TWINS.items()},
        PRINTED: len(printers(package)),
        PACKAGE_LINES: sum(count for place, count in lines.items() if place != TESTS),
        TEST_LINES: lines[TESTS],
    }


def options_of_stores(texts: Mapping[str, str]) -> list[str]:
    """Return protocols that a store may have besides `Store`, and fields of its capabilities."""
    classes = [(module, node) for module, text in texts.items() for node in nodes(text) if isinstance(node, ast.ClassDef)]
    found = []
    for module, node in classes:
        bases = {ast.unparse(base) for base in node.bases}
        if "Protocol" in bases and any(base.endswith("Store") for base in bases):
            found.append(f"{module}:{node.name}")
        if node.name == "Capabilities":
            found += [f"{module}:{ast.unparse(each.target)}" for each in node.body if isinstance(each, ast.AnnAssign)]
    return found


def deciders(texts: Mapping[str, str]) -> set[str]:
    """Return the door, and modules that ask the questions of the door."""
    return {module for module, text in texts.items() if module == ADMISSION or admission_faults(text, module)}


def printers(texts: Mapping[str, str]) -> set[str]:
    """Modules and templates in which a table is built, of a library's parts or in markup."""
    templates = {file.name for file in (ROOT / PACKAGE).rglob("*.html") if "<table" in file.read_text("utf-8")}
    return templates | {module for module, text in texts.items() if built_tables(text, module)}


def answers_about_holds(texts: Mapping[str, str]) -> list[str]:
    """Return functions that return several holds, from any source."""
    return [
        f"{module}:{name}"
        for module, text in texts.items()
        for name, node in _functions(text)
        if node.returns and _KEEPERS.search(ast.unparse(node.returns))
    ]


def still_there(texts: Mapping[str, str], names: tuple[str, ...]) -> list[str]:
    """Return the declared names that the tree still has."""
    return [name for name in names if _is_there(texts, *name.split(":"))]


def _is_there(texts: Mapping[str, str], module: str, name: str = "") -> bool:
    text = texts.get(f"{PACKAGE}.{module}")
    return text is not None and (not name or name in _names(text))


def _names(text: str) -> set[str]:
    fields = {
        f"{node.name}.{ast.unparse(each.target)}"
        for node in nodes(text)
        if isinstance(node, ast.ClassDef)
        for each in node.body
        if isinstance(each, ast.AnnAssign)
    }
    classes = {node.name for node in nodes(text) if isinstance(node, ast.ClassDef)}
    return {name for name, _ in _functions(text)} | classes | fields


def _functions(text: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    # functions of a module and methods of its classes, not functions in functions
    for node in tree(text).body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{each.name}", each) for each in node.body if isinstance(each, ast.FunctionDef))


def measures_of_run() -> dict[str, int]:
    """Measure a swept run, in a program of its own."""
    command = [sys.executable, "-m", f"{TESTS}.house_trace"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if said.returncode:
        raise SystemExit(f"The run that is watched failed.\n{said.stdout}{said.stderr}")
    measures: dict[str, int] = json.loads(said.stdout.splitlines()[-1])
    return measures


def exceeded(measures: Mapping[str, int]) -> dict[str, str]:
    """Return the measures above their ceilings, each with both numbers."""
    return {name: f"{count:,} > {CEILINGS[name]:,}" for name, count in measures.items() if count > CEILINGS.get(name, count)}


def main() -> int:
    """Print all measures; return 1 if one is above its ceiling."""
    measures = measures_of_run() | counts_of(read_tree())
    table = Table("measure", "count", "at most")
    for name, count in measures.items():
        table.add_row(name, f"{count:,}", f"{CEILINGS[name]:,}" if name in CEILINGS else "")
    Console().print(table)
    return 1 if exceeded(measures) else 0


if __name__ == "__main__":
    sys.exit(main())

"""Migrations of the ledger since its first release, revision 0024: a module each, such as `r0025.py`.

A module has the revision that it begins with (BEFORE), its own (REVISION, in the end that of schema.py), and
`upgrade(connection)`. It only adds: tables, indexes, and columns that are null in the rows of before. Seals leave out nulls, so
every row keeps its seal. What it changes in rows it records as an act. Checks of values stay as wide as they were.
"""

from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType


def migrations_from(revision: str, to: str) -> Sequence[ModuleType]:
    """Migrations that lead from a revision to another one, in their order; none if no path does."""
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    following = {module.BEFORE: module for module in modules}
    steps: list[ModuleType] = []
    while revision != to and (step := following.pop(revision, None)):
        steps.append(step)
        revision = step.REVISION
    return steps if revision == to else ()

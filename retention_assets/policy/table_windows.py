"""Retention windows in a dataset's attributes, as Iceberg tables have them; `from_table: true` uses them.

A dataset's windows are read in every part or not at all: a guessed number could be a deletion.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from retention_assets.policy.model import MOST

MAX_AGE = "max-snapshot-age-ms"
MIN_SNAPSHOTS = "min-snapshots-to-keep"
MAX_REF_AGE = "max-ref-age-ms"
# A branch of this name never ends, whatever its attributes.
MAIN = "main"
_KEY = re.compile(rf"history\.expire\.(?:branch\.(?P<branch>.+)\.)?(?P<number>{MAX_AGE}|{MIN_SNAPSHOTS})", re.DOTALL)
_REF_KEY = re.compile(rf"history\.expire\.(?:(?P<kind>branch|tag)\.(?P<name>.+)\.)?{MAX_REF_AGE}", re.DOTALL)
_WHOLE = re.compile(r"[0-9]{1,19}")


@dataclass(frozen=True)
class TableWindow:
    """Window on the path of a branch: an age below which transactions are kept, and a number of newest ones."""

    max_age_ms: int
    min_snapshots: int

    def words(self) -> str:
        """Window in the words of the attributes."""
        return f"{MAX_AGE} {self.max_age_ms}, {MIN_SNAPSHOTS} {self.min_snapshots}"


@dataclass(frozen=True)
class TableWindows:
    """Window of a dataset, and those of the branches that have one of their own."""

    dataset: TableWindow
    branches: Mapping[str, TableWindow]
    # Highest age of a branch or tag, by kind and name; and of those without their own.
    ref_ages: Mapping[tuple[str, str], int] = field(default_factory=dict)
    ref_age: int | None = None

    def ref_age_of(self, kind: str, name: str) -> int | None:
        """Milliseconds after which a branch or tag is over; None: never."""
        return None if (kind, name) == ("branch", MAIN) else self.ref_ages.get((kind, name), self.ref_age)

    def words(self) -> str:
        branches = (f"; on branch {name}: {window.words()}" for name, window in sorted(self.branches.items()))
        return self.dataset.words() + "".join(branches)


def attribute(number: str, ref: str | None = None, kind: str = "branch") -> str:
    """Name of the attribute with a number of the dataset, or of one of its branches or tags."""
    return f"history.expire.{number}" if ref is None else f"history.expire.{kind}.{ref}.{number}"


def table_windows(attributes: Mapping[str, str]) -> TableWindows | None:
    """Read a dataset's windows; None if a number is missing or is not a whole number above zero.

    A branch inherits each number that it leaves out from the dataset.
    """
    said: dict[str | None, dict[str, int]] = {}
    for key, text in attributes.items():
        if (about := _KEY.fullmatch(key)) is None:
            continue
        number = int(text) if _WHOLE.fullmatch(text) else 0
        if not 0 < number <= MOST:
            return None
        said.setdefault(about["branch"], {})[about["number"]] = number
    own = said.pop(None, {})
    if len(own) < len((MAX_AGE, MIN_SNAPSHOTS)):
        return None
    branches = {str(name): _window({**own, **numbers}) for name, numbers in said.items()}
    return TableWindows(_window(own), branches, *_ref_ages(attributes))


def _ref_ages(attributes: Mapping[str, str]) -> tuple[dict[tuple[str, str], int], int | None]:
    # An unreadable age ends nothing, and the dataset's general age does not end such a ref either.
    ages: dict[tuple[str, str], int] = {}
    every: int | None = None
    for key, text in attributes.items():
        if (about := _REF_KEY.fullmatch(key)) is None:
            continue
        age = int(text) if _WHOLE.fullmatch(text) and int(text) > 0 else MOST
        if about["kind"] is None:
            every = age
        else:
            ages[about["kind"], about["name"]] = age
    return ages, every


def _window(numbers: Mapping[str, int]) -> TableWindow:
    return TableWindow(numbers[MAX_AGE], numbers[MIN_SNAPSHOTS])

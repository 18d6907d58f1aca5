"""Globs over dataset, branch and transaction names.

`*` is any run of characters (also `/`), `?` one character, `[a-z]` one of a set, `[!a-z]` one not of it; the case counts.
A name that is equal to the text is always meant as well: ids hold these signs, and a hold on one must hold it.
Belongs here: the one meaning of a glob, for one name and for many at once.
"""

import fnmatch
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

_SPECIAL = frozenset("*?[")


def is_literal(glob: str) -> bool:
    """Whether a glob can match only itself."""
    return _SPECIAL.isdisjoint(glob)


@lru_cache(maxsize=4096)
def _compiled(globs: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{fnmatch.translate(glob)})" for glob in globs), re.DOTALL)


def matches(name: str, globs: Iterable[str]) -> bool:
    """Whether any glob matches the whole name, or is the name."""
    return matching((name,), globs)[0]


def matching(names: Sequence[str], globs: Iterable[str]) -> list[bool]:
    """For each name, whether any glob matches it, or is it. Literal globs cost a set look-up, not a scan of patterns."""
    wanted = tuple(globs)
    if "*" in wanted:
        return [True] * len(names)
    exact = frozenset(wanted)
    patterns = tuple(glob for glob in wanted if not is_literal(glob))
    if not patterns:
        return [name in exact for name in names]
    match = _compiled(patterns).match
    return [name in exact or match(name) is not None for name in names]

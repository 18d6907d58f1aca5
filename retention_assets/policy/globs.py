"""Globs over dataset, branch and transaction names.

`*` is any run of characters (also `/`), `?` one character, `[a-z]` one of a set, `[!a-z]` one not of it; case counts. A
name that equals the text always matches: ids contain these signs, and a hold on one must hold it. What protects (a hold, an
exclude) also matches names that are the same text in another Unicode normalisation.
"""

import fnmatch
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

_SPECIAL = frozenset("*?[")


def is_literal(glob: str) -> bool:
    return _SPECIAL.isdisjoint(glob)


@lru_cache(maxsize=4096)
def _compiled(globs: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{fnmatch.translate(glob)})" for glob in globs), re.DOTALL)


def matches(name: str, globs: Iterable[str]) -> bool:
    """True if any glob matches the whole name, or is the name."""
    return matching((name,), globs)[0]


def matching(names: Sequence[str], globs: Iterable[str]) -> list[bool]:
    """`matches` for many names. Literal globs cost a set look-up, not a scan of patterns."""
    wanted = tuple(globs)
    if "*" in wanted:
        return [True] * len(names)
    exact = frozenset(wanted)
    patterns = tuple(glob for glob in wanted if not is_literal(glob))
    if not patterns:
        return [name in exact for name in names]
    match = _compiled(patterns).match
    return [name in exact or match(name) is not None for name in names]


def protects(name: str, globs: Iterable[str]) -> bool:
    """Match as a hold or an exclude does: also in another Unicode normalisation."""
    return protecting((name,), globs)[0]


def protecting(names: Sequence[str], globs: Iterable[str]) -> list[bool]:
    """`protects` for many names: globs and names as they stand, or both in Unicode's form NFC."""
    wanted = tuple(globs)
    composed = tuple(_composed(glob) for glob in wanted)
    matched = matching(names, (*wanted, *composed) if composed != wanted else wanted)
    rest = [place for place, name in enumerate(names) if not (matched[place] or name.isascii())]
    if rest:
        for place, is_meant in zip(rest, matching([_composed(names[place]) for place in rest], composed), strict=True):
            matched[place] = is_meant
    return matched


def _composed(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFC", text)

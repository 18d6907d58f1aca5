"""Masks secrets in every text that leaves the program. Spark tasks get the secrets with their stores' settings."""

import json
import re
import traceback
from collections.abc import Collection, Iterator
from typing import Any
from urllib.parse import quote, unquote

_KEY = re.compile(
    r"pass(word|wd|phrase)|secret|token|credential|(access|api|private|account|shared)[-_.]?key|signature|(^|[-_.])sas($|[-_.])",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"://[^/@:]*:([^/@]+)@")
# Characters. Shorter values occur in too many words, and masking would reveal their place.
_SHORTEST, _SHORTEST_OF_ENVIRONMENT = 4, 6
_WORDS = {"true", "false", "none", "null"}

_known: set[str] = set()
_pattern: re.Pattern[str] | None = None


def secrets_in(data: Any, from_environment: Collection[str]) -> frozenset[str]:
    """Values of keys that look secret, passwords in URLs, and values from the environment."""
    values = {value for value in _values(data, is_secret=False) if len(value) >= _SHORTEST and value.lower() not in _WORDS}
    return frozenset(values | {value for value in from_environment if len(value) >= _SHORTEST_OF_ENVIRONMENT})


def _values(data: Any, *, is_secret: bool) -> Iterator[str]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _values(value, is_secret=is_secret or bool(_KEY.search(str(key))))
    elif isinstance(data, list):
        for value in data:
            yield from _values(value, is_secret=is_secret)
    elif is_secret and isinstance(data, str | int | float):
        # Iceberg's `credential` is `id:secret`.
        yield from {str(data), str(data).rpartition(":")[2]}
    elif isinstance(data, str):
        yield from (unquote(password) for password in _IN_URL.findall(data))


def remember_secrets(secrets: Collection[str]) -> None:
    """Mask these in each text that leaves this process from now on."""
    global _pattern
    # Plain, and as in JSON, in a URL and in a repr.
    forms = {form for one in secrets for form in (one, json.dumps(one)[1:-1], quote(one, safe=""), repr(one)[1:-1])}
    if not forms <= _known:
        _known.update(forms)
        _pattern = re.compile("|".join(map(re.escape, sorted(_known, key=len, reverse=True))))


def known_secrets() -> frozenset[str]:
    return frozenset(_known)


def masked(text: str) -> str:
    return _pattern.sub("***", text) if _pattern else text


def masked_fault(fault: Exception) -> Exception:
    """Return the exception if its trace has no secret, otherwise one with the masked trace as its text."""
    trace = "".join(traceback.format_exception(fault))
    return fault if (text := masked(trace)) == trace else RuntimeError(text)

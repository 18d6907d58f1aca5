"""Substitutes `${NAME}` and `${NAME:-default}` in the strings of a document from a given environment.

A value stays text and is never parsed or expanded again, so a password may hold any character.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from retention_assets.errors import InvalidValue, Problem, quote
from retention_assets.policy.errors import dotted
from retention_assets.settings.urls import mask_secrets
from retention_assets.settings.yaml import Document, Path_

# `$$`, `${NAME}` with an optional default in which a dollar is written `$$`, or an invalid dollar.
_DOLLAR = re.compile(r"\$(?:(?P<dollar>\$)|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>(?:[^$}]|\$\$)*))?\}|)")


@dataclass
class Expansion:
    """A document's data with expanded strings, and the faults."""

    data: Any
    substituted: set[Path_] = field(default_factory=set)
    # Substituted values, except in names of stores, which begin the names of datasets.
    values: set[str] = field(default_factory=set, repr=False)
    faulty: dict[Path_, Problem] = field(default_factory=dict)


def expand(document: Document, environ: Mapping[str, str]) -> Expansion:
    """Expand every string value. Keys, and strings with a fault, stay unchanged."""
    expansion = Expansion(None)
    expansion.data = _walk(document.data, (), document, environ, expansion)
    return expansion


def _walk(value: Any, path: Path_, document: Document, environ: Mapping[str, str], into: Expansion) -> Any:
    if isinstance(value, dict):
        return {key: _walk(item, (*path, key), document, environ, into) for key, item in value.items()}
    if isinstance(value, list):
        return [_walk(item, (*path, index), document, environ, into) for index, item in enumerate(value)]
    if not isinstance(value, str) or "$" not in value:
        return value
    try:
        text = expand_text(value, environ)
    except InvalidValue as fault:
        into.faulty[path] = Problem(
            fault.what, file=document.file, line=document.line(path), key=dotted(path), value=quote(mask_secrets(value)),
            expected=fault.expected, remedy=fault.remedy,
        )  # fmt: skip
        return value
    into.substituted.add(path)
    if (path[:1], path[2:]) != (("stores",), ("name",)):
        into.values.update(environ.get(match["name"] or "", "") for match in _DOLLAR.finditer(value))
    return text


def expand_text(text: str, environ: Mapping[str, str]) -> str:
    """Expand one string. The default replaces an unset or empty variable, as in a shell."""

    def replacement(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if match["dollar"]:
            return "$"
        if name is None:
            raise InvalidValue(
                "holds a $ that begins no variable", "${NAME} or ${NAME:-default}", "Write $$ for a dollar sign."
            )
        if default is not None:
            return environ.get(name) or default.replace("$$", "$")
        if name not in environ:
            raise InvalidValue(
                f"the environment variable {name} is not set", "a variable that is set",
                f"Set {name}, or write a default into the file: ${{{name}:-…}}.",
            )  # fmt: skip
        return environ[name]

    return _DOLLAR.sub(replacement, text)

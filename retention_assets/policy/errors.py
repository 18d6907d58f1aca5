"""Translate validation errors of settings and policies into problems: file, line, policy, key, value and expectation."""

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from retention_assets.errors import InvalidValue, Problem, quote, suggest
from retention_assets.settings.yaml import Document, Path_, without_value
from retention_assets.settings.yaml import dotted as dotted

_SHAPES = {
    "string_type": "a string",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dict_type": "a mapping",
    "tuple_type": "a list",
    "list_type": "a list",
    "finite_number": "a finite number",
}
_BOUNDS = {"greater_than": ("gt", "more than"), "greater_than_equal": ("ge", "at least"), "less_than_equal": ("le", "at most")}


def problems_of(
    error: ValidationError, document: Document, model: type[BaseModel], at: Path_ = (), policy: str | None = None
) -> list[Problem]:
    """Every fault that a model found in the part of a document at a path."""
    return [_problem(detail, document, model, at, policy) for detail in error.errors(include_url=False)]


def empty_values(document: Document, at: Path_ = (), policy: str | None = None) -> list[Problem]:
    """A problem for each key without a value, in the part of a document at a path."""
    return [
        Problem(
            "has no value", file=document.file, line=document.line((*at, *path)), policy=policy, key=dotted(path) or None,
            expected="a value", remedy="Write one, or take the key out.",
        )
        for path in without_value(_part(document.data, at))
    ]  # fmt: skip


def _problem(detail: ErrorDetails, document: Document, model: type[BaseModel], at: Path_, policy: str | None) -> Problem:
    where = _in_text(detail["loc"], _part(document.data, at))
    kind, context = detail["type"], detail.get("ctx", {})
    what, expected, remedy, value = detail["msg"], None, None, None
    fault = context.get("error")
    if isinstance(fault, InvalidValue):
        what, expected, remedy = fault.what, fault.expected, fault.remedy
        where = (*where, *fault.way)
    elif kind == "extra_forbidden":
        known = _keys(model, where[:-1])
        what, expected = "is not a known key", f"one of {', '.join(known)}"
        remedy = suggest(str(where[-1]), known)
    elif kind == "missing":
        what, expected = "is missing", "a value"
    elif kind in _SHAPES:
        what, expected = "has the wrong type", _SHAPES[kind]
    elif kind in _BOUNDS:
        bound, words = _BOUNDS[kind]
        what, expected = "is out of bounds", f"{words} {context[bound]}"
    elif kind in ("too_short", "string_too_short"):
        what, expected = "is empty", "at least one entry" if kind == "too_short" else "at least one character"
    elif kind == "literal_error":
        what, expected = "is not one of the known words", str(context["expected"])
    found = _part(document.data, (*at, *where))
    if kind not in ("missing", "extra_forbidden") and found is not None and not isinstance(found, dict | list):
        value = quote(found)
    return Problem(
        what, file=document.file, line=document.line((*at, *where)), policy=policy, key=dotted(where) or None,
        value=value, expected=expected, remedy=remedy,
    )  # fmt: skip


def _in_text(loc: tuple[int | str, ...], data: Any) -> Path_:
    # A shorthand (`older_than: 30d`) has no deeper keys in the text.
    path: list[str | int] = []
    for position, part in enumerate(loc):
        last = position == len(loc) - 1
        if isinstance(data, dict) and (part in data or last):
            data = data.get(str(part))
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            break
        path.append(part)
    return tuple(path)


def _part(data: Any, path: Path_) -> Any:
    for part in path:
        if isinstance(data, dict):
            data = data.get(str(part))
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return None
    return data


def _keys(model: type[BaseModel], path: Path_) -> list[str]:
    current: type[BaseModel] | None = model
    for part in path:
        if current is None:
            break
        if isinstance(part, int):
            continue
        current = next(
            (_model_in(field.annotation) for name, field in current.model_fields.items() if part in (name, field.alias)), None
        )
    return [] if current is None else [field.alias or name for name, field in current.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for argument in get_args(annotation) if (found := _model_in(argument)) is not None), None)


def mapping_expected(document: Document, keys: Mapping[str, Any] | list[str]) -> Problem:
    """Problem of a document that is not a mapping at its top."""
    kind = {list: "a list", str: "a string", int: "a number", float: "a number", bool: "a boolean"}.get(
        type(document.data), "nothing"
    )
    return Problem(
        f"is {kind} at its top", file=document.file, line=document.line(()),
        expected=f"a mapping with the keys {', '.join(keys)}",
    )  # fmt: skip

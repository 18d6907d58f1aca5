"""YAML documents: read safely into plain data with the line of each key, expand variables, and report faults of models.

No tags, duplicate keys or merge keys; bounded size, depth and alias expansion. Scalars follow YAML 1.2's core schema, so `on`,
`12:30` and `2026-01-01` stay strings. A value of the environment stays text and is never parsed or expanded again, so a
password may hold any character.
"""

import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from retention_assets.errors import BadInput, InvalidValue, Problem, irregular, quote, suggest
from retention_assets.settings.places import mask_secrets

LARGEST_BYTES = 2 * 1024 * 1024
DEEPEST = 50
# Counted after alias expansion, which is what an alias bomb blows up.
MOST_NODES = 200_000

Path_ = tuple[str | int, ...]

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"[-+]?[0-9]{1,30}|0o[0-7]{1,30}|0x[0-9a-fA-F]{1,30}", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,4})?", re.ASCII)
_WORDS: dict[str, object] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf"), math.inf),
    "-.inf": -math.inf,
    ".nan": math.nan,
}


@dataclass(frozen=True)
class Document:
    """Plain data and the lines of its keys."""

    file: str
    data: Any
    lines: dict[Path_, int] = field(repr=False)

    def line(self, path: Path_) -> int | None:
        """Line of a key, or of its nearest ancestor in the text."""
        for length in range(len(path), -1, -1):
            if (line := self.lines.get(path[:length])) is not None:
                return line
        return None


def read_document(path: Path) -> Document:
    """Read one file. Raises BadInput with place and reason; never returns half a document."""
    file = str(path)
    try:
        # Opening a pipe would wait for its writer.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise BadInput(irregular(file))
            raw = stream.read(LARGEST_BYTES + 1)
    except OSError as fault:
        raise BadInput(Problem(f"cannot be read: {fault.strerror or fault}", file=file)) from None
    if len(raw) > LARGEST_BYTES:
        raise BadInput(
            Problem(
                "is too large",
                file=file,
                expected=f"at most {LARGEST_BYTES // 1024 // 1024} MiB",
                remedy="Split it into several files.",
            )
        )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise BadInput(
            Problem("is not text", file=file, line=raw[: fault.start].count(b"\n") + 1, expected="a YAML file in UTF-8")
        ) from None
    return parse_document(text, file)


def parse_document(text: str, file: str) -> Document:
    builder = _Builder(file)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        raise BadInput(
            Problem(f"is not valid YAML: {fault.problem or fault.context}", file=file, line=mark.line + 1 if mark else None)
        ) from None
    except yaml.reader.ReaderError as fault:
        raise BadInput(
            Problem("holds a character that YAML does not allow", file=file, value=quote(fault.character), expected="text")
        ) from None
    except UnicodeEncodeError as fault:
        raise BadInput(Problem("holds a half character", file=file, value=quote(text[fault.start]), expected="text")) from None
    if not builder.documents:
        raise BadInput(Problem("is empty", file=file, expected="a YAML document"))
    return Document(file, builder.root, builder.lines)


@dataclass
class _Open:
    """A collection being read: value, path, and in a mapping the key that waits for its value."""

    value: Any
    path: Path_
    size: int = 1
    height: int = 1
    anchor: str | None = None
    key: Any = None
    keyed: bool = False


class _Builder:
    """Builds data from parser events without recursion, so depth can't overflow the stack."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.root: Any = None
        self.documents = 0
        self.lines: dict[Path_, int] = {}
        # With number of nodes and levels: an alias must not exceed the document's bounds.
        self.anchors: dict[str, tuple[Any, int, int]] = {}
        self.stack: list[_Open] = []

    def take(self, event: Any) -> None:
        if (tag := getattr(event, "tag", None)) is not None:
            self._refuse(event, f"tag {quote(tag)} is not read", "plain YAML without tags")
        match event:
            case yaml.DocumentStartEvent():
                self.documents += 1
                if self.documents > 1:
                    self._refuse(event, "holds a second document", "one document in a file", "Split it into two files.")
            case yaml.AliasEvent():
                if event.anchor is None or event.anchor not in self.anchors:
                    self._refuse(
                        event,
                        f"alias *{event.anchor} refers to itself or to nothing",
                        "an anchor that is complete before it is used",
                    )
                value, size, height = self.anchors[event.anchor]
                self._place(event, value, size, height)
            case yaml.ScalarEvent():
                value = self._scalar(event)
                if event.anchor:
                    self.anchors[event.anchor] = (value, 1, 0)
                self._place(event, value, 1, 0)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                if len(self.stack) >= DEEPEST:
                    self._refuse(event, "is nested too deeply", f"at most {DEEPEST} levels")
                top = self.stack[-1] if self.stack else None
                if top is not None and isinstance(top.value, dict) and not top.keyed:
                    self._refuse(event, "has a mapping or a list as a key", "a string as a key")
                value = {} if isinstance(event, yaml.MappingStartEvent) else []
                path = self._next_path()
                self.lines.setdefault(path, _line_of(event))
                self.stack.append(_Open(value, path, anchor=event.anchor))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                done = self.stack.pop()
                if done.anchor:
                    self.anchors[done.anchor] = (done.value, done.size, done.height)
                self._place(event, done.value, done.size, done.height)

    def _next_path(self) -> Path_:
        if not self.stack:
            return ()
        top = self.stack[-1]
        if isinstance(top.value, list):
            return (*top.path, len(top.value))
        return (*top.path, top.key) if top.keyed else top.path

    def _place(self, event: Any, value: Any, size: int, height: int) -> None:
        if not self.stack:
            self.root = value
            return
        if len(self.stack) + height > DEEPEST:
            self._refuse(event, "is nested too deeply", f"at most {DEEPEST} levels, aliases expanded")
        top = self.stack[-1]
        top.size += size
        top.height = max(top.height, height + 1)
        if top.size > MOST_NODES:
            self._refuse(event, "expands to too many values", f"at most {MOST_NODES}, aliases expanded")
        if isinstance(top.value, list):
            self.lines.setdefault((*top.path, len(top.value)), _line_of(event))
            top.value.append(value)
        elif not top.keyed:
            self._key(event, top, value)
        else:
            top.value[top.key] = value
            top.keyed = False

    def _key(self, event: Any, top: _Open, key: Any) -> None:
        if not isinstance(key, str):
            self._refuse(event, f"key {quote(key)} is not a string", "a string as a key", "Put it in quotes.")
        if key == "<<":
            self._refuse(event, "merge keys are not read", "every key written out")
        top.key, top.keyed = key, True
        if key in top.value:
            self._refuse(event, "stands twice in one mapping", "each key once")
        self.lines[(*top.path, key)] = _line_of(event)

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        if event.style in ("'", '"', "|", ">"):
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _INT.fullmatch(text):
            return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
        if _FLOAT.fullmatch(text):
            return float(text)
        return text

    def _refuse(self, event: Any, what: str, expected: str, remedy: str | None = None) -> NoReturn:
        key = dotted(self._next_path()) or None
        raise BadInput(Problem(what, file=self.file, line=_line_of(event), key=key, expected=expected, remedy=remedy))


def _line_of(event: Any) -> int:
    return int(event.start_mark.line) + 1


def dotted(path: Path_) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def yaml_files(path: Path) -> list[Path]:
    """The file itself, or the YAML files directly in a folder, by name. Sub-folders (examples) are not in force."""
    if not path.is_dir():
        return [path]
    files = (child for child in path.iterdir() if child.suffix.lower() in (".yaml", ".yml") and not child.name.startswith("."))
    return sorted(files, key=lambda child: child.name)


def without_value(data: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Keys without a value: an empty line must not be mistaken for a missing one."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from without_value(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from without_value(value, (*path, index))
    elif data is None:
        yield path


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
    return [_problem(detail, document, model, at, policy) for detail in error.errors(include_url=False)]


def empty_values(document: Document, at: Path_ = (), policy: str | None = None) -> list[Problem]:
    return [
        Problem(
            "has no value", file=document.file, line=document.line((*at, *path)), policy=policy, key=dotted(path) or None,
            expected="a value", remedy="Write one, or remove the key.",
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
    written = _part(document.data, (*at, *where))
    if kind not in ("missing", "extra_forbidden") and written is not None and not isinstance(written, dict | list):
        value = quote(written)
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
    return next((model for argument in get_args(annotation) if (model := _model_in(argument)) is not None), None)


def mapping_expected(document: Document, keys: Mapping[str, Any] | list[str]) -> Problem:
    kind = {list: "a list", str: "a string", int: "a number", float: "a number", bool: "a boolean"}.get(
        type(document.data), "nothing"
    )
    return Problem(
        f"is {kind} at its top", file=document.file, line=document.line(()),
        expected=f"a mapping with the keys {', '.join(keys)}",
    )  # fmt: skip


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
    expansion = Expansion(None)

    def walk(value: Any, path: Path_) -> Any:
        if isinstance(value, dict):
            return {key: walk(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [walk(item, (*path, index)) for index, item in enumerate(value)]
        if not isinstance(value, str) or "$" not in value:
            return value
        try:
            text = expand_text(value, environ)
        except InvalidValue as fault:
            expansion.faulty[path] = Problem(
                fault.what, file=document.file, line=document.line(path), key=dotted(path), value=quote(mask_secrets(value)),
                expected=fault.expected, remedy=fault.remedy,
            )  # fmt: skip
            return value
        expansion.substituted.add(path)
        if (path[:1], path[2:]) != (("stores",), ("name",)):
            expansion.values.update(environ.get(match["name"] or "", "") for match in _DOLLAR.finditer(value))
        return text

    expansion.data = walk(document.data, ())
    return expansion


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

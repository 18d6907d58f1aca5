"""Policy files: read all of them, or refuse with every fault; their JSON Schema; and the datasets that a rule could be about.

A broken policy stops the run. It is never skipped: a skipped keep rule is a deletion.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from retention_assets.errors import BadInput, Problem, suggest
from retention_assets.policy.datahub import PREFIX, AspectEntry, looks_like_datahub, overlay, read_entries
from retention_assets.policy.globs import is_literal, matches, matching, protecting
from retention_assets.policy.keys import Several, Value
from retention_assets.policy.model import (
    DEFAULT_GRACE,
    VISIBILITY_PREFIX,
    Datasets,
    Hold,
    Keeper,
    Policy,
    RetainRule,
    VisibilityRule,
)
from retention_assets.settings.yaml import Document, empty_values, mapping_expected, problems_of, read_document, yaml_files

_RESERVED = {PREFIX: "in DataHub's own format", VISIBILITY_PREFIX: "of visibility"}

V = TypeVar("V", Policy, Hold, RetainRule, VisibilityRule)


class PolicyFile(Value):
    """A policy file. The JSON Schema for editors is generated from it."""

    policies: Several[Policy] = ()
    holds: Several[Hold] = ()
    retain: Several[RetainRule] = ()
    visibility: Several[VisibilityRule] = ()


@dataclass(frozen=True)
class Policies:
    """Policies of the files in (file name, position) order, with holds, DataHub entries and visibility rules."""

    policies: tuple[Policy, ...] = ()
    # holds, then retain rules
    holds: tuple[Keeper, ...] = ()
    entries: tuple[AspectEntry, ...] = ()
    visibility: tuple[VisibilityRule, ...] = ()


@dataclass(frozen=True)
class _Part:
    """Policy, hold or visibility entry as it stands in a file, not yet a value."""

    document: Document
    list_: str
    index: int
    name: str | None

    @property
    def label(self) -> str:
        return self.name or f"#{self.index + 1}"

    @property
    def line(self) -> int | None:
        return self.document.line((self.list_, self.index, "name"))

    def problem(self, key: str, what: str, expected: str, remedy: str | None = None, value: str | None = None) -> Problem:
        return Problem(what, self.document.file, self.line, self.label, key, value, expected, remedy)


def load_policies(
    paths: Iterable[Path],
    stores: Collection[str] | None = None,
    needing_grace: Collection[str] = (),
    branches: Mapping[str, bool | None] | None = None,
    undo_faults: Mapping[str, str] | None = None,
) -> Policies:
    """Read files and folders. `stores`, when given, are the store names that exist; others in an include are faults.

    Other faults: no grace where a store of `needing_grace` may match, `undo` where one of `undo_faults` may, and lines about
    branches where no store that may match has any. `branches` tells by store name whether it has some; None: unknown.
    """
    documents = list(_documents(paths))
    problems: list[Problem] = []
    policies: list[tuple[_Part, Policy]] = []
    holds: list[tuple[_Part, Hold]] = []
    retain: list[tuple[_Part, RetainRule]] = []
    visibility: list[tuple[_Part, VisibilityRule]] = []
    entries: list[list[AspectEntry]] = []
    for document in documents:
        try:
            if looks_like_datahub(document.data):
                entries.append(read_entries(document))
            else:
                _check_top(document)
                policies += _read_parts(document, "policies", Policy, problems)
                holds += _read_parts(document, "holds", Hold, problems)
                retain += _read_parts(document, "retain", RetainRule, problems)
                visibility += _read_parts(document, "visibility", VisibilityRule, problems)
        except BadInput as fault:
            problems += fault.problems
    problems += _repeated_names(policies, "policy")
    problems += _reserved([part for part, _ in policies])
    problems += _repeated_names(holds, "hold")
    problems += _repeated_names(retain, "retain rule")
    # Two retentions for the same datasets are ambiguous.
    what, expected = "matches the same datasets as another entry of visibility", "one retention for the same datasets"
    problems += _repeated([(rule.name, part) for part, rule in visibility], "datasets", what, expected)
    problems += _without_grace(policies, needing_grace)
    problems += _without_undo(policies, undo_faults or {})
    problems += _without_branches(policies, branches or {})
    scoped: list[tuple[_Part, Policy | Hold | RetainRule | VisibilityRule]] = [*policies, *holds, *retain, *visibility]
    for part, rule in scoped:
        problems += _unknown_stores(part, rule.datasets, stores)
    if problems:
        raise BadInput(problems)
    named = [hold if hold.name else hold.model_copy(update={"name": f"hold-{n}"}) for n, (_, hold) in enumerate(holds, 1)]
    keepers: tuple[Keeper, ...] = (*named, *(rule for _, rule in retain))
    readable = tuple(rule for _, rule in visibility)
    return Policies(tuple(policy for _, policy in policies), keepers, tuple(overlay(entries)), readable)


def _documents(paths: Iterable[Path]) -> Iterator[Document]:
    problems: list[Problem] = []
    documents: list[Document] = []
    for path in paths:
        files = yaml_files(path) if path.exists() else []
        if not files:
            what = "holds no policy file" if path.exists() else "is not there"
            problems.append(Problem(what, file=str(path), expected="a YAML file, or a folder with *.yaml files"))
        for file in files:
            try:
                documents.append(read_document(file))
            except BadInput as fault:
                problems += fault.problems
    if problems:
        raise BadInput(problems)
    yield from sorted(documents, key=lambda document: (Path(document.file).name, document.file))


def _check_top(document: Document) -> None:
    keys = list(PolicyFile.model_fields)
    if not isinstance(document.data, dict):
        raise BadInput(mapping_expected(document, keys))
    problems = [problem for problem in empty_values(document) if problem.key in keys]
    for key, value in document.data.items():
        line = document.line((key,))
        if key not in keys:
            expected, what = f"one of {', '.join(keys)}", "is not a known key"
            problems.append(Problem(what, document.file, line, key=key, expected=expected, remedy=suggest(key, keys)))
        elif value is not None and not isinstance(value, list):
            problems.append(Problem("has the wrong type", file=document.file, line=line, key=key, expected="a list"))
    if problems:
        raise BadInput(problems)
    if not document.data:
        expected, remedy = f"the keys {', '.join(keys)}", "For no policies write `policies: []`."
        raise BadInput(Problem("is empty", file=document.file, line=document.line(()), expected=expected, remedy=remedy))


def _read_parts(document: Document, list_: str, model: type[V], problems: list[Problem]) -> list[tuple[_Part, V]]:
    built: list[tuple[_Part, V]] = []
    for index, data in enumerate(document.data.get(list_, ())):
        name = data.get("name") if isinstance(data, dict) else None
        part = _Part(document, list_, index, name if isinstance(name, str) else None)
        if empty := empty_values(document, (list_, index), part.label):
            problems += empty
            continue
        try:
            built.append((part, model.model_validate(data)))
        except ValidationError as error:
            problems += problems_of(error, document, model, at=(list_, index), policy=part.label)
    return built


def _repeated(parts: Iterable[tuple[str | None, _Part]], key: str, what: str, expected: str) -> Iterator[Problem]:
    # `parts` stand behind the value that no other part may have: a name, or datasets
    first: dict[str, _Part] = {}
    for own, part in parts:
        if own is not None and (other := first.setdefault(own, part)) is not part:
            yield part.problem(key, what, expected, f"The other one is at {other.document.file}:{other.line}.")


def _repeated_names(parts: Iterable[tuple[_Part, object]], what: str) -> Iterator[Problem]:
    named = [(part.name, part) for part, _ in parts]
    return _repeated(named, "name", f"is also the name of another {what}", "a name of its own")


def _reserved(parts: Sequence[_Part]) -> Iterator[Problem]:
    for part in parts:
        for prefix, whose in _RESERVED.items():
            if part.name is not None and part.name.startswith(prefix):
                yield part.problem("name", f"begins with {prefix}, which names entries {whose}", "a name of your own")


def _without_grace(policies: Sequence[tuple[_Part, Policy]], stores: Collection[str]) -> Iterator[Problem]:
    for part, policy in policies:
        for store in () if policy.grace else sorted(stores):
            if may_be_about(policy.datasets, store):
                what = f"has no grace, but may match store {store}, whose writers reuse existing objects (`rewrites`)"
                remedy = f"Give it a grace in which writers can refer to objects that they reuse, or exclude {store}/*."
                yield part.problem("grace", what, "a grace longer than 0s", remedy)


def _without_undo(policies: Sequence[tuple[_Part, Policy]], faults: Mapping[str, str]) -> Iterator[Problem]:
    for part, policy in policies:
        for store, fault in faults.items() if policy.undo else ():
            if may_be_about(policy.datasets, store):
                remedy = f"{fault.removesuffix('.')}, or exclude {store}/*."
                yield part.problem("undo", f"may match store {store}", "stores that can set data aside", remedy)


def _without_branches(policies: Sequence[tuple[_Part, Policy]], branches: Mapping[str, bool | None]) -> Iterator[Problem]:
    for part, policy in policies:
        stores = [store for store in branches if may_be_about(policy.datasets, store)]
        has_branches = any(branches[store] is not False for store in stores)
        for key in policy.lines_about_branches if stores and not has_branches else ():
            yield part.problem(
                key,
                f"asks for views or branches, and the datasets of {' and '.join(stores)} have none: it would select nothing",
                "lines that apply without branches, such as older_than and beyond.transactions",
                "Remove it, or name datasets with branches.",
            )


def may_be_about(datasets: Datasets, store: str) -> bool:
    """Tell by its name alone whether a store may have datasets in the scope."""
    # A wildcard may match the slash as well: some beginning of the glob has to match the store and its slash.
    begins = (glob[:end] for glob in datasets.include for end in range(1, len(glob) + 1))
    return matches(f"{store}/", begins) and f"{store}/*" not in datasets.exclude


def _unknown_stores(part: _Part, datasets: Datasets, stores: Collection[str] | None) -> Iterator[Problem]:
    if stores is None:
        return
    # A wrong store in an exclude is a keep rule that keeps nothing.
    for key, glob in [("include", glob) for glob in datasets.include] + [("exclude", glob) for glob in datasets.exclude]:
        store, slash, _ = glob.partition("/")
        if slash and is_literal(store) and store not in stores:
            expected = f"one of the stores {', '.join(sorted(stores)) or '(none)'}"
            remedy = suggest(store, sorted(stores)) or "Add the store to retention.yaml, or mend the glob."
            yield part.problem(f"datasets.{key}", f"store '{store}' is not in the settings", expected, remedy, f"'{glob}'")


def rules_reaching(names: Sequence[str], scope: Datasets) -> list[str]:
    """Names that a scope could be about, in their order. Attributes are known only once a log is read, so all may fit."""
    places = {name: place for place, name in enumerate(names)}
    return [names[place] for place in sorted(_places(names, places, scope.include, scope.exclude))]


def digests(names: Sequence[str], rules: Sequence[tuple[Datasets, str]]) -> list[str]:
    """Digest of the rules that could reach each name, whatever their order. A rule is a scope and its text."""
    # numbers of rules by the globs of their scopes, include and exclude
    rules_of: dict[tuple[tuple[str, ...], tuple[str, ...]], list[int]] = {}
    for number, (scope, _) in enumerate(rules):
        rules_of.setdefault((scope.include, scope.exclude), []).append(number)
    places = {name: place for place, name in enumerate(names)}
    scopes = list(rules_of)
    # numbers of the scopes that reach each name
    reaching: list[list[int]] = [[] for _ in names]
    for number, globs in enumerate(scopes):
        for place in _places(names, places, *globs):
            reaching[place].append(number)
    digest_of: dict[tuple[int, ...], str] = {}
    for key in set(map(tuple, reaching)):
        numbers = sorted(rule for number in key for rule in rules_of[scopes[number]])
        text = json.dumps([rules[number][1] for number in numbers], ensure_ascii=False)
        digest_of[key] = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
    return [digest_of[tuple(key)] for key in reaching]


def _places(
    names: Sequence[str], by_name: Mapping[str, int], include: Sequence[str], exclude: Sequence[str]
) -> Collection[int]:
    places = {by_name[glob] for glob in include if glob in by_name}
    # A hold reaches wider than a policy; judging a dataset once more does no harm.
    if patterns := [glob for glob in include if not (is_literal(glob) and glob.isascii())]:
        places.update(place for place, matched in enumerate(protecting(names, patterns)) if matched)
    if places and exclude:
        order = sorted(places)
        excluded = matching([names[place] for place in order], exclude)
        return [place for place, is_excluded in zip(order, excluded, strict=True) if not is_excluded]
    return places


_NULL = {"type": "null"}
# parts whose keys may all be left out, but not all at once
_NOT_EMPTY = ("Beyond", "Limits", "Newest", "Selection")


def policy_schema() -> str:
    """Render the schema as text, stable from run to run.

    Names that collide, conditions and keys that need each other are beyond a schema: `retention validate` refuses them.
    """
    schema: dict[str, Any] = as_in_a_file(PolicyFile.model_json_schema(by_alias=True))
    parts = schema["$defs"]
    parts["Policy"]["properties"]["grace"]["default"] = str(DEFAULT_GRACE)
    for name in _NOT_EMPTY:
        parts[name]["minProperties"] = 1
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Retention policies", "minProperties": 1}
    return json.dumps({**schema, **head}, indent=2, sort_keys=True) + "\n"


def as_in_a_file(part: Any) -> Any:
    """Adapt pydantic's schema to files: a key without a value is left out, and a non-empty list has minItems."""
    if isinstance(part, list):
        return [as_in_a_file(item) for item in part]
    if not isinstance(part, dict):
        return part
    schema = {key: as_in_a_file(value) for key, value in part.items() if value is not None}
    if schema.get("type") == "array" and "minLength" in schema:
        schema["minItems"] = schema.pop("minLength")
    if _NULL in schema.get("anyOf", ()):
        alternatives = [other for other in schema.pop("anyOf") if other != _NULL]
        schema = {**alternatives[0], **schema} if len(alternatives) == 1 else {**schema, "anyOf": alternatives}
    return schema

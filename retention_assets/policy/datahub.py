"""DataHub's own retention file: which entry is in force for an aspect, and its translation to a policy.

An entry is about an (entity, aspect); `*` stands for all. Of the entries that fit, the most specific wins whole: nothing is
merged, so an `indefinite` for one aspect sets it free of every general rule.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from retention_assets.errors import BadInput, InvalidValue, Problem
from retention_assets.policy.durations import Duration
from retention_assets.policy.keys import Value
from retention_assets.policy.model import Datasets, KeepAll, Policy
from retention_assets.policy.selection import Beyond, OlderThan, Selection
from retention_assets.settings.yaml import Document, problems_of

ALL = "*"
PREFIX = "datahub:"
LARGEST = 2**31 - 1  # DataHub's numbers are 32 bits wide

_WORD = re.compile(r"\*|[A-Za-z0-9_][A-Za-z0-9_-]*", re.ASCII)
_SPECIAL = re.compile(r"([*?[])")
_SECONDS_OF_A_DAY = 86_400

Key = tuple[str, str]


def _word(text: str) -> str:
    if not _WORD.fullmatch(text):
        raise InvalidValue(
            "is not a name of DataHub", "a whole name such as dataset, or * for all", "There are no other patterns."
        )
    return text


def _present(value: Any) -> Any:
    # A key without a value is no rule, and must not be taken for one that was left out.
    if value is None:
        raise InvalidValue("has no value", "a mapping", "For `indefinite` write {}.")
    return value


Word = Annotated[str, AfterValidator(_word)]
Count = Annotated[int, Field(gt=0, le=LARGEST)]


class IndefiniteRetention(Value):
    """Every version is kept. DataHub gives it no keys."""


class VersionRetention(Value):
    """Number of history versions that are kept beside the current one."""

    max_versions: Annotated[Count, Field(alias="maxVersions")]


class TimeRetention(Value):
    """Time for which versions are kept."""

    max_age_in_seconds: Annotated[Count, Field(alias="maxAgeInSeconds")]


class AspectRetention(Value):
    """Versions that are kept: all, or those that `version` or `time` keeps."""

    indefinite: Annotated[IndefiniteRetention | None, BeforeValidator(_present)] = None
    version: Annotated[VersionRetention | None, BeforeValidator(_present)] = None
    time: Annotated[TimeRetention | None, BeforeValidator(_present)] = None

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        if self.indefinite is None and self.version is None and self.time is None:
            raise InvalidValue("says nothing", "indefinite, version or time", "To keep every version write `indefinite: {}`.")
        if self.indefinite is not None and (self.version is not None or self.time is not None):
            raise InvalidValue("keeps everything and does not", "indefinite alone, or version and time")
        return self


class AspectConfig(Value):
    """DataHub's envelope around a retention."""

    retention: AspectRetention


class AspectEntry(Value):
    """One entry of the file."""

    entity: Word
    aspect: Word
    config: AspectConfig
    force_overwrite: Annotated[bool, Field(alias="forceOverwrite")] = False

    @property
    def key(self) -> Key:
        """Identity by which files overlay each other and the policy book compares."""
        return self.entity, self.aspect

    @property
    def name(self) -> str:
        return f"{PREFIX}{self.entity}.{self.aspect}"


def looks_like_datahub(data: object) -> bool:
    """Recognise DataHub's format: a list at the top, with an entry that names an entity or an aspect."""
    return isinstance(data, list) and any(isinstance(item, dict) and ({"entity", "aspect"} & item.keys()) for item in data)


def read_entries(document: Document) -> list[AspectEntry]:
    if not isinstance(document.data, list):
        expected = "a list of mappings with entity, aspect and config"
        raise BadInput(Problem("is not a list", file=document.file, line=document.line(()), expected=expected))
    problems: list[Problem] = []
    entries: list[AspectEntry] = []
    lines: dict[Key, int | None] = {}
    for index, item in enumerate(document.data):
        try:
            entry = AspectEntry.model_validate(item)
        except ValidationError as error:
            is_named = isinstance(item, dict) and all(isinstance(item.get(part), str) for part in ("entity", "aspect"))
            label = f"{PREFIX}{item['entity']}.{item['aspect']}" if is_named else f"#{index + 1}"
            problems += problems_of(error, document, AspectEntry, at=(index,), policy=label)
            continue
        entries.append(entry)
        line = document.line((index,))
        if entry.key in lines:
            what = f"has a second entry for entity {entry.entity} and aspect {entry.aspect}"
            expected, remedy = "one entry for each entity and aspect", f"The other one is on line {lines[entry.key]}."
            problems.append(Problem(what, document.file, line, entry.name, expected=expected, remedy=remedy))
        lines[entry.key] = line
    if problems:
        raise BadInput(problems)
    return entries


def overlay(files: Iterable[Sequence[AspectEntry]]) -> list[AspectEntry]:
    """Overlay files: for each key the entry of the last file, in the order of first appearance."""
    return list({entry.key: entry for entries in files for entry in entries}.values())


def _as_policy(entry: AspectEntry, datasets: Sequence[str], current_counts: bool) -> Policy:
    kept = entry.config.retention
    if kept.indefinite is not None:
        return KeepAll(name=entry.name, description=sentence(entry), datasets=Datasets(include=tuple(datasets)))
    # The current version is protected anyway. It comes on top of `maxVersions`, unless the store says that it counts.
    uncounted = 0 if current_counts else 1
    return Policy(
        name=entry.name,
        description=sentence(entry, current_counts),
        datasets=Datasets(include=tuple(datasets)),
        select=Selection(
            older_than=OlderThan(age=_age(kept.time)) if kept.time else None,
            beyond=Beyond(transactions=kept.version.max_versions + uncounted) if kept.version else None,
        ),
        force_overwrite=entry.force_overwrite,
    )


def policies_for(entries: Sequence[AspectEntry], datasets: Iterable[str], current_counts: bool = False) -> list[Policy]:
    """Build a policy for each entry that wins any dataset `store/entity.aspect`, about those, in the entries' order.

    No entry selects a dataset whose name has another form. An `indefinite` entry becomes a `KeepAll`. With
    `current_counts` the store counts the current version among `maxVersions`.
    """
    by_key = {entry.key: entry for entry in entries}
    won: dict[Key, list[str]] = {key: [] for key in by_key}
    for dataset in sorted(set(datasets)):
        entity, dot, aspect = dataset.partition("/")[2].partition(".")
        order = ((entity, aspect), (ALL, aspect), (entity, ALL), (ALL, ALL)) if entity and dot and aspect else ()
        if key := next((key for key in order if key in by_key), None):
            won[key].append(escape_glob(dataset))
    return [_as_policy(by_key[key], globs, current_counts) for key, globs in won.items() if globs]


def sentence(entry: AspectEntry, current_counts: bool = False) -> str:
    kept = entry.config.retention
    aspects = "every aspect" if entry.aspect == ALL else f"aspect {entry.aspect}"
    aspects += " of every entity" if entry.entity == ALL else f" of entity {entry.entity}"
    if kept.indefinite is not None:
        return f"Keeps every version of {aspects}."
    lines = []
    if kept.version and kept.version.max_versions == 1:
        lines.append("is not the current one" if current_counts else "is not the newest one before the current one")
    elif kept.version:
        which = ", the current one counted" if current_counts else " before the current one"
        lines.append(f"is not among the newest {kept.version.max_versions:,} versions{which}")
    if kept.time:
        lines.append(f"is more than {_age(kept.time).words()} old")
    return f"Marks a version of {aspects} when it {' and '.join(lines)}. The current version always stays."


def escape_glob(name: str) -> str:
    return _SPECIAL.sub(r"[\1]", name)


def _age(time: TimeRetention) -> Duration:
    days, seconds = divmod(time.max_age_in_seconds, _SECONDS_OF_A_DAY)
    return Duration(days=days, seconds=seconds)

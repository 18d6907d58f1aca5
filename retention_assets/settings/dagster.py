"""The `dagster` part of the settings. Dagster is not imported, so that commands which only read settings start at once."""

import re
from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from retention_assets.errors import InvalidValue
from retention_assets.stores.settings import Properties, SettingsPart

# Allowed in names of jobs, which have the prefix as well.
WORD = re.compile(r"[A-Za-z0-9_]+", re.ASCII)
WORDS = "letters, digits and _; a / between the parts of a prefix"
_OWNER = re.compile(r"team:[A-Za-z0-9._-]+|[^\s@]+@[^\s@]+\.[^\s@]+", re.ASCII)
_TAG = re.compile(r"([A-Za-z0-9._-]{1,63}/)?[A-Za-z0-9._-]{1,63}", re.ASCII)
_VALUE = re.compile(r"[A-Za-z0-9._-]{0,63}", re.ASCII)


def _fitting(pattern: re.Pattern[str], expected: str) -> Callable[[str], str]:
    def fit(text: str) -> str:
        if not pattern.fullmatch(text):
            raise InvalidValue("is not what Dagster takes here", expected)
        return text

    return fit


def _parts(value: object) -> object:
    return tuple(value.split("/")) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


def _tags(tags: dict[str, str]) -> dict[str, str]:
    for name, value in tags.items():
        if not _TAG.fullmatch(name) or not _VALUE.fullmatch(value):
            expected = "letters, digits, '.', '_' and '-', at most 63; a name may have a prefix and a /"
            raise InvalidValue(f"has the tag '{name}: {value}', which Dagster refuses", expected)
    return tags


def _address(text: str) -> str:
    if not re.fullmatch(r"https?://\S+", text):
        raise InvalidValue(
            "is no address of a web page", "where the package's folder lies, https://host/group/project/tree/branch"
        )
    return text.rstrip("/")


Prefix = Annotated[str, AfterValidator(_fitting(WORD, WORDS))]
Owner = Annotated[str, AfterValidator(_fitting(_OWNER, "team:name, or an e-mail address"))]


class DagsterSettings(SettingsPart):
    """How this environment stands in Dagster's catalog."""

    # Before asset keys and in every other name: separates projects and environments.
    key_prefix: Annotated[tuple[Prefix, ...], BeforeValidator(_parts, str | list[str])] = ()
    group: Annotated[str, AfterValidator(_fitting(WORD, WORDS))] = "retention"
    owners: Annotated[tuple[Owner, ...], BeforeValidator(_listed, str | list[str])] = ()
    tags: Annotated[Properties, AfterValidator(_tags)] = Field(default_factory=dict)
    # Web page of the folder that holds the package. Without it, assets name the file on disk.
    source: Annotated[str, AfterValidator(_address)] | None = None

"""Names of an `aspects` store: datasets of rows, and transactions as rows.

A dataset is `store/entity.aspect`. The entity is the third part of an urn, whole: `urn:li:dataProcess:…` is another entity than
`urn:li:dataProcessInstance:…`. Rows whose urn is not `urn:li:<entity>:…`, the entity of letters, digits, _ and -, belong to no
entity: per aspect they are one dataset `store/.aspect`, which is always refused, so that nothing of it is ever marked or swept.

A transaction is `<urn>@<version>`, read from the right: an urn may contain @, a version can't.
"""

import re
from functools import cache

_ENTITY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_VERSION = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)
PREFIX = "urn:li:"
# all versions of an urn are equal up to the last of these
VERSION_AT = "@"

Key = tuple[str, str]


def dataset_of(store: str, entity: str | None, aspect: str) -> str:
    return f"{store}/{entity if entity and _ENTITY.fullmatch(entity) else ''}.{aspect}"


def key_of(store: str, dataset: str) -> Key:
    """Return entity and aspect; the entity is empty for rows of no entity."""
    entity, _, aspect = dataset.removeprefix(f"{store}/").partition(".")
    return entity, aspect


def transaction_of(urn: str, version: int) -> str:
    return f"{urn}{VERSION_AT}{version}"


def row_of(transaction: str, entity: str) -> tuple[str, int] | None:
    """Return urn and version; None for a text that names no row of this entity."""
    urn, _, version = transaction.rpartition(VERSION_AT)
    begin = _begin_of(entity)
    return (urn, int(version)) if begin and urn.startswith(begin) and _VERSION.fullmatch(version) else None


@cache
def _begin_of(entity: str) -> str:
    """An empty entity gets a prefix that matches nothing."""
    return f"{PREFIX}{entity}:" if _ENTITY.fullmatch(entity) else ""

"""The names of an `aspects` store: which dataset a row belongs to, and which row a transaction is.

Belongs here: names, read and written. Nothing here touches a database.

A dataset is `store/entity.aspect`. The entity is the third part of an urn, whole: `urn:li:dataProcess:…` is another entity than
`urn:li:dataProcessInstance:…`. Rows whose urn is not `urn:li:<entity>:…`, the entity of letters, digits, _ and -, belong to no
entity: per aspect they are one dataset `store/.aspect`, which is always refused, so that nothing of it is ever marked or swept.

A transaction is `<urn>@<version>`, read from the right: whatever characters an urn has, @ among them, its version has none.
"""

import re
from functools import cache

_ENTITY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_VERSION = re.compile(r"0|-?[1-9][0-9]{0,18}", re.ASCII)
PREFIX = "urn:li:"
# Before the last of these is the urn, so that all versions of an urn are alike before the first.
VERSION_AT = "@"

Key = tuple[str, str]


def dataset_of(store: str, entity: str | None, aspect: str) -> str:
    """The dataset of the rows of an entity (as the database cut it out of an urn) and aspect."""
    return f"{store}/{entity if entity and _ENTITY.fullmatch(entity) else ''}.{aspect}"


def key_of(store: str, dataset: str) -> Key:
    """Entity and aspect of a dataset; the entity is empty where the urns are none."""
    entity, _, aspect = dataset.removeprefix(f"{store}/").partition(".")
    return entity, aspect


def transaction_of(urn: str, version: int) -> str:
    """The name of a row in its dataset."""
    return f"{urn}{VERSION_AT}{version}"


def row_of(transaction: str, entity: str) -> tuple[str, int] | None:
    """The urn and version of a transaction; none for a text that is no name of a row of this entity."""
    urn, _, version = transaction.rpartition(VERSION_AT)
    begin = _begin_of(entity)
    return (urn, int(version)) if begin and urn.startswith(begin) and _VERSION.fullmatch(version) else None


@cache
def _begin_of(entity: str) -> str:
    """With what the urns of an entity begin; with nothing that is one, if it is none."""
    return f"{PREFIX}{entity}:" if _ENTITY.fullmatch(entity) else ""

"""Entries of the policy book: policies, DataHub entries and visibility entries.

Holds are none: people place and release them, each time with a reason, and they have a record of their own.
"""

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from pydantic import ValidationError

from retention_assets.errors import BadInput, Problem
from retention_assets.policy import datahub
from retention_assets.policy.datahub import PREFIX, AspectEntry, escape_glob
from retention_assets.policy.model import VISIBILITY_PREFIX, Datasets, Policy, VisibilityRule, visibility_sentence
from retention_assets.policy.selection import Selection
from retention_assets.policy.sentences import sentence

EVERYWHERE = Datasets(include=("*",))

BookItem = Policy | AspectEntry | VisibilityRule


@dataclass(frozen=True)
class Loaded:
    name: str
    content: str
    digest: str
    force_overwrite: bool = False


@dataclass(frozen=True)
class Stored:
    """Newest version of an entry in the book. A revoked one is no longer in force, but still says who wrote last."""

    name: str
    content: str
    digest: str
    version: int
    written_by: str
    written_at: datetime
    system: bool
    revoked: bool = False


def canonical(item: BookItem) -> str:
    """Render an entry as text that is equal for equal meaning (`30d` and `P30D`), without its `force_overwrite`.

    Defaults are written out, so that a stored version keeps its meaning when a later release has other defaults.
    """
    data = item.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"force_overwrite"})
    if isinstance(item, Policy) and item.select == Selection():
        data["select"] = "all"
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest_of(content: str) -> str:
    """Hash of the content, by which marks and the audit name a version."""
    return hashlib.sha256(content.encode()).hexdigest()


def as_loaded(item: BookItem) -> Loaded:
    kinds = {PREFIX: "DataHub", VISIBILITY_PREFIX: "visibility"}
    kind = next((kind for prefix, kind in kinds.items() if item.name.startswith(prefix)), None)
    if isinstance(item, Policy) and kind:
        what = f"has a name that begins with {item.name.partition(':')[0]}:, which is how {kind} entries are named"
        raise BadInput(Problem(what, policy=item.name, key="name", expected="a name of your own"))
    content = canonical(item)
    return Loaded(item.name, content, digest_of(content), item.force_overwrite)


def item_of(name: str, content: str) -> BookItem | None:
    """Parse a stored content; None where this release no longer understands it."""
    kinds: dict[str, type[BookItem]] = {PREFIX: AspectEntry, VISIBILITY_PREFIX: VisibilityRule}
    model = next((kind for prefix, kind in kinds.items() if name.startswith(prefix)), Policy)
    try:
        return model.model_validate_json(content)
    except ValidationError:
        return None


def sentence_of(item: BookItem) -> str:
    if isinstance(item, Policy):
        return sentence(item)
    return datahub.sentence(item) if isinstance(item, AspectEntry) else visibility_sentence(item)


def scope_of(name: str, content: str, stores: Collection[str] = ()) -> Datasets:
    """Datasets that an entry can reach: all, where this release can't parse it."""
    item = item_of(name, content)
    if item is None:
        return EVERYWHERE
    if not isinstance(item, AspectEntry):
        return item.datasets
    pattern = f"{item.entity}.{item.aspect}"
    return Datasets(include=tuple(f"{escape_glob(store)}/{pattern}" for store in sorted(stores)) or (f"*/{pattern}",))

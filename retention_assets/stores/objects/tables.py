"""Rows that listings and sources of references and edges hand on: their schemas, and the realm, kind and dataset of each
object, derived from its key for whole columns.

A template that cannot be filled, because a key has too few parts or an object has no realm or kind, gives no realm, or the
dataset named as the store. A realm template overrides the column. In the names of datasets, characters that policies' globs
interpret and unprintable ones are percent-encoded (%2A %3F %5B, and %25).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote as percent

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused, quote
from retention_assets.frames.log import INSTANT
from retention_assets.stores.objects.settings import PLACEHOLDER, FromPattern, ObjectsSettings, placeholders

# One row per stored object; for `condition` see notes.py.
OBJECTS = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("realm", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("created_at", INSTANT),
        pa.field("condition", pa.string()),
    ]
)

# Objects with the dataset that `with_names` gives them.
NAMED = OBJECTS.append(pa.field("dataset", pa.string(), nullable=False))

# One row per reference; without a realm, it names the key in every realm. `from` is who refers to it.
REFERENCES = pa.schema(
    [
        pa.field("object", pa.string(), nullable=False),
        pa.field("realm", pa.string()),
        pa.field("from", pa.string()),
    ]
)

# `to` is retained with `from`; without a realm, in every realm
EDGES = pa.schema(
    [
        pa.field("from", pa.string(), nullable=False),
        pa.field("to", pa.string(), nullable=False),
        pa.field("realm", pa.string()),
    ]
)

# rows: some tens of pages of an object store, which makes the cost of columns negligible
BATCH = 50_000


def objects_batch(keys: pa.Array, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    arrays: dict[str, Any] = {"key": keys, **columns}
    return pa.record_batch([arrays.get(field.name, pa.nulls(len(keys), field.type)) for field in OBJECTS], schema=OBJECTS)


SEPARATOR = "/"
# Names starting with :: are the system's own.
_REALM = r"^(::.*|[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*)$"
_SIGNS = "%*?["
# _SIGNS and unprintable characters
_HOSTILE = r"[%*?\[\p{C}\p{Zl}\p{Zp}]|[^ \PZ]"
# Skips escapes and character classes; group 1 is the start of an unnamed group.
_GROUP = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(\((?!\?))", re.DOTALL)


def with_names(batch: pa.RecordBatch, settings: ObjectsSettings) -> pa.RecordBatch:
    """Fill in realm and kind, and append the column `dataset`. Raises Refused for an invalid realm."""
    if (realms := realms_of_keys(batch["key"], settings)) is not None:
        batch = _put(batch, "realm", realms)
    if batch["realm"].null_count < len(batch):
        _check_realms(batch["realm"], batch["key"], settings.name)
    if isinstance(settings.kind_of, FromPattern):
        batch = _put(batch, "kind", kinds_of(batch["key"], settings.kind_of.pattern))
    return batch.append_column(pa.field("dataset", pa.string(), nullable=False), _datasets(batch, settings))


def realms_of_keys(keys: pa.Array, settings: ObjectsSettings) -> pa.Array | None:
    """Realm of each key; None if the settings do not derive it from keys."""
    if not isinstance(settings.realm, str):
        return None
    return _filled(settings.realm, len(keys), lambda part: key_part(keys, part))


def default_dataset(settings: ObjectsSettings) -> str:
    """Dataset of objects that no template can name."""
    return f"{settings.name}{SEPARATOR}{settings.name}"


def constant_dataset(settings: ObjectsSettings) -> str | None:
    """The only dataset, or None if it depends on the objects."""
    if settings.template is None:
        return default_dataset(settings)
    return None if placeholders(settings.template) else f"{settings.name}{SEPARATOR}{_escaped(settings.template)}"


def dataset_parts(settings: ObjectsSettings) -> set[str]:
    """Part numbers, `realm` and `kind` on which the dataset depends, with a realm template resolved."""
    parts = placeholders(settings.template)
    if "realm" in parts and isinstance(settings.realm, str):
        parts = parts - {"realm"} | placeholders(settings.realm)
    return parts


def key_part(keys: pa.Array, name: str) -> pa.Array:
    """Part of each key by its number, from 0; null if the key has fewer."""
    skipped = f"(?:[^{SEPARATOR}]*{SEPARATOR}){{{int(name)}}}" if int(name) else ""
    return pc.struct_field(pc.extract_regex(keys, f"^{skipped}(?P<found>[^{SEPARATOR}]*)"), [0])


def kinds_of(keys: pa.Array, pattern: str) -> pa.Array:
    """Text of the pattern's group in each key; null if empty or not found."""
    named = _named_group(pattern)
    if named is None:
        # Only Python's engine knows this pattern, such as a lookahead.
        search = re.compile(pattern).search
        texts = [match[1] or None if (match := search(key)) else None for key in keys.to_pylist()]
        return pa.array(texts, pa.string())
    kinds = pc.struct_field(pc.extract_regex(keys, named), [0])
    return pc.if_else(pc.equal(kinds, ""), pa.scalar(None, pa.string()), kinds)


def _datasets(batch: pa.RecordBatch, settings: ObjectsSettings) -> pa.Array:
    template, constant = settings.template, constant_dataset(settings)
    if constant is not None or template is None:
        return pa.repeat(constant, len(batch))
    names, columns = placeholders(template), {"realm", "kind"}
    values = {name: batch[name] if name in columns else key_part(batch["key"], name) for name in names}
    if len(values) > 1:
        return _dataset_names(template, values, len(batch), settings)
    [(asked, column)] = values.items()
    codes = column.dictionary_encode("encode")
    return _dataset_names(template, {asked: codes.dictionary}, len(codes.dictionary), settings).take(codes.indices)


def _dataset_names(template: str, values: Mapping[str, pa.Array], size: int, settings: ObjectsSettings) -> pa.Array:
    names = _filled(template, size, lambda name: _escape(values[name]), _escaped)
    names = pc.if_else(pc.match_substring_regex(names, "^$|^/|/$|//"), pa.scalar(None, pa.string()), names)
    named = pc.binary_join_element_wise(settings.name, names, SEPARATOR)
    return pc.fill_null(named, default_dataset(settings))


def _filled(template: str, size: int, value: Callable[[str], pa.Array], literal: Callable[[str], str] = str) -> pa.Array:
    texts = PLACEHOLDER.split(template)
    pieces: list[Any] = [value(text) if number % 2 else literal(text) for number, text in enumerate(texts)]
    pieces = [piece for piece in pieces if not isinstance(piece, str) or piece]
    if len(pieces) == 1 and not isinstance(pieces[0], str):
        return pieces[0]
    if all(isinstance(piece, str) for piece in pieces):
        return pa.repeat("".join(pieces), size)
    return pc.binary_join_element_wise(*pieces, "")


def _put(batch: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    place = batch.schema.get_field_index(name)
    return batch.set_column(place, batch.schema.field(place), values)


def _check_realms(realms: pa.Array, keys: pa.Array, store: str) -> None:
    names = pc.unique(realms).drop_null()
    bad = names.filter(pc.invert(pc.match_substring_regex(names, _REALM)))
    if len(bad):
        name = bad[0].as_py()
        key = keys[pc.index(realms, bad[0]).as_py()].as_py()
        raise Refused(
            f"The object {quote(key, 200)} of the store {store} would be in the realm {quote(name)}, which is not a valid "
            "name: letters, digits, _ . and - in each part between slashes. Mend `realm` in the settings, or move the "
            "object."
        )


def _escape(values: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(values, _HOSTILE)).as_py():
        return values
    return pa.array([None if text is None else _escaped(text) for text in values.to_pylist()], pa.string())


def _escaped(text: str) -> str:
    return "".join(percent(sign, safe="") if sign in _SIGNS or not sign.isprintable() else sign for sign in text)


@lru_cache(maxsize=64)
def _named_group(pattern: str) -> str | None:
    # None if Arrow's engine does not support the pattern
    named = _GROUP.sub(lambda found: "(?P<found>" if found[1] else found[0], pattern)
    try:
        probe = pc.extract_regex(pa.array([""], pa.string()), named)
    except pa.ArrowException:
        return None
    return named if probe.type.num_fields == 1 else None


def first_level_datasets(settings: ObjectsSettings, names: Callable[[], Iterable[str]]) -> list[str] | None:
    """Datasets if the first part of each key tells them, or a constant does; None if a whole listing is needed. `names` gives
    the first level: folders with a trailing separator, and files. Empty folders count."""
    if (constant := constant_dataset(settings)) is not None:
        return [constant]
    if dataset_parts(settings) != {"0"}:
        return None
    # Keys in a folder have more parts than its name.
    keys = pa.array([f"{name}-" if name.endswith(SEPARATOR) else name for name in names()], pa.string())
    return sorted(pc.unique(with_names(objects_batch(keys, {}), settings)["dataset"]).to_pylist())

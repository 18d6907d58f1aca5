"""What a key says: the realm, the kind and the dataset of each object, whole columns at a time.

Belongs here: filling templates from parts of keys, kinds by a pattern, and the checks of names that come out.
Does not belong here: listing (listings/), and the form of templates (settings.py).

A template that can't be filled, because a key has too few parts or an object no realm or kind, gives nothing: no realm, or the
dataset that is named as the store. Where a template says the realm, it alone does. Characters that globs of policies take for
themselves, and those that can't be printed, are written as in a URL (%2A %3F %5B, and %25) in the names of datasets.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote as percent

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.errors import Refused, quote
from retention_assets.stores.objects.settings import FromPattern, ObjectsSettings
from retention_assets.stores.objects.tables import OBJECTS

SEPARATOR = "/"
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
# Names that begin so are the system's, and pass as they are.
_REALM = r"^(::.*|[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*)$"
_SIGNS = "%*?["
# These, and what can't be printed.
_HOSTILE = r"[%*?\[\p{C}\p{Zl}\p{Zp}]|[^ \PZ]"
# What is written with a backslash or in brackets is no group; the second half is the beginning of one without a name.
_GROUP = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(\((?!\?))", re.DOTALL)


def with_names(batch: pa.RecordBatch, settings: ObjectsSettings) -> pa.RecordBatch:
    """Objects with their realm and kind, and one column more: `dataset`. Raises Refused for a realm that can be none."""
    if (realms := realms_of_keys(batch["key"], settings)) is not None:
        batch = _put(batch, "realm", realms)
    if batch["realm"].null_count < len(batch):
        _check_realms(batch["realm"], batch["key"], settings.name)
    if isinstance(settings.kind_of, FromPattern):
        batch = _put(batch, "kind", kinds_of(batch["key"], settings.kind_of.pattern))
    return batch.append_column(pa.field("dataset", pa.string(), nullable=False), _datasets(batch, settings))


def realms_of_keys(keys: pa.Array, settings: ObjectsSettings) -> pa.Array | None:
    """The realm of each key; none where keys do not tell it."""
    if not isinstance(settings.realm, str):
        return None
    return _filled(settings.realm, len(keys), lambda part: key_part(keys, part))


def default_dataset(settings: ObjectsSettings) -> str:
    """The dataset of whatever is in no other."""
    return f"{settings.name}{SEPARATOR}{settings.name}"


def constant_dataset(settings: ObjectsSettings) -> str | None:
    """The one dataset that there is, or none if it depends on objects."""
    if settings.dataset is None:
        return default_dataset(settings)
    return None if placeholders(settings.dataset) else f"{settings.name}{SEPARATOR}{_escaped(settings.dataset)}"


def placeholders(template: str | None) -> set[str]:
    """What a template asks for: numbers of parts, `realm`, `kind`."""
    return set(_PLACEHOLDER.findall(template or ""))


def dataset_parts(settings: ObjectsSettings) -> set[str]:
    """What the name of a dataset depends on in the end: numbers of parts, and what columns or a pattern say."""
    found = placeholders(settings.dataset)
    if "realm" in found and isinstance(settings.realm, str):
        found = found - {"realm"} | placeholders(settings.realm)
    return found


def key_part(keys: pa.Array, name: str) -> pa.Array:
    """The part of each key with that number, counted from 0; null where a key has fewer."""
    above = f"(?:[^{SEPARATOR}]*{SEPARATOR}){{{int(name)}}}" if int(name) else ""
    return pc.struct_field(pc.extract_regex(keys, f"^{above}(?P<found>[^{SEPARATOR}]*)"), [0])


def kinds_of(keys: pa.Array, pattern: str) -> pa.Array:
    """What the one group of a pattern finds in each key; null where it finds nothing."""
    named = _named_group(pattern)
    if named is None:
        # What only Python's expressions can say, such as a look ahead.
        search = re.compile(pattern).search
        found = [match[1] or None if (match := search(key)) else None for key in keys.to_pylist()]
        return pa.array(found, pa.string())
    kinds = pc.struct_field(pc.extract_regex(keys, named), [0])
    return pc.if_else(pc.equal(kinds, ""), pa.scalar(None, pa.string()), kinds)


def _datasets(batch: pa.RecordBatch, settings: ObjectsSettings) -> pa.Array:
    template, constant = settings.dataset, constant_dataset(settings)
    if constant is not None or template is None:
        return pa.repeat(constant, len(batch))
    values = {
        name: batch[name] if name in ("realm", "kind") else key_part(batch["key"], name) for name in placeholders(template)
    }
    if len(values) > 1:
        return _dataset_names(template, values, len(batch), settings)
    # Many objects have few names, and each is made once.
    [(asked, column)] = values.items()
    codes = column.dictionary_encode("encode")
    return _dataset_names(template, {asked: codes.dictionary}, len(codes.dictionary), settings).take(codes.indices)


def _dataset_names(template: str, values: Mapping[str, pa.Array], size: int, settings: ObjectsSettings) -> pa.Array:
    names = _filled(template, size, lambda name: _escape(values[name]), _escaped)
    # An empty part of a key makes no name.
    names = pc.if_else(pc.match_substring_regex(names, "^$|^/|/$|//"), pa.scalar(None, pa.string()), names)
    named = pc.binary_join_element_wise(settings.name, names, SEPARATOR)
    return pc.fill_null(named, default_dataset(settings))


def _filled(template: str, size: int, value: Callable[[str], pa.Array], literal: Callable[[str], str] = str) -> pa.Array:
    """A template for each of some objects; null where something that it asks for is not there."""
    texts = _PLACEHOLDER.split(template)
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
            f"The object {quote(key, 200)} of the store {store} would be in the realm {quote(name)}, which is no name of a"
            " realm: letters, digits, _ . and - in each part between slashes. Mend `realm` in the settings, or move the object."
        )


def _escape(values: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(values, _HOSTILE)).as_py():
        return values
    return pa.array([None if text is None else _escaped(text) for text in values.to_pylist()], pa.string())


def _escaped(text: str) -> str:
    return "".join(percent(sign, safe="") if sign in _SIGNS or not sign.isprintable() else sign for sign in text)


@lru_cache(maxsize=64)
def _named_group(pattern: str) -> str | None:
    """The pattern with a name for its group, as Arrow's engine wants it; none if that engine does not know such a pattern."""
    named = _GROUP.sub(lambda found: "(?P<found>" if found[1] else found[0], pattern)
    try:
        probe = pc.extract_regex(pa.array([""], pa.string()), named)
    except pa.ArrowException:
        return None
    return named if probe.type.num_fields == 1 else None


def first_level_datasets(settings: ObjectsSettings, names: Callable[[], Iterable[str]]) -> list[str] | None:
    """The datasets where the first part of each key tells them, or none is needed; none where only a whole listing does.

    `names` gives the first level: folders with a separator behind them, and files. An empty folder counts.
    """
    if (constant := constant_dataset(settings)) is not None:
        return [constant]
    if dataset_parts(settings) != {"0"}:
        return None
    # What is in a folder has more parts than its own name.
    keys = pa.array([f"{name}-" if name.endswith(SEPARATOR) else name for name in names()], pa.string())
    batch = pa.record_batch([keys, *(pa.nulls(len(keys), field.type) for field in list(OBJECTS)[1:])], schema=OBJECTS)
    return sorted(pc.unique(with_names(batch, settings)["dataset"]).to_pylist())

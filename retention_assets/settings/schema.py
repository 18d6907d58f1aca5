"""The JSON Schema of the settings, generated from the models so that the two cannot disagree.

Belongs here: what a tool needs that checks settings without reading them as this package does: `dg check yaml`, an editor.
Does not belong here: what no schema can say (places that lie in each other, intervals that need each other); reading the
settings refuses that.
"""

from typing import Any

from pydantic import BaseModel

from retention_assets.policy.schema import as_in_a_file
from retention_assets.settings.model import Settings
from retention_assets.stores.registry import BUILT_IN, kind_named, known_kinds

# What the generator says about Python instead of about a file: names of classes, and defaults that are not written like that.
_LEFT_OUT = ("title", "default")


def settings_schema() -> dict[str, Any]:
    """The schema as plain data that stands wherever it is put: nothing in it refers to another part."""
    schema = _schema_of(Settings)
    schema["properties"]["stores"] = {"type": "array", "items": _store_schema()}
    return schema


def _store_schema() -> dict[str, Any]:
    """A store: the kind says which keys it takes. Those of a kind from another package are left to that package."""
    kinds = [
        {
            "if": {"properties": {"kind": {"const": name}}, "required": ["kind"]},
            "then": _schema_of(kind_named(name).settings),
        }
        for name in BUILT_IN
    ]
    properties = {"name": {"type": "string"}, "kind": {"enum": list(known_kinds())}}
    return {"type": "object", "properties": properties, "required": ["name", "kind"], "allOf": kinds}


def _schema_of(model: type[BaseModel]) -> dict[str, Any]:
    made = as_in_a_file(model.model_json_schema())
    found: dict[str, Any] = _inlined(made, made.pop("$defs", {}))
    return found


def _inlined(part: Any, parts: dict[str, Any]) -> Any:
    """A part with those in it that it refers to. A key that a file may have may be called like one of the schema's own."""
    if isinstance(part, list):
        return [_inlined(item, parts) for item in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _inlined(parts[part["$ref"].rpartition("/")[2]], parts)
    named = {key: _inlined(value, parts) for key, value in part.get("properties", {}).items()}
    others = {key: _inlined(value, parts) for key, value in part.items() if key not in ("properties", *_LEFT_OUT)}
    return {**others, "properties": named} if "properties" in part else others

"""JSON Schema of the settings, generated from the models, for editors and `dg check yaml`.

Rules that no schema can express (nested places, dependent intervals) are checked when the settings are read.
"""

from typing import Any

from pydantic import BaseModel

from retention_assets.policy.language import as_in_a_file
from retention_assets.settings.model import Settings
from retention_assets.stores.registry import BUILT_IN, kind_named, known_kinds

# Python details from the generator: class names, and defaults that are not written like that in YAML.
_LEFT_OUT = ("title", "default")


def settings_schema() -> dict[str, Any]:
    schema = _schema_of(Settings)
    schema["properties"]["stores"] = {"type": "array", "items": _store_schema()}
    return schema


def _store_schema() -> dict[str, Any]:
    # A store: its kind determines its keys. Kinds of other packages are not checked.
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
    generated = as_in_a_file(model.model_json_schema())
    schema: dict[str, Any] = _inlined(generated, generated.pop("$defs", {}))
    return schema


def _inlined(part: Any, parts: dict[str, Any]) -> Any:
    # Inline references. A key of the file may have the name of a schema keyword.
    if isinstance(part, list):
        return [_inlined(item, parts) for item in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _inlined(parts[part["$ref"].rpartition("/")[2]], parts)
    named = {key: _inlined(value, parts) for key, value in part.get("properties", {}).items()}
    others = {key: _inlined(value, parts) for key, value in part.items() if key not in ("properties", *_LEFT_OUT)}
    return {**others, "properties": named} if "properties" in part else others

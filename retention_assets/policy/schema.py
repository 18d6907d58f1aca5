"""JSON Schema of policy files, for editors, generated from the model.

Names that collide, conditions and keys that need each other are beyond a schema: `retention validate` refuses them.
"""

import json
from typing import Any

from retention_assets.policy.language import PolicyFile
from retention_assets.policy.model import DEFAULT_GRACE

_NULL = {"type": "null"}
# parts whose keys may all be left out, but not all at once
_SAY_SOMETHING = ("Beyond", "Limits", "Selection")


def policy_schema() -> str:
    """Render the schema as text, stable from run to run."""
    schema: dict[str, Any] = as_in_a_file(PolicyFile.model_json_schema(by_alias=True))
    parts = schema["$defs"]
    parts["Policy"]["properties"]["grace"]["default"] = str(DEFAULT_GRACE)
    for name in _SAY_SOMETHING:
        parts[name]["minProperties"] = 1
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Retention policies", "minProperties": 1}
    return json.dumps({**schema, **head}, indent=2, sort_keys=True) + "\n"


def as_in_a_file(part: Any) -> Any:
    """In a file a key is left out or has a value: null is no value. A non-empty list has minItems, not minLength."""
    if isinstance(part, list):
        return [as_in_a_file(item) for item in part]
    if not isinstance(part, dict):
        return part
    made = {key: as_in_a_file(value) for key, value in part.items() if value is not None}
    if made.get("type") == "array" and "minLength" in made:
        made["minItems"] = made.pop("minLength")
    if _NULL in made.get("anyOf", ()):
        others = [other for other in made.pop("anyOf") if other != _NULL]
        made = {**others[0], **made} if len(others) == 1 else {**made, "anyOf": others}
    return made

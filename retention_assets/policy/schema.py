"""The JSON Schema of policy files, for editors, generated from the model so that the two cannot disagree."""

import json

from retention_assets.policy.language import PolicyFile


def policy_schema() -> str:
    """The schema as text, stable from run to run."""
    schema = PolicyFile.model_json_schema(by_alias=True)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Retention policies"}
    return json.dumps({**schema, **head}, indent=2, sort_keys=True) + "\n"

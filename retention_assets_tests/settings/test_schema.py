"""The JSON Schema of the settings: what is right passes it, and a mistake that a schema can see is named with its place."""

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import retention_assets
from retention_assets.settings.schema import settings_schema
from retention_assets.settings.yaml import parse_document
from retention_assets_tests.settings.settings_files import LAKE, WHOLE

DOCS = Path(retention_assets.__file__).parents[1] / "docs"
SHOWN = [
    text for file in sorted(DOCS.rglob("*.md")) for text in re.findall(r"```yaml.*?\n(.*?)```", file.read_text(), re.DOTALL)
]


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = settings_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        *(text for text in SHOWN if text.startswith(("stores:", "ledger:", "automation:"))),
        "policies: p.yaml\ndagster: {key_prefix: a/b, owners: team:x, tags: {cost: 1}}",
        "automation: {sweep: 15m, evaluate: 5m, everything: 1w}",
        "stores: [{name: r, kind: records, url: sqlite:///r.db, root: {table: u, key: id, opened_at: a, closed_at: b},"
        " ttl: {column: t, document_ttl: 180d}}]",
    ],
)
def test_what_is_right_passes(validator: Any, text: str) -> None:
    """A tool that complains of what is right is switched off."""
    assert [error.message for error in validator.iter_errors(parse_document(text, "retention.yaml").data)] == []


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        (LAKE.replace("kind: files", "kind: file"), "stores.0.kind", "'file' is not one of ['files', 'iceberg'"),
        (LAKE.replace("log: log, ", ""), "stores.0", "'log' is a required property"),
        (LAKE.replace("log: log", "log: log, dat: x"), "stores.0", "'dat' was unexpected"),
        ("polices: x", "", "'polices' was unexpected"),
        ("automation: {discover: 'yes'}", "automation.discover", "'yes' is not of type 'boolean'"),
        ("partition_by: table", "partition_by", "'table' is not one of ['dataset', 'store']"),
        ("stores: {name: lake}", "stores", "is not of type 'array'"),
        ("stores: [{name: r, kind: records, url: u, root: {tabel: u}}]", "stores.0.root", "'tabel' was unexpected"),
    ],
)
def test_a_mistake_is_named_with_its_place(validator: Any, text: str, place: str, said: str) -> None:
    found = {
        (".".join(map(str, error.absolute_path)), error.message)
        for error in validator.iter_errors(parse_document(text, "f").data)
    }
    assert any(at == place and said in message for at, message in found), found

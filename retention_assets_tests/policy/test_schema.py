"""The JSON Schema for editors accepts what is accepted and refuses what is refused, as far as a schema can.

An editor that underlines what is right is switched off, and one that stays silent about a typo is not needed.
"""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from retention_assets.errors import BadInput
from retention_assets.policy import load_policies, parse_duration, policy_schema
from retention_assets.settings.yaml import parse_document
from retention_assets_tests.policies import holds, policies, retain_rules
from retention_assets_tests.policy.broken_files import BROKEN
from retention_assets_tests.rounds import examples

SCHEMA = json.loads(policy_schema())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def accepts(data: Any) -> bool:
    return bool(VALIDATOR.is_valid(data))


# Refused by the loader only. A schema sees one value at a time and no names, no calendar, no grammar.
BEYOND_A_SCHEMA = {
    # keys that need each other, or may not stand together
    "select-that-only-widens", "from-table-beside-an-age", "from-table-beside-a-count", "from-table-beside-a-window",
    "from-table-beside-windows", "window-without-an-age", "window-of-a-branch-without-an-age", "window-without-a-line",
    "in-and-not-in-one-branch", "undo-beside-expiry", "unreachable-on-a-branch", "no-grace-without-a-word", "a-word-without-no-grace",
    "a-word-beside-a-grace", "time-of-an-attribute-beside-a-window", "time-of-an-attribute-in-a-window", "time-zero-of-closing",
    "time-zero-of-archiving", "retain-nothing", "retain-a-zone-alone",
    *(f"count-{what}" for what in (
        "in-a-zone-without-a-period", "in-groups-without-a-count", "in-groups-beside-views", "of-a-condition-alone",
        "of-a-condition-beside-views", "of-a-condition-that-is-none", "in-an-unknown-zone", "in-a-zone-that-is-no-place", "of-no-bytes", "of-too-many-bytes",
        "in-the-zone-of-the-machine", "in-the-zone-of-no-machine", "in-the-zone-of-posix-rules", "in-a-zone-of-posix",
    )),
    # several places
    "two-policies-of-one-name", "two-holds-of-one-name", "two-retain-rules-of-one-name", "key-twice", "key-of-a-policy-twice",
    # values whose text is right and whose meaning is not
    "age-of-zero", "undo-for-no-time", "retain-no-age", "duration-too-long", "duration-number-too-long",
    "until-that-is-no-time", "until-without-a-zone", "until-a-day-that-is-not",
    "until-before-the-year-one", "fraction-that-is-no-number",
    "name-with-a-space-at-its-end", "name-of-two-lines", "name-of-the-system", "name-of-datahub", "glob-that-cannot-be-printed",
    "glob-with-an-open-set", "glob-with-an-empty-range", "hold-on-nothing", "hold-without-a-store",
    # conditions
    "empty-condition", "retain-a-condition-that-is-none", "condition-that-reads-nothing", "condition-about-an-unknown-column",
}  # fmt: skip


def parsed() -> list[Any]:
    found = []
    for case in BROKEN:
        text, name = case.values[0], case.id
        try:
            found.append(pytest.param(parse_document(text, "f").data, name not in BEYOND_A_SCHEMA, id=name))
        except BadInput:
            continue
    return found


@pytest.mark.parametrize(("data", "refused"), parsed())
def test_the_schema_refuses_what_the_loader_refuses_but_for_what_no_schema_can_say(data: Any, refused: bool) -> None:
    assert accepts(data) is not refused


def test_the_list_of_what_no_schema_can_say_names_broken_files() -> None:
    assert {case.id for case in BROKEN} >= BEYOND_A_SCHEMA


@settings(deadline=None, max_examples=examples(20))
@given(policies(), holds(), retain_rules())
def test_the_schema_accepts_every_policy_of_the_model(
    drawn: list[dict[str, Any]], held: list[dict[str, Any]], retained: list[dict[str, Any]]
) -> None:
    VALIDATOR.validate(json.loads(json.dumps({"policies": drawn, "holds": held, "retain": retained})))


@given(st.text("0123456789smhdwoyPYMWDTHS.- ", max_size=8))
@example("0s")
@example("6mo")
@example("P1Y2M3W4DT5H6M7S")
def test_the_pattern_of_a_duration_accepts_what_the_loader_accepts(text: str) -> None:
    data = {"policies": [{"name": "p", "datasets": {"include": ["*"]}, "select": "all", "grace": text}]}
    try:
        parse_duration(text)
        wrong = ""
    except ValueError as fault:
        wrong = str(fault)
    # How long it is, is beyond a pattern.
    assert accepts(data) == ("is not a duration" not in wrong)


@pytest.mark.parametrize(
    "datasets", ["lake/d", ["lake/d", "ods/*"], {"include": ["lake/d"], "exclude": ["*x"], "with": {"a": "b"}}]
)
def test_the_schema_accepts_every_form_of_a_hold(datasets: Any) -> None:
    assert accepts({"holds": [{"datasets": datasets}]})


def test_the_schema_is_a_schema_and_the_same_each_time() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert policy_schema() == policy_schema()
    assert policy_schema().endswith("}\n")


def test_no_part_of_the_schema_takes_null_or_a_key_that_nobody_knows() -> None:
    assert "null" not in policy_schema()
    for part in [SCHEMA, *SCHEMA["$defs"].values()]:
        assert part["additionalProperties"] is False


def test_every_default_of_the_schema_is_one_that_a_file_may_say(tmp_path: Path) -> None:
    # An editor offers defaults; what it offers has to be accepted.
    properties = SCHEMA["$defs"]["Policy"]["properties"]
    defaults = {key: value["default"] for key, value in properties.items() if "default" in value}
    assert defaults["grace"] == "1w"
    document = {"policies": [{"name": "p", "datasets": {"include": ["lake/d"]}, "select": "all", **defaults}], "holds": []}
    (tmp_path / "p.yaml").write_text(json.dumps(document))
    assert load_policies([tmp_path]).policies

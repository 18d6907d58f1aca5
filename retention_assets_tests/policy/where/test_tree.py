"""The value that a text becomes: equal where the meaning is, unchangeable, and plain about the columns that it reads."""

import pickle

import pyarrow as pa
import pytest

from retention_assets.frames.log import INSTANT, LOG
from retention_assets.policy.model import BRANCHED, INDEPENDENT, STATUSES
from retention_assets.policy.where import parse_condition
from retention_assets.policy.where.tree import COLUMNS, VALUES, Kind, columns_of


def test_two_texts_that_say_the_same_are_equal() -> None:
    one = parse_condition("bytes>5 AND (type != 'APPEND' and files = 1)")
    other = parse_condition("BYTES > 5 AND `type` <> 'APPEND' AND files = 1")
    assert one == other
    assert hash(one) == hash(other)
    assert one.text != other.text


@pytest.mark.parametrize(
    ("one", "other"), [("bytes = 1", "bytes = 1.0"), ("bytes = 1", "bytes = 2"), ("type < 'a'", "type <= 'a'")]
)
def test_two_texts_that_say_something_else_are_not(one: str, other: str) -> None:
    assert parse_condition(one) != parse_condition(other)


def test_a_condition_travels_to_another_interpreter() -> None:
    condition = parse_condition("NOT (bytes > 5 AND closed_at < '2026-01-01' OR attributes['k'] LIKE 'a%')")
    copy = pickle.loads(pickle.dumps(condition))
    assert (copy, copy.text) == (condition, condition.text)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("bytes > 5", {"bytes"}),
        ("bytes > 5 AND attributes['a'] = attributes['b']", {"bytes", "attributes"}),  # keys are not columns
        ("NOT CAST(closed_at AS BIGINT) BETWEEN ordinal AND files", {"closed_at", "ordinal", "files"}),
    ],
)
def test_names_the_columns_that_it_reads(text: str, columns: set[str]) -> None:
    assert columns_of(parse_condition(text)) == columns


def test_columns_and_values_are_those_of_the_log_and_the_model() -> None:
    text = {pa.string(), LOG.field("type").type}
    kinds = {pa.int32(): Kind.INTEGER, pa.int64(): Kind.INTEGER, INSTANT: Kind.INSTANT, **dict.fromkeys(text, Kind.TEXT)}
    assert {field.name: kinds[field.type] for field in LOG if field.type in kinds} == COLUMNS
    assert {"type": (*BRANCHED, *INDEPENDENT), "status": STATUSES} == VALUES

"""What keys say: parts, realms, kinds and datasets, and the names that are refused."""

import random
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.errors import BadInput, Refused
from retention_assets.stores.objects.tables import OBJECTS, dataset_parts, first_level_datasets, key_part, with_names
from retention_assets_tests.rounds import rounds
from retention_assets_tests.stores.objects.listings.listed import settings_of

PATH = {"path": "/blobs"}


def objects(*keys: str, **columns: list[Any]) -> pa.RecordBatch:
    given: dict[str, Any] = {"key": list(keys), **columns}
    arrays = [pa.array(given.get(field.name, [None] * len(keys)), field.type) for field in OBJECTS]
    return pa.record_batch(arrays, schema=OBJECTS)


def named(batch: pa.RecordBatch, **settings: Any) -> list[tuple[str | None, str | None, str]]:
    made = with_names(batch, settings_of(PATH, **settings))
    assert made.schema.names == [*OBJECTS.names, "dataset"]
    made.validate(full=True)
    return [(row["realm"], row["kind"], row["dataset"]) for row in made.to_pylist()]


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("0", ["a", "a", "", "", "é", "x", ""]),
        ("1", ["b", None, None, "x", "ü", "", ""]),
        ("2", ["c\n", None, None, None, "z", None, "y"]),
        ("3", [None] * 7),
    ],
)
def test_a_part_is_what_stands_between_separators(number: str, expected: list[str | None]) -> None:
    keys = pa.array(["before", "a/b/c\n", "a", "", "/x", "é/ü/z", "x/", "//y"]).slice(1)
    assert key_part(keys, number).to_pylist() == expected


def test_parts_of_any_keys_are_those_of_a_split() -> None:
    choose = random.Random(3)
    keys = ["".join(choose.choices("a/é\n\U0001f600", k=choose.randint(0, 9))) for _ in range(rounds(250))]
    for number in range(6):
        parts = [key.split("/") for key in keys]
        assert key_part(pa.array(keys), str(number)).to_pylist() == [
            part[number] if number < len(part) else None for part in parts
        ]


# What is set, the key, the realm and kind that a column says, and what comes out.
NAMES: tuple[tuple[str, dict[str, Any], tuple[str, str | None, str | None], tuple[str | None, str | None, str]], ...] = (
    ("one dataset for all", {}, ("r/a", None, None), (None, None, "blobs/blobs")),
    ("a dataset by its name", {"dataset": "all"}, ("r/a", None, None), (None, None, "blobs/all")),
    ("a realm is a dataset", {"realm": "{0}"}, ("r/a", None, None), ("r", None, "blobs/r")),
    ("a realm is a path", {"realm": "{0}/{1}"}, ("acme/sales/x", None, None), ("acme/sales", None, "blobs/acme/sales")),
    ("too few parts for a realm", {"realm": "{1}"}, ("a", None, None), (None, None, "blobs/blobs")),
    ("a name of the system passes", {"realm": "::{0}"}, ("system::/a", None, None), ("::system::", None, "blobs/::system::")),
    ("a dataset by the realm's part", {"realm": "{0}", "dataset": "x-{0}"}, ("r/a", None, None), ("r", None, "blobs/x-r")),
    ("… that is a path", {"realm": "{0}/{1}", "dataset": "{realm}"}, ("a/b/c", None, None), ("a/b", None, "blobs/a/b")),
    ("… of none", {"realm": "{1}", "dataset": "{realm}"}, ("a", None, None), (None, None, "blobs/blobs")),
    ("a dataset by a part", {"dataset": "x-{1}"}, ("a/b/c", None, None), (None, None, "blobs/x-b")),
    ("… that is not there", {"dataset": "x-{1}"}, ("a", None, None), (None, None, "blobs/blobs")),
    ("… that is empty", {"dataset": "{0}"}, ("/a", None, None), (None, None, "blobs/blobs")),
    ("several things", {"realm": "{0}", "dataset": "{realm}/{1}"}, ("a/b/c", None, None), ("a", None, "blobs/a/b")),
    ("one of them is empty", {"realm": "{0}", "dataset": "{realm}/{1}"}, ("a//c", None, None), ("a", None, "blobs/blobs")),
    ("a column says the realm", {}, ("k", "acme", "doc"), ("acme", "doc", "blobs/blobs")),
    ("… and names the dataset", {"dataset": "{realm}-{kind}"}, ("k", "acme", "doc"), ("acme", "doc", "blobs/acme-doc")),
    ("… but not without a kind", {"dataset": "{realm}-{kind}"}, ("k", "acme", None), ("acme", None, "blobs/blobs")),
    ("a template before a column", {"realm": "{0}"}, ("r/a", "acme", None), ("r", None, "blobs/r")),
    ("signs of globs", {"dataset": "{0}"}, ("a*?[b]%/x", None, None), (None, None, "blobs/a%2A%3F%5Bb]%25")),
    ("what can't be printed", {"dataset": "{0}"}, ("a b\n\u2028\xa0é/x", None, None), (None, None, "blobs/a b%0A%E2%80%A8%C2%A0é")),
    ("a part of many that is hostile", {"dataset": "{0}.{1}"}, ("a*/x/y", None, None), (None, None, "blobs/a%2A.x")),
    ("a kind by a pattern", {"kind_of": {"pattern": "^[^/]+/([a-z]+)-"}}, ("r/doc-1", None, "x"), (None, "doc", "blobs/blobs")),
    ("a pattern that finds nothing", {"kind_of": {"pattern": "^([a-z]+)-"}}, ("1", None, "x"), (None, None, "blobs/blobs")),
    ("a group that finds nothing", {"kind_of": {"pattern": "(a)?b"}}, ("b", None, None), (None, None, "blobs/blobs")),
    ("signs that are no group", {"kind_of": {"pattern": r"\([(](?:x)(b)"}}, ("((xb", None, None), (None, "b", "blobs/blobs")),
    ("a group with a name", {"kind_of": {"pattern": "(?P<n>b)"}}, ("abc", None, None), (None, "b", "blobs/blobs")),
    ("what only Python knows", {"kind_of": {"pattern": "(?<=a)(b)"}}, ("abc", None, None), (None, "b", "blobs/blobs")),
)  # fmt: skip


@pytest.mark.parametrize(("settings", "said", "expected"), [case[1:] for case in NAMES], ids=[case[0] for case in NAMES])
def test_names(settings: dict[str, Any], said: tuple[str, str | None, str | None], expected: tuple[Any, ...]) -> None:
    key, realm, kind = said
    # Among others, so that nothing depends on where it stands.
    batch = objects("z/y/x", key, "z/y/x", realm=["z", realm, "z"], kind=["z", kind, "z"])
    assert named(batch, **settings)[1] == expected


def test_of_nothing_nothing_is_named() -> None:
    assert named(objects(), realm="{0}", dataset="{realm}", kind_of={"pattern": "(a)"}) == []


@pytest.mark.parametrize("realm", ["a b", "", "é", "a//b", "/a", "a/", "a:b"])
def test_a_realm_that_can_be_none_is_refused_with_its_key(realm: str) -> None:
    batch = objects("fine", "bad", realm=["acme", realm])
    with pytest.raises(Refused, match="The object 'bad' of the store blobs would be in the realm"):
        with_names(batch, settings_of(PATH))


def test_what_is_not_asked_for_is_passed_on_as_it_is() -> None:
    batch = objects("a/b")
    made = with_names(batch, settings_of(PATH, realm="{0}"))
    assert made["key"].buffers()[2].address == batch["key"].buffers()[2].address


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"path": set()}),
        ({"dataset": "{0}-{kind}"}, {"path": {"0", "kind"}}),
        ({"dataset": "{realm}", "realm": "{1}"}, {"path": {"1"}}),
        ({"dataset": "{realm}"}, {"path": {"realm"}}),
    ],
)
def test_what_a_dataset_depends_on(settings: dict[str, Any], expected: dict[str, set[str]]) -> None:
    assert dataset_parts(settings_of(PATH, **settings)) == expected["path"]


def test_the_first_level_names_datasets_as_whole_keys_would() -> None:
    settings = settings_of(PATH, dataset="{0}")
    keys = ["a/x", "a/y", "b/c/d", "file"]
    assert first_level_datasets(settings, lambda: ["a/", "b/", "file"]) == sorted(
        {name for *_, name in named(objects(*keys), dataset="{0}")}
    )


SAID_TWICE: tuple[tuple[dict[str, Any], dict[str, Any], str], ...] = (
    (PATH, {"realm": {"column": "tenant"}}, "names a column, but a path or an inventory has none"),
    (PATH, {"kind_of": {"column": "type"}}, "names a column, but a path or an inventory has none"),
    ({"parquet": {"files": "/x", "as_of": "2026-01-01T00:00:00Z", "columns": {"realm": "r"}}}, {"realm": "{0}"}, "is given twice"),
    ({"sql": {"url": "sqlite:////x.db", "table": "t", "key": "k", "created_at": "c", "kind": "k"}},
     {"kind_of": {"pattern": "(a)"}}, "is given twice"),
    (PATH, {"realm": "{0}", "dataset": "all"}, "names no realm, so objects of several realms would be in one dataset"),
    (PATH, {"realm": "{0}/{1}", "dataset": "{0}"}, "names no realm, so objects of several realms would be in one dataset"),
)  # fmt: skip


@pytest.mark.parametrize(("listing", "more", "expected"), SAID_TWICE)
def test_settings_about_realms_and_kinds_agree(listing: dict[str, Any], more: dict[str, Any], expected: str) -> None:
    with pytest.raises((ValueError, BadInput), match=expected):
        settings_of(listing, **more)

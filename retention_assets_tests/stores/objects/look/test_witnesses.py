"""Witnesses: who refers to a key, exactly as a few lines of Python sets would find it."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.stores.objects import ObjectsSettings
from retention_assets.stores.objects.look import find_witnesses
from retention_assets.stores.objects.references import SourceNotWhole
from retention_assets.stores.objects.scan import Scan
from retention_assets.stores.objects.tables import EDGES
from retention_assets_tests.stores.objects.references.sources import Said, settings

HERE = Path(__file__).parent
Pair = tuple[str | None, str]


def asked(*pairs: Pair) -> pa.Table:
    return pa.table(
        {"realm": pa.array([realm for realm, _ in pairs], pa.string()), "key": pa.array([key for _, key in pairs], pa.string())}
    )


def edges(*rows: tuple[str, str, str | None]) -> list[Said]:
    return [Said(list(rows), "edges", schema=EDGES)]


def settings_of(sources: Sequence[Said], over: Sequence[Said] = ()) -> ObjectsSettings:
    """Settings with as many sources, of a folder in which nothing has the name of a key."""
    lines = {"lines": "none"}
    return settings(HERE, *[lines] * len(sources), edges=[lines] * len(over), path=str(HERE))


def scan_of(sources: Sequence[Said], over: Sequence[Said] = (), **facts: Any) -> Scan:
    return replace(Scan.of(settings_of(sources, over)), references=sources, edges=over, **facts)


def witnesses(sources: Sequence[Said], objects: pa.Table, over: Sequence[Said] = ()) -> list[str | None]:
    texts: list[str | None] = find_witnesses(scan_of(sources, over), objects).to_pylist()
    return texts


def found(sources: Sequence[Said], *pairs: Pair, over: Sequence[Said] = ()) -> list[tuple[str | None, ...]]:
    """Realm, key, source and who refers to it there, of each object that something refers to."""
    texts = zip(pairs, witnesses(sources, asked(*pairs), over), strict=True)
    parts = {(*pair, *text.partition(": ")[::2]) for pair, text in texts if text}
    return sorted(parts, key=str)


def test_the_first_source_that_refers_to_a_key_is_its_witness() -> None:
    one = Said([("a", None, "mail 1"), ("x", None, "mail 2"), ("a", None, "mail 3")], "one")
    two = Said([("a", None, "page 1"), ("b", None, None)], "two")
    assert found([one, two], (None, "a"), (None, "b"), (None, "c"), (None, "a")) == [
        (None, "a", "one", "mail 1"), (None, "b", "two", ""),
    ]  # fmt: skip


FOLDERS = {
    "a/": ["a/", "a/b", "a/b/c", "a//d", "a/b/"],
    "a/b/": ["a/b/c", "a/b/"],
    "a//": ["a//d"],
    "é/": ["é/f"],
    "/": ["a", "a/", "a/b", "a/b/c", "a//d", "ab/c", "a/b/", "é/f"],
    "a": ["a"],
    "b/": [],
}


@pytest.mark.parametrize(("named", "inside"), FOLDERS.items())
def test_a_folder_names_every_key_below_it_if_its_source_names_folders(named: str, inside: list[str]) -> None:
    keys: list[Pair] = [(None, key) for key in FOLDERS["/"]]
    assert [row[1] for row in found([Said([(named, None, None)], names_folders=True)], *keys)] == sorted(
        inside, key=lambda one: str((None, one))
    )
    assert [row[1] for row in found([Said([(named, None, None)])], *keys)] == [key for key in [named] if (None, key) in keys]


def test_a_key_is_referred_to_over_edges_and_says_from_where() -> None:
    over = edges(("a", "b", None), ("b", "c", None), ("c", "a", None), ("x", "y", None))
    said = [Said([("a", None, "mail 1"), ("x", None, None)], "mails")]
    assert found(said, (None, "c"), (None, "y"), (None, "a"), over=over) == [
        (None, "a", "mails", "mail 1"),
        (None, "c", "mails", "over the edge from a, which mail 1 refers to"),
        (None, "y", "mails", "over the edge from x, which mails refers to"),
    ]
    assert found([Said([("z", None, None)])], (None, "c"), over=over) == []


def test_a_witness_over_edges_may_be_a_folder() -> None:
    said = [Said([("t/", None, "table t")], names_folders=True)]
    assert found(said, (None, "b"), over=edges(("t/m", "b", None))) == [
        (None, "b", "said", "over the edge from t/m, which table t refers to"),
    ]


@pytest.mark.parametrize("broken", ["references", "edges"])
def test_one_source_that_is_not_whole_tells_nothing(broken: str) -> None:
    def refuse() -> list[str]:
        raise SourceNotWhole("told to")

    proof = {broken: refuse}
    good, bad = Said([("a", None, None)]), Said([("b", None, None)], proof=proof.get("references", list))
    over = Said([("a", "b", None)], schema=EDGES, proof=proof.get("edges", list))
    with pytest.raises(SourceNotWhole, match="told to"):
        witnesses([good, bad], asked((None, "a")), [over])


def test_a_long_chain_of_edges_is_walked_to_its_end() -> None:
    chain = [(str(number), str(number + 1), None) for number in range(2_000)]
    random.Random(1).shuffle(chain)
    [row] = found([Said([("0", None, "the first")])], (None, "2000"), over=edges(*chain))
    assert row[3] == "over the edge from 0, which the first refers to"

"""Laws of scans, on random environments: what a scan says equals a few lines of Python sets."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from retention_assets.policy import Hold
from retention_assets.stores.concurrency import TasksHere
from retention_assets.stores.objects import scan as scans
from retention_assets_tests.rounds import rounds
from retention_assets_tests.stores.objects.scan.environments import (
    AS_OF,
    Judged,
    edge,
    edges,
    finished,
    judge,
    listed,
    named,
    scan_of,
    source,
    stored,
)

KEYS = ("a", "b", "a/x", "a/y", "a/b/x", "a/b/", "ab", "c/x", "c/")
REALMS = (None, None, "acme", "acme/eu", "acme-eu", "beta", "::own", "::system::")
AGES = (timedelta(0), timedelta(hours=3), timedelta(hours=3, microseconds=-1), timedelta(days=9))


@dataclass(frozen=True)
class Environment:
    """What is stored, and who refers to it."""

    objects: Sequence[dict[str, Any]]
    references: Sequence[Sequence[dict[str, Any]]]
    folders: Sequence[bool]
    edges: Sequence[dict[str, Any]]
    purging: Sequence[str]
    known_kinds: Sequence[str] | None
    held: Sequence[str] = ()

    def classes(self, folder: Path | None = None) -> dict[tuple[str | None, str], str]:
        return dict(self.judge(folder).classes)

    def judge(self, folder: Path | None = None) -> Judged:
        """A scan; of a finished list that is written into a folder, if one is given."""
        sources = [source(*rows, names_folders=folder) for rows, folder in zip(self.references, self.folders, strict=True)]
        scan = scan_of(
            listed(*self.objects), *sources, over=[edges(*self.edges)], purging=self.purging,
            known_kinds=self.known_kinds,
        )  # fmt: skip
        if self.held:
            scan = replace(scan, holds=(hold(*self.held),))
        found = judge(finished(scan, self.objects, folder) if folder else scan)
        assert sum(count for name, count in found.counts.items() if name != "reserved") == found.result.scanned
        return found


def naive(one: Environment) -> dict[tuple[str | None, str], str]:
    """The same by sets of (realm, key), where None is every realm."""
    realms = {row["realm"] for rows in (one.objects, *one.references, one.edges) for row in rows}
    retained = {
        (realm, key)
        for rows, folder in zip(one.references, one.folders, strict=True)
        for row in rows
        for realm in (realms if row["realm"] is None else {row["realm"]})
        for key in {row["object"], *(key for key in EVERY if folder and _is_below(key, row["object"]))}
    }
    said = [{row["realm"] for row in rows} for rows in one.references]
    every = any(not mine or None in mine for mine in said)
    spoken = set[Any]().union(*said)
    # From what is kept for what it is edges are followed as well; an object without a realm may be of any.
    begun = set(retained)
    for row in one.objects:
        name = _class(row, one, False, every, spoken)
        if row["key"] in one.held or name not in ("unreferenced", "realm_purge"):
            begun |= {(realm, row["key"]) for realm in (realms if row["realm"] is None else {row["realm"]})}
    before: set[Any] = set()
    while before != begun:
        before = set(begun)
        retained |= {
            (realm, row["to"]) for row in one.edges for realm in realms
            if row["realm"] in (None, realm) and (realm, row["from"]) in begun
        }  # fmt: skip
        begun |= retained
    return {
        (row["realm"], row["key"]): _class(row, one, (row["realm"], row["key"]) in retained, every, spoken)
        for row in one.objects
    }


EVERY = (*KEYS, "d", "e/f")


def _is_below(key: str, folder: str) -> bool:
    return folder == "/" or (folder.endswith("/") and key.startswith(folder))


def _class(row: dict[str, Any], one: Environment, retained: bool, every: bool, said: set[Any]) -> str:
    realm = row["realm"]
    if realm is not None and realm.startswith("::") and realm != "::system::":
        return "reserved"
    if realm is not None and any(realm == name or realm.startswith(f"{name}/") for name in one.purging):
        return "realm_purge"
    if row["created_at"] is None or row["created_at"] > AS_OF - timedelta(hours=3):
        return "young"
    if one.known_kinds is not None and row["kind"] not in one.known_kinds:
        return "unknown_kind"
    if retained:
        return "referenced"
    return "unreferenced" if every or realm in said else "unhandled"


def environment(chance: random.Random) -> Environment:
    pairs = [(realm, key) for realm in set(REALMS) for key in KEYS]
    chosen = chance.sample(sorted(pairs, key=str), chance.randint(0, 20))
    ages = [AS_OF - age for age in AGES]
    objects = [
        stored(key, realm, chance.choice((None, "m", "n")), chance.choice((None, *ages, *[ages[-1]] * 6)), chance.randint(0, 9))
        for realm, key in chosen
    ]
    lonely = chance.random() < 0.3
    realms = (None,) if lonely else chance.choice((REALMS, REALMS[2:]))
    sources = chance.randint(1, 3)
    references = [
        [named(chance.choice((*EVERY, "/")), chance.choice(realms)) for _ in range(chance.choice((0, 1, 3, 8)))]
        for _ in range(sources)
    ]
    links = [
        edge(chance.choice(EVERY), chance.choice(EVERY), chance.choice(realms)) for _ in range(chance.choice((0, 0, 2, 5, 9)))
    ]
    return Environment(
        objects, references, [chance.random() < 0.4 for _ in range(sources)], links,
        chance.choice(((), (), ("acme",), ("acme/eu", "beta"))), chance.choice((None, None, ("m",))),
        chance.choice(((), ("a",), ("a/x", "d"))),
    )  # fmt: skip


def hold(*keys: str) -> Hold:
    return Hold.model_validate({"name": "trial", "datasets": ["blobs/*"], "transactions": list(keys)})


@pytest.fixture(params=["one task", "two tasks"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """One task holds all ranges of fingerprints, or many share them."""
    if request.param == "two tasks":
        monkeypatch.setattr(scans, "_TOGETHER", 2)
        monkeypatch.setattr(TasksHere, "slots", 2)


@pytest.mark.usefixtures("way")
def test_a_scan_says_what_sets_say() -> None:
    for seed in range(rounds(20)):
        one = environment(random.Random(seed))
        assert one.classes() == naive(one), f"seed {seed}: {one}"


CRAFTED = {
    "a held object that is led to, and leads on": Environment(
        [stored("a"), stored("ab"), stored("b")], [[named("b")]], [False], [edge("b", "a"), edge("a", "ab")], (), None, ("a",)
    ),
    "nothing is referred to": Environment([stored("a", at=AS_OF), stored("b")], [[]], [False], [edge("a", "b")], (), None),
    "a young object without a realm, and one of its name that is led to in a realm": Environment(
        [stored("a", at=AS_OF), stored("a", "acme"), stored("b", "acme"), stored("ab", "beta")],
        [[named("b", "acme"), named("x", "beta")]], [False], [edge("a", "c/x"), edge("b", "a", "acme"), edge("a", "ab", "beta")], (), None,
    ),
    "an edge of every realm begins at what a realm names that has edges elsewhere": Environment(
        [stored("a", "acme"), stored("b", "acme")], [[named("a", "acme")]], [False],
        [edge("a", "b"), edge("c/x", "d", "acme")], (), None,
    ),
    "an edge begins in a folder that is named": Environment(
        [stored("a/x"), stored("b"), stored("d")], [[named("a/")]], [True], [edge("ab", "d"), edge("a/x", "b")], (), None,
    ),
}  # fmt: skip


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("case", CRAFTED)
def test_a_scan_says_what_sets_say_of_what_chance_seldom_makes(case: str) -> None:
    one = CRAFTED[case]
    assert one.classes() == naive(one)


@pytest.mark.usefixtures("way")
def test_a_scan_of_a_finished_list_says_what_sets_say(tmp_path: Path) -> None:
    for seed in range(rounds(10)):
        one = environment(random.Random(seed))
        if one.objects:
            assert one.classes(tmp_path) == naive(one), f"seed {seed}: {one}"


@pytest.mark.usefixtures("way")
def test_references_are_counted_as_sets_count_them() -> None:
    for seed in range(rounds(10)):
        one = environment(random.Random(seed))
        result = one.judge().result
        sources = [
            {(row["realm"], row["object"], folder and row["object"].endswith("/")) for row in rows}
            for rows, folder in zip(one.references, one.folders, strict=True)
        ]
        distinct = set[tuple[str | None, str, bool]]().union(*sources)
        unresolved = [reference for reference in distinct if not any(_names(reference, row) for row in one.objects)]
        realms = [len({row["realm"] for row in rows} - {None}) for rows in one.references]
        assert [(source.rows, source.distinct, source.realms) for source in result.sources] == [
            (len(rows), len(source), count) for rows, source, count in zip(one.references, sources, realms, strict=True)
        ], f"seed {seed}: {one}"
        assert (result.distinct_references, result.unresolved_references) == (len(distinct), len(unresolved)), (
            f"seed {seed}: {one}"
        )


def _names(reference: tuple[str | None, str, bool], row: dict[str, Any]) -> bool:
    realm, key, is_folder = reference
    return realm in (None, row["realm"]) and (_is_below(row["key"], key) if is_folder else row["key"] == key)


def test_one_more_reference_hold_or_edge_never_adds_a_mark() -> None:
    for seed in range(rounds(13)):
        chance = random.Random(seed)
        one = environment(chance)
        # Of an empty source a first reference says for the first time which realms it speaks for.
        if not all(one.references):
            continue
        more = [[*rows] for rows in one.references]
        realms = [row["realm"] for row in more[0]]
        more[0].append(named(chance.choice(EVERY), chance.choice(realms)))
        linked = [*one.edges, edge(chance.choice(EVERY), chance.choice(EVERY), chance.choice(REALMS))]
        before = _marks(one.classes())
        assert _marks(replace(one, references=more).classes()) <= before, f"seed {seed}"
        assert _marks(replace(one, edges=linked).classes()) <= before, f"seed {seed}"
        held = (*one.held, chance.choice(EVERY))
        assert _marks(replace(one, held=held).classes()) <= before, f"seed {seed}"


def _marks(classes: dict[tuple[str | None, str], str]) -> set[tuple[str | None, str]]:
    return {key for key, name in classes.items() if name == "unreferenced"}

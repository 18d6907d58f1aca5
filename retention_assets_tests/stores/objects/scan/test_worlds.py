"""Laws of the judge of references, on random worlds: a scan and a look say what a few lines of Python sets say."""

import pickle
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.errors import Refused
from retention_assets.policy import Hold
from retention_assets.stores.concurrency import TasksHere
from retention_assets.stores.objects import scan as scans
from retention_assets.stores.objects.scan import Scan
from retention_assets_tests.rounds import rounds
from retention_assets_tests.stores.objects.look.test_look import InParts
from retention_assets_tests.stores.objects.scan.environments import (
    AS_OF,
    Judged,
    Looked,
    edge,
    edges,
    finished,
    judge,
    listed,
    look_of,
    named,
    scan_of,
    source,
    stored,
)

KEYS = ("a", "b", "a/x", "a/y", "a/b/x", "a/b/", "ab", "c/x", "c/")
ODD = ("é/f", "e\u0301", "a//b", "/x", "a b", "%61", "*", "'", "\n", "\\", "💥/", "a" * 300)
REALMS = (None, None, "acme", "acme/eu", "acme-eu", "beta", "::own", "::system::")
AGES = (timedelta(0), timedelta(hours=3), timedelta(hours=3, microseconds=-1), timedelta(days=9))
Name = tuple[str | None, str]


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
    # number of the source that can't be read to its end
    away: int | None = None

    @property
    def scan(self) -> Scan:
        sources = [
            source(*rows, names_folders=folder, label=f"source {number}", fails_at=0 if number == self.away else None)
            for number, (rows, folder) in enumerate(zip(self.references, self.folders, strict=True))
        ]
        scan = scan_of(
            listed(*self.objects), *sources, over=[edges(*self.edges)], purging=self.purging,
            known_kinds=self.known_kinds,
        )  # fmt: skip
        return replace(scan, holds=(hold(*self.held),) if self.held else ())

    def classes(self, folder: Path | None = None) -> dict[Name, str]:
        return dict(self.judge(folder).classes)

    def judge(self, folder: Path | None = None) -> Judged:
        """A scan; of a finished list that is written into a folder, if one is given."""
        found = judge(finished(self.scan, self.objects, folder) if folder else self.scan)
        assert sum(count for name, count in found.counts.items() if name != "reserved") == found.result.scanned
        return found

    def look(self, folder: Path) -> Looked:
        """A look of all of them, and of what is not there, as another process has it."""
        due = InParts(sorted({row["key"] for row in self.objects}.union(EVERY)))
        scan = replace(self.scan, due=due, listing=replace(listed(*self.objects), finds=True))
        value: Looked = pickle.loads(pickle.dumps(look_of(scan, folder)))
        return value

    def retains(self, name: Name, *, by_look: bool) -> bool:
        """Whether something refers to it, directly or over edges from what is kept. A look counts references of any realm for an
        object that has none."""
        realm, key = name
        begins: set[str] = set()
        while more := {row["from"] for row in self.edges if row["to"] in {key, *begins} and self._holds(row, realm, by_look)}:
            if more <= begins:
                break
            begins |= more
        is_kept = any(
            row["key"] in begins and self._holds(row, realm, by_look) and (row["key"] in self.held or self._is_kept(row))
            for row in self.objects
        )
        return is_kept or any(self.first_source((realm, one), by_look=by_look) is not None for one in {key, *begins})

    def first_source(self, name: Name, *, by_look: bool) -> int | None:
        return next(
            (
                number
                for number, (rows, folder) in enumerate(zip(self.references, self.folders, strict=True))
                for row in rows
                if row["object"] == name[1] or (folder and _is_below(name[1], row["object"]))
                if self._holds(row, name[0], by_look)
            ),
            None,
        )

    def _holds(self, row: dict[str, Any], realm: str | None, by_look: bool) -> bool:
        return row["realm"] in (None, realm) or (by_look and realm is None)

    def _is_kept(self, row: dict[str, Any]) -> bool:
        return self.naive_class(row, retained=False) not in ("unreferenced", "realm_purge")

    def naive_class(self, row: dict[str, Any], *, retained: bool) -> str:
        realm = row["realm"]
        if realm is not None and realm.startswith("::") and realm != "::system::":
            return "reserved"
        if realm is not None and any(realm == name or realm.startswith(f"{name}/") for name in self.purging):
            return "realm_purge"
        if row["created_at"] is None or row["created_at"] > AS_OF - timedelta(hours=3):
            return "young"
        if self.known_kinds is not None and row["kind"] not in self.known_kinds:
            return "unknown_kind"
        if retained:
            return "referenced"
        said = [{one["realm"] for one in rows} for rows in self.references]
        every = any(not mine or None in mine for mine in said)
        return "unreferenced" if every or realm in set[Any]().union(*said) else "unhandled"


def naive(one: Environment) -> dict[Name, str]:
    names = [(row["realm"], row["key"]) for row in one.objects]
    retained = [one.retains(name, by_look=False) for name in names]
    return {
        name: one.naive_class(row, retained=is_retained)
        for name, row, is_retained in zip(names, one.objects, retained, strict=True)
    }


EVERY = (*KEYS, "d", "e/f")


def _is_below(key: str, folder: str) -> bool:
    return folder == "/" or (folder.endswith("/") and key.startswith(folder))


def environment(chance: random.Random) -> Environment:
    keys = (*KEYS, *chance.sample(ODD, 3))
    pairs = [(realm, key) for realm in set(REALMS) for key in keys]
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
        [named(chance.choice((*EVERY, *keys, "/")), chance.choice(realms)) for _ in range(chance.choice((0, 1, 3, 8)))]
        for _ in range(sources)
    ]
    links = [
        edge(chance.choice((*EVERY, *keys)), chance.choice(EVERY), chance.choice(realms))
        for _ in range(chance.choice((0, 0, 2, 5, 9)))
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
    """One task holds everything, or several share it in the smallest pieces."""
    if request.param == "two tasks":
        monkeypatch.setattr(scans, "_TOGETHER", 2)
        monkeypatch.setattr(TasksHere, "slots", 2)
        for name, size in (("TOGETHER", 3), ("_RUN", 1), ("_HELD", 3), ("_GROUP", 1)):
            monkeypatch.setattr(f"retention_assets.stores.objects.hits.{name}", size)


def agree(one: Environment, folder: Path) -> None:
    """A scan and a look of a world, and of any part of it, say what sets say."""
    assert one.classes() == naive(one)
    look = one.look(folder)
    assert look.fault is None
    names = [*dict.fromkeys([(row["realm"], row["key"]) for row in one.objects] + [(None, key) for key in EVERY])]
    whole = witnesses_of(look, names)
    assert whole.keys() == {name for name in names if one.retains(name, by_look=True)}
    first = {name: one.first_source(name, by_look=True) for name in names}
    assert all(whole[name] == f"source {number}" for name, number in first.items() if number is not None)
    part = names[::2]
    assert witnesses_of(look, part) == {name: whole[name] for name in part if name in whole}


def witnesses_of(look: Looked, names: Sequence[Name]) -> dict[Name, str]:
    realms, keys = zip(*names, strict=True)
    objects = pa.table({"realm": pa.array(realms, pa.string()), "key": pa.array(keys, pa.string())})
    found = zip(names, look.witnesses(objects).to_pylist(), strict=True)
    return {name: text.partition(": ")[0] for name, text in found if text}


@pytest.mark.usefixtures("way")
def test_a_scan_and_a_look_say_what_sets_say(tmp_path: Path) -> None:
    for seed in range(rounds(20)):
        one = environment(random.Random(seed))
        (folder := tmp_path / str(seed)).mkdir()
        try:
            agree(one, folder)
        except AssertionError as fault:
            raise AssertionError(f"seed {seed}: {one}") from fault


def test_a_source_that_is_away_fails_a_scan_and_a_look(tmp_path: Path) -> None:
    for seed in range(rounds(5)):
        one = environment(random.Random(seed))
        filled = [number for number, rows in enumerate(one.references) if rows]
        if not filled or not one.objects:
            continue
        broken = replace(one, away=random.Random(seed).choice(filled))
        with pytest.raises(Refused, match=r"^The scan of the store blobs failed, .* cut off"):
            broken.judge()
        (folder := tmp_path / str(seed)).mkdir()
        assert "cut off" in str(broken.look(folder).fault)


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
def test_a_scan_and_a_look_say_what_sets_say_of_what_chance_seldom_makes(case: str, tmp_path: Path) -> None:
    agree(CRAFTED[case], tmp_path)


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

"""DataHub's retention, case by case, through the store and the whole cycle: marked, due, swept, and the rows looked at.

Each case is an entity with one aspect and one urn, so that one cycle runs them all. A history is its versions from the oldest;
where no age is written, the newest is 10 days old, the one before it 20, and so on; the current one is a day old. All are kept
by a general rule, `*`/`*` with 3 versions, unless a rule of their own is nearer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from retention_assets_tests.databases import new_database, new_schema
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.stores.aspects.environments import DataHub, Table, entry
from retention_assets_tests.sweep.lakes import DUE

GENERAL = "v3"
LONG = "1 2 3 4 5"


@dataclass(frozen=True)
class Case:
    """`rules` are words such as ea=v1 (entity and aspect), *a=v1, e*=v1; those after a / are in the file that lies over the first."""

    name: str
    rules: str
    history: str
    # The history versions that are left, and those that are left where the current one is one of maxVersions.
    left: str
    counted: str
    current: str = "0@1"
    entity: str = ""


CASES = [
    Case("of {0,1,2} one version leaves {0,2}", "ea=v1", "1 2", "2", ""),
    Case("no history loses nothing", "ea=v1", "", "", ""),
    Case("as many as are kept", "ea=v1", "1", "1", ""),
    Case("six of five", "ea=v6", LONG, LONG, LONG),
    Case("the largest number that DataHub knows", "ea=v2147483647", LONG, LONG, LONG),
    Case("pruning left a gap at the beginning", "ea=v1", "3 7", "7", ""),
    Case("gaps do not count as versions", "ea=v2", "2 5 9", "5 9", "9"),
    Case("fewer than are kept, after a gap", "ea=v3", "10 20", "10 20", "10 20"),
    Case("one is left of an older pruning", "ea=v2", "100", "100", "100"),
    Case("versions are numbers, not texts", "ea=v1", "9 10", "10", ""),
    Case("versions are as long as the database has them", "ea=v1", "4294967296 9007199254740993", "9007199254740993", ""),
    Case("order is by version, whatever the times say", "ea=v1", "1@1 2@90", "2", ""),
    Case("younger than fifteen days", "ea=t15d", "1 2 3 4", "4", "4"),
    Case("exactly as old as is kept stays", "ea=t30d", "1 2 3 4", "2 3 4", "2 3 4"),
    Case("all are too old but the current one", "ea=t5d", "1 2 3 4", "", ""),
    Case("time alone keeps no number", "ea=t25d", LONG, "4 5", "4 5"),
    Case("time is the row's own, whatever its version", "ea=t15d", "1@5 2@50 3@20", "1", "1"),
    Case("a second less", "ea=t863999s", "1@10", "", ""),
    Case("the current version stays at any age", "ea=t15d", "1@600", "", "", current="0@500"),
    Case("one version and fifteen days", "ea=v1+t15d", "1 2 3 4", "4", "4"),
    Case("three versions and fifteen days", "ea=v3+t15d", "1 2 3 4", "2 3 4", "3 4"),
    Case("outside the newest, but young", "ea=v1+t35d", "1 2 3 4", "2 3 4", "2 3 4"),
    Case("too old, but among the newest", "ea=v10+t1d", "1 2 3", "1 2 3", "1 2 3"),
    Case("too old, and fewer than are kept", "ea=v3+t15d", "1 2", "1 2", "1 2"),
    Case("too old, and one too many", "ea=v1+t5d", "1 2", "2", ""),
    Case("time and versions with a gap", "ea=v1+t15d", "3@90 4@5 9@50", "4 9", "4"),
    Case("everything is kept", "ea=-", LONG, LONG, LONG),
    Case("the general rule", "", LONG, "3 4 5", "4 5"),
    Case("entity and aspect before all others", "ea=v1 *a=v4 e*=v2", LONG, "5", ""),
    Case("aspect before entity", "*a=v4 e*=v2", LONG, "2 3 4 5", "3 4 5"),
    Case("entity before the general rule", "e*=v2", LONG, "4 5", "5"),
    Case("aspect before the general rule", "*a=v1", LONG, "5", ""),
    Case("the order of the entries does not matter", "e*=v2 *a=v4 ea=v1", LONG, "5", ""),
    Case("everything of one aspect, little of its entity", "ea=- e*=v1", LONG, LONG, LONG),
    Case("the nearest rule wins whole", "ea=t100d e*=v1", LONG, LONG, LONG),
    Case("the last file wins", "ea=v1 / ea=v4", LONG, "2 3 4 5", "3 4 5"),
    Case("the last file keeps everything", "ea=v1 / ea=-", LONG, LONG, LONG),
    Case("the last file wins whole", "ea=v1 / ea=t100d", LONG, LONG, LONG),
    Case("a general rule of the last file is still general", "ea=v1 / *a=v4", LONG, "5", ""),
    Case("an urn without a current version loses nothing", "ea=v1", LONG, LONG, LONG, current=""),
    Case("nor by time", "ea=t5d", LONG, LONG, LONG, current=""),
    Case("an entity is its whole name", "ea=v1", LONG, "5", "", entity="dataProcess"),
    Case("not what it begins with", "", LONG, "3 4 5", "4 5", entity="dataProcessInstance"),
    Case("nor what a pattern would match", "", LONG, "3 4 5", "4 5", entity="data_rocess"),
]


def _urn(case: Case) -> str:
    return f'urn:li:{_entity(case)}:(it\'s "{case.name}",@é)'


def _entity(case: Case) -> str:
    return case.entity or f"e{CASES.index(case)}"


def _ages(case: Case) -> dict[int, int]:
    words = case.history.split()
    ages = {}
    for number, word in enumerate(words):
        version, _, age = word.partition("@")
        ages[int(version)] = int(age or 10 * (len(words) - number))
    return ages | ({0: int(case.current.partition("@")[2])} if case.current else {})


def _entries(case: Case, file: int) -> list[dict[str, Any]]:
    words = [*case.rules.split("/"), ""][file].split()
    places = {"ea": (_entity(case), f"a{CASES.index(case)}"), "*a": ("*", f"a{CASES.index(case)}"), "e*": (_entity(case), "*")}
    return [entry(*places[word.partition("=")[0]], word.partition("=")[2]) for word in words]


@pytest.fixture(scope="module", params=["sqlite", "postgresql", "mariadb"])
def swept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Table]]:
    folder = tmp_path_factory.mktemp("hub")
    if request.param == "sqlite":
        urls = [f"sqlite:///{folder / name}" for name in ("one.db", "two.db")]
        for name in ("one.db", "two.db"):
            (folder / name).touch()
    elif request.param == "postgresql":
        urls = [new_schema(request.getfixturevalue("server")) for _ in range(2)]
    else:
        urls = [new_database(request.getfixturevalue("mariadb")) for _ in range(2)]
    tables = {name: Table(url) for name, url in zip(("plain", "counting"), urls, strict=True)}
    datahub = DataHub(folder / "hub", tables, counting={"current_counts": True})
    for number, file in enumerate(("a", "b")):
        general = [entry("*", "*", GENERAL)] if file == "a" else []
        datahub.retains(file, [*general, *(one for case in CASES for one in _entries(case, number))] or [entry("x", "y", "-")])
    for table in tables.values():
        rows = [
            (_urn(case), f"a{number}", version, AS_OF - timedelta(days=age), "{}")
            for number, case in enumerate(CASES)
            for version, age in _ages(case).items()
        ]
        table.add_all(rows)
    assert datahub.marks() > 0
    results = datahub.sweeps(DUE, wait=lambda *_: None)
    assert {result.refused for result in results.values()} == {None}
    assert datahub.verified() == ()
    yield tables
    for table in tables.values():
        table.database.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_left(swept: dict[str, Table], case: Case) -> None:
    aspect = f"a{CASES.index(case)}"
    current = {0} if case.current else set()
    for store, left in (("plain", case.left), ("counting", case.counted)):
        assert swept[store].versions(_urn(case), aspect) == current | {int(version) for version in left.split()}, store

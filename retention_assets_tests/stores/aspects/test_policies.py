"""The policies that people made in DataHub itself: read from its table, taken into the policy book, respected, drifted, ended."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from retention_assets.errors import BadInput, Refused
from retention_assets.evaluation.rules_in_force import load_rules, warn_of_unknown
from retention_assets.policy import AspectEntry, Stored
from retention_assets.settings import load_settings
from retention_assets.stores.aspects.policies import SYSTEM
from retention_assets_tests.databases import new_schema
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.stores.aspects.environments import STORE, DataHub, Table, entry
from retention_assets_tests.sweep.lakes import DUE

URN = "urn:li:dataset:(urn:li:dataPlatform:hive,a,PROD)"
ANN = "urn:li:corpuser:ann"
HISTORY = {1: 50, 2: 40, 3: 30, 4: 20, 0: 10}
ASPECT = "dataHubRetentionConfig"


def urn_of(entity: str, aspect: str) -> str:
    return f"urn:li:dataHubRetention:({entity},{aspect})"


class Policies:
    def __init__(self, table: Table, folder: Path, **settings: Any) -> None:
        self.table = table
        self.datahub = DataHub(folder / "hub", {STORE: table}, "", **{STORE: {"datahub_policies": "read", **settings}})
        self.datahub.retains("retention", [entry("*", "*", "v1")])
        for aspect in ("status", "ownership"):
            table.chain(URN, aspect, HISTORY)

    def says(self, entity: str, aspect: str, kept: str | dict[str, Any], by: str = ANN, days_ago: float = 5) -> None:
        """Somebody writes a policy in DataHub, as its API does: the key, and the policy as it is now, in version 0."""
        retention = kept if isinstance(kept, dict) else entry(entity, aspect, kept)["config"]
        self.writes(urn_of(entity, aspect), json.dumps(retention), by, days_ago)

    def writes(self, urn: str, metadata: str, by: str = ANN, days_ago: float = 5) -> None:
        at = AS_OF - timedelta(days=days_ago)
        self.takes_back(urn)
        self.table.add(urn, "dataHubRetentionKey", 0, at)
        self.table.add(urn, ASPECT, 0, at, metadata)
        self.table.do(f"UPDATE {self.table.name} SET createdby = :by WHERE urn = :urn", by=by, urn=urn)

    def takes_back(self, urn: str) -> None:
        self.table.do(f"DELETE FROM {self.table.name} WHERE urn = :urn", urn=urn)

    def loads(self) -> tuple[list[str], dict[str, str]]:
        environment = self.datahub.environment
        with self.datahub.opened() as ledger:
            rulebook = load_rules(ledger, environment, "evaluation")
        return list(rulebook.drifted), dict(rulebook.unreadable)

    def book(self) -> dict[str, Stored]:
        with self.datahub.opened() as ledger:
            return {one.name.removeprefix("datahub:"): one for one in ledger.policy_book.in_force()}

    def left_after_a_cycle(self) -> dict[str, set[int]]:
        assert not self.loads()[1]
        self.datahub.marks()
        results = self.datahub.sweeps(DUE, wait=lambda *_: None)
        assert not [one.refused for one in results.values() if one.refused]
        return {aspect: self.table.versions(URN, aspect) - {0} for aspect in ("status", "ownership")}


@pytest.fixture
def policies(table: Table, tmp_path: Path) -> Policies:
    return Policies(table, tmp_path)


@pytest.fixture
def postgresql(server: str, tmp_path: Path) -> Iterator[Policies]:
    table = Table(new_schema(server))
    yield Policies(table, tmp_path)
    table.database.close()


def test_policies_of_people_are_respected_and_those_of_the_system_come_from_files(policies: Policies) -> None:
    policies.says("dataset", "status", "v3")
    policies.says("*", "*", "v2", by=SYSTEM)
    assert policies.left_after_a_cycle() == {"status": {2, 3, 4}, "ownership": {4}}
    book = policies.book()
    assert (book["dataset.status"].written_by, book["dataset.status"].system) == (f"datahub:{STORE} {ANN}", False)
    assert book["*.*"].system
    assert policies.datahub.verified() == ()


@pytest.mark.parametrize(
    ("kept", "left"),
    [
        ({"retention": {"indefinite": {}}}, {1, 2, 3, 4}),
        # What sets nothing keeps everything in DataHub, and is nearer than a general rule.
        ({"retention": {}}, {1, 2, 3, 4}),
        ({"retention": {"time": {"maxAgeInSeconds": 35 * 86_400}}}, {3, 4}),
        ({"retention": {"version": {"maxVersions": 2}, "time": {"maxAgeInSeconds": 45 * 86_400}}}, {2, 3, 4}),
    ],
    ids=["everything", "nothing said", "time", "both"],
)
def test_every_form_of_datahubs_json_is_read(kept: dict[str, Any], left: set[int], postgresql: Policies) -> None:
    postgresql.says("dataset", "status", kept)
    assert postgresql.left_after_a_cycle()["status"] == left


def test_nothing_is_read_unless_the_settings_say_so(table: Table, tmp_path: Path) -> None:
    policies = Policies(table, tmp_path, datahub_policies="off")
    policies.says("dataset", "status", "v3")
    policies.writes(urn_of("dataset", "ownership"), "no JSON")
    assert policies.left_after_a_cycle() == {"status": {4}, "ownership": {4}}


def test_a_file_that_says_otherwise_is_drift_until_it_is_forced(postgresql: Policies) -> None:
    postgresql.says("dataset", "status", "v3")
    postgresql.datahub.retains("z", [entry("dataset", "status", "v1")])
    postgresql.loads()
    [drift], _ = postgresql.loads()
    assert drift.startswith(
        "DataHub entry 'dataset.status' in the files differs from version 1 in the book, which datahub:meta"
    )
    assert "forceOverwrite: true" in drift
    postgresql.datahub.retains("z", [entry("dataset", "status", "v1", forceOverwrite=True)])
    postgresql.loads()
    for _ in range(3):
        warnings, _ = postgresql.loads()
        assert ["the policy files force another one" in one for one in warnings] == [True]
    # It is not taken over and overwritten in turns.
    assert postgresql.book()["dataset.status"].version == 2
    assert postgresql.left_after_a_cycle()["status"] == {4}


def test_what_is_taken_back_in_datahub_ends_and_the_files_count_again(postgresql: Policies) -> None:
    postgresql.says("dataset", "status", "v3")
    postgresql.says("dataset", "ownership", "-")
    postgresql.datahub.retains("z", [entry("dataset", "status", "v2")])
    postgresql.loads()
    postgresql.takes_back(urn_of("dataset", "status"))
    postgresql.takes_back(urn_of("dataset", "ownership"))
    warnings, _ = postgresql.loads()
    assert sorted(warnings) == [
        f"DataHub entry 'dataset.{aspect}' is no longer in DataHub, so it is no longer in force."
        for aspect in ("ownership", "status")
    ]
    book = postgresql.book()
    assert (book["dataset.status"].system, "dataset.ownership" in book) == (True, False)
    assert postgresql.loads() == ([], {})
    assert postgresql.left_after_a_cycle() == {"status": {3, 4}, "ownership": {4}}


def test_of_two_people_the_last_one_counts(postgresql: Policies) -> None:
    postgresql.says("dataset", "status", "v3")
    postgresql.loads()
    with postgresql.datahub.opened() as ledger:
        ledger.policy_book.write(AspectEntry.model_validate(entry("dataset", "status", "v2")), "bob", "less")
    [warning], _ = postgresql.loads()
    assert "In the book bob later wrote version 2, which stays in force" in warning
    assert postgresql.book()["dataset.status"].version == 2
    # Written anew, after bob: the ledger's time is the present.
    postgresql.says("dataset", "status", "v4", days_ago=-365_000 / 100)
    [warning], _ = postgresql.loads()
    assert "was written in DataHub by urn:li:corpuser:ann" in warning
    assert postgresql.book()["dataset.status"].version == 3


def test_a_change_in_datahub_is_a_new_version_and_the_same_again_is_none(postgresql: Policies) -> None:
    for kept, versions in (("v3", 1), ("v3", 1), ("v2", 2), ("t30d", 3)):
        postgresql.says("dataset", "status", kept)
        postgresql.loads()
        assert postgresql.book()["dataset.status"].version == versions


UNREADABLE = {
    "no JSON": ("{", "Expecting property name"),
    "no retention": ("{}", "retention field required"),
    "no versions": ('{"retention": {"version": {"maxVersions": 0}}}', "retention.version.maxVersions"),
    "a negative age": ('{"retention": {"time": {"maxAgeInSeconds": -1}}}', "retention.time.maxAgeInSeconds"),
    "an unknown key": ('{"retention": {"versions": {"maxVersions": 1}}}', "retention.versions"),
    "everything and not": ('{"retention": {"indefinite": {}, "version": {"maxVersions": 1}}}', "keeps everything and does not"),
    "not an object": ("[1]", "config"),
}


@pytest.mark.parametrize(("metadata", "words"), UNREADABLE.values(), ids=UNREADABLE)
def test_an_entry_that_cannot_be_read_stops_its_store_by_name(metadata: str, words: str, postgresql: Policies) -> None:
    postgresql.datahub.marks()
    postgresql.writes(urn_of("dataset", "status"), metadata)
    store = postgresql.table.store(datahub_policies="read")
    for question in (store.datasets, lambda: store.read(["meta/dataset.ownership"])):
        with pytest.raises(Refused) as caught:
            question()
        said = str(caught.value)
        assert said.startswith(
            f"The policy urn:li:dataHubRetention:(dataset,status), which {ANN} wrote in DataHub, can't be read: "
        )
        assert words in said
        assert "The store meta is not judged or swept until that policy is mended or deleted there" in said
    # What was marked before is not swept either.
    results = postgresql.datahub.sweeps(DUE, wait=lambda *_: None)
    assert results
    assert all("can't be read" in str(one.refused) for one in results.values())
    assert postgresql.table.versions(URN, "ownership") == set(HISTORY)
    _, unreadable = postgresql.loads()
    assert list(unreadable) == ["meta"]


@pytest.mark.parametrize(
    "urn", ["urn:li:dataHubRetention:dataset", "urn:li:dataHubRetention:(a,b,c)", "urn:li:dataHubRetention:(a b,c)"]
)
def test_an_urn_that_names_no_entity_and_aspect_is_unreadable(urn: str, postgresql: Policies) -> None:
    postgresql.writes(urn, '{"retention": {"indefinite": {}}}')
    _, unreadable = postgresql.loads()
    assert urn in unreadable["meta"]


def test_what_the_system_wrote_and_what_was_written_before_is_not_looked_at(postgresql: Policies) -> None:
    postgresql.writes(urn_of("dataset", "status"), "no JSON", by=SYSTEM)
    postgresql.says("dataset", "ownership", "v2")
    postgresql.table.add(urn_of("dataset", "ownership"), ASPECT, 1, AS_OF - timedelta(days=9), "no JSON")
    assert postgresql.loads()[1] == {}
    assert sorted(postgresql.book()) == ["*.*", "dataset.ownership"]


def test_policies_of_one_datahub_are_about_no_other(tmp_path: Path) -> None:
    one = {"kind": "aspects", "url": "sqlite:///one.db"}
    file = tmp_path / "retention.yaml"
    file.write_text(json.dumps({"stores": [{"name": "a", **one, "datahub_policies": "read"}, {"name": "b", **one}]}))
    with pytest.raises(BadInput, match="Give each DataHub its own settings and its own ledger"):
        load_settings(file)


@pytest.mark.parametrize(("said", "reads"), [("read", True), ("off", False), ("'off'", False)])
def test_off_is_off_for_every_reader_of_yaml(said: str, reads: bool, tmp_path: Path) -> None:
    file = tmp_path / "retention.yaml"
    file.write_text(f"stores: [{{name: a, kind: aspects, url: 'sqlite:///one.db', datahub_policies: {said}}}]\n")
    [store] = load_settings(file).stores
    assert store.reads_policies is reads


def test_an_unknown_entity_or_aspect_is_warned_of(postgresql: Policies) -> None:
    entries = [("datasett", "status"), ("dataset", "sttus"), ("dataset", "status"), ("*", "xyz"), ("*", "*")]
    environment = postgresql.datahub.environment
    datasets = ["meta/dataset.status", "meta/corpuser.corpUserInfo", "lake/a.b"]
    found = warn_of_unknown([AspectEntry.model_validate(entry(*key, "v1")) for key in entries], datasets, environment)
    assert found == [
        "DataHub entry 'datasett.status': no row has the entity datasett. Did you mean dataset?",
        "DataHub entry 'dataset.sttus': no row has the aspect sttus. Did you mean status?",
        "DataHub entry '*.xyz': no row has the aspect xyz.",
    ]
    assert warn_of_unknown([AspectEntry.model_validate(entry("x", "y", "v1"))], ["lake/a.b"], environment) == []

"""The `aspects` store on every kind of database: the contract, and what DataHub's table asks beyond it."""

import sqlite3
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from retention_assets.errors import Refused
from retention_assets.frames import sound_log
from retention_assets.outcomes import Outcome
from retention_assets.settings import Settings
from retention_assets.stores.aspects import AspectsSettings
from retention_assets.stores.aspects import store as aspects
from retention_assets.stores.aspects.delete import VersionDeletion
from retention_assets.stores.aspects.rows import RowNote, WantedRow, row_of
from retention_assets.stores.protocol import SweptTarget, Target, always
from retention_assets_tests.databases import new_schema
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.stores.aspects.environments import STORE, Aspects, Table
from retention_assets_tests.stores.contract import Contract, Environment

URN = 'urn:li:dataset:(urn:li:dataPlatform:hive,it\'s "a" ü 表@home#1%_,PROD)'
OTHER = "urn:li:dataset:other"
STATUS = f"{STORE}/dataset.status"


class TestAspectsStore(Contract):
    @pytest.fixture
    def environment(self, store_url: str) -> Iterator[Environment]:
        environment = Aspects(store_url)
        yield environment
        environment.table.database.close()


def swept(table: Table, targets: list[Target], dataset: str = STATUS, parallelism: int = 1) -> dict[str, SweptTarget]:
    return {one.transaction: one for one in table.store().sweep(dataset, targets, parallelism)}


def planned(table: Table, *versions: int, urn: str = URN, dataset: str = STATUS) -> list[Target]:
    prepared = table.store().prepare(dataset, [f"{urn}@{version}" for version in versions])
    return [Target(one.transaction, one.note) for one in prepared]


def test_the_entity_is_the_third_part_of_an_urn_whole(table: Table) -> None:
    for urn in ("urn:li:dataProcess:a", "urn:li:dataProcessInstance:a", "urn:li:data_Process:a", "urn:li:dataXProcess:a"):
        table.chain(urn, "status", {0: 1})
    names = [f"{STORE}/{entity}.status" for entity in ("dataProcess", "dataProcessInstance", "dataXProcess", "data_Process")]
    assert table.store().datasets() == names
    for name in names:
        [row] = sound_log(table.store().read([name])).transactions.to_pylist()
        assert row["transaction"] == f"urn:li:{name.partition('/')[2].partition('.')[0]}:a@0"


def test_an_urn_is_a_branch_and_its_versions_a_chain_with_the_current_one_last(table: Table) -> None:
    table.chain(URN, "status", {0: 1, 9: 3, 10: 2, 2: 5})
    table.chain(OTHER, "status", {0: 4, 1: 5})
    log = sound_log(table.store().read([STATUS]))
    found = [(row["transaction"], row["parent"], row["heads"]) for row in log.transactions.to_pylist()]
    assert found == [
        (f"{URN}@2", None, []),
        (f"{URN}@9", f"{URN}@2", []),
        (f"{URN}@10", f"{URN}@9", []),
        (f"{URN}@0", f"{URN}@10", [URN]),
        (f"{OTHER}@1", None, []),
        (f"{OTHER}@0", f"{OTHER}@1", [OTHER]),
    ]
    row = log.transactions.to_pylist()[0]
    assert (row["type"], row["status"], row["closed_at"]) == ("SNAPSHOT", "COMMITTED", AS_OF - timedelta(days=5))
    assert row["opened_at"] == row["closed_at"]
    assert row["bytes"] == len(f"{URN} 2".encode())
    assert dict(row["attributes"]) == {"urn": URN, "version": "2"}
    assert log.datasets.to_pylist()[0]["attributes"] == [("entity", "dataset"), ("aspect", "status")]


def test_both_documents_of_a_row_count_as_its_bytes(table: Table) -> None:
    table.chain(URN, "status", {0: 1})
    table.do(f"UPDATE {table.name} SET metadata = 'ü', systemmetadata = 'abc'")
    [row] = sound_log(table.store().read([STATUS])).transactions.to_pylist()
    assert row["bytes"] == 5


def test_an_urn_without_a_current_row_is_on_no_branch(table: Table) -> None:
    table.chain(URN, "status", {1: 5, 2: 4})
    log = sound_log(table.store().read([STATUS]))
    assert [row["heads"] for row in log.transactions.to_pylist()] == [[], []]
    assert log.datasets["fault"].to_pylist() == [None]


NO_URNS = ("dataset:a", "URN:LI:dataset:a", "urn:li:a", "urn:li:no entity:a", "urn:li::a", "urn:li:a.b:c", "")


def test_what_is_no_urn_is_refused_apart_from_the_others(table: Table) -> None:
    for urn in (*NO_URNS, URN):
        table.chain(urn, "status", {0: 1, 1: 2})
    store = table.store()
    assert store.datasets() == [f"{STORE}/.status", STATUS]
    log = sound_log(store.read(store.datasets()))
    faults = dict(zip(log.datasets["dataset"].to_pylist(), log.datasets["fault"].to_pylist(), strict=True))
    assert faults[STATUS] is None
    assert str(faults[f"{STORE}/.status"]).startswith("its urns are not urn:li:")
    assert len(log.transactions) == 2
    found = swept(table, [Target(f"{urn}@1", None) for urn in NO_URNS], f"{STORE}/.status")
    assert [one.outcome for one in found.values()] == [Outcome.FAILED] * len(NO_URNS)
    assert [urn for urn in NO_URNS if table.versions(urn, "status") != {0, 1}] == []


def test_shares_keep_an_entity_together_up_to_so_many_rows(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aspects, "ROWS_PER_SHARE", 5)
    for entity, aspect, rows in (("chart", "a", 2), ("chart", "b", 3), ("chart", "c", 1), ("tag", "a", 9)):
        table.chain(f"urn:li:{entity}:1", aspect, dict.fromkeys(range(rows), 1))
    store = table.store()
    assert store.shares(store.datasets()) == [
        (f"{STORE}/chart.a", f"{STORE}/chart.b"), (f"{STORE}/chart.c",), (f"{STORE}/tag.a",),
    ]  # fmt: skip


def test_many_datasets_of_many_entities_are_read_and_told_apart_in_one_question(table: Table) -> None:
    for number in range(60):
        table.chain(f"urn:li:e{number}:1", "status", {0: 1})
    store = table.store()
    names = store.datasets()
    assert len(names) == 60
    assert set(sound_log(store.read(names[:55])).datasets["dataset"].to_pylist()) == set(names[:55])
    tokens = store.tokens(names[:55])
    assert len(tokens) == len(set(tokens.values())) == 55


CHANGES: dict[str, Callable[[Table], object]] = {
    "a row comes": lambda table: table.add(OTHER, "status", 0, AS_OF),
    "a row goes": lambda table: table.do(f"DELETE FROM {table.name} WHERE version = 1"),
    "a new version is older than all others": lambda table: table.ingest(URN, "status", AS_OF - timedelta(days=999), "{}"),
    "a row has another time": lambda table: table.do(
        f"UPDATE {table.name} SET createdon = :at WHERE version = 1", at=table._time(AS_OF + timedelta(microseconds=1))
    ),
    "a row was replaced by the same version of another urn": lambda table: table.do(
        f"UPDATE {table.name} SET urn = :urn WHERE version = 1", urn=URN.replace("home", "home2")
    ),
    "two rows traded their times": lambda table: table.trade(URN, "status", 1, 2),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_token_notices_that(table: Table, change: str) -> None:
    table.chain(URN, "status", {0: 1, 1: 5, 2: 4})
    before = table.store().tokens([STATUS])
    CHANGES[change](table)
    assert table.store().tokens([STATUS]) != before


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize(("kind", "later"), [("timestamptz(6)", timedelta(microseconds=1)), ("date", timedelta(days=1))])
def test_a_token_notices_another_time_whatever_type_the_column_has(table: Table, kind: str, later: timedelta) -> None:
    table.chain(URN, "status", {0: 1, 1: 5})
    table.do(f"ALTER TABLE {table.name} ALTER COLUMN createdon TYPE {kind}")
    before = table.store().tokens([STATUS])
    table.do(f"UPDATE {table.name} SET createdon = createdon + :later WHERE version = 1", later=later)
    assert table.store().tokens([STATUS]) != before


# What may stand there for a time, as SQL writes it and as it is shown.
IMPOSSIBLE = {
    "milliseconds": ("sqlite", "1774958400000", "1774958400000 (integer)"),
    "seconds with a fraction": ("sqlite", "1774958400.5", "1774958400.5 (real)"),
    "bytes": ("sqlite", "X'ff00'", "X'FF00' (blob)"),
    "a day": ("sqlite", "'2026-01-01'", "2026-01-01"),
    "a day that was never": ("sqlite", "'2026-02-30 12\\:00\\:00'", "2026-02-30 12:00:00"),
    "the year 0": ("sqlite", "'0000-01-01 00\\:00\\:00'", "0000-01-01 00:00:00"),
    "a long text": ("sqlite", f"'{'x' * 50}'", f"{'x' * 40}…"),
    "an empty text": ("sqlite", "''", "empty"),
    "the end of time": ("postgresql", "'infinity'", "infinity"),
    "the beginning of time": ("postgresql", "'-infinity'", "-infinity"),
    "before Christ": ("postgresql", "'4000-01-01 BC'", "4000-01-01T00:00:00 BC"),
    "the last year of all": ("postgresql", "'294276-01-01'", "294276-01-01T00:00:00"),
    "the day 0": ("mariadb", "'0000-00-00'", "0000-00-00 00:00:00.000000"),
}


@pytest.mark.parametrize(("store_url", "literal", "shown"), IMPOSSIBLE.values(), ids=IMPOSSIBLE, indirect=["store_url"])
def test_what_is_no_time_refuses_its_dataset_and_no_other(table: Table, literal: str, shown: str) -> None:
    ownership = f"{STORE}/dataset.ownership"
    table.chain(URN, "ownership", {0: 1, 1: 2})
    table.chain(URN, "status", {0: 1, 1: 3, 2: 2})
    store, names = table.store(), [ownership, STATUS]
    before, alone = store.tokens(names), sound_log(store.read([ownership]))
    table.mistime(URN, "status", 1, literal)
    log = sound_log(store.read(names))
    faults = dict(zip(log.datasets["dataset"].to_pylist(), log.datasets["fault"].to_pylist(), strict=True))
    assert faults[ownership] is None
    assert str(faults[STATUS]).startswith(f"createdon of {URN}@1 is {shown}, not a date with a time")
    assert log.transactions.to_pylist() == alone.transactions.to_pylist()
    after = store.tokens(names)
    assert (after[ownership], after[STATUS] == before[STATUS]) == (before[ownership], False)
    table.mistime(URN, "status", 2, literal)
    assert store.tokens(names)[STATUS] not in (before[STATUS], after[STATUS])


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_of_several_impossible_times_the_first_one_is_named(table: Table) -> None:
    table.chain(OTHER, "status", dict.fromkeys(range(9), 1))
    for version in (7, 4, 5, 0):
        table.mistime(OTHER, "status", version, "17")
    [fault] = sound_log(table.store().read([STATUS])).datasets["fault"].to_pylist()
    assert str(fault).startswith(f"createdon of {OTHER}@4 is 17 (integer), ")


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_an_infinite_time_is_in_the_way_of_no_sweep(table: Table) -> None:
    table.chain(URN, "status", {0: 1, 1: 5, 2: 4})
    targets = planned(table, 1, 2)
    table.mistime(URN, "status", 2, "'infinity'")
    found = swept(table, targets)
    assert [one.outcome for one in found.values()] == [Outcome.DELETED, Outcome.SPARED]
    # No datetime of Python's shows the infinite one.
    table.mistime(URN, "status", 2, "'2026-01-01'")
    assert table.versions(URN, "status") == {0, 2}


def test_a_table_in_another_schema_is_read(server: str) -> None:
    table = Table(server, f"{new_schema(server).rpartition('%3D')[2]}.metadata_aspect_v2")
    table.chain(URN, "status", {0: 1, 1: 2})
    assert len(sound_log(table.store().read([STATUS])).transactions) == 2
    assert {one.outcome for one in swept(table, planned(table, 1)).values()} == {Outcome.DELETED}
    table.database.close()


def test_a_table_that_is_another_one_is_refused_by_its_columns(table: Table) -> None:
    table.do("CREATE TABLE people (urn int)")
    with pytest.raises(Refused, match="lacks the column aspect, version, metadata, createdon"):
        table.store(table="people").datasets()
    with pytest.raises(Refused, match="no table nothing"):
        table.store(table="nothing").read([STATUS])
    assert [one.outcome for one in table.store(table="nothing").sweep(STATUS, planned(table, 1), 1)] == [Outcome.FAILED]


def test_a_missing_key_is_remarked(table: Table) -> None:
    assert [remark for remark in table.store().warnings() if "index" in remark] == []
    table.do("CREATE TABLE keyless (urn varchar(500), aspect varchar(200), version bigint, metadata text, createdon timestamp)")
    [remark] = [remark for remark in table.store(table="keyless").warnings() if "index" in remark]
    assert "urn, aspect and version" in remark
    columns = "urn varchar(500), aspect varchar(200), version bigint, metadata text, createdon timestamp"
    table.do(f"CREATE TABLE turned ({columns}, PRIMARY KEY (aspect, urn, version))")
    [remark] = [remark for remark in table.store(table="turned").warnings() if "index" in remark.lower()]
    assert "begins with urn" in remark


def test_readers_that_make_writers_wait_are_remarked(tmp_path: Path) -> None:
    (tmp_path / "store.db").touch()
    table = Table(f"sqlite:///{tmp_path / 'store.db'}")
    [remark] = table.store().warnings()
    assert "not in WAL mode" in remark
    sqlite3.connect(tmp_path / "store.db").execute("PRAGMA journal_mode = WAL").connection.close()
    assert table.store().warnings() == []


def test_a_store_may_be_where_a_ledger_may_not(tmp_path: Path) -> None:
    given = {"name": STORE, "kind": "aspects", "url": "mariadb://me@host/db"}
    assert str(AspectsSettings.model_validate(given).url) == "mariadb://me@host/db"
    with pytest.raises(ValidationError, match="not supported"):
        Settings.model_validate({"ledger": "mariadb://me@host/db"})
    with pytest.raises(ValidationError, match="not supported"):
        AspectsSettings.model_validate({**given, "url": "oracle://me@host/db"})


@pytest.mark.parametrize(
    "text", ["", "@1", f"{URN}@", f"{URN}@01", f"{URN}@1 ", f"{URN}@+1", f"{URN}@-0", f"{URN}@1.0", f"{URN}@١"]
)
def test_what_is_no_name_of_a_row_is_none(text: str) -> None:
    assert row_of(text, "dataset") is None


def test_quotes_and_unicode_are_names_like_any_other(table: Table) -> None:
    before = {0: 1, 1: 5, 2: 4}
    table.chain(URN, "status", before)
    table.chain(URN.replace("'", "''"), "status", before)
    assert {one.outcome for one in swept(table, planned(table, 1)).values()} == {Outcome.DELETED}
    assert table.versions(URN, "status") == {0, 2}
    assert table.versions(URN.replace("'", "''"), "status") == {0, 1, 2}


def test_the_current_version_is_never_deleted(table: Table) -> None:
    table.chain(URN, "status", {0: 1, 1: 5})
    [target] = planned(table, 0)
    assert target.note
    [found] = swept(table, [target]).values()
    assert (found.outcome, found.bytes) == (Outcome.SPARED, 0)
    assert found.error == "It is the current version of its urn, which is never deleted."
    assert table.versions(URN, "status") == {0, 1}


def test_no_statement_deletes_a_current_version_even_if_somebody_asks_it_to(table: Table) -> None:
    """Names are sorted out before; should one slip through, the statement itself says no."""
    table.chain(URN, "status", {0: 1, 1: 5})
    current, history = (
        WantedRow(f"{URN}@{at}", (URN, at), RowNote.read_all([str(planned(table, at)[0].note)])[0]) for at in (0, 1)
    )
    store = table.store()
    deletion = VersionDeletion(
        database=table.database,
        table=store.table.table,
        cascades=store.cascades(),
        permit=always,
        items={one.transaction: one for one in (current, history)},
        rows=store.table,
        aspect="status",
    )
    found = deletion.run([[current.transaction, history.transaction]], 1)
    assert [one.transaction for one in found if one.outcome is Outcome.DELETED] == [history.transaction]
    assert table.versions(URN, "status") == {0}


def test_a_row_of_another_entity_or_aspect_is_not_touched(table: Table) -> None:
    table.chain("urn:li:chart:1", "status", {0: 1, 1: 5})
    table.chain("urn:li:chart:1", "ownership", {0: 1, 1: 5})
    before = table.rows()
    targets = planned(table, 1, urn="urn:li:chart:1", dataset=f"{STORE}/chart.status")
    assert [one.outcome for one in swept(table, targets, f"{STORE}/dataset.status").values()] == [Outcome.FAILED]
    assert [one.outcome for one in swept(table, targets, f"{STORE}/chart.nothing").values()] == [Outcome.ALREADY_GONE]
    assert table.rows() == before
    swept(table, targets, f"{STORE}/chart.status")
    assert before.keys() - table.rows().keys() == {("urn:li:chart:1", "status", 1)}


ANOTHER = "The row is not the planned one: its time or its size has changed."


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda table: table.do(f"UPDATE {table.name} SET createdon = :at WHERE version = 1", at=table._time(AS_OF)), id="time"),
        pytest.param(lambda table: table.do(f"UPDATE {table.name} SET metadata = 'longer than it ever was' WHERE version = 1"), id="size"),
    ],
)  # fmt: skip
def test_a_row_that_changed_after_the_plan_is_spared(table: Table, change: Callable[[Table], None]) -> None:
    table.chain("urn:li:dataset:a", "status", {0: 1, 1: 5, 2: 4})
    targets = planned(table, 1, 2, urn="urn:li:dataset:a")
    change(table)
    found = swept(table, targets)
    assert (found["urn:li:dataset:a@1"].outcome, found["urn:li:dataset:a@1"].error) == (Outcome.SPARED, ANOTHER)
    assert found["urn:li:dataset:a@2"].outcome is Outcome.DELETED
    assert table.versions("urn:li:dataset:a", "status") == {0, 1}


def test_a_row_that_was_not_there_when_it_was_planned_is_spared(table: Table) -> None:
    table.chain(URN, "status", {0: 1, 1: 5})
    targets = planned(table, 2)
    table.ingest(URN, "status", AS_OF, "{}")
    [found] = swept(table, targets).values()
    assert found.outcome is Outcome.SPARED
    assert table.versions(URN, "status") == {0, 1, 2}


def test_a_new_version_does_no_harm(table: Table) -> None:
    table.chain(URN, "status", {0: 1, 1: 5, 2: 4})
    targets = planned(table, 1)
    table.ingest(URN, "status", AS_OF, "{}")
    assert [one.outcome for one in swept(table, targets).values()] == [Outcome.DELETED]
    assert table.versions(URN, "status") == {0, 2, 3}


def stands_beside(table: Table) -> None:
    """Whole histories of the same urn's other aspect and of another urn, which say nothing about this one's."""
    table.chain(URN, "ownership", dict.fromkeys(range(9), 9))
    table.chain(OTHER, "status", dict.fromkeys(range(9), 9))


def test_what_a_rollback_made_newer_is_spared(table: Table) -> None:
    stands_beside(table)
    table.chain(URN, "status", {0: 1, 1: 5, 2: 4, 3: 3})
    targets = planned(table, 1, 2)
    table.roll_back(URN, "status")
    found = swept(table, targets)
    assert {one.outcome for one in found.values()} == {Outcome.SPARED}
    assert "Version 3 of its urn, the newest that was to stay, is gone" in str(found[f"{URN}@2"].error)
    assert table.versions(URN, "status") == {0, 1, 2}


def test_what_the_plan_itself_deletes_spares_nothing(table: Table) -> None:
    """The newest of the history goes first; the older ones of the same plan must still go."""
    table.chain(URN, "status", {0: 1, 1: 5, 2: 4, 3: 3})
    targets = planned(table, 1, 2, 3)
    for target in reversed(targets):
        assert [one.outcome for one in swept(table, [target]).values()] == [Outcome.DELETED]
    assert table.versions(URN, "status") == {0}


def test_the_history_of_an_urn_that_lost_its_current_row_is_spared(table: Table) -> None:
    table.chain(URN, "status", {0: 1, 1: 5, 2: 4})
    targets = planned(table, 1)
    table.do(f"DELETE FROM {table.name} WHERE version = 0")
    stands_beside(table)
    [found] = swept(table, targets).values()
    assert (found.outcome, "no current version" in str(found.error)) == (Outcome.SPARED, True)
    assert table.versions(URN, "status") == {1, 2}


def test_a_batch_is_cut_in_equal_parts_and_nothing_is_lost(table: Table) -> None:
    rows = [
        (f"urn:li:dataset:{number:03}", "status", version, AS_OF, f"{number}") for number in range(250) for version in range(3)
    ]
    table.add_all(rows)
    names = [f"urn:li:dataset:{number:03}@{version}" for number in range(250) for version in (1, 2)]
    targets = [Target(one.transaction, one.note) for one in table.store().prepare(STATUS, names)]
    found = swept(table, targets, parallelism=8)
    assert {one.outcome for one in found.values()} == {Outcome.DELETED}
    assert found.keys() == set(names)
    assert {version for _, _, version in table.rows()} == {0}
    assert sum(one.bytes for one in found.values()) == 2 * sum(len(f"{number}") for number in range(250))

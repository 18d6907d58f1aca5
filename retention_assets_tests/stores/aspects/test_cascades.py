"""What a database would do besides with rows of DataHub's table, and rows of it that somebody holds."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from retention_assets.errors import Withheld
from retention_assets.outcomes import Outcome
from retention_assets.sql.errors import RETRY_TRANSIENT
from retention_assets.sql.guarded_delete import LOCKED, GuardedDelete
from retention_assets.stores.protocol import SweptTarget, Target
from retention_assets_tests.databases import new_schema
from retention_assets_tests.stores.aspects.environments import STORE, Table

STATUS = f"{STORE}/dataset.status"
DELETED, FAILED = Outcome.DELETED, Outcome.FAILED


def urn(number: int) -> str:
    return f"urn:li:dataset:{number:03}"


def planned(table: Table, *numbers: int) -> list[Target]:
    names = [f"{urn(number)}@1" for number in numbers]
    return [Target(one.transaction, one.note) for one in table.store(cascades="accepted").prepare(STATUS, names)]


def swept(table: Table, targets: list[Target], parallelism: int = 1) -> dict[str, SweptTarget]:
    return {one.transaction.rpartition("@")[0]: one for one in table.store().sweep(STATUS, targets, parallelism)}


@contextmanager
def holding(table: Table, *numbers: int) -> Iterator[None]:
    with table.database.engine.connect() as connection, connection.begin() as writing:
        for number in numbers:
            held = f"UPDATE {table.name} SET createdby = 'somebody' WHERE urn = :urn AND version = 1"
            connection.execute(text(held), {"urn": urn(number)})
        yield
        writing.rollback()


@pytest.fixture
def servers(table: Table) -> Table:
    """Where two can write at once. Fifty urns, each with a history of one version."""
    if table.database.dialect == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    for number in range(50):
        table.chain(urn(number), "status", {0: 1, 1: 5})
    return table


def test_held_rows_are_not_tried_again_once_the_permit_is_withdrawn(servers: Table) -> None:
    targets, asked = planned(servers, *range(50)), list[int]()

    def permit() -> None:
        asked.append(1)
        # Twice for the transaction that waits in vain and the one without the held rows; then comes the one of these alone.
        if len(asked) > 3:
            raise Withheld("the lease is over")

    with holding(servers, 7, 31):
        found = servers.store().sweep(STATUS, targets, 1, permit)
    kept = {one.transaction: (one.outcome, one.error) for one in found if one.outcome is not DELETED}
    assert kept == {f"{urn(number)}@1": (Outcome.WITHHELD, "the lease is over") for number in (7, 31)}
    assert {urn for urn, _, version in servers.rows() if version} == {urn(7), urn(31)}
    assert len(found) == 50


@pytest.mark.parametrize("ask", [1, 2, 3])
def test_no_row_goes_past_a_permit_that_is_withdrawn_while_rows_are_held(servers: Table, ask: int) -> None:
    targets, asked = planned(servers, *range(50)), list[int]()

    def permit() -> None:
        asked.append(1)
        if len(asked) >= ask:
            raise Withheld("the lease is over")

    with holding(servers, 7):
        found = servers.store().sweep(STATUS, targets, 1, permit)
    # What is withheld is not taken for held, and not tried again.
    assert [(one.outcome, one.error) for one in found] == [(Outcome.WITHHELD, "the lease is over")] * 50
    assert len(asked) == ask
    assert len({urn for urn, _, version in servers.rows() if version}) == 50


@pytest.fixture
def deleter(server: str) -> Iterator[tuple[Table, Table]]:
    """A table of PostgreSQL, and the same to a user who may read and delete, and lock nothing."""
    url = new_schema(server)
    table = Table(url)
    for number in range(50):
        table.chain(urn(number), "status", {0: 1, 1: 5})
    schema = url.rpartition("%3D")[2]
    table.do(f"CREATE ROLE deleter_{schema} LOGIN")
    table.do(f"GRANT USAGE ON SCHEMA {schema} TO deleter_{schema}")
    table.do(f"GRANT SELECT, DELETE ON {table.name} TO deleter_{schema}")
    other = Table.__new__(Table)
    other.__dict__.update(table.__dict__, url=url.replace("postgres:@", f"deleter_{schema}:@"))
    yield table, other
    table.database.close()
    other.store().close()


def test_a_held_row_fails_alone_also_for_a_user_who_may_not_lock_rows(deleter: tuple[Table, Table]) -> None:
    table, other = deleter
    targets = planned(other, *range(50))
    with holding(table, 7):
        found = swept(other, targets)
    assert {name: one.error for name, one in found.items() if one.outcome is not DELETED} == {urn(7): LOCKED}
    assert {key for key in table.rows() if key[2]} == {(urn(7), "status", 1)}


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found, attempt = list[Any](), GuardedDelete._try

    def counted(deletion: GuardedDelete[Any, Any], names: Any, *others: Any) -> Any:
        found.append(len(names))
        return attempt(deletion, names, *others)

    monkeypatch.setattr(GuardedDelete, "_try", counted)
    return found


def test_many_held_rows_cost_no_wait_for_each(servers: Table, tries: list[Any]) -> None:
    targets = planned(servers, *range(50))
    with holding(servers, *range(0, 50, 2)):
        found = swept(servers, targets)
    assert {name for name, one in found.items() if one.error == LOCKED} == {urn(number) for number in range(0, 50, 2)}
    # Waiting for all of them, without those that are held, and once more those alone.
    assert tries == [50, 50, 25]


def test_a_held_row_is_not_waited_for_again_where_a_statement_reads_the_whole_table(servers: Table, tries: list[Any]) -> None:
    """As MariaDB does once it knows how few rows there are: the deletion of the others would wait for that one as well."""
    servers.do(f"ANALYZE {'TABLE' if servers.database.dialect == 'mysql' else ''} {servers.name}")
    targets = planned(servers, *range(50))
    with holding(servers, 0):
        found = swept(servers, targets)
    assert {name for name, one in found.items() if one.outcome is not DELETED} == {urn(0)}
    assert tries == [50, 50, 1]


def test_a_lock_on_the_whole_table_costs_a_few_waits_and_not_one_for_each_row(
    deleter: tuple[Table, Table], monkeypatch: pytest.MonkeyPatch, tries: list[Any]
) -> None:
    table, other = deleter
    targets, store = planned(other, *range(50)), other.store()
    monkeypatch.setattr(GuardedDelete, "most_waits", 5)
    with table.database.engine.connect() as connection, connection.begin():
        # Reading goes on.
        connection.execute(text(f"LOCK TABLE {table.name} IN SHARE MODE"))
        found = store.sweep(STATUS, targets, 1)
    assert {(one.outcome, one.error) for one in found} == {(FAILED, LOCKED)}
    assert len(found) == 50
    assert tries == [50, 50, 25, 12, 6, 3]


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retention_assets.sql.foreign.RETRY_TRANSIENT", replace(RETRY_TRANSIENT, attempts=1))


@pytest.mark.usefixtures("once")
def test_a_row_at_which_a_transaction_always_loses_fails_alone(servers: Table) -> None:
    condition = f"OLD.urn = '{urn(7)}'".replace(":", "\\:")
    made = {
        "postgresql": [
            "CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'lost' USING ERRCODE = '40001'; END $$",
            f"CREATE TRIGGER lost BEFORE DELETE ON {servers.name} FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION lose()",
        ],
        "mysql": [
            f"CREATE TRIGGER lost BEFORE DELETE ON {servers.name} FOR EACH ROW BEGIN IF {condition} THEN"
            " SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'lost'; END IF; END"
        ],
    }
    targets = planned(servers, *range(50))
    for statement in made[servers.database.dialect]:
        servers.do(statement)
    found = swept(servers, targets)
    assert {name: "lost" in str(one.error) for name, one in found.items() if one.outcome is not DELETED} == {urn(7): True}

"""Candidates that tasks stage on a server: what counts of them, and that nothing is left of them.

Belongs here: the table between tasks and the transaction that marks. What marks are is in test_marking.py.
"""

import json
import pickle
from collections.abc import Iterator

import psycopg
import pyarrow as pa
import pytest

from retention_assets.ledger import Ledger, candidate_table, open_ledger
from retention_assets.ledger.audit.chain import mark_seals
from retention_assets.ledger.marking import STAGED_ROWS, CandidateTable, MarkGroup, merge_groups
from retention_assets.sql.staging import shared_table
from retention_assets_tests.databases import new_schema
from retention_assets_tests.ledger.states import FIRST_LIFE, LATER, T0, candidates, many, swept


@pytest.fixture
def ledger(server: str) -> Iterator[Ledger]:
    with open_ledger(new_schema(server)) as opened:
        yield opened


def left(ledger: Ledger) -> list[str]:
    """The staging tables that there are."""
    with ledger.database.reading() as connection:
        tables = "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relname LIKE 'staged%%'"
        return list(connection.exec_driver_sql(tables).scalars())


def sent(table: CandidateTable | None) -> CandidateTable:
    """The table as a task has it, which is another program."""
    assert table
    copy: CandidateTable = pickle.loads(pickle.dumps(table, pickle.HIGHEST_PROTOCOL))
    return copy


def test_what_tasks_staged_is_marked_in_the_order_of_their_parts(ledger: Ledger) -> None:
    """Whoever came first, twice, or not to the end: ids, seals and digest are those of the parts that count, each once."""
    parts = [
        pa.concat_tables([candidates(["T1", "ü|2"], life=FIRST_LIFE), candidates(["T3"], policy="q", grace="1d")]),
        candidates([]),
        candidates(["T4"], "lake/other").set_column(6, "bytes", pa.array([None], pa.int64())),
    ]
    with candidate_table(ledger.database) as table:
        task = sent(table)
        task(parts[2])
        told = {number: task(parts[number]) for number in (2, 0, 1)}
        # One that Spark asked for twice, and counts once.
        task(parts[0])
        found = task.staged(told[number] for number in range(3))
        assert found.rows == 4
        done = ledger.marks.mark(found, T0, "run")
        assert (done.new, done.known) == (4, 0)
        assert ledger.marks.mark(found, LATER, "another run").known == 4
    rows = ledger.marks.table().sort_by("id")
    assert list(zip(rows["id"].to_pylist(), rows["transaction"].to_pylist(), strict=True)) == [
        (1, "T1"), (2, "ü|2"), (3, "T3"), (4, "T4"),
    ]  # fmt: skip
    assert rows["policy"].to_pylist() == ["p", "p", "q", "p"]
    assert rows["bytes"].to_pylist() == [10, 10, 10, None]
    assert rows["seal"].to_pylist() == mark_seals(rows)
    assert ledger.verify().faults == ()
    assert left(ledger) == []


def test_what_was_swept_before_is_counted_in_the_loads_that_count(ledger: Ledger) -> None:
    ledger.marks.mark(candidates(["T1", "T2"]), T0, "run")
    swept(ledger)
    with candidate_table(ledger.database) as table:
        task = sent(table)
        task(candidates(["T1", "T2"]))
        told = [task(candidates(["T1"])), task(candidates(["T3"]))]
        done = ledger.marks.mark(task.staged(told), LATER, "run")
    assert (done.new, done.known, done.swept) == (1, 1, {("lake/d", "p"): (1, 10)})


def test_nothing_is_staged_where_tasks_found_nothing(ledger: Ledger) -> None:
    with candidate_table(ledger.database) as table:
        task = sent(table)
        done = ledger.marks.mark(task.staged([task(candidates([]))]), T0, "run")
    assert (done.new, done.known, done.act) == (0, 0, None)


def test_a_table_goes_also_when_its_run_fails(ledger: Ledger) -> None:
    def fails() -> None:
        with candidate_table(ledger.database) as table:
            sent(table)(candidates(["T1"]))
            assert len(left(ledger)) == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert left(ledger) == []


def test_what_a_run_left_that_died_goes_a_day_later(ledger: Ledger) -> None:
    """One of an hour ago may be of a run that is still at work, and what is named otherwise is somebody else's."""
    present = int(ledger.clock.present(None).timestamp())
    names = {hours: f"staged_marks_{present - hours * 3600}_{'0' * 16}" for hours in (1, 25)}
    others = [f"staged_marks_{present - 10**6}", f"staged_plans_{present - 10**6}_{'0' * 16}"]
    with ledger.database.engine.begin() as connection:
        for name in (*names.values(), *others):
            connection.exec_driver_sql(f"CREATE TABLE {name} (load bigint)")
    with shared_table(ledger.database.engine, "marks", STAGED_ROWS):
        pass
    assert sorted(left(ledger)) == sorted([names[1], *others])


def test_a_table_keeps_its_password_to_itself(ledger: Ledger) -> None:
    with candidate_table(ledger.database) as table:
        assert table
        url = table.shared.url
    assert isinstance(url, str)
    assert url.exposed.startswith("postgresql")
    assert url.exposed not in repr(table) or "@" not in url.exposed


def test_two_policies_of_one_number_are_refused() -> None:
    one, other = MarkGroup("p", 1, "SELECTED", "7d"), MarkGroup("q", 1, "SELECTED", "7d")
    assert one.number != other.number
    with pytest.raises(ValueError, match="have one number"):
        merge_groups({1: one}, [(1, other)])


def test_many_loads_are_told_in_few_words(ledger: Ledger) -> None:
    """What comes to the driver is a line for each part, however many rows it has."""
    with candidate_table(ledger.database) as table:
        assert len(sent(table)(many(2_000))) < 100
        assert json.loads(sent(table)(many(2_000)))[1] == 2_000
        with psycopg.connect(sent(table).shared.url.exposed.replace("+psycopg", "")) as other:
            assert other.execute(f"SELECT count(*) FROM {sent(table).shared.name}".encode()).fetchone() == (4_000,)

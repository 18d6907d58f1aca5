"""What arrives: the rhythm of a dataset, and the log as it will be."""

import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from retention_assets.evaluation.arrivals import DAY, FutureLog, future_log, period_of
from retention_assets.exchange import read_log
from retention_assets.frames.log import LOG
from retention_assets.policy.durations import micros
from retention_assets_tests.histories import AS_OF, History, history, to_lines

NOW = micros(AS_OF)


def days_ago(*ages: float) -> np.ndarray:
    return np.array([NOW - round(age * DAY) for age in ages], dtype=np.int64)


@pytest.mark.parametrize(
    ("ages", "days"),
    [
        ([], None),
        ([3], None),
        ([*range(400, 0, -1)], 28),
        ([*range(400, 0, -7)], 28),
        # Fewer than four in four weeks: thirteen weeks, then a year.
        ([*range(400, 0, -14)], 91),
        ([*range(400, 0, -30)], 364),
        ([700, 330], 364),
        # Silent for as long as twice the longest pause, and for longer.
        ([7, 6, 4], 7),
        ([15, 14, 12, 11], None),
        ([*range(90, 40, -1)], None),
        ([900, 500], None),
        # A burst every night is no quiet dataset in the afternoon.
        ([2.6, 2.6 - 1e-5, 1.6, 1.6 - 1e-5, 0.6, 0.6 - 1e-5], 3),
        # Younger than four weeks: all of its days, and no days before it.
        ([2.5, 1.5, 0.5], 3),
        ([3, 2, 1], 3),
    ],
)
def test_a_dataset_repeats_its_recent_weeks_unless_it_went_quiet(ages: Sequence[float], days: int | None) -> None:
    assert period_of(days_ago(*ages), NOW) == (None if days is None else days * DAY)


def foreseen(*drawn: History, days: int = 28, begins_anew: bool = False, columns: Sequence[str] = LOG.names) -> FutureLog:
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("".join(f"{line}\n" for line in to_lines(drawn)))
        file.flush()
        log = read_log(Path(file.name))
    return future_log(log.transactions, NOW, NOW + days * DAY, columns, begins_anew)


def rows_at(future: FutureLog, days: float) -> list[dict[str, object]]:
    return list(future.at(NOW + round(days * DAY))[1].to_pylist())


def ids(rows: Sequence[dict[str, object]]) -> list[object]:
    return [row["transaction"] for row in rows]


WEEKLY = history("main: A:SNAPSHOT@525h=7 - B:APPEND@15d=1 - C:APPEND@8d=2 - D:APPEND!@1d=3")


def test_what_arrived_arrives_again_at_the_end_of_its_branch() -> None:
    future = foreseen(WEEKLY)
    assert ids(rows_at(future, 0)) == ["A", "B", "C", "D"]
    # The dataset is nearly 22 days old, so it repeats itself after 22.
    later = rows_at(future, 21)
    assert ids(later) == ["A", "B", "C", "D", "A+1", "B+1", "C+1", "D+1"]
    assert [row["type"] for row in later[4:]] == ["SNAPSHOT", "APPEND", "APPEND", "APPEND"]
    assert [row["status"] for row in later[4:]] == ["COMMITTED", "COMMITTED", "COMMITTED", "ABORTED"]
    assert [row["bytes"] for row in later[4:]] == [7, 1, 2, 3]
    assert [AS_OF + timedelta(days=days) for days in (0.125, 7, 14, 21)] == [row["closed_at"] for row in later[4:]]
    assert [row["parent_ordinal"] for row in later] == [-1, 0, 1, 2, 3, 4, 5, 6]
    assert [row["heads"] for row in later] == [[]] * 7 + [["main"]]


def test_on_each_day_only_what_has_arrived_by_then_is_there() -> None:
    future = foreseen(WEEKLY)
    assert [len(rows_at(future, days)) for days in (0, 0.1, 0.125, 6.9, 7, 14, 21, 28)] == [4, 4, 5, 5, 6, 7, 8, 9]
    assert rows_at(future, 1)[-1]["heads"] == ["main"]


@pytest.mark.parametrize("youngest", [0, 1])
@pytest.mark.parametrize("oldest", [3, 60])
def test_what_arrived_each_day_arrives_each_day(oldest: int, youngest: int) -> None:
    daily = " - ".join(f"T{age}:APPEND@{age}d" for age in range(oldest, youngest - 1, -1))
    future = foreseen(history(f"main: {daily}"), days=70)
    counts = [len(rows_at(future, days)) for days in range(youngest, 70 + youngest)]
    # Where nothing has arrived today, nothing does any more.
    assert set(np.diff(counts)) == {1}


def test_what_is_open_does_not_arrive_again_and_stays_open() -> None:
    found = rows_at(foreseen(history("main: A:SNAPSHOT@2d - B:APPEND@1d  |  -: B - C:APPEND?@1h")), 28)
    assert [row["transaction"] for row in found if row["status"] == "OPEN"] == ["C"]


def test_what_no_branch_holds_does_not_arrive_again() -> None:
    found = rows_at(foreseen(history("main: A:SNAPSHOT@47h - B:APPEND@1d  |  -: A - X:APPEND@1d - Y:APPEND@1d")), 2)
    assert ids(found) == ["A", "B", "X", "Y", "A+1", "B+1"]


def test_branches_grow_each_by_its_own_and_what_they_share_is_the_trunks() -> None:
    found = rows_at(foreseen(history("dev: A:SNAPSHOT@70h - B:APPEND@2d - X:APPEND@1d  |  main: B - C:APPEND@1d")), 3)
    heads = {name: row["transaction"] for row in found for name in row["heads"]}  # type: ignore[attr-defined]
    assert heads == {"main": "C+1", "dev": "X+1"}
    parents = {row["transaction"]: found[row["parent_ordinal"]]["transaction"] for row in found if row["parent_ordinal"] != -1}  # type: ignore[call-overload]
    assert (parents["A+1"], parents["B+1"], parents["C+1"], parents["X+1"]) == ("C", "A+1", "B+1", "X")


def test_where_histories_begin_all_the_time_new_ones_begin() -> None:
    """Rows of one urn are a history with a branch of its own, as the aspects of an entity are."""
    found = rows_at(
        foreseen(history("u1: A:SNAPSHOT@40d - B:SNAPSHOT@3d  |  u2: C:SNAPSHOT@2d - D:SNAPSHOT@1d  |  u3: E:SNAPSHOT@1d")), 28
    )
    heads = {name: row["transaction"] for row in found for name in row["heads"]}  # type: ignore[attr-defined]
    assert heads == {"u1": "B+1", "u2": "D", "u2+1": "D+1", "u3": "E", "u3+1": "E+1"}
    roots = {row["transaction"] for row in found if row["parent_ordinal"] == -1}
    assert roots == {"A", "C", "E", "C+1", "E+1"}


def test_records_arrive_in_no_branch() -> None:
    found = rows_at(foreseen(history("-: R:RECORD@3d..47h~1d{type=PAYMENT}  |  -: S:RECORD@1d")), 2)
    assert ids(found) == ["R", "S", "R+1", "S+1"]
    again = found[2]
    assert (again["opened_at"], again["archived_at"]) == (AS_OF - timedelta(days=1), AS_OF + timedelta(days=1))
    assert again["attributes"] == [("type", "PAYMENT")]
    assert {row["parent_ordinal"] for row in found} == {-1}


def test_datasets_do_not_mix() -> None:
    quiet = history("main: Q:SNAPSHOT@300d - R:APPEND@299d", dataset="lake/a")
    future = foreseen(quiet, WEEKLY, history("main: A:SNAPSHOT@47h - B:APPEND@1d", dataset="lake/z"), days=2)
    found = rows_at(future, 2)
    assert [(row["dataset"], row["transaction"], row["ordinal"]) for row in found] == [
        ("lake/a", "Q", 0), ("lake/a", "R", 1),
        ("lake/d", "A", 0), ("lake/d", "B", 1), ("lake/d", "C", 2), ("lake/d", "D", 3), ("lake/d", "A+1", 4),
        ("lake/z", "A", 0), ("lake/z", "B", 1), ("lake/z", "A+1", 2), ("lake/z", "B+1", 3),
    ]  # fmt: skip


def test_what_is_deleted_leaves_its_children_to_its_parent_or_to_none() -> None:
    drawn = history("main: A:SNAPSHOT@40d - B:APPEND@39d - C:APPEND@38d - D:APPEND@37d")
    for begins_anew, parents in ((False, [-1, 0]), (True, [-1, -1])):
        future = foreseen(drawn, begins_anew=begins_anew)
        future.deleted[[1, 2]] = True
        found = rows_at(future, 1)
        assert (ids(found), [row["parent_ordinal"] for row in found]) == (["A", "D"], parents)
        future.deleted[3] = True
        assert rows_at(future, 1)[-1]["heads"] == []


def test_tags_stay_where_they_are() -> None:
    found = rows_at(foreseen(history("main: A:SNAPSHOT@47h - B:APPEND@1d  |  #v1=A@+3d")), 2)
    assert [row["tags"] for row in found] == [["v1"], [], [], []]
    assert found[0]["tag_expiries"] == [AS_OF + timedelta(days=3)]


def test_files_that_are_written_over_again_and_again_are_and_others_are_new() -> None:
    drawn = history(
        "main: A:SNAPSHOT@29d[p,q] - B:UPDATE@20d[p] - C:APPEND@13d[x] - D:UPDATE@7d[x] - E:APPEND@1d", dataset="lake/d"
    )
    later = {row["transaction"]: row["file_names"] for row in rows_at(foreseen(drawn), 28)}
    assert {name: later[name] for name in ("B+1", "C+1", "D+1", "E+1")} == {
        "B+1": ["p"], "C+1": ["x+1"], "D+1": ["x+1"], "E+1": later["E"],
    }  # fmt: skip


def test_only_the_columns_that_are_asked_for_are_carried() -> None:
    columns = [
        "dataset",
        "transaction",
        "ordinal",
        "parent_ordinal",
        "type",
        "heads",
        "tags",
        "tag_expiries",
        "closed_at",
        "status",
    ]
    assert set(foreseen(WEEKLY, columns=columns).rows.column_names) == set(columns)


def test_the_same_log_gives_the_same_days() -> None:
    one, other = (foreseen(WEEKLY, days=90) for _ in range(2))
    assert one.rows.equals(other.rows)
    assert pa.Table.equals(one.at(NOW + 90 * DAY)[1], other.at(NOW + 90 * DAY)[1])

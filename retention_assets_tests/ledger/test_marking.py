"""Marks on both databases: once set never moved, taken back in time or not at all, read as Arrow."""

import json
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier

import psycopg
import pyarrow as pa
import pytest

from retention_assets.errors import Refused
from retention_assets.ledger import KeptMarks, Ledger, Publication, Settlement, candidate_table, open_ledger
from retention_assets.ledger.audit.chain import mark_seals
from retention_assets.ledger.marking import STAGED_ROWS, CandidateTable, MarkGroup, merge_groups
from retention_assets.outcomes import Outcome
from retention_assets.policy import Datasets, Hold
from retention_assets.sql.staging import shared_table
from retention_assets_tests.databases import new_schema
from retention_assets_tests.ledger.states import (
    FIRST_LIFE,
    LATER,
    T0,
    WEEK,
    candidates,
    change_leases,
    ids,
    many,
    planned,
    statuses,
    swept,
)

DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)


def test_a_mark_says_everything_that_was_decided(ledger: Ledger) -> None:
    done = ledger.marks.mark(candidates(["T1"], grace="P1M"), T0, "evaluation")
    (row,) = ledger.marks.table().to_pylist()
    assert (done.new, done.known, done.marked_at) == (1, 0, T0)
    assert row["marked_at"] == T0
    assert row["due_at"] == datetime(2026, 2, 1, tzinfo=UTC)
    wanted = {"dataset": "lake/d", "transaction": "T1", "policy": "p", "policy_version": 1, "reason": "SELECTED", "bytes": 10}
    assert row.items() >= {**wanted, "grace": "P1M", "status": "MARKED", "attempts": 0, "last_error": None}.items()


def test_marking_again_changes_neither_time_nor_policy(ledger: Ledger) -> None:
    ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
    before = ledger.marks.table()
    done = ledger.marks.mark(candidates(["T1"], policy="other", grace="1d"), T0 + DAY, "evaluation")
    assert (done.new, done.known, done.act) == (0, 1, None)
    assert ledger.marks.table() == before
    assert ledger.verify().rows == 1


def test_a_server_knows_at_once_how_much_was_loaded(server: str) -> None:
    """Without a count of them it takes a table of a million rows for an empty one, and reads all of it for each batch."""
    with open_ledger(new_schema(server)) as ledger:
        ledger.marks.mark(many(10_000), T0, "evaluation")
        with ledger.database.reading() as connection:
            known = connection.exec_driver_sql("SELECT reltuples FROM pg_class WHERE oid = 'marks'::regclass").scalar_one()
    assert known == 10_000


def test_a_transaction_that_is_a_candidate_twice_is_refused_whole(ledger: Ledger) -> None:
    with pytest.raises(Exception, match=r"uq_marks_open|UNIQUE"):
        ledger.marks.mark(candidates(["T1", "T1"]), T0, "evaluation")
    assert ledger.marks.table().num_rows == 0


def test_mark_times_never_go_back_and_an_evaluation_that_marks_nothing_moves_no_clock(ledger: Ledger) -> None:
    ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
    ledger.marks.mark(candidates(["T1"]), T0 + 30 * DAY, "evaluation")
    assert ledger.marks.mark(candidates(["T2"]), T0 + DAY, "evaluation").marked_at == T0 + DAY
    assert ledger.marks.mark(candidates(["T3"]), T0 - 30 * DAY, "evaluation").marked_at == T0 + DAY
    assert set(ledger.marks.table()["due_at"].to_pylist()) == {T0 + WEEK, T0 + DAY + WEEK}


@pytest.mark.parametrize(("as_of", "due"), [(LATER - TICK, []), (LATER, ["T1"]), (LATER + TICK, ["T1"])])
def test_due_is_from_the_end_of_the_grace_on(ledger: Ledger, as_of: datetime, due: list[str]) -> None:
    ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
    assert ledger.marks.table(["lake/d"], ["MARKED"], as_of)["transaction"].to_pylist() == due
    assert ledger.marks.datasets_to_sweep(as_of) == (["lake/d"] if due else [])


def test_names_and_bytes_come_back_as_they_were(ledger: Ledger) -> None:
    names = ['"', "a,b", "line\nbreak", "ü", "\\N", "\\.", "a\\", "%s", "", "null", "𝔘"]
    table = candidates(names).set_column(6, "bytes", pa.array([None, *range(len(names) - 1)], pa.int64()))
    ledger.marks.mark(table, T0, "évaluation", reason="100 % 'sure'")
    read = ledger.marks.table().sort_by("id")
    assert read["transaction"].to_pylist() == names
    assert read["bytes"].to_pylist() == table["bytes"].to_pylist()
    assert ledger.verify().faults == ()


def test_names_cut_in_another_place_have_another_seal(ledger: Ledger) -> None:
    ledger.marks.mark(pa.concat_tables([candidates(["c"], "a/b|1|"), candidates(["1|c"], "a/b|")]), T0, "evaluation")
    assert len(set(ledger.marks.table()["seal"].to_pylist())) == 2


def test_every_policy_of_an_evaluation_has_its_own_grace(ledger: Ledger) -> None:
    parts = [candidates([f"T{days}"], policy=f"p{days}", grace=f"{days}d") for days in range(1, 400)]
    ledger.marks.mark(pa.concat_tables(parts), T0, "evaluation")
    table = ledger.marks.table().sort_by("id")
    assert table["due_at"].to_pylist() == [T0 + days * DAY for days in range(1, 400)]
    assert table["policy"].to_pylist() == [f"p{days}" for days in range(1, 400)]
    assert ledger.verify().faults == ()


def test_candidates_without_a_column_or_a_value_are_not_marked(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="lack the columns grace"):
        ledger.marks.mark(candidates(["T1"]).drop_columns(["grace"]), T0, "evaluation")
    with pytest.raises(ValueError, match="'policy' with null"):
        ledger.marks.mark(candidates(["T1"]).set_column(2, "policy", pa.array([None], pa.string())), T0, "evaluation")


def test_marks_are_published_together_with_what_they_came_with(ledger: Ledger) -> None:
    publication = Publication("candidate_marks", "lake/d", "runs/1", "1")
    ledger.marks.mark(candidates(["T1"]), T0, "evaluation", published=[publication])
    ledger.marks.mark(candidates([]), T0, "evaluation", published=[Publication("candidate_marks", "lake/d", "runs/2", "2")])
    assert [one.folder for one in ledger.publications.of("candidate_marks")] == ["runs/2"]
    assert ledger.publications.folders() == {"runs/2"}
    assert ledger.verify().faults == ()


def test_reading_is_filtered_and_streams(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BATCH", "BYTES"):
        monkeypatch.setattr(f"retention_assets.sql.streams.{name}", 2_500)
    ledger.marks.mark(many(9_000, 1_000), T0, "evaluation")
    ledger.unmark.all_of("ann", "still needed", dataset="lake/d7")
    assert next(len(batch) for batch in ledger.marks.read()) < 9_000
    assert ledger.marks.table(["lake/d7", "lake/d8", "lake/none"]).num_rows == 2_000
    assert ledger.marks.table(["lake/d7", "lake/d8"], ["MARKED"])["dataset"].unique().to_pylist() == ["lake/d8"]
    assert ledger.marks.table(statuses=["UNMARKED"]).num_rows == 1_000
    assert ledger.marks.table([]).num_rows == 0
    assert ledger.verify().faults == ()


@pytest.mark.parametrize(("actor", "reason"), [("", "why"), ("ann", " ")])
def test_nobody_takes_a_mark_back_without_a_name_and_a_reason(ledger: Ledger, actor: str, reason: str) -> None:
    ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
    with pytest.raises(Refused, match="--actor and --reason"):
        ledger.unmark.transactions("lake/d", ["T1"], actor, reason)
    with pytest.raises(Refused, match="Name the marks"):
        ledger.unmark.all_of("ann", "why")


def test_refusals_say_why(ledger: Ledger) -> None:
    ledger.marks.mark(candidates(["SWEPT"]), T0, "evaluation")
    swept(ledger)
    ledger.marks.mark(candidates(["SWEEPING", "SPARED", "UNMARKED", "MARKED"]), T0, "evaluation")
    ledger.unmark.transactions("lake/d", ["UNMARKED"], "ann", "still needed")
    change_leases(ledger, "UPDATE leases SET given_up = true")
    lease, plan, _ = planned(ledger)
    ledger.sweeps.spare([lease], {ids(ledger, "SPARED")[0]: "Hold 'audit' keeps it."})
    ledger.sweeps.begin([lease], [plan], ids(ledger, "SWEEPING"))
    for name, sentence in {
        "SWEPT": r"was swept at .* \(sweeper\): its bytes are gone",
        "SWEEPING": "is being swept since",
        "UNMARKED": "was taken back already, at .* \\(ann\\): still needed",
        "SPARED": "the sweep spared it at .*. The reason then: Hold 'audit' keeps it.",
        "NEVER": "is not marked and never was",
    }.items():
        with pytest.raises(Refused, match=sentence):
            ledger.unmark.transactions("lake/d", ["MARKED", name], "ann", "still needed")
    assert statuses(ledger)["MARKED"] == "MARKED"


def test_a_marker_that_was_overtaken_marks_as_of_the_newer_time_and_stages_nothing_again(ledger: Ledger) -> None:
    def slow() -> Iterator[pa.Table]:
        yield candidates(["T2"])
        ledger.marks.mark(candidates(["T1"]), LATER, "another")

    assert ledger.marks.mark(slow(), T0, "evaluation").marked_at == LATER
    assert [(row["id"], row["transaction"], row["marked_at"]) for row in ledger.marks.table().sort_by("id").to_pylist()] == [
        (1, "T1", LATER),
        (2, "T2", LATER),
    ]
    assert ledger.verify().faults == ()


def test_candidates_in_parts_are_numbered_as_in_one_piece(ledger: Ledger) -> None:
    tables = [candidates([f"T{n}{p}"], policy=p, grace=f"{n + 1}d") for n in range(3) for p in "pqr"]
    parts = [tables[0], candidates([]), pa.concat_tables(tables[1:6]), pa.concat_tables(tables[6:])]
    done = ledger.marks.mark(parts, T0, "evaluation")
    assert done.new == len(tables)
    rows = ledger.marks.table().sort_by("id")
    assert rows["id"].to_pylist() == list(range(1, len(tables) + 1))
    whole = pa.concat_tables(tables)
    for name in ("transaction", "policy", "grace"):
        assert rows[name].to_pylist() == whole[name].to_pylist()
    assert rows["seal"].to_pylist() == mark_seals(rows)
    assert ledger.verify().faults == ()


@pytest.fixture
def served(server: str) -> Iterator[Ledger]:
    with open_ledger(new_schema(server)) as opened:
        yield opened


def left(served: Ledger) -> list[str]:
    with served.database.reading() as connection:
        tables = "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relname LIKE 'staged%%'"
        return list(connection.exec_driver_sql(tables).scalars())


def sent(table: CandidateTable | None) -> CandidateTable:
    assert table
    copy: CandidateTable = pickle.loads(pickle.dumps(table, pickle.HIGHEST_PROTOCOL))
    return copy


def test_what_tasks_staged_is_marked_in_the_order_of_their_parts(served: Ledger) -> None:
    """Whoever came first, twice, or not to the end: ids, seals and digest are those of the parts that count, each once."""
    parts = [
        pa.concat_tables([candidates(["T1", "ü|2"], life=FIRST_LIFE), candidates(["T3"], policy="q", grace="1d")]),
        candidates([]),
        candidates(["T4"], "lake/other").set_column(6, "bytes", pa.array([None], pa.int64())),
    ]
    with candidate_table(served.database) as table:
        task = sent(table)
        task(parts[2])
        told = {number: task(parts[number]) for number in (2, 0, 1)}
        # One that Spark asked for twice, and counts once.
        task(parts[0])
        found = task.staged(told[number] for number in range(3))
        assert found.rows == 4
        done = served.marks.mark(found, T0, "run")
        assert (done.new, done.known) == (4, 0)
        assert served.marks.mark(found, LATER, "another run").known == 4
    rows = served.marks.table().sort_by("id")
    assert list(zip(rows["id"].to_pylist(), rows["transaction"].to_pylist(), strict=True)) == [
        (1, "T1"), (2, "ü|2"), (3, "T3"), (4, "T4"),
    ]  # fmt: skip
    assert rows["policy"].to_pylist() == ["p", "p", "q", "p"]
    assert rows["bytes"].to_pylist() == [10, 10, 10, None]
    assert rows["seal"].to_pylist() == mark_seals(rows)
    assert served.verify().faults == ()
    assert left(served) == []


def test_what_was_swept_before_is_counted_in_the_loads_that_count(served: Ledger) -> None:
    served.marks.mark(candidates(["T1", "T2"]), T0, "run")
    swept(served)
    with candidate_table(served.database) as table:
        task = sent(table)
        task(candidates(["T1", "T2"]))
        told = [task(candidates(["T1"])), task(candidates(["T3"]))]
        done = served.marks.mark(task.staged(told), LATER, "run")
    assert (done.new, done.known, done.swept) == (1, 1, {("lake/d", "p"): (1, 10)})


def test_nothing_is_staged_where_tasks_found_nothing(served: Ledger) -> None:
    with candidate_table(served.database) as table:
        task = sent(table)
        done = served.marks.mark(task.staged([task(candidates([]))]), T0, "run")
    assert (done.new, done.known, done.act) == (0, 0, None)


def test_a_table_goes_also_when_its_run_fails(served: Ledger) -> None:
    def fails() -> None:
        with candidate_table(served.database) as table:
            sent(table)(candidates(["T1"]))
            assert len(left(served)) == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert left(served) == []


def test_what_a_run_left_that_died_goes_a_day_later(served: Ledger) -> None:
    """One of an hour ago may be of a run that is still at work, and what is named otherwise is somebody else's."""
    present = int(served.clock.present(None).timestamp())
    names = {hours: f"staged_marks_{present - hours * 3600}_{'0' * 16}" for hours in (1, 25)}
    others = [f"staged_marks_{present - 10**6}", f"staged_plans_{present - 10**6}_{'0' * 16}"]
    with served.database.engine.begin() as connection:
        for name in (*names.values(), *others):
            connection.exec_driver_sql(f"CREATE TABLE {name} (load bigint)")
    with shared_table(served.database.engine, "marks", STAGED_ROWS):
        pass
    assert sorted(left(served)) == sorted([names[1], *others])


def test_a_table_keeps_its_password_to_itself(served: Ledger) -> None:
    with candidate_table(served.database) as table:
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


def test_many_loads_are_told_in_few_words(served: Ledger) -> None:
    """What comes to the driver is a line for each part, however many rows it has."""
    with candidate_table(served.database) as table:
        assert len(sent(table)(many(2_000))) < 100
        assert json.loads(sent(table)(many(2_000)))[1] == 2_000
        with psycopg.connect(sent(table).shared.url.exposed.replace("+psycopg", "")) as other:
            assert other.execute(f"SELECT count(*) FROM {sent(table).shared.name}".encode()).fetchone() == (4_000,)


NAMES = ["T1", "T2", "T3"]


def hold_of(*transactions: str, name: str = "keep-lake/d", until: datetime | None = None, dataset: str = "lake/d") -> Hold:
    about = Datasets(include=(dataset,))
    return Hold(name=name, datasets=about, transactions=transactions or None, reason="r", owner="ann", until=until)


def keep(ledger: Ledger, *transactions: str, named: bool = False, until: datetime | None = None) -> KeptMarks:
    return ledger.keep.transactions("lake/d", transactions, hold_of(*transactions, until=until), "ann", named=named)


def acts(ledger: Ledger) -> list[tuple[str, str]]:
    lines = [json.loads(line) for line in ledger.audit_lines()]
    return [(line["deed"], line["actor"]) for line in lines]


def held(ledger: Ledger) -> list[str]:
    return [hold.name or "" for hold in ledger.holds.recorded(LATER).placed]


@pytest.fixture
def marked(ledger: Ledger) -> Ledger:
    ledger.marks.mark(candidates(NAMES), T0, "evaluation")
    ledger.marks.mark(candidates(["T1"], "lake/e"), T0, "evaluation")
    return ledger


def test_marks_are_taken_back_and_a_hold_is_placed(marked: Ledger) -> None:
    assert keep(marked, "T2", "T1", "T9") == KeptMarks("keep-lake/d", placed=True, unmarked=2)
    assert statuses(marked) == {"T1": "UNMARKED", "T2": "UNMARKED", "T3": "MARKED"}
    assert statuses(marked, "lake/e") == {"T1": "MARKED"}
    assert acts(marked)[-2:] == [("UNMARK", "ann"), ("HOLD", "ann")]
    (hold,) = marked.holds.recorded(LATER).placed
    assert (hold.datasets.include, hold.transactions) == (("lake/d",), ("T2", "T1", "T9"))
    assert marked.verify().faults == ()


@pytest.mark.parametrize(("state", "words"), [("SWEEPING", "is being swept since"), ("SWEPT", "its bytes are gone")])
def test_all_are_kept_or_none(marked: Ledger, state: str, words: str) -> None:
    lease, plan, _ = planned(marked)
    begun = sorted(marked.sweeps.begin([lease], [plan], ids(marked, "T2")).marks)
    if state == "SWEPT":
        marked.sweeps.settle([lease], [Settlement(mark, Outcome.DELETED, 10) for mark in begun])
    before = acts(marked)
    with pytest.raises(Refused, match=f"T2 of lake/d .*{words}(.|\n)*Nothing was changed"):
        keep(marked, "T1", "T2")
    assert statuses(marked) == {"T1": "MARKED", "T2": state, "T3": "MARKED"}
    assert (acts(marked), held(marked)) == (before, [])


def test_a_dataset_is_kept_with_what_is_left_of_it(marked: Ledger) -> None:
    lease, plan, _ = planned(marked)
    begun = sorted(marked.sweeps.begin([lease], [plan], ids(marked, "T1", "T2")).marks)
    marked.sweeps.settle([lease], [Settlement(begun[0], Outcome.DELETED, 10)])
    done = marked.keep.dataset("lake/d", hold_of(), "ann", named=False)
    assert done == KeptMarks("keep-lake/d", placed=True, unmarked=1, sweeping=1, swept=1)
    assert sorted(statuses(marked).values()) == ["SWEEPING", "SWEPT", "UNMARKED"]


def test_keeping_once_more_changes_nothing_but_what_was_marked_since(marked: Ledger) -> None:
    """An evaluation that began before the hold was placed marks after it."""
    keep(marked, "T1", "T2")
    before = acts(marked)
    assert keep(marked, "T2", "T1") == KeptMarks("keep-lake/d", placed=False, unmarked=0)
    assert keep(marked, "T1", "T2", named=True).placed is False
    assert acts(marked) == before
    marked.marks.mark(candidates(["T1"]), LATER, "evaluation")
    assert keep(marked, "T1", "T2") == KeptMarks("keep-lake/d", placed=False, unmarked=1)


def test_a_name_that_is_taken_gets_a_number_and_one_that_was_typed_is_refused(marked: Ledger) -> None:
    # Also one that a file has: `release` would otherwise end the one that nobody meant.
    marked.holds.note_files([hold_of(name="keep-lake/d-3", dataset="lake/other")], "files")
    keep(marked, "T1")
    assert keep(marked, "T2").hold == "keep-lake/d-2"
    assert keep(marked, "T3").hold == "keep-lake/d-4"
    with pytest.raises(Refused, match=r"A hold named keep-lake/d is in force for something else\."):
        keep(marked, "T1", "T3", named=True)
    marked.holds.release("keep-lake/d-2", "ann", "r")
    assert keep(marked, "T2", "T3").hold == "keep-lake/d-2"


def test_a_hold_that_ends_sooner_is_another_one(marked: Ledger) -> None:
    keep(marked, "T1", until=datetime(2999, 1, 1, tzinfo=UTC))
    done = keep(marked, "T1")
    assert (done.placed, held(marked)) == (True, ["keep-lake/d", "keep-lake/d-2"])
    (_, forever) = marked.holds.recorded(LATER).placed
    assert forever.until is None


def test_a_long_name_is_cut_for_its_number(marked: Ledger) -> None:
    for number, transaction in enumerate(NAMES[:2]):
        hold = hold_of(transaction, name="n" * 200)
        name = marked.keep.transactions("lake/d", [transaction], hold, "ann", named=False).hold
        assert name == ("n" * 200, "n" * 198 + "-2")[number]


def test_those_who_keep_at_once_get_one_hold_each_and_no_name_twice(ledger: Ledger) -> None:
    ledger.marks.mark(many(40, 40), T0, "evaluation")
    start = Barrier(8)

    def keep_some(number: int) -> KeptMarks:
        names = [f"T{row}" for row in range(number // 2, 40, 4)]
        hold = hold_of(*names, dataset="lake/d0")
        start.wait()
        return ledger.keep.transactions("lake/d0", names, hold, f"ann {number}", named=False)

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(keep_some, range(8)))
    # Two of them ask for the same.
    assert sorted(one.placed for one in done) == [False] * 4 + [True] * 4
    assert sum(one.unmarked for one in done) == 40
    assert held(ledger) == ["keep-lake/d", *(f"keep-lake/d-{number}" for number in (2, 3, 4))]
    assert ledger.verify().faults == ()

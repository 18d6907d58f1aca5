"""Marks on both databases: once set never moved, taken back in time or not at all, read as Arrow."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from retention_assets.errors import Refused
from retention_assets.ledger import Ledger, Publication, open_ledger
from retention_assets.ledger.audit.chain import mark_seals
from retention_assets_tests.databases import new_schema
from retention_assets_tests.ledger.states import LATER, T0, WEEK, candidates, change_leases, ids, many, planned, statuses, swept

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


def test_of_candidates_that_are_partly_marked_only_the_others_are(ledger: Ledger) -> None:
    ledger.marks.mark(candidates(["T1", "T3"]), T0, "evaluation")
    done = ledger.marks.mark(candidates(["T1", "T2", "T3", "T4"]), T0 + DAY, "evaluation")
    assert (done.new, done.known) == (2, 2)
    assert ledger.verify().faults == ()


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


def test_mark_times_never_go_back(ledger: Ledger) -> None:
    ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
    done = ledger.marks.mark(candidates(["T2"]), T0 - 30 * DAY, "evaluation")
    assert done.marked_at == T0
    assert set(ledger.marks.table()["due_at"].to_pylist()) == {T0 + WEEK}


def test_an_evaluation_that_marks_nothing_moves_no_clock(ledger: Ledger) -> None:
    ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
    ledger.marks.mark(candidates(["T1"]), T0 + 30 * DAY, "evaluation")
    assert ledger.marks.mark(candidates(["T2"]), T0 + DAY, "evaluation").marked_at == T0 + DAY


@pytest.mark.parametrize(("as_of", "due"), [(LATER - TICK, []), (LATER, ["T1"]), (LATER + TICK, ["T1"])])
def test_due_is_from_the_end_of_the_grace_on(ledger: Ledger, as_of: datetime, due: list[str]) -> None:
    ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
    assert ledger.marks.table(["lake/d"], ["MARKED"], as_of)["transaction"].to_pylist() == due
    assert ledger.marks.datasets_to_sweep(as_of) == (["lake/d"] if due else [])


def test_names_and_bytes_come_back_as_they_were(ledger: Ledger) -> None:
    names = ['"', "a,b", "line\nbreak", "ü", "\\N", "\\.", "a\\", "%s", "", "null", "𝔘"]
    table = candidates(names).set_column(6, "bytes", pa.array([None, *range(len(names) - 1)], pa.int64()))
    ledger.marks.mark(table, T0, "évaluation", reason="100 % 'sure'")
    read = ledger.marks.table()
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


def test_reading_is_filtered_and_streams(ledger: Ledger) -> None:
    ledger.marks.mark(many(120_000, 1_000), T0, "evaluation")
    ledger.unmark.all_of("ann", "still needed", dataset="lake/d7")
    assert next(len(batch) for batch in ledger.marks.read()) < 120_000
    assert ledger.marks.table(["lake/d7", "lake/d8", "lake/none"]).num_rows == 2_000
    assert ledger.marks.table(["lake/d7", "lake/d8"], ["MARKED"])["dataset"].unique().to_pylist() == ["lake/d8"]
    assert ledger.marks.table(statuses=["UNMARKED"]).num_rows == 1_000
    assert ledger.marks.table([]).num_rows == 0
    assert ledger.verify().faults == ()


def test_a_mark_is_taken_back_with_reason_and_actor(ledger: Ledger) -> None:
    ledger.marks.mark(candidates(["T1", "T2"]), T0, "evaluation")
    done = ledger.unmark.transactions("lake/d", ["T1"], "ann", "still needed")
    assert done.unmarked == 1
    assert "marked again" in done.note
    row = ledger.marks.table(statuses=["UNMARKED"]).to_pylist()[0]
    assert (row["transaction"], row["why"], row["changed_by"]) == ("T1", "still needed", "ann")
    assert statuses(ledger)["T2"] == "MARKED"


def test_what_was_taken_back_is_marked_again_with_a_new_clock(ledger: Ledger) -> None:
    ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
    ledger.unmark.transactions("lake/d", ["T1"], "ann", "still needed")
    ledger.marks.mark(candidates(["T1"]), T0 + DAY, "evaluation")
    rows = ledger.marks.table().to_pylist()
    assert [(row["status"], row["marked_at"]) for row in rows] == [("UNMARKED", T0), ("MARKED", T0 + DAY)]


def test_marks_are_taken_back_by_dataset_and_by_policy(ledger: Ledger) -> None:
    tables = [candidates(["T1"], f"lake/{d}", policy=p) for d in "ab" for p in ("p",)] + [candidates(["T2"], "lake/a", "q")]
    ledger.marks.mark(pa.concat_tables(tables), T0, "evaluation")
    assert ledger.unmark.all_of("ann", "why", dataset="lake/a", policy="q").unmarked == 1
    assert ledger.unmark.all_of("ann", "why", policy="p").unmarked == 2
    with pytest.raises(Refused, match="no mark in lake/a that can be taken back"):
        ledger.unmark.all_of("ann", "why", dataset="lake/a")


@pytest.mark.parametrize(("actor", "reason"), [("", "why"), ("ann", " ")])
def test_nobody_takes_a_mark_back_without_a_name_and_a_reason(ledger: Ledger, actor: str, reason: str) -> None:
    ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
    with pytest.raises(Refused, match="--actor and --reason"):
        ledger.unmark.transactions("lake/d", ["T1"], actor, reason)
    with pytest.raises(Refused, match="which marks"):
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
        "SPARED": "the sweep spared it at .*: Hold 'audit' keeps it.",
        "NEVER": "is not marked and never was",
    }.items():
        with pytest.raises(Refused, match=sentence):
            ledger.unmark.transactions("lake/d", ["MARKED", name], "ann", "still needed")
    assert statuses(ledger)["MARKED"] == "MARKED"


class Overtaken:
    """Candidates whose marker is overtaken while they are being staged, by one who marks as of a later time."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.staged = ledger, 0

    def __iter__(self) -> Iterator[pa.Table]:
        self.staged += 1
        yield candidates(["T2"])
        self.ledger.marks.mark(candidates(["T1"]), LATER, "another")


def test_a_marker_that_was_overtaken_marks_as_of_the_newer_time_and_stages_nothing_again(ledger: Ledger) -> None:
    slow = Overtaken(ledger)
    assert ledger.marks.mark(slow, T0, "evaluation").marked_at == LATER
    assert [(row["id"], row["transaction"], row["marked_at"]) for row in ledger.marks.table().to_pylist()] == [
        (1, "T1", LATER),
        (2, "T2", LATER),
    ]
    assert slow.staged == 1
    assert ledger.verify().faults == ()


def test_candidates_in_parts_are_numbered_as_in_one_piece(ledger: Ledger) -> None:
    """Parts of none, of one policy, and of several that others have as well."""
    tables = [candidates([f"T{n}{p}"], policy=p, grace=f"{n + 1}d") for n in range(3) for p in "pqr"]
    parts = [tables[0], candidates([]), pa.concat_tables(tables[1:6]), pa.concat_tables(tables[6:])]
    done = ledger.marks.mark(parts, T0, "evaluation")
    assert done.new == len(tables)
    rows = ledger.marks.table()
    assert rows["id"].to_pylist() == list(range(1, len(tables) + 1))
    whole = pa.concat_tables(tables)
    for name in ("transaction", "policy", "grace"):
        assert rows[name].to_pylist() == whole[name].to_pylist()
    assert rows["seal"].to_pylist() == mark_seals(rows)
    assert ledger.verify().faults == ()

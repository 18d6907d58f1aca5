"""`hold` and `release`: what nobody may mark or sweep. A hold that silently holds nothing would be a deletion."""

import json
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets.clock import now
from retention_assets.frames import selects_dataset
from retention_assets.ledger import Ledger, Publication
from retention_assets.policy import Datasets, Hold, matches, text_of
from retention_assets.policy.sentences import count
from retention_assets_tests.ledger.states import LATER, T0, candidates, take_lease
from retention_assets_tests.people.conftest import Json, Run, error_of

PLACE = ("hold", "--name", "h", "--dataset", "lake/raw.*", "--reason", "lawsuit")
NOTHING_JUDGED = "It is not known how much the hold matches, because nothing was judged yet.\n"
ENDS = "Next: `retention release h --reason …` ends it.\n"
FILES = "policies: []\nholds: [{name: kept, datasets: lake/legal, reason: law}, {name: over, datasets: lake/x, until: 2020-01-01}]\n"


def test_a_hold_is_placed_with_all_that_was_said(ledger: Ledger, found: Json) -> None:
    assert found(
        *PLACE, "--dataset", "ice/*", "--transaction", "T*", "--owner", "legal team", "--until", "9000-01-01T00:00:00Z"
    ) == {
        "name": "h", "source": "ledger", "scope": {"datasets": {"include": ["lake/raw.*", "ice/*"]}, "transactions": ["T*"]},
        "reason": "lawsuit", "owner": "legal team", "until": "9000-01-01T00:00:00Z",
        "datasets": None, "transactions": None, "sweeping": [],
    }  # fmt: skip
    [held] = ledger.holds.recorded(LATER).placed
    assert (held.datasets.include, held.transactions, held.owner) == (("lake/raw.*", "ice/*"), ("T*",), "legal team")
    assert text_of(held.until or T0) == "9000-01-01T00:00:00Z"
    # Who answers for it is not who placed it.
    # The head was noted when the ledger was made.
    assert [json.loads(line)["actor"] for line in ledger.audit_lines()] == ["::system", "ann"]


def test_a_hold_is_read_back_as_a_sentence(run: Run) -> None:
    code, out, err = run(*PLACE)
    assert (code, err) == (0, f"store 'lake' of 'lake/raw.*' is not in the settings.\n{NOTHING_JUDGED}{ENDS}")
    assert out == (
        "The hold h is placed.\nHolds everything of the datasets lake/raw.*: nothing of it is marked or swept until it is "
        "released, because: lawsuit (owner ann).\nIts marks stay, and the sweep spares them. `retention keep` takes the "
        "marks back as well.\n"
    )


def test_a_hold_on_a_store_that_the_settings_do_not_know_says_so(run: Run) -> None:
    Path("retention.yaml").write_text("stores: [{name: lake, kind: files, log: log, data: 'data/{dataset}/{transaction}'}]\n")
    code, _, err = run("hold", "--name", "h", "--dataset", "lak/raw", "--reason", "r")
    assert code == 0
    assert err == f"store 'lak' of 'lak/raw' is not in the settings. Did you mean lake?\n{NOTHING_JUDGED}{ENDS}"
    assert run("hold", "--name", "i", "--dataset", "lake/raw", "--reason", "r")[2] == NOTHING_JUDGED + ENDS.replace(
        " h ", " i "
    )


FIELD = "urn:li:schemaField:(urn:li:dataset:(hive,a.b,PROD),[version=2.0].[type=string].x)"


@pytest.fixture
def judged(ledger: Ledger, tmp_path: Path) -> Ledger:
    """An evaluation of three datasets, in two folders of which one is of an environment with a prefix."""
    log = {"first": {"lake/a": ["T1", "T2", FIELD], "lake/[b]": ["T1"]}, "second": {"lake/c": ["T1", "T2"], "lake/old": ["T9"]}}
    for number, (folder, datasets) in enumerate(log.items()):
        rows = [(dataset, transaction) for dataset, ids in datasets.items() for transaction in ids]
        place = tmp_path / "warehouse" / folder / "candidate_marks"
        place.mkdir(parents=True)
        pq.write_table(pa.table(list(zip(*rows, strict=True)), names=["dataset", "transaction"]), place / "part.parquet")
        asset = "team/candidate_marks" if number else "candidate_marks"
        where = [Publication(asset, name, str(place.parent), "run") for name in datasets if name != "lake/old"]
        ledger.publications.publish([*where, Publication("not_candidate_marks", "lake/x", "nowhere", "run")], "test")
    return ledger


@pytest.mark.parametrize(
    ("options", "datasets", "transactions"),
    [
        (("--dataset", "lake/*"), 3, 6),
        (("--dataset", "lake/a"), 1, 3),
        (("--dataset", "lake/[b]"), 1, 1),
        (("--dataset", "lake/a", "--dataset", "lake/c"), 2, 5),
        (("--dataset", "lake/*", "--transaction", "T1"), 3, 3),
        (("--dataset", "lake/*", "--transaction", FIELD), 3, 1),
        (("--dataset", "lake/a", "--transaction", "T*"), 1, 2),
    ],
)
@pytest.mark.usefixtures("judged")
def test_a_hold_says_how_much_of_the_last_evaluation_it_is_about(
    options: tuple[str, ...], datasets: int, transactions: int, run: Run
) -> None:
    arguments = ("hold", "--name", "h", *options, "--reason", "r")
    code, out, _ = run(*arguments, "--format", "json")
    said = json.loads(out)
    assert (code, said["datasets"], said["transactions"], said["sweeping"]) == (0, datasets, transactions, [])
    run("release", "h", "--reason", "r")
    about = f"{count(datasets, 'dataset')} and {count(transactions, 'transaction')}"
    assert f"It holds {about} of the last evaluation." in run(*arguments)[1]


@pytest.mark.parametrize(
    ("options", "datasets"), [(("--dataset", "lake/z*"), 0), (("--dataset", "lake/a", "--transaction", "T7"), 1), (("--dataset", "lake/old"), 0)]
)  # fmt: skip
@pytest.mark.parametrize(("anyway", "code"), [((), 1), (("--anyway",), 0)])
def test_a_hold_that_is_about_nothing_is_placed_and_fails_unless_that_is_meant(
    options: tuple[str, ...], datasets: int, anyway: tuple[str, ...], code: int, judged: Ledger, run: Run
) -> None:
    left, out, err = run("hold", "--name", "h", *options, "--reason", "r", *anyway, "--format", "json")
    assert (left, json.loads(out)["datasets"], json.loads(out)["transactions"]) == (code, datasets, 0)
    assert "no transaction of the last evaluation. Check its names." in err
    assert [hold.name for hold in judged.holds.recorded(T0).placed] == ["h"]


def test_where_the_verdicts_are_gone_marks_are_counted(judged: Ledger, found: Json, tmp_path: Path) -> None:
    (tmp_path / "warehouse").rename(tmp_path / "gone")
    for dataset, names in (("lake/a", ["T1", "T2"]), ("lake/c", ["T1"])):
        judged.marks.mark(candidates(names, dataset), T0, "test")
    said = found("hold", "--name", "h", "--dataset", "lake/*", "--transaction", "T1", "--reason", "r")
    assert (said["datasets"], said["transactions"]) == (3, 2)


def test_a_hold_names_the_datasets_of_it_that_are_being_swept(ledger: Ledger, run: Run) -> None:
    take_lease(ledger, "lake/a", "a sweep")
    take_lease(ledger, "ice/a", "a sweep")
    ledger.leases.give_up([take_lease(ledger, "lake/over", "a sweep")])
    take_lease(ledger, "lake/late", "a sweep", seconds=-1)
    assert [lease.dataset for lease in ledger.leases.held()] == ["ice/a", "lake/a"]
    code, out, err = run("hold", "--name", "h", "--dataset", "lake/*", "--reason", "r", "--format", "json")
    assert (code, json.loads(out)["sweeping"], json.loads(out)["datasets"]) == (0, ["lake/a"], None)
    assert "lake/a: being swept right now." in err


# What is no glob, or holds signs that no policy file may hold: the name is held all the same, and more than it rather than less.
@pytest.mark.parametrize("name", ["a[b", "[z-a]", "a\u202eb", "a\tb[", "[x]\x9b*", "a*\u200b"])
def test_a_hold_on_any_name_holds_it(name: str, ledger: Ledger, run: Run) -> None:
    options = ("--dataset", f"lake/{name}", "--transaction", name)
    assert run("hold", "--name", "h", *options, "--reason", "r")[0] == 0
    (held,) = ledger.holds.recorded(T0).placed
    assert selects_dataset(held.datasets, f"lake/{name}", {})
    assert matches(name, held.transactions or ())
    assert not matches("other", held.transactions or ())
    # What was a pattern besides is one still.
    assert matches("a more\u200b", held.transactions or ()) == (name == "a*\u200b")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("hold",), "A hold needs --name."),
        (PLACE[:3], "A hold needs --dataset."),
        (PLACE[:5], "A hold needs --reason."),
        ((*PLACE[:5], "--reason", " "), "is empty"),
        ((*PLACE[:2], "::h", *PLACE[3:]), "belongs to the system"),
        ((*PLACE, "--dataset", "raw"), "datasets.include[1]"),
        ((*PLACE, "--until", "2020-01-01"), "until: is past (found 2020-01-01T00:00:00Z); expected an instant to come"),
        ((*PLACE, "--until", "soon"), "is not an instant"),
        (("hold", "--list", "--name", "h"), "give it alone"),
    ],
)
def test_a_hold_that_would_hold_nothing_is_bad_input(arguments: tuple[str, ...], words: str, ledger: Ledger, run: Run) -> None:
    assert words in error_of(run(*arguments), 2)
    assert ledger.holds.recorded(T0).placed == []


def test_holds_of_ledger_and_files_are_listed_while_they_last(ledger: Ledger, found: Json, run: Run) -> None:
    Path("retention.yaml").write_text(
        "policies: p.yaml\nstores: [{name: lake, kind: files, log: l, data: 'd/{dataset}/{transaction}'}]\n"
    )
    Path("p.yaml").write_text(FILES)
    for name, until in (("h", None), ("ended", now() - timedelta(days=1))):
        ledger.holds.place(Hold(name=name, datasets=Datasets(include=("lake/a",)), reason="r", owner="o", until=until), "bob")
    rows = found("hold", "--list")
    assert [(row["name"], row["source"]) for row in rows] == [("h", "ledger"), ("kept", "file")]
    _, out, _ = run("hold", "--list")
    assert "policy file" in out
    assert "lake/legal" in out
    assert "over" not in out


def test_without_policy_files_the_list_says_so_and_a_broken_one_stops_it(run: Run) -> None:
    code, _, err = run("hold", "--list")
    assert (code, "no policy files at " in err) == (0, True)
    Path("policies").mkdir()
    Path("policies/p.yaml").write_text("holds: [{datasets: }]")
    assert run("hold", "--list")[0] == 2


def test_a_second_hold_of_a_name_is_refused_and_a_released_one_is_over(ledger: Ledger, found: Json, run: Run) -> None:
    run(*PLACE)
    code, out, err = run(*PLACE)
    assert (code, out, "A hold named h is in force." in err) == (1, "", True)
    code, out, err = run("release", "h", "--reason", "settled")
    assert (code, err) == (0, "Next: `retention preview` shows what policies decide.\n")
    assert out.startswith("h is released.")
    assert ledger.holds.recorded(T0).placed == []
    assert run("release", "h", "--reason", "settled")[0] == 1
    found(*PLACE)
    assert found("release", "h", "--reason", "settled") == {"name": "h", "released_by": "ann", "reason": "settled"}


def test_a_hold_of_a_file_is_released_in_the_file(ledger: Ledger, run: Run) -> None:
    Path("policies").mkdir()
    Path("policies/p.yaml").write_text("holds: [{name: kept, datasets: '*', reason: law}]")
    code, _, err = run("release", "kept", "--reason", "r")
    assert (code, err) == (1, "The hold kept is in a policy file. To release it, take it out of the file.\n")
    code, _, err = run("release", "other", "--reason", "r")
    assert (code, "No hold named other is in force" in err) == (1, True)

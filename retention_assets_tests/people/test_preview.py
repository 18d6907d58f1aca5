"""`preview` and `explain`: what a log and policies come to, before anything is marked.

What a verdict is belongs to the laws. A script that trusts an exit code or a line of JSON here may delete because of it.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets.frames import Reason
from retention_assets_tests.histories import history, to_lines
from retention_assets_tests.people.conftest import LEDGER, Run, error_of
from retention_assets_tests.people.logs import CYCLE, DEMONSTRATION, NOW, OLD, SOUND, write

# --- preview ---


def reason(code: str, witness: str | None) -> dict[str, Any]:
    return {"code": code, "witness": witness, "text": Reason[code].text(witness)}


def test_preview_prints_the_json_of_the_design(run: Run) -> None:
    code, out, err = run("preview", *write(SOUND), "--format", "json")
    expected = {
        "as_of": NOW,
        "datasets": {"lake/d": {"refused": None}},
        "transactions": [
            {"dataset": "lake/d", "transaction": "S", "verdict": "mark", "policy": "old", "also": [],
             "reasons": [reason("SELECTED", "old")]},
            {"dataset": "lake/d", "transaction": "T", "verdict": "spare", "policy": "old", "also": [],
             "reasons": [reason("LATEST_VIEW", "main")]},
            {"dataset": "lake/d", "transaction": "U", "verdict": "keep", "policy": None, "also": [],
             "reasons": [reason("TOO_YOUNG", "old")]},
            {"dataset": "lake/d", "transaction": "V", "verdict": "open", "policy": None, "also": [],
             "reasons": [reason("OPEN", None)]},
        ],
    }  # fmt: skip
    assert (code, err) == (0, "")
    # Word for word: also the order of keys is what a person compares two results by.
    assert out == json.dumps(expected, separators=(",", ":"), ensure_ascii=False) + "\n"


def test_preview_is_sorted_by_dataset_and_ordinal(run: Run) -> None:
    drawn = [
        history("main: B:APPEND@9d - A:APPEND@8d", dataset="lake/b"),
        history("main: Z:APPEND@9d - Y:APPEND@8d", dataset="lake/a"),
        history("main: Q:APPEND@9d", dataset="ice/z"),
    ]
    lines = [line for one in zip(*(to_lines([drawing]) + [""] * 3 for drawing in drawn), strict=False) for line in one if line]
    options = write()
    Path("log.jsonl").write_text("\n".join(lines))
    _, out, _ = run("preview", *options, "--format", "json")
    found = json.loads(out)
    assert [(row["dataset"], row["transaction"]) for row in found["transactions"]] == [
        ("ice/z", "Q"), ("lake/a", "Z"), ("lake/a", "Y"), ("lake/b", "B"), ("lake/b", "A"),
    ]  # fmt: skip
    assert list(found["datasets"]) == ["ice/z", "lake/a", "lake/b"]


def test_preview_names_every_policy_that_selects_and_gives_the_first_the_credit(run: Run) -> None:
    policies = OLD.replace("]\n", ", {name: older, datasets: {include: ['*']}, select: {older_than: 45d}}]\n")
    _, out, _ = run("preview", *write(SOUND, policies=policies), "--format", "json")
    first = json.loads(out)["transactions"][0]
    assert (first["verdict"], first["policy"], first["also"]) == ("mark", "old", ["older"])


def test_preview_of_a_refused_dataset_exits_with_four_and_goes_on_with_the_others(run: Run) -> None:
    code, out, err = run("preview", *write(SOUND, more=CYCLE), "--format", "json")
    found = json.loads(out)
    assert code == 4
    assert found["datasets"] == {"lake/bad": {"refused": {"fault": "cycle", "transaction": "X"}}, "lake/d": {"refused": None}}
    assert {row["dataset"] for row in found["transactions"]} == {"lake/d"}
    assert err == "1 of 2 datasets were refused, because their logs are not sound.\n"
    code, out, err = run("preview", *write(SOUND, more=CYCLE))
    assert (code, "refused" in err) == (4, True)
    for words in ("mark", "spare", "LATEST_VIEW", "lake/bad", "cycle", "S"):
        assert words in out


# One sign at a time: a string in which another sign has to be escaped as well is escaped whole.
@pytest.mark.parametrize("sign", ['"', "\\", "\n", "\t", "\x00", "\x1f", "\x7f", "\u2028", "é", "😀", "/", "'"])
def test_preview_escapes_what_json_has_to_escape(sign: str, run: Run) -> None:
    name = f"a{sign}b"
    line = {"dataset": f"lake/{name}", "transaction": name, "type": "APPEND", "status": "COMMITTED", "closed_at": "2026-01-01"}
    options = write(policies=OLD.replace("name: old", "name: 'o\"l\\d'"))
    head = {"dataset": f"lake/{name}", "branch": name, "head": name}
    Path("log.jsonl").write_text(f"{json.dumps(line)}\n{json.dumps(head)}")
    _, out, _ = run("preview", *options, "--format", "json")
    result = json.loads(out)
    [found] = result["transactions"]
    assert list(result["datasets"]) == [found["dataset"]] == [f"lake/{name}"]
    assert (found["transaction"], found["policy"], found["reasons"][0]["witness"]) == (name, 'o"l\\d', name)


def test_preview_of_an_empty_dataset_has_no_transactions(run: Run) -> None:
    _, out, _ = run("preview", *write(more='{"dataset":"lake/e"}'), "--format", "json")
    assert json.loads(out) == {"as_of": NOW, "datasets": {"lake/e": {"refused": None}}, "transactions": []}


def test_preview_takes_many_policies_and_refuses_two_of_one_name(run: Run) -> None:
    options = write(SOUND)
    Path("q.yaml").write_text(OLD)
    code, out, err = run("preview", *options, "--policies", "q.yaml", "--format", "json")
    assert (code, out, "is also the name of another policy" in err) == (2, "", True)


@pytest.mark.parametrize(
    ("as_of", "words"),
    [
        ("2026-06-01T00:00:00", "has no zone"),
        ("2026-06-01 00:00", "has no zone"),
        ("tomorrow", "is not an instant"),
        ("2026-02-30T00:00:00Z", "is not an instant"),
        ("0001-01-01T00:00:00+14:00", "is out of range"),
        # A thousand years before it there is no instant; a day later every age leads somewhere.
        ("1001-12-31T00:00:00Z", "is out of range"),
        ("1002-01-01", None),
    ],
)
def test_an_as_of_without_a_zone_or_beyond_reason_is_bad_input(as_of: str, words: str | None, run: Run) -> None:
    code, out, err = run("preview", *write(SOUND, policies=OLD.replace("30d", "P999Y12M"))[:4], "--as-of", as_of)
    assert (code, bool(out)) == ((2, False) if words else (0, True))
    assert words is None or (words in err and as_of in err)


def test_datahub_entries_say_when_they_guess_what_an_aspect_is(run: Run) -> None:
    entry = "- {entity: dataset, aspect: status, config: {retention: {version: {maxVersions: 1}}}}\n"
    drawn = history("u: A:SNAPSHOT@3d - B:SNAPSHOT@2d - C:SNAPSHOT@1d", dataset="meta/dataset.status")
    code, out, err = run("preview", *write(drawn, policies=entry), "--format", "json")
    assert code == 0
    assert [row["verdict"] for row in json.loads(out)["transactions"]] == ["mark", "keep", "keep"]
    assert "meta/dataset.status" in err


# --- against other policies ---


def test_preview_says_what_another_set_would_newly_mark_and_no_longer_mark(run: Run) -> None:
    drawn = history("main: A:SNAPSHOT@50d=1 - B:SNAPSHOT@40d=10 - C:SNAPSHOT@20d=100 - D:SNAPSHOT@1d")
    options = write(drawn, policies=OLD.replace("30d", "45d"))
    Path("new.yaml").write_text(
        "policies: [{name: new, datasets: {include: ['*']}, select: {older_than: {age: 10d, of: superseded}}}]"
    )
    code, out, _ = run("preview", *options, "--against", "new.yaml", "--format", "json")
    found = json.loads(out)
    assert code == 0
    # Before: A. After: what left the latest view more than ten days ago, A and B.
    assert found["changes"] == [
        {"dataset": "lake/d", "policy": "new", "change": "newly marked", "transactions": 1, "bytes": 10},
    ]  # fmt: skip
    assert [(row["transaction"], row["bytes"], row["change"]) for row in found["transactions"]] == [("B", 10, "newly marked")]
    other = ("--log", "log.jsonl", "--policies", "new.yaml", "--against", "p.yaml", "--as-of", NOW)
    assert json.loads(run("preview", *other, "--format", "json")[1])["changes"] == [
        {"dataset": "lake/d", "policy": "new", "change": "no longer marked", "transactions": 1, "bytes": 10}
    ]
    assert "no longer marked" in run("preview", *other)[1]


# --- explain ---


@pytest.mark.parametrize("transaction", ["T1", "T2"])
def test_explain_tells_the_demonstration_of_a_shared_transaction(transaction: str, run: Run) -> None:
    options = write(history(DEMONSTRATION), policies=OLD.replace("{older_than: 30d}", "all"))
    code, out, _ = run("explain", "lake/d", transaction, *options, "--format", "json")
    found = json.loads(out)
    assert code == 0
    # On abc alone it could go; xyz still reads it.
    assert (found["verdict"], found["policy"]) == ("spare", "old")
    assert found["reasons"] == [reason("LATEST_VIEW", "xyz")]
    assert {one["branch"]: one["view"] for one in found["branches"]} == {"abc": 1, "xyz": 0}
    assert "'abc' does not need it" in found["summary"]
    assert "'xyz' shares it" in found["summary"]
    assert [(one["policy"], one["selects"]) for one in found["policies"]] == [("old", True)]
    code, out, err = run("explain", "lake/d", transaction, *options)
    assert (code, err, "spare" in out, "xyz" in out, LEDGER.exists()) == (0, "", True, True, False)


WEEKS = history("main: T1:SNAPSHOT@20d - T2:APPEND@18d - T3:SNAPSHOT@2026-03-30T22:30:00Z - T4:SNAPSHOT@1h")


@pytest.mark.parametrize(
    ("transaction", "beyond", "words"),
    [
        ("T2", "weekly: 5", "the newest of week 2026-W11, one of 5 weeks"),
        ("T1", "monthly: 2, weekly: 5", "part of the state of T2, the newest of week 2026-W11, one of 5 weeks"),
        ("T3", "daily: 2", "the newest of day 2026-03-30, one of 2 days"),
        ("T3", "hourly: 2, zone: Europe/Berlin", "the newest of hour 2026-03-31 00:00, one of 2 hours"),
        ("T4", "yearly: 1", "the newest of year 2026, one of 1 year"),
    ],
)
def test_explain_names_the_period_that_keeps_a_transaction(transaction: str, beyond: str, words: str, run: Run) -> None:
    options = write(WEEKS, policies=OLD.replace("{older_than: 30d}", f"{{beyond: {{{beyond}}}}}"))
    _, out, _ = run("explain", "lake/d", transaction, *options, "--format", "json")
    assert [reason["text"] for reason in json.loads(out)["reasons"]] == [f"It is kept: {words} of policy 'old'."]


@pytest.mark.parametrize(("as_of", "verdict"), [("2026-03-31T12:00:00Z", "keep"), ("2026-03-31T12:00:00.000001Z", "mark")])
def test_explain_tells_the_verdict_at_the_instant_that_was_named(as_of: str, verdict: str, run: Run) -> None:
    """Long past when this is read: at the present everything of it is old enough."""
    *options, _ = write(history("main: S:SNAPSHOT@30d - T:SNAPSHOT@1d"))
    _, out, _ = run("explain", "lake/d", "S", *options, as_of, "--format", "json")
    assert json.loads(out)["verdict"] == verdict


OWN = OLD.replace("{older_than: 30d}", "{from_table: true, types: [SNAPSHOT]}")
SAID = {"history.expire.max-snapshot-age-ms": "864000000", "history.expire.min-snapshots-to-keep": "1"}


@pytest.mark.parametrize(
    ("attributes", "words", "value"),
    [
        (SAID | {"history.expire.branch.main.min-snapshots-to-keep": "9"}, Reason.WITHIN_TRANSACTIONS.text("old"),
         "max-snapshot-age-ms 864000000, min-snapshots-to-keep 1; "
         "on branch main: max-snapshot-age-ms 864000000, min-snapshots-to-keep 9"),
        (SAID, "", "max-snapshot-age-ms 864000000, min-snapshots-to-keep 1"),
        ({"window.superseded-ms": "864000000"}, "", "window.superseded-ms 864000000"),
        ({"window.superseded-ms": "864000000", "times": "copied"}, Reason.TIMES_COPIED.text("old"), "window.superseded-ms 864000000"),
        (SAID | {"history.expire.min-snapshots-to-keep": "x"}, Reason.NO_OWN_RETENTION.text("old"), "True"),
    ],
)  # fmt: skip
def test_explain_shows_the_numbers_that_a_dataset_carries_itself(
    attributes: dict[str, str], words: str, value: str, run: Run
) -> None:
    drawn = history("main: S:SNAPSHOT@50d - T:SNAPSHOT@40d", attributes=attributes)
    options = write(drawn, policies=OWN)
    code, out, _ = run("explain", "lake/d", "S", *options, "--format", "json")
    found = json.loads(out)
    [about] = [line for line in found["policies"][0]["lines"] if line["key"] == "select.from_table"]
    assert code == 0
    assert (about["holds"], about["words"], about["value"]) == (not words, words, value)
    assert found["verdict"] == ("keep" if words else "mark")


def test_preview_and_explain_agree_about_every_transaction(run: Run) -> None:
    drawn = history(f"{DEMONSTRATION}  |  -: T2 - L:APPEND@50d  |  -: T4 - O:APPEND?@1d  |  -: R:RECORD@90d  |  #v1=T3")
    options = write(drawn)
    _, out, _ = run("preview", *options, "--format", "json")
    rows = json.loads(out)["transactions"]
    assert sorted(row["transaction"] for row in rows) == sorted(row["transaction"] for row in drawn.transactions)
    assert {row["verdict"] for row in rows} == {"mark", "spare", "keep", "open"}
    for row in rows:
        _, told, _ = run("explain", "lake/d", row["transaction"], *options, "--format", "json")
        found = json.loads(told)
        assert {key: found[key] for key in ("verdict", "policy", "also", "reasons")} == {
            key: row[key] for key in ("verdict", "policy", "also", "reasons")
        }


@pytest.mark.parametrize(
    ("dataset", "transaction", "words"),
    [
        ("lake/dd", "S", "dataset 'lake/dd' is not in the log. Did you mean lake/d?"),
        ("ice/table", "S", "dataset 'ice/table' is not in the log"),
        ("lake/d", "SS", "transaction 'SS' is not in the log of lake/d. Did you mean S?"),
        ("lake/d", "nothing-like-it", "transaction 'nothing-like-it' is not in the log of lake/d"),
    ],
)
def test_explain_of_what_is_not_there_names_the_nearest(dataset: str, transaction: str, words: str, run: Run) -> None:
    assert error_of(run("explain", dataset, transaction, *write(SOUND)), 2).strip() == words


def test_a_line_that_is_no_json_stops_the_command_with_its_file_and_number(run: Run) -> None:
    assert error_of(run("preview", *write(SOUND, more="bad\n")), 2).startswith("log.jsonl:6: is no JSON")


def test_what_is_refused_is_said_by_preview_and_with_its_fault_by_explain(run: Run) -> None:
    code, out, err = run("preview", *write(SOUND, more=CYCLE), "--against", "p.yaml", "--format", "json")
    assert (code, json.loads(out), "refused" in err) == (4, {"changes": [], "transactions": []}, True)
    code, out, err = run("explain", "lake/bad", "X", *write(SOUND, more=CYCLE))
    assert (code, out, "cycle" in err, "X" in err) == (1, "", True, True)


def test_what_asks_for_branches_says_that_it_applies_to_nothing_where_there_are_none(run: Run) -> None:
    """Of each such line and kind of dataset the drawings of the oracle have the verdicts."""
    views = OLD.replace("select: {older_than: 30d}", "branches: {reach: any}, select: {beyond: {views: 1}}")
    _, out, _ = run("preview", *write(history("-: T1:RECORD@90d"), policies=views), "--format", "json")
    [row] = json.loads(out)["transactions"]
    assert (row["verdict"], row["reasons"]) == ("keep", [reason("NOT_APPLICABLE", "old")])


# --- attributes ---


@pytest.mark.parametrize("form", ["json", "parquet"])
def test_what_an_attribute_keeps_it_keeps_in_every_format(run: Run, form: str) -> None:
    rows = [
        {"dataset": "lake/d", "transaction": f"T{number}", "parent": None, "type": "RECORD", "status": "COMMITTED",
         "opened_at": at, "closed_at": at, "attributes": {"legal": legal, "rate": 0.5}}
        for number, legal in enumerate((True, False, None))
        for at in [datetime(2026, 1, 1, tzinfo=UTC)]
    ]  # fmt: skip
    Path("log").mkdir()
    if form == "json":
        Path("log/a.jsonl").write_text("\n".join(json.dumps(row, default=lambda at: at.isoformat()) for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), "log/a.parquet")
    where = "coalesce(attributes['legal'], 'false') <> 'true' AND attributes['rate'] = '0.5'"
    Path("p.yaml").write_text(
        json.dumps({"policies": [{"name": "p", "datasets": {"include": ["*"]}, "select": {"where": where}}]})
    )
    _, out, _ = run("preview", "-l", "log", "-p", "p.yaml", "-t", NOW, "--format", "json")
    assert {row["transaction"]: row["verdict"] for row in json.loads(out)["transactions"]} == {
        "T0": "keep", "T1": "mark", "T2": "mark",
    }  # fmt: skip

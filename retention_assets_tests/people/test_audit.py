"""`audit` and `clock`: a record that somebody changed must never pass for sound, and the way on where the clock guard refuses."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from retention_assets.errors import Refused
from retention_assets.ledger import Ledger, open_ledger
from retention_assets.policy import text_of
from retention_assets_tests.clocks import set_clock
from retention_assets_tests.databases import new_schema
from retention_assets_tests.ledger.states import LATER, T0, candidates, statuses, write_past_ledger
from retention_assets_tests.people.conftest import Json, Run, error_of

FAR = datetime(2027, 1, 1, tzinfo=UTC)


@pytest.fixture
def written(ledger: Ledger) -> Ledger:
    """Rows 1 MARK, 2 UNMARK."""
    ledger.marks.mark(candidates(["T1", "T2", "T3"]), T0, "evaluation")
    ledger.unmark.transactions("lake/d", ["T1"], "ann", "still needed")
    return ledger


def test_a_sound_record_says_so_and_where_it_ends(written: Ledger, found: Json, run: Run) -> None:
    head = written.verify().head
    assert found("audit", "verify") == {"rows": 2, "members": 4, "head": vars(head), "faults": [], "remarks": []}
    # That verification is an act itself.
    head = written.verify().head
    code, out, err = run("audit", "verify")
    assert (code, err) == (0, "")
    assert out == f"The record is sound: 3 rows with 4 members are unchanged.\nhead: 3 {head.hash}\n"


def test_a_remark_about_another_table_is_printed_and_is_no_fault(run: Run, server: str) -> None:
    url = new_schema(server)
    Path("retention.yaml").write_text(json.dumps({"ledger": url}))
    with open_ledger(url) as ledger, ledger.database.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE runs (id INTEGER)")
    code, out, err = run("audit", "verify")
    assert (code, err) == (0, "")
    assert out.splitlines()[:2] == [
        "The record is sound: 1 rows with 0 members are unchanged.",
        "remark: The table runs in the ledger's schema does not belong to the ledger.",
    ]


def test_only_what_is_new_is_verified_when_that_is_asked_for(written: Ledger, found: Json, run: Run) -> None:
    assert found("audit", "verify", "--new", "--actor", "bob")["rows"] == 2
    line = json.loads([*written.audit_lines()][-1])
    assert (line["deed"], line["actor"], line["detail"]["position"]) == ("VERIFY", "bob", 2)
    # Nothing new but the verification itself: nothing is recorded.
    assert (found("audit", "verify", "--new")["rows"], json.loads([*written.audit_lines()][-1])) == (1, line)
    written.unmark.transactions("lake/d", ["T2"], "ann", "needed as well")
    new = found("audit", "verify", "--new")
    assert (new["rows"], new["members"], new["faults"]) == (2, 1, [])
    write_past_ledger(written, "UPDATE marks SET why = 'x' WHERE id = 2")
    assert run("audit", "verify")[0] == 1


def test_a_tampered_record_is_named_row_by_row_and_fails(written: Ledger, run: Run) -> None:
    write_past_ledger(written, "UPDATE audit SET actor = 'bob' WHERE position = 2")
    write_past_ledger(written, "UPDATE marks SET policy = 'x' WHERE id = 2")
    code, out, err = run("audit", "verify")
    assert code == 1
    assert "Row 2 of the audit (UNMARK) was changed: its hash is wrong." in out.splitlines()
    assert "Mark 2 (T2 of lake/d) was changed: its hash is wrong." in out.splitlines()
    assert "sound" not in out
    # Who took the mark back is now said to be another than its row says.
    assert "Mark 1 (T1 of lake/d) was changed: its changed_by is ann, but by its steps it is bob." in out
    assert err == "3 faults: the record was changed.\n"
    code, out, _ = run("audit", "verify", "--format", "json")
    assert (code, len(json.loads(out)["faults"])) == (1, 3)


def test_a_saved_head_is_known_again_while_the_record_grows(written: Ledger, run: Run) -> None:
    code, _, err = run("audit", "verify", "--save-head", "head.json")
    assert (code, err.startswith("the head is in head.json")) == (0, True)
    head = json.loads(Path("head.json").read_text())
    assert head["hash"] == json.loads([*written.audit_lines()][1])["hash"]
    written.unmark.transactions("lake/d", ["T2"], "ann", "needed as well")
    assert run("audit", "verify", "--known", "head.json", "--save-head", "head.json")[0] == 0
    assert json.loads(Path("head.json").read_text())["position"] == 4
    assert sorted(path.name for path in Path().iterdir()) == [".retention", "head.json", "retention.yaml"]


def test_a_record_written_anew_is_found_by_its_known_head_which_stays(written: Ledger, run: Run) -> None:
    noted = json.dumps({"position": 2, "hash": "a" * 64})
    Path("head.json").write_text(noted)
    code, out, err = run("audit", "verify", "--known", "head.json", "--save-head", "head.json")
    assert code == 1
    assert "Row 2 of the audit is not the row that was noted before: the audit was rewritten." in out
    assert err.endswith("head.json was not written.\n")
    assert Path("head.json").read_text() == noted


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "is not there"),
        ("{", "is no JSON"),
        ("[]", "is not a head of an audit"),
        ('{"position": -1, "hash": "' + "a" * 64 + '"}', "is not a head of an audit"),
        ('{"position": 2, "hash": "short"}', "is not a head of an audit"),
    ],
    ids=["missing", "broken", "a list", "before the beginning", "half a hash"],
)
def test_a_known_head_that_is_none_is_bad_input(content: str | None, words: str, written: Ledger, run: Run) -> None:
    if content is not None:
        Path("head.json").write_text(content)
    assert f"head.json: {words}" in error_of(run("audit", "verify", "--known", "head.json"), 2)


def test_an_export_is_the_record_line_by_line(written: Ledger, run: Run) -> None:
    code, out, err = run("audit", "export")
    assert (code, err) == (0, "")
    assert out.splitlines() == list(written.audit_lines())
    assert [json.loads(line)["position"] for line in run("audit", "export", "--after", "1")[1].splitlines()] == [2]
    assert run("audit", "export", "--after", "-1")[0] == 2


# --- clock ---


def test_the_clock_shows_what_the_guard_goes_by(ledger: Ledger, found: Json, run: Run) -> None:
    ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
    ledger.clock.check(LATER, None)
    times = {"newest_mark_at": "2026-01-01T00:00:00Z", "newest_seen_at": "2026-01-08T00:00:00Z", "accepted_until": None}
    assert found("clock") == times
    _, out, _ = run("clock")
    assert "2026-01-08T00:00:00Z" in out
    assert "none" in out


def test_accepting_needs_no_argument_and_the_very_next_run_goes_on(
    ledger: Ledger, found: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.clock.check(T0, None)
    set_clock(monkeypatch, FAR)
    assert "retention clock accept" in str(ledger.clock.check(FAR, None))
    said = found("clock", "accept", "--reason", "back from a long pause")
    acts = [json.loads(line) for line in ledger.audit_lines()]
    assert (acts[-1]["actor"], acts[-1]["reason"]) == ("ann", "back from a long pause")
    assert said["accepted_until"] == said["newest_seen_at"] == text_of(FAR)
    assert ledger.clock.check(FAR + timedelta(seconds=9), None) is None


def test_a_reset_takes_back_what_a_fast_clock_has_marked(
    ledger: Ledger, found: Json, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.marks.mark(candidates(["T1"]), T0, "evaluation")
    ledger.marks.mark(candidates(["T2", "T3"]), FAR, "evaluation")
    set_clock(monkeypatch, LATER)
    with pytest.raises(Refused, match="retention clock reset"):
        ledger.clock.check(LATER, None)
    said = found("clock", "reset", "--reason", "the battery was flat")
    times = {"newest_mark_at": "2026-01-01T00:00:00Z", "newest_seen_at": None, "accepted_until": None}
    assert said == {"reset_to": "2026-01-08T00:00:00Z", "unmarked": 2, "sweeping": 0, **times}
    assert statuses(ledger) == {"T1": "MARKED", "T2": "UNMARKED", "T3": "UNMARKED"}
    assert ledger.clock.check(LATER, None) is None
    acts = [json.loads(line) for line in ledger.audit_lines()]
    assert [act["deed"] for act in acts if act["reason"] == "the battery was flat"] == ["UNMARK", "CLOCK"]
    code, out, err = run("clock", "reset", "--reason", "once more")
    assert (code, err) == (0, "Next: `retention run` marks again what policies select.\n")
    assert out.startswith("0 marks were taken back.\n")
    assert "2026-01-01T00:00:00Z" in out


@pytest.mark.parametrize(
    "arguments",
    [("reset",), ("reset", "--reason", ""), ("accept", "--as-of", "2027-01-01"), ("accept", "--as-of", "later")],
    ids=" ".join,
)
def test_a_word_about_the_clock_that_says_too_little_or_too_much_changes_nothing(
    arguments: tuple[str, ...], ledger: Ledger, run: Run
) -> None:
    assert run("clock", *arguments)[:2] == (2, "")
    assert [one for one in ledger.audit_lines() if json.loads(one)["deed"] != "HEAD"] == []

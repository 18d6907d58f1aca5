"""The command line, as people and scripts meet it: what is on stdout, what on stderr, and the exit code.

Belongs here: `validate`, `schema`, `preview`, `compare` and `explain`. What a verdict is belongs to the laws, what a file may
say to policy/test_language.py. A script that trusts an exit code or a line of JSON here may delete because of it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import retention_assets
from retention_assets.cli import main, retention
from retention_assets.frames.verdicts.reasons import Reason
from retention_assets.policy.schema import policy_schema
from retention_assets_tests.histories import AS_OF, History, history, to_lines

ROOT = Path(retention_assets.__file__).parents[1]
NOW = "2026-03-31T12:00:00Z"
ENTRY = "from retention_assets.cli import main; main()"
OLD = "policies: [{name: old, datasets: {include: ['lake/*']}, select: {older_than: 30d}}]\n"
# Branch xyz forks from abc at T2, and only abc has a second view: the demonstration of the Foundry documents.
DEMONSTRATION = "abc: T1:APPEND@40d - T2:APPEND@39d - T3:SNAPSHOT@38d - T4:APPEND@37d  |  xyz: T2 - T5:APPEND@36d"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The console script in this Python, in an empty folder: exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RETENTION_CONFIG", raising=False)

    def _run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["retention", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        said = capsys.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, said.out, said.err

    return _run


def write(*drawn: History, policies: str = OLD, more: str = "") -> tuple[str, ...]:
    """A log and policies in the working directory, and the options that name them."""
    assert all(one.as_of == AS_OF for one in drawn)
    Path("log.jsonl").write_text("\n".join(to_lines(drawn)) + "\n" + more)
    Path("p.yaml").write_text(policies)
    return ("--log", "log.jsonl", "--policies", "p.yaml", "--as-of", NOW)


SOUND = history("main: S:SNAPSHOT@50d=7 - T:SNAPSHOT@40d - U:APPEND@1d  |  -: U - V:APPEND?@1h")
CYCLE = '{"dataset":"lake/bad","transaction":"X","parent":"X","type":"APPEND","status":"ABORTED"}\n'


# --- validate and schema ---


def test_validate_prints_each_policy_as_a_sentence(run: Run) -> None:
    Path("p.yaml").write_text(OLD + "holds: [{name: h, datasets: lake/a}]\n")
    code, out, err = run("validate", "p.yaml")
    assert code == 0
    assert out.startswith("old\n  Marks transactions of the datasets lake/*, when they closed more than 30 days ago.")
    assert "h\n  Holds everything of the datasets lake/a" in out
    assert err == "1 policy and 1 hold are valid.\n"


def test_validate_says_the_same_as_json(run: Run) -> None:
    Path("p.yaml").write_text(OLD + "holds: [{name: h, datasets: lake/a}]\n")
    Path("d.yaml").write_text("- {entity: a, aspect: b, config: {retention: {indefinite: {}}}}\n")
    code, out, err = run("validate", "p.yaml", "d.yaml", "--format", "json")
    found = json.loads(out)
    assert (code, err, found["valid"]) == (0, "", True)
    assert [one["name"] for one in found["policies"]] == ["old", "datahub:a.b"]
    assert [one["name"] for one in found["holds"]] == ["h"]
    assert all(one["sentence"].endswith(".") for one in found["policies"] + found["holds"])


def test_validate_names_every_fault_on_stderr_and_stops_with_two(run: Run) -> None:
    Path("p.yaml").write_text("policies: [{name: p, datasets: {include: []}, select: {}}]\n")
    code, out, err = run("validate", "p.yaml")
    assert (code, out) == (2, "")
    assert [line.partition(" expected")[0] for line in err.splitlines()] == [
        "p.yaml:1: policy 'p': datasets.include: is empty;",
        "p.yaml:1: policy 'p': select: has no line that narrows;",
    ]


def test_validate_says_when_nothing_is_in_force(run: Run) -> None:
    Path("p.yaml").write_text("policies: []\n")
    code, out, _ = run("validate", "p.yaml")
    assert code == 0
    assert "nothing will be marked" in out


def test_validate_without_a_path_reads_the_policies_of_the_settings_and_knows_their_stores(run: Run) -> None:
    Path("retention.yaml").write_text(
        "policies: rules\nstores: [{name: lake, kind: files, log: log, data: 'data/{dataset}/{transaction}'}]\n"
    )
    Path("rules").mkdir()
    Path("rules/p.yaml").write_text(OLD)
    assert run("validate")[0] == 0
    Path("rules/p.yaml").write_text(OLD.replace("lake/*", "lak/*"))
    code, _, err = run("validate")
    assert code == 2
    assert "Did you mean lake?" in err


def test_the_shipped_settings_and_policies_are_valid() -> None:
    done = script(ROOT, "validate")
    assert (done.returncode, "nothing will be marked" in done.stdout) == (0, True)


def test_schema_prints_the_schema_and_nothing_else(run: Run) -> None:
    assert run("schema") == (0, policy_schema(), "")


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


def test_preview_of_a_refused_dataset_exits_with_one_and_goes_on_with_the_others(run: Run) -> None:
    code, out, err = run("preview", *write(SOUND, more=CYCLE), "--format", "json")
    found = json.loads(out)
    assert code == 1
    assert found["datasets"] == {"lake/bad": {"refused": {"fault": "cycle", "transaction": "X"}}, "lake/d": {"refused": None}}
    assert {row["dataset"] for row in found["transactions"]} == {"lake/d"}
    assert err == "1 of 2 datasets were refused: their logs are not sound.\n"


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


def test_preview_as_a_table_says_how_many_and_why(run: Run) -> None:
    code, out, err = run("preview", *write(SOUND, more=CYCLE))
    assert code == 1
    for words in ("mark", "spare", "LATEST_VIEW", "lake/bad", "cycle", "S"):
        assert words in out
    assert "refused" in err


def test_preview_takes_many_policies_and_refuses_two_of_one_name(run: Run) -> None:
    options = write(SOUND)
    Path("q.yaml").write_text(OLD)
    code, out, err = run("preview", *options, "--policies", "q.yaml", "--format", "json")
    assert (code, out) == (2, "")
    assert "is the name of another policy as well" in err


@pytest.mark.parametrize("command", ["preview", "explain"])
@pytest.mark.parametrize(
    ("as_of", "words"),
    [
        ("2026-06-01T00:00:00", "has no zone"),
        ("2026-06-01 00:00", "has no zone"),
        ("tomorrow", "is not an instant"),
        ("2026-02-30T00:00:00Z", "is not an instant"),
        ("0001-01-01T00:00:00+14:00", "is out of range"),
        # A thousand years before it there is no instant.
        ("1001-12-31T00:00:00Z", "is out of range"),
    ],
)
def test_an_as_of_without_a_zone_or_beyond_reason_is_bad_input(command: str, as_of: str, words: str, run: Run) -> None:
    options = write(SOUND)[:4]
    about = ("lake/d", "S") if command == "explain" else ()
    code, out, err = run(command, *about, *options, "--as-of", as_of)
    assert (code, out) == (2, "")
    assert words in err
    assert as_of in err


def test_as_of_a_thousand_years_after_the_first_instant_every_age_leads_somewhere(run: Run) -> None:
    write(SOUND, policies=OLD.replace("30d", "P999Y12M"))
    assert run("preview", "--log", "log.jsonl", "--policies", "p.yaml", "--as-of", "1002-01-01")[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("preview", "--format", "xml"),
        ("preview", "--lgo", "x"),
        ("previw",),
        (),
        ("preview", "--log", "nowhere.jsonl", "--policies", "p.yaml"),
        ("preview", "--log", "log.jsonl", "--policies", "nowhere.yaml"),
        ("preview", "--policies", "p.yaml"),
        ("compare", "--log", "log.jsonl", "--policies", "p.yaml"),
        ("compare", "--log", "log.jsonl"),
        ("explain", "lake/d"),
        ("validate", "nowhere.yaml"),
    ],
    ids=lambda arguments: " ".join(arguments) or "nothing",
)
def test_what_is_not_understood_is_bad_input_with_words_on_stderr(arguments: tuple[str, ...], run: Run) -> None:
    write(SOUND)
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err
    assert "Traceback" not in err


def test_the_log_of_a_files_store_is_read_where_none_is_named(run: Run) -> None:
    write(SOUND)
    Path("retention.yaml").write_text(
        "policies: p.yaml\nstores: [{name: lake, kind: files, log: log.jsonl, data: 'data/{dataset}/{transaction}'}]\n"
    )
    code, out, _ = run("preview", "--as-of", NOW, "--format", "json")
    assert code == 0
    assert len(json.loads(out)["transactions"]) == 4


def test_datahub_entries_say_when_they_guess_what_an_aspect_is(run: Run) -> None:
    entry = "- {entity: dataset, aspect: status, config: {retention: {version: {maxVersions: 1}}}}\n"
    drawn = history("u: A:SNAPSHOT@3d - B:SNAPSHOT@2d - C:SNAPSHOT@1d", dataset="meta/dataset.status")
    code, out, err = run("preview", *write(drawn, policies=entry), "--format", "json")
    assert code == 0
    assert [row["verdict"] for row in json.loads(out)["transactions"]] == ["mark", "keep", "keep"]
    assert "meta/dataset.status" in err


# --- compare ---


def test_compare_says_what_another_set_would_newly_mark_and_no_longer_mark(run: Run) -> None:
    drawn = history("main: A:SNAPSHOT@50d=1 - B:SNAPSHOT@40d=10 - C:SNAPSHOT@20d=100 - D:SNAPSHOT@1d")
    options = write(drawn, policies=OLD.replace("30d", "45d"))
    Path("new.yaml").write_text(
        "policies: [{name: new, datasets: {include: ['*']}, select: {older_than: {age: 10d, of: superseded}}}]"
    )
    code, out, _ = run("compare", *options, "--policies", "new.yaml", "--format", "json", "--transactions")
    found = json.loads(out)
    assert code == 0
    # Before: A. After: what left the latest view more than ten days ago, A and B.
    assert found["changes"] == [
        {"dataset": "lake/d", "policy": "new", "change": "newly marked", "transactions": 1, "bytes": 10},
    ]  # fmt: skip
    assert [(row["transaction"], row["change"]) for row in found["transactions"]] == [("B", "newly marked")]
    code, out, _ = run(
        "compare", "--log", "log.jsonl", "--policies", "new.yaml", "--policies", "p.yaml", "--as-of", NOW, "--format", "json"
    )
    assert json.loads(out) == {
        "changes": [{"dataset": "lake/d", "policy": "new", "change": "no longer marked", "transactions": 1, "bytes": 10}]
    }


def test_compare_of_a_refused_dataset_exits_with_one(run: Run) -> None:
    options = write(SOUND, more=CYCLE)
    code, out, err = run("compare", *options, "--policies", "p.yaml", "--format", "json")
    assert (code, json.loads(out)) == (1, {"changes": []})
    assert "refused" in err


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
    assert "'abc' alone it could go" in found["summary"]
    assert "'xyz' shares it" in found["summary"]
    assert [(one["policy"], one["selects"]) for one in found["policies"]] == [("old", True)]


@pytest.mark.parametrize(("as_of", "verdict"), [("2026-03-31T12:00:00Z", "keep"), ("2026-03-31T12:00:00.000001Z", "mark")])
def test_explain_tells_the_verdict_at_the_instant_that_was_named(as_of: str, verdict: str, run: Run) -> None:
    """Long past when this is read: at the present everything of it is old enough."""
    *options, _ = write(history("main: S:SNAPSHOT@30d - T:SNAPSHOT@1d"))
    _, out, _ = run("explain", "lake/d", "S", *options, as_of, "--format", "json")
    assert json.loads(out)["verdict"] == verdict


def test_explain_as_a_table_says_the_same(run: Run) -> None:
    code, out, err = run("explain", "lake/d", "T1", *write(history(DEMONSTRATION)))
    assert (code, err) == (0, "")
    assert "spare" in out
    assert "xyz" in out


OWN = OLD.replace("{older_than: 30d}", "{from_table: true, types: [SNAPSHOT]}")
SAID = {"history.expire.max-snapshot-age-ms": "864000000", "history.expire.min-snapshots-to-keep": "1"}


@pytest.mark.parametrize(
    ("attributes", "words", "value"),
    [
        (SAID | {"history.expire.branch.main.min-snapshots-to-keep": "9"}, Reason.WITHIN_TRANSACTIONS.text("old"),
         "max-snapshot-age-ms 864000000, min-snapshots-to-keep 1; "
         "on branch main: max-snapshot-age-ms 864000000, min-snapshots-to-keep 9"),
        (SAID, "", "max-snapshot-age-ms 864000000, min-snapshots-to-keep 1"),
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
    code, out, err = run("explain", dataset, transaction, *write(SOUND))
    assert (code, out) == (2, "")
    assert err.strip() == words


def test_explain_of_a_refused_dataset_is_refused_with_its_fault(run: Run) -> None:
    code, out, err = run("explain", "lake/bad", "X", *write(SOUND, more=CYCLE))
    assert (code, out) == (1, "")
    assert "cycle" in err
    assert "X" in err


# --- the script as a program of its own ---


# As installed, and without the settings of whoever runs the tests.
ENVIRONMENT = {**{key: value for key, value in os.environ.items() if key != "RETENTION_CONFIG"}, "PYTHONPATH": str(ROOT)}


def script(folder: Path, *arguments: str, stdout: Any = subprocess.PIPE, code: str = ENTRY) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=folder, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False,
        env=ENVIRONMENT,
    )  # fmt: skip


@pytest.fixture
def previewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """A folder with a log, and the arguments of a preview in it."""
    monkeypatch.chdir(tmp_path)
    return ("preview", *write(SOUND))


@pytest.mark.parametrize("format_", ["json", "table"])
def test_a_reader_that_went_away_ends_the_command_without_a_word(
    format_: str, previewed: tuple[str, ...], tmp_path: Path
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = script(tmp_path, *previewed, "--format", format_, stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("format_", ["json", "table"])
def test_a_closed_stdout_is_no_error(format_: str, previewed: tuple[str, ...], tmp_path: Path) -> None:
    # Whoever closes it wants the exit code alone.
    command = f"exec '{sys.executable}' -c '{ENTRY}' {' '.join(previewed)} --format {format_} >&-"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, stderr=subprocess.PIPE, text=True, check=False, env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("format_", ["json", "table"])
def test_a_full_disk_below_stdout_fails_with_a_sentence(format_: str, previewed: tuple[str, ...], tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = script(tmp_path, *previewed, "--format", format_, stdout=full)
    assert done.returncode == 1
    assert done.stderr.startswith("cannot go on: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("validate", "p.yaml"), ("schema",), ("preview", "--help")],
    ids=lambda arguments: arguments[0],
)
def test_a_light_command_imports_neither_dagster_nor_spark(
    arguments: tuple[str, ...], previewed: tuple[str, ...], tmp_path: Path
) -> None:
    code = (
        "import sys\nfrom retention_assets.cli import main\n"
        "try:\n    main()\n"
        "finally:\n    heavy = {'dagster', 'pyspark', 'pandas', 'duckdb', 'pyarrow', 'numpy'} & set(sys.modules)\n"
        "    print(sorted(heavy), file=sys.stderr)\n"
    )
    done = script(tmp_path, *arguments, code=code)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "[]"


def commands(of: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, of
    for word, below in of.commands.items() if isinstance(of, click.Group) else ():
        yield from commands(below, f"{name} {word}")


@pytest.mark.parametrize("command", [pytest.param(one, id=name) for name, one in commands(retention, "retention")])
def test_every_command_and_option_has_a_sentence_of_help(command: click.Command) -> None:
    texts = [command.help, *(one.help for one in command.params if isinstance(one, click.Option))]
    assert [text for text in texts if not text or not text.strip().endswith(".")] == []

"""One law over all operations: the command and the Dagster job of each have one result, one record and one refusal.

What an operation does in every case is tested through its command alone, and what a run shows besides in dagster/test_jobs.py.
"""

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner

from retention_assets.cli import retention
from retention_assets.dagster import jobs
from retention_assets.definitions import build_defs
from retention_assets.errors import BadInput, Refused
from retention_assets.ledger import ScanEnd, ScanStatus, scan_lease
from retention_assets.people.operation import Kind, RecordedRequest, fields_of
from retention_assets.policy import Hold, text_of
from retention_assets_tests.dagster.launch import failure, shown, without_run
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.ledger.states import take_lease, write_past_ledger
from retention_assets_tests.stores.records.environments import Units
from retention_assets_tests.sweep.lakes import DUE, OLD, Lake

QUICK = "{name: quick, datasets: {include: [lake/u]}, select: {older_than: 30d}, grace: 0s, confirm: no-grace, undo: 14d}"
SOME = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@1d=10"
DAY = text_of(DUE)
OPERATIONS = {one.name: one for one in jobs.OPERATIONS}
# without a command
# replay plans anew, with ids of its own: people/test_replay.py
ONLY_JOBS = {"replay", "upcoming"}


@dataclass
class Place:
    """One environment, put back to its beginning before each door is tried, and one Dagster instance."""

    lake: Lake
    units: Units
    instance: dg.DagsterInstance
    beginning: Path
    defs: dg.Definitions = field(init=False)

    def __post_init__(self) -> None:
        self.defs = build_defs(self.lake.settings)
        shutil.copytree(self.lake.folder, self.beginning)

    def begin(self, prepare: Callable[["Place"], object] | None = None) -> None:
        """Be as at the beginning, and then as a case wants it."""
        shutil.rmtree(self.lake.folder)
        shutil.copytree(self.beginning, self.lake.folder)
        if prepare:
            prepare(self)

    def command(self, arguments: Sequence[str]) -> tuple[Any, str | None]:
        settings = {"RETENTION_CONFIG": str(self.lake.folder / "retention.yaml")}
        ran = CliRunner(env=settings).invoke(retention, [*arguments, "--format", "json"], standalone_mode=False)
        if ran.exception is None:
            return json.loads(ran.stdout), ran.stderr.strip() if ran.return_value == 1 else None
        assert isinstance(ran.exception, BadInput | Refused), ran.exception
        return None, str(ran.exception)

    def job(self, name: str, config: Mapping[str, Any]) -> tuple[Mapping[str, Any], str | None]:
        job = self.defs.resolve_job_def(name)
        ran = job.execute_in_process(run_config=dict(config), instance=self.instance, raise_on_error=False)
        if ran.success:
            return {key: without_run(value) for key, value in shown(ran).items()}, None
        return {}, without_run(failure(ran))

    def record(self) -> Mapping[str, list[tuple[Any, ...]]]:
        """Every table of the ledger and of the database, without what the clock or chance put into it."""
        found: dict[str, list[tuple[Any, ...]]] = {"rows": sorted(self.units.everything().items())}
        with sqlite3.connect(self.lake.folder / "ledger.db") as connection:
            connection.row_factory = sqlite3.Row
            tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            for table in tables:
                rows = [_without_seals(dict(row)) for row in connection.execute(f'SELECT * FROM "{table}"')]
                found[table] = sorted((tuple((key, row[key]) for key in row if not _is_chance(key)) for row in rows), key=repr)
        connection.close()
        return found

    def acts(self) -> list[tuple[str, str, str | None]]:
        """What was done since the beginning, by the audit: the deed, the actor, the reason."""
        with self.lake.opened() as ledger:
            assert ledger.verify().faults == ()
            lines = [json.loads(without_run(line)) for line in ledger.audit_lines()]
        return [(line["deed"], line["actor"], line["reason"]) for line in lines if line["actor"] not in ("test", "::system")]


def _without_seals(row: dict[str, Any]) -> dict[str, Any]:
    """Seals are over times and ids."""
    row = {name: without_run(value) for name, value in row.items()}
    if "detail" in row:
        chance = ("rows", "position", "hash", "batches")
        row["detail"] = {name: value for name, value in json.loads(row["detail"]).items() if name not in chance}
    return row


def _is_chance(column: str) -> bool:
    chance = {
        "act", "begun", "changed_act", "digest", "hash", "id", "position", "previous", "seal", "end_seal", "token", "looked_at", "at",
    }  # fmt: skip
    return column in chance or (column.endswith("_at") and column not in ("due_at", "marked_at"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Four marks, of which a branch needs one, and two set aside; a hold, a realm, a braked scan, a row that must not expire."""
    folder = tmp_path_factory.mktemp("doors")
    lake = Lake(folder / "lake").has(SOME, "lake/a").has(SOME, "lake/b")
    lake._log("lake/a", ['{"dataset": "lake/a", "realm": "acme"}'])
    (lake.folder / "ods.db").touch()
    units = Units(f"sqlite:///{lake.folder / 'ods.db'}", ttl={"document_ttl": "180d"})
    units.has("open", closed=None, kind="RECALL", expires="2026-04-08 00:00:00").has("done", expires="2026-04-08 09:00:00")
    for name, text in (("objects/used", "."), ("refs/a.jsonl", '{"object": "used"}\n{"complete": true, "count": 1}\n')):
        (lake.folder / name).parent.mkdir()
        (lake.folder / name).write_text(text)
    blobs = {"name": "blobs", "kind": "objects", "listing": {"path": "objects"}, "references": [{"lines": "refs/*.jsonl"}]}
    lake.configures(units.settings, blobs, dagster={"jobs": "all"})
    lake.says(f"{QUICK}, {OLD}")
    assert lake.has(SOME, "lake/u").marks() == 6
    lake.sweeps(AS_OF)
    lake.branches("keep", "S1", "lake/a")
    with lake.opened() as ledger:
        held = {"name": "held", "datasets": {"include": ["lake/x"]}, "reason": "r", "owner": "test"}
        ledger.holds.place(Hold.model_validate(held), "test")
        lease = take_lease(ledger, scan_lease("blobs"), "test")
        ledger.scans.end(lease, ledger.scans.begin(lease), ScanEnd(ScanStatus.BRAKED, "9 of 10 name nothing", {}, None))
        ledger.leases.give_up([lease])
    with dg.instance_for_test() as instance:
        yield Place(lake, units, instance, folder / "beginning")


# Operation by its job: the words of its command, and its form. What of the form doesn't stand in the words is typed as options.
SAID = {"reason": "a test", "actor": "ann"}
CASES: dict[str, tuple[str, Mapping[str, Any]]] = {
    "unmark": ("unmark lake/a S1 S2", {"dataset": "lake/a", "transactions": ["S1", "S2"], **SAID}),
    "keep": (
        "keep lake/a S2 S1",
        {"dataset": "lake/a", "transactions": ["S2", "S1"], "until": "2999-01-01", "name": "all", **SAID},
    ),
    "explain": ("explain lake/a S1", {"dataset": "lake/a", "transaction": "S1", "as_of": DAY}),
    "history": ("history lake/a", {"dataset": "lake/a", "as_of": DAY}),
    "preview": ("plan", {"datasets": ["lake/*"], "as_of": DAY}),
    "hold": ("hold", {"name": "h", "datasets": ["lake/*"], "transactions": ["S*"], "until": "2999-01-01", **SAID}),
    "release": ("release held", {"name": "held", **SAID}),
    "advance_visibility": (
        "advance lake/a",
        {"dataset": "lake/a", "retention": "30d", "as_of": text_of(AS_OF), "actor": "ann"},
    ),
    "change_realm": ("realm acme", {"name": "acme", "status": "PURGING", "grace": "9d", "yes": True, **SAID}),
    "policy_overwrite": ("policies overwrite old", {"name": "old", **SAID}),
    "policy_revoke": ("policies revoke old", {"name": "old", **SAID}),
    "audit_verify": ("audit verify", {"actor": "ann"}),
    "audit_accept": ("audit accept", SAID),
    "clock_accept": ("clock accept", {"as_of": DAY, "actor": "ann"}),
    "clock_reset": ("clock reset", {"as_of": text_of(AS_OF - timedelta(days=1)), **SAID}),
    "restore": ("restore lake/u S1 S2", {"dataset": "lake/u", "transactions": ["S1", "S2"], "as_of": DAY, **SAID}),
    "forget_trash": ("trash forget lake/u S1", {"dataset": "lake/u", "transactions": ["S1"], "as_of": DAY, **SAID}),
    "empty_trash": ("trash empty", {"datasets": ["lake/u"], "as_of": DAY, **SAID}),
    "scan_accept": ("scans blobs accept 1", {"store": "blobs", "scan": 1, **SAID}),
    "housekeeping": ("housekeeping", {"as_of": DAY, "actor": "ann"}),
}


def loses_its_trash(place: Place) -> None:
    (folder,) = (place.lake.folder / "data" / ".retention-trash").glob("*/*/S1")
    shutil.rmtree(folder)


# What is other before some of them.
PREPARED = {"forget_trash": loses_its_trash}


def typed(job: str, words: str, form: Mapping[str, Any]) -> list[str]:
    """A command line that says what a form says."""
    flags = {field.name: field.flags.names[-1:] for field in fields_of(OPERATIONS[job].request)} | {"actor": ("--actor",)}
    line = words.split()
    for name, value in form.items():
        values = [str(each) for each in (value if isinstance(value, list) else [value])]
        if not set(values) <= set(line):
            line += [part for each in values for part in (*flags[name], *(() if value is True else (each,)))]
    return line


def test_every_operation_is_tried_and_whoever_acts_is_recorded() -> None:
    assert OPERATIONS.keys() == CASES.keys() | ONLY_JOBS
    acting = {name for name, one in OPERATIONS.items() if one.kind is not Kind.LOOK}
    assert {name for name, one in OPERATIONS.items() if issubclass(one.request, RecordedRequest)} == acting


@pytest.mark.parametrize("job", CASES)
def test_command_and_job_give_the_same_and_record_the_same(place: Place, job: str) -> None:
    (words, form), prepare = CASES[job], PREPARED.get(job)
    place.begin(prepare)
    before = place.record()
    printed, refused = place.command(typed(job, words, form))
    assert refused is None
    by_command, acts = place.record(), place.acts()
    place.begin(prepare)
    metadata, refused = place.job(OPERATIONS[job].job, form)
    assert refused is None
    assert place.record() == by_command
    assert place.acts() == acts
    operation = OPERATIONS[job]
    if operation.keeps_file:
        assert json.loads(Path(metadata["file"]).read_text()) == printed
    elif operation.kind is Kind.LOOK:
        # its page counts what is listed
        same = metadata.keys() & printed.keys()
        counted = {name: len(value) if isinstance(value := printed[name], list) else value for name in same}
        assert ({"dataset", "as_of"} <= same, {name: metadata[name] for name in same}) == (True, counted)
    else:
        expected = {name: value for name, value in printed.items() if value is not None and not name.endswith("_at")}
        assert {name: metadata[name] for name in expected} == expected
    assert (by_command != before) == (operation.kind is not Kind.LOOK) == bool(acts)
    assert {actor for _, actor, _ in acts} <= {"ann"}
    assert "reason" not in form or form["reason"] in {reason for *_, reason in acts}


@pytest.mark.parametrize(
    ("job", "headline"),
    [
        ("explain", "lake/u has 3 transactions (30 B): 1 kept (10 B), 2 set aside (20 B)."),
        ("history", "lake/u: 2 set aside, 1 never marked."),
    ],
)
def test_pages_count_what_is_set_aside_apart(place: Place, job: str, headline: str) -> None:
    place.begin()
    with OPERATIONS[job].open(OPERATIONS[job].request(dataset="lake/u", as_of=DUE), place.lake.environment) as result:
        assert result.page
        answer = result.page()[0]
    assert (answer.headline, "deleted" in answer.markdown.partition("Policy")[0]) == (headline, False)


# --- refusals ---


def changed_past_ledger(place: Place) -> None:
    with place.lake.opened() as ledger:
        write_past_ledger(ledger, "UPDATE holds SET owner = 'x'")


def no_ledger(place: Place) -> None:
    (place.lake.folder / "ledger.db").unlink()


def broken_policies(place: Place) -> None:
    place.lake.says("{name: p, datasets: {include: ['lake/*']}, select: {oldr_than: 30d}}")


def leased(place: Place) -> None:
    with place.lake.opened() as ledger:
        take_lease(ledger, place.units.dataset, "a sweep", 3600)


REFUSED: dict[str, tuple[str, str, Mapping[str, Any], str, Callable[[Place], object] | None]] = {
    "by the function": ("release", "release none", {"name": "none", **SAID}, "No hold named none is in force. `retention hold", None),
    "by the request": ("unmark", "unmark", {"policy": "old", "reason": " "}, "reason: is empty (found ' '); expected some words.", None),
    "a name of the system's": ("release", "release held", {**SAID, "name": "held", "actor": "::system"}, "actor: begins with ::", None),
    "a name that is near": ("explain", "explain lake/a S4", {"dataset": "lake/a", "transaction": "S4"}, "Did you mean S3, S2 or S1?", None),
    "without a confirmation": (
        "change_realm", "realm acme", {"name": "acme", "status": "PURGING", **SAID},
        "Only holds stop it. The marks are due at once. To confirm, add --yes, or set `yes: true` in the launchpad.", None,
    ),
    "no ledger": ("unmark", "unmark", {"policy": "old", **SAID}, "no ledger yet at sqlite:///", no_ledger),
    "a result that is a fault": ("audit_verify", "audit verify", {"actor": "ann"}, "1 faults: the record was", changed_past_ledger),
    "a result with failures": ("housekeeping", "housekeeping", {"as_of": DAY}, "is being swept by a sweep", leased),
    "broken policies": ("preview", "plan", {"as_of": DAY}, "Did you mean older_than?", broken_policies),
}  # fmt: skip


@pytest.mark.parametrize(("job", "words", "form", "sentence", "prepare"), REFUSED.values(), ids=REFUSED)
def test_command_and_job_refuse_with_the_same_sentence_and_change_nothing(
    place: Place, job: str, words: str, form: Mapping[str, Any], sentence: str, prepare: Callable[[Place], object] | None
) -> None:
    place.begin(prepare)
    ledger = place.lake.folder / "ledger.db"
    before = place.record() if ledger.exists() else None
    _, by_command = place.command(typed(job, words, form))
    _, by_job = place.job(OPERATIONS[job].job, form)
    assert by_command == by_job
    assert sentence in (by_job or "")
    assert (place.record() if ledger.exists() else None) == before

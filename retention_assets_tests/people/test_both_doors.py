"""Each operation through both of its doors, the command and the Dagster job: one result, one record, one refusal.

Belongs here: that it makes no difference where somebody asks. What an operation does in every case is tested where it is done
(commands, dagster/test_operation_jobs.py, ledger, sweep).
"""

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner

from retention_assets.cli import retention
from retention_assets.definitions import build_defs
from retention_assets.errors import BadInput, Refused
from retention_assets.ledger.scans import ScanEnd, ScanStatus, scan_lease
from retention_assets.policy.durations import text_of
from retention_assets.policy.model import Hold
from retention_assets_tests.dagster.launch import without_run
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.ledger.states import take_lease
from retention_assets_tests.stores.records.environments import Units
from retention_assets_tests.sweep.lakes import DUE, OLD, Lake

SOME = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@1d=10"
ORPHAN = {"dataset": "lake/odd", "transaction": "T2", "parent": "T1", "type": "APPEND", "opened_at": "2026-01-01T00:00:00Z"}
DAY = ("--as-of", text_of(DUE))
Changes = Mapping[str, list[tuple[Any, ...]]]


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

    def begin(self, prepare: Callable[["Place"], object]) -> None:
        """As it was at the beginning, and then as a case wants it."""
        shutil.rmtree(self.lake.folder)
        shutil.copytree(self.beginning, self.lake.folder)
        prepare(self)

    def command(self, arguments: tuple[str, ...]) -> tuple[Any, str | None]:
        """What the command prints as JSON, and the sentence with which it refuses."""
        settings = {"RETENTION_CONFIG": str(self.lake.folder / "retention.yaml")}
        ran = CliRunner(env=settings).invoke(retention, [*arguments, "--format", "json"], standalone_mode=False)
        if ran.exception is None:
            return json.loads(ran.stdout), ran.stderr.strip() if ran.return_value == 1 else None
        assert isinstance(ran.exception, BadInput | Refused), ran.exception
        return None, str(ran.exception)

    def job(self, name: str, config: Mapping[str, Any]) -> tuple[Mapping[str, Any], str | None]:
        """What the run shows, and the sentence with which it fails."""
        job = self.defs.resolve_job_def(name)
        ran = job.execute_in_process(run_config=dict(config), instance=self.instance, raise_on_error=False)
        if ran.success:
            (event,) = [event for event in ran.all_events if event.is_successful_output]
            shown = {key: value.value for key, value in event.step_output_data.metadata.items()}
            return {key: without_run(value) for key, value in shown.items()}, None
        (event,) = ran.get_step_failure_events()
        failed = event.step_failure_data.user_failure_data
        assert failed is not None, event.step_failure_data.error
        return {}, without_run(failed.description or "")

    def record(self) -> Changes:
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
        row["detail"] = {
            name: value for name, value in json.loads(row["detail"]).items() if name not in ("rows", "position", "hash")
        }
    return row


def _is_chance(column: str) -> bool:
    chance = {"act", "changed_act", "digest", "hash", "id", "position", "previous", "seal", "token", "looked_at", "at"}
    return column in chance or (column.endswith("_at") and column not in ("due_at", "marked_at"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A lake with four marks, one hold and three logs that are odd; and a database in which one row must not expire yet."""
    folder = tmp_path_factory.mktemp("doors")
    lake = Lake(folder / "lake").has(SOME, "lake/a").has(SOME, "lake/b")
    lake.has("main: A:APPEND!@5d - B:APPEND?@1d", "lake/none")
    lake.says(OLD, "{name: kept, datasets: 'lake/legal', reason: law}")
    (lake.folder / "ods.db").touch()
    units = Units(f"sqlite:///{lake.folder / 'ods.db'}", ttl={"document_ttl": "180d"})
    units.has("open", closed=None, kind="RECALL", expires="2026-04-08 00:00:00").has("done", expires="2026-04-08 09:00:00")
    settings = json.loads((lake.folder / "retention.yaml").read_text())
    for name, words in (("objects/used", "."), ("refs/a.jsonl", '{"object": "used"}\n{"complete": true, "count": 1}\n')):
        (lake.folder / name).parent.mkdir()
        (lake.folder / name).write_text(words)
    blobs = {"name": "blobs", "kind": "objects", "listing": {"path": "objects"}, "references": [{"lines": "refs/*.jsonl"}]}
    (lake.folder / "retention.yaml").write_text(
        json.dumps({**settings, "stores": [*settings["stores"], units.settings, blobs]})
    )
    assert lake.marks() == 4
    (lake.folder / "log" / "odd.jsonl").write_text(json.dumps({**ORPHAN, "status": "OPEN"}) + "\n")
    with lake.opened() as ledger:
        held = {"name": "held", "datasets": {"include": ["lake/x"]}, "reason": "r", "owner": "test"}
        ledger.holds.place(Hold.model_validate(held), "test")
    with dg.instance_for_test() as instance:
        yield Place(lake, units, instance, folder / "beginning")


def nothing(_: Place) -> None:
    """The beginning is as the case wants it."""


@dataclass(frozen=True)
class Case:
    """One request through both doors; `shown` makes of the command's JSON what the run shows, where that is less."""

    command: tuple[str, ...]
    job: str
    config: Mapping[str, Any]
    acts: tuple[tuple[str, str, str | None], ...] = ()
    prepare: Callable[[Place], object] = nothing
    shown: Callable[[Any], Mapping[str, Any]] = lambda printed: {name: one for name, one in printed.items() if one is not None}


WHY = ("--reason", "a test", "--actor", "ann")
SAID = {"reason": "a test", "actor": "ann"}


def pick(*names: str) -> Callable[[Any], Mapping[str, Any]]:
    return lambda printed: {name: printed[name] for name in names}


def counts_of_preview(printed: Any) -> Mapping[str, Any]:
    return {
        "as_of": printed["as_of"], "refused": len(printed["refused"]), "would_mark": len(printed["newly_marked"]),
        "would_delete": len(printed["deleted"]), "would_free": printed["totals"]["deleted"]["bytes"],
        "would_spare": len(printed["spared"]),
    }  # fmt: skip


def revoked(place: Place) -> None:
    with place.lake.opened() as ledger:
        ledger.policy_book.revoke("old", "test", "r")


def has_a_realm(place: Place) -> None:
    place.lake._log("lake/a", ['{"dataset": "lake/a", "realm": "acme"}'])


def purging_has_a_grace(place: Place) -> None:
    has_a_realm(place)
    with place.lake.opened() as ledger:
        ledger.realms.change("acme", "INACTIVE", "test", "r")


def changed_past_ledger(place: Place) -> None:
    with sqlite3.connect(place.lake.folder / "ledger.db") as connection:
        connection.execute("UPDATE holds SET owner = 'x'")
    connection.close()


def a_branch_keeps_one(place: Place) -> None:
    place.lake.branches("keep", "S1", "lake/a")


def kept_before(place: Place) -> None:
    place.lake.marks()
    said = {"name": "mine", "datasets": {"include": ["lake/a"]}, "transactions": ["S1"], "reason": "r", "owner": "test"}
    with place.lake.opened() as ledger:
        ledger.unmark.transactions("lake/a", ["S1"], "test", "r")
        ledger.holds.place(Hold.model_validate(said), "test")


def braked(place: Place) -> None:
    with place.lake.opened() as ledger:
        lease = take_lease(ledger, scan_lease("blobs"), "test")
        ledger.scans.end(lease, ledger.scans.begin(lease), ScanEnd(ScanStatus.BRAKED, "9 of 10 name nothing", {}, None))
        ledger.leases.give_up([lease])


POSTPONED = ("POSTPONE", "ann", "They are unfinished, not archived, or held.")
DONE: dict[str, Case] = {
    "unmark some": Case(
        ("unmark", "lake/a", "S1", "S2", *WHY),
        "unmark", {"dataset": "lake/a", "transactions": ["S1", "S2"], **SAID}, (("UNMARK", "ann", "a test"),),
    ),
    "keep some": Case(
        ("keep", "lake/a", "S2", "S1", "S3", *WHY),
        "keep", {"dataset": "lake/a", "transactions": ["S2", "S1", "S3"], **SAID},
        (("UNMARK", "ann", "a test"), ("HOLD", "ann", "a test")),
    ),
    "keep a dataset until a day": Case(
        ("keep", "lake/b", "--until", "2999-01-01", "--name", "all of b", *WHY),
        "keep", {"dataset": "lake/b", "until": "2999-01-01", "name": "all of b", **SAID},
        (("UNMARK", "ann", "a test"), ("HOLD", "ann", "a test")),
    ),
    "explain what is marked": Case(
        ("explain", "lake/a", "S1", *DAY),
        "explain", {"dataset": "lake/a", "transaction": "S1", "as_of": text_of(DUE)},
        shown=pick("dataset", "transaction", "as_of", "verdict", "policy", "message", "mark"),
    ),
    "history": Case(
        ("history", "lake/a", *DAY), "history", {"dataset": "lake/a", "as_of": text_of(DUE)},
        shown=lambda printed: {**pick("dataset", "as_of")(printed), "transactions": len(printed["transactions"])},
    ),
    "hold": Case(
        ("hold", "--name", "h", "--dataset", "lake/*", "--transaction", "S*", "--until", "2999-01-01", *WHY),
        "hold", {"name": "h", "datasets": ["lake/*"], "transactions": ["S*"], "until": "2999-01-01", **SAID},
        (("HOLD", "ann", "a test"),),
    ),
    "release": Case(
        ("release", "held", *WHY),
        "release", {"name": "held", **SAID}, (("RELEASE", "ann", "a test"),),
    ),
    "advance": Case(
        ("advance", "lake/a", "--retention", "30d", "--as-of", text_of(AS_OF), "--actor", "ann"),
        "advance_visibility", {"dataset": "lake/a", "retention": "30d", "as_of": text_of(AS_OF), "actor": "ann"},
        (("ADVANCE", "ann", "retention of 30 days as of 2026-03-31T12:00:00Z"),),
    ),
    "advance by the policy files, which say nothing of it": Case(
        ("advance", "--as-of", text_of(AS_OF), "--actor", "ann"),
        "advance_visibility", {"as_of": text_of(AS_OF), "actor": "ann"},
    ),
    "realm": Case(
        ("realm", "acme", "--status", "INACTIVE", "--grace", "9d", *WHY),
        "change_realm", {"name": "acme", "status": "INACTIVE", "grace": "9d", **SAID},
        (("REALM", "ann", "a test"),),
    ),
    "purge a realm": Case(
        ("realm", "acme", "--status", "PURGING", "--yes", *WHY),
        "change_realm", {"name": "acme", "status": "PURGING", "yes": True, **SAID},
        (("REALM", "ann", "a test"),), purging_has_a_grace,
    ),
    "overwrite a policy": Case(
        ("policies", "overwrite", "old", *WHY),
        "policy_overwrite", {"name": "old", **SAID}, (("POLICY", "ann", "a test"),), revoked,
    ),
    "revoke a policy": Case(
        ("policies", "revoke", "old", *WHY),
        "policy_revoke", {"name": "old", **SAID},
        (("POLICY", "ann", "a test"),),
    ),
    "verify": Case(
        ("audit", "verify", "--actor", "ann"),
        "audit_verify", {"actor": "ann"}, (("VERIFY", "ann", None),),
    ),
    "accept": Case(
        ("audit", "accept", *WHY),
        "audit_accept", {**SAID},
        (("HEAD", "ann", None), ("ACCEPT", "ann", "a test")),
    ),
    "accept a row that was changed": Case(
        ("audit", "accept", *WHY),
        "audit_accept", {**SAID}, (("HEAD", "ann", None), ("ACCEPT", "ann", "a test")),
        changed_past_ledger,
    ),
    "vouch for the clock": Case(
        ("clock", "accept", *DAY, "--actor", "ann"),
        "clock_accept", {"as_of": text_of(DUE), "actor": "ann"},
        (("CLOCK", "ann", None),),
    ),
    "reset the clock": Case(
        ("clock", "reset", "--as-of", text_of(AS_OF - timedelta(days=1)), *WHY),
        "clock_reset", {"as_of": text_of(AS_OF - timedelta(days=1)), **SAID},
        (("UNMARK", "ann", "a test"), ("CLOCK", "ann", "a test")),
    ),
    "accept a scan": Case(
        ("scans", "blobs", "accept", "1", *WHY), "scan_accept", {"store": "blobs", "scan": 1, **SAID},
        (("ACCEPT_SCAN", "ann", "a test"),), braked,
    ),
    "preview": Case(
        ("run", "--dry-run", *DAY, "--dataset", "lake/*"),
        "preview", {"as_of": text_of(DUE), "datasets": ["lake/*"]}, shown=counts_of_preview, prepare=a_branch_keeps_one,
    ),
    "housekeeping": Case(
        ("housekeeping", *DAY, "--actor", "ann"),
        "housekeeping", {"as_of": text_of(DUE), "actor": "ann"}, (POSTPONED,),
    ),
    "housekeeping of one store, dry": Case(
        ("housekeeping", *DAY, "--store", "ods", "--dry-run"),
        "housekeeping", {"as_of": text_of(DUE), "stores": ["ods"], "dry_run": True},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DONE.values(), ids=DONE)
def test_both_doors_do_the_same(place: Place, case: Case) -> None:
    place.begin(case.prepare)
    before = place.record()
    printed, refused = place.command(case.command)
    assert refused is None
    by_command, acts = place.record(), place.acts()
    place.begin(case.prepare)
    shown, refused = place.job(case.job, case.config)
    assert refused is None
    expected = {name: value for name, value in case.shown(printed).items() if not name.endswith("_at")}
    assert {name: shown[name] for name in expected} == expected
    assert place.record() == by_command
    assert tuple(place.acts()) == tuple(acts) == case.acts
    assert (by_command != before) == bool(case.acts)


def test_the_file_of_a_preview_is_what_the_command_prints(place: Place) -> None:
    case = DONE["preview"]
    place.begin(case.prepare)
    printed, _ = place.command(case.command)
    shown, _ = place.job(case.job, case.config)
    assert [(one["transaction"], one["dataset"]) for one in printed["spared"]] == [("S1", "lake/a")]
    assert json.loads(Path(shown["file"]).read_text()) == printed


# --- refusals ---


def broken_policies(place: Place) -> None:
    place.lake.says("{name: p, datasets: {include: ['lake/*']}, select: {oldr_than: 30d}}")


def leased(place: Place) -> None:
    with place.lake.opened() as ledger:
        take_lease(ledger, place.units.dataset, "a sweep", 3600)


def swept(place: Place) -> None:
    place.lake.sweeps(DUE)


def no_ledger(place: Place) -> None:
    (place.lake.folder / "ledger.db").unlink()


def kept_scan(place: Place) -> None:
    with place.lake.opened() as ledger:
        lease = take_lease(ledger, scan_lease("blobs"), "test")
        ledger.scans.end(lease, ledger.scans.begin(lease), ScanEnd(ScanStatus.KEPT, None, {}, None))
        ledger.leases.give_up([lease])


RELEASE = ("release", "none", *WHY)
# The command, the job, its form, the sentence of both; and what was done before.
REFUSED: dict[str, tuple[tuple[str, ...], str, Mapping[str, Any], str, Callable[[Place], object]]] = {
    "all marks or none": (
        ("unmark", "lake/a", "S1", "S3", *WHY), "unmark", {"dataset": "lake/a", "transactions": ["S1", "S3"], **SAID},
        "S3 of lake/a is not marked and never was. `retention marks --dataset lake/a` lists what is.\nNothing was taken back.",
        nothing,
    ),
    "keeping what was swept": (
        ("keep", "lake/a", "S1", "S3", *WHY), "keep", {"dataset": "lake/a", "transactions": ["S1", "S3"], **SAID},
        "its bytes are gone, and no mark can bring them back.\nNothing was changed.", swept,
    ),
    "keeping under the name of another hold": (
        ("keep", "lake/a", "--name", "held", *WHY), "keep", {"dataset": "lake/a", "name": "held", **SAID},
        "A hold named held is in force, and is about something else.", nothing,
    ),
    "explaining a name that is near": (
        ("explain", "lake/a", "S4"), "explain", {"dataset": "lake/a", "transaction": "S4"},
        "transaction 'S4' is not in the log of lake/a. Did you mean S3, S2 or S1?", nothing,
    ),
    "a blank reason": (
        ("unmark", "--policy", "old", "--reason", " "), "unmark", {"policy": "old", "reason": " "},
        "reason: is empty (found ' '); expected some words. The record keeps who did what, and why.", nothing,
    ),
    "a name of the system's": (
        ("release", "held", "--reason", "r", "--actor", "::system"), "release", {"name": "held", "reason": "r", "actor": "::system"},
        "actor: begins with ::, as only the system's names do (found '::system')", nothing,
    ),
    "no ledger": (
        ("unmark", "--policy", "old", *WHY), "unmark", {"policy": "old", **SAID}, "no ledger yet at sqlite:///", no_ledger,
    ),
    "a hold that is past": (
        ("hold", "--name", "h", "--dataset", "lake/a", "--until", "2001-01-01", *WHY),
        "hold", {"name": "h", "datasets": ["lake/a"], "until": "2001-01-01", **SAID},
        "until: is past (found 2001-01-01T00:00:00Z); expected an instant to come", nothing,
    ),
    "a hold of no store": (
        ("hold", "--name", "h", "--dataset", "a", *WHY), "hold", {"name": "h", "datasets": ["a"], **SAID},
        "hold: datasets.include[0]: ", nothing,
    ),
    "a record that was changed": (
        ("audit", "verify", "--actor", "ann"), "audit_verify", {"actor": "ann"},
        "1 faults: the record does not say what was written.", changed_past_ledger,
    ),
    "a scan that is kept": (
        ("scans", "blobs", "accept", "1", *WHY), "scan_accept", {"store": "blobs", "scan": 1, **SAID},
        "Scan 1 of blobs is kept: only a braked one waits for somebody to accept it.", kept_scan,
    ),
    "no such hold": (
        RELEASE, "release", {"name": "none", **SAID},
        "No hold named none is in force. `retention hold --list` shows those that are.", nothing,
    ),
    "a hold of a file": (
        ("release", "kept", *WHY), "release", {"name": "kept", **SAID},
        "The hold kept stands in a policy file: it is released by taking it out of the file.", nothing,
    ),
    "visibility of no store": (
        ("advance", "laek/a", "--retention", "1d"), "advance_visibility", {"dataset": "laek/a", "retention": "1d"},
        "dataset: the settings have no store named laek (found 'laek/a'). Did you mean lake?", nothing,
    ),
    "purging in passing": (
        ("realm", "acme", "--status", "PURGING", "--grace", "9d", *WHY),
        "change_realm", {"name": "acme", "status": "PURGING", "grace": "9d", **SAID},
        "Nothing was changed. Purging acme: the next evaluation marks everything of it, whatever the policies say; holds still stop"
        " it. The marks are due 9 days later. If that is meant, say --yes, or set `yes: true` in a launchpad.", has_a_realm,
    ),
    "purging by a typo": (
        ("realm", "acm", "--status", "PURGING", "--yes", *WHY),
        "change_realm", {"name": "acm", "status": "PURGING", "yes": True, **SAID},
        "Nothing was changed. No store knows a realm acm. Did you mean acme? If it is meant all the same, say --anyway, or set"
        " `anyway: true` in a launchpad.", has_a_realm,
    ),
    "overwriting from no file": (
        ("policies", "overwrite", "odl", *WHY), "policy_overwrite", {"name": "odl", **SAID},
        "name: 'odl' is not in the policy files. Did you mean old?", nothing,
    ),
    "revoking what is not there": (
        ("policies", "revoke", "odl", *WHY), "policy_revoke", {"name": "odl", **SAID},
        "No policy named odl is in force. `retention policies` lists those that are.", nothing,
    ),
    "a preview by broken policies": (
        ("run", "--dry-run", *DAY), "preview", {"as_of": text_of(DUE)}, "Did you mean older_than?", broken_policies,
    ),
    "housekeeping where nothing expires": (
        ("housekeeping", "--store", "lake"), "housekeeping", {"stores": ["lake"]},
        "The store lake expires nothing by itself, so there is nothing to postpone: its settings have no `ttl`.", nothing,
    ),
    "housekeeping during a sweep": (
        ("housekeeping", *DAY), "housekeeping", {"as_of": text_of(DUE)},
        "ods/unit_of_work: ods/unit_of_work is being swept by a sweep", leased,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("command", "job", "config", "sentence", "prepare"), REFUSED.values(), ids=REFUSED)
def test_both_doors_refuse_with_the_same_sentence_and_change_nothing(
    place: Place,
    command: tuple[str, ...],
    job: str,
    config: Mapping[str, Any],
    sentence: str,
    prepare: Callable[[Place], object],
) -> None:
    place.begin(prepare)
    ledger = place.lake.folder / "ledger.db"
    before = place.record() if ledger.exists() else None
    _, by_command = place.command(command)
    _, by_job = place.job(job, config)
    assert by_command == by_job
    assert sentence in (by_job or "")
    assert (place.record() if ledger.exists() else None) == before

"""Every kind of edit past the ledger, in every table that decides anything: verifying names the row.

Belongs here: one ledger with a row of each kind, and what somebody with a database's prompt might do to it. What is done to the
chain itself is in test_audit.py as well; what a sweep refuses is in sweep tests.
"""

from datetime import date, timedelta

import pyarrow as pa
import pytest
from sqlalchemy import Boolean, Column, Connection, Date, Table, Text, text

from retention_assets.ledger import (
    ALL_NAMES,
    DatasetPart,
    Ledger,
    NotedPlace,
    OpenedReport,
    Planned,
    Publication,
    ScanEnd,
    ScanStatus,
    Settlement,
    Violation,
    remember_places,
    scan_lease,
)
from retention_assets.ledger.audit.rows import SEALED
from retention_assets.ledger.schema import METADATA
from retention_assets.outcomes import Outcome
from retention_assets.policy.durations import Duration
from retention_assets.policy.model import Hold, Policy
from retention_assets.sql.columns import InstantColumn
from retention_assets_tests.ledger.states import LATER, T0, candidates, ids, plan_of, raise_visibility, take_lease

DAY = date(2026, 1, 8)
POLICY = {"name": "p", "datasets": {"include": ("lake/*",)}, "select": "all"}


def hold(name: str, **more: object) -> Hold:
    return Hold.model_validate({"name": name, "datasets": ["lake/*"], "reason": "law", "owner": "legal", **more})


def build(ledger: Ledger) -> Ledger:
    """A row of every kind: every end of a mark, holds in force and over, of files too, a realm, policies, a report."""
    ledger.policy_book.write(Policy.model_validate(POLICY), "ann")
    ledger.policy_book.write(Policy.model_validate({**POLICY, "grace": "3d"}), "ann")
    ledger.holds.place(hold("case-1", transactions=["T9*"], until="2099-01-01T00:00:00Z"), "ann")
    ledger.holds.place(hold("case-2"), "ann")
    ledger.holds.release("case-2", "bob", "over")
    ledger.holds.note_files([hold("filed"), hold("gone")], "run")
    ledger.holds.note_files([hold("filed")], "run")
    ledger.realms.change("acme", "INACTIVE", "ann", "a reason", Duration(days=3))
    ledger.realms.change("beta", "PURGING", "ann", "a reason")
    raise_visibility(ledger, "lake/d", T0)
    raise_visibility(ledger, "lake/e", T0)
    ledger.clock.check(T0, None)
    ledger.clock.accept(LATER, "ann", "right")
    look = {"rules": "r", "looked_at": T0, "next_look": T0}
    looks = pa.Table.from_pylist([{"dataset": "lake/d", "token": "t", **look}, {"dataset": "lake/f", "token": None, **look}])
    published = [Publication("log", "lake/d", "w/log/r1", "r1"), Publication("log", "lake/e", "w/log/r1", "r1")]
    ledger.marks.mark(candidates(["T1", "T2", "T3", "T4", "T5"]), T0, "run", published=published, evaluations=[looks])
    ledger.publications.publish([Publication("log", "lake/e", "w/log/r2", "r2")], "run")
    ledger.objections.object({"lake/x": "a reason", "lake/y": "another"}, "some_check", "run")
    ledger.objections.withdraw(["lake/y"], "some_check", "run")
    ledger.places.note({"lake": "/data"}, "run", "The store joins.", {})
    ledger.database.write(lambda tx: remember_places(tx, [NotedPlace("/w/HEAD.json", None, True)], "run"))
    ledger.reports.open(DAY, {"lake/d": OpenedReport(classes={"due": 5})}, LATER, "sweeper", {"lake/d": 5})
    ledger.reports.note_look(LATER, "run", 2)
    scans = take_lease(ledger, scan_lease("blobs"), "run")
    for end in (
        ScanEnd(ScanStatus.KEPT, None, {"scanned": 1}, "{}"),
        ScanEnd(ScanStatus.BRAKED, "9 of 10", {"scanned": 9}, "{}"),
    ):
        ledger.scans.end(scans, ledger.scans.begin(scans), end)
    ledger.scans.accept("blobs", 2, "ann", "right")
    ledger.unmark.transactions("lake/d", ["T1"], "ann", "still needed")
    lease = take_lease(ledger)
    ledger.sweeps.spare([lease], {ids(ledger, "T2")[0]: "a tag"}, DAY)
    plan = plan_of(ledger, lease, {mark: Planned(7, f"note {mark}") for mark in ids(ledger, "T3", "T4", "T5")})
    begun = sorted(ledger.sweeps.begin([lease], [plan], ids(ledger, "T3", "T4")).marks)
    ends = [Settlement(begun[0], Outcome.DELETED, 10), Settlement(begun[1], Outcome.FAILED, 0, "no")]
    ledger.sweeps.settle([lease], ends, DAY)
    ledger.sweeps.finish([lease], [plan])
    again = plan_of(ledger, lease, ids(ledger, "T5"))
    ledger.sweeps.begin([lease], [again], ids(ledger, "T5"))
    part = DatasetPart(lease, 1, ALL_NAMES, 1)
    ledger.parts.leave(ledger.parts.join(part).lease)
    ledger.leases.give_up([ledger.leases.beat([lease]).leases[lease.dataset]])
    take_lease(ledger, "lake/e", "another")
    ledger.sweep_runs.stop("sweeper", "a reason")
    ledger.sweep_runs.beat("sweeper")
    for progress in ("a", "b"):
        ledger.sweep_runs.report("sweeper", 0, progress)
    for _ in range(2):
        ledger.sweep_runs.reserve({"p": timedelta(hours=1), "q": timedelta(hours=1)})
    for datasets in (("lake/d", "lake/e"), ("lake/d",)):
        standing = {name: Violation(name, "is wrong") for name in datasets}
        ledger.violations.update("some_check", standing, None, T0, "run")
        ledger.violations.note_whole_look("some_check", T0)
    return ledger


def same(table: str, where: str, *values: str) -> str:
    """A statement that adds a row like another one, with other values in its columns."""
    names = [column.name for column in METADATA.tables[table].columns]
    new = dict(one.split("=", 1) for one in values)
    listed = ", ".join(f'"{name}"' for name in names)
    return f"INSERT INTO {table} ({listed}) SELECT {', '.join(new.get(name, f'{chr(34)}{name}{chr(34)}') for name in names)} FROM {table} WHERE {where}"


def swap(table: str, column: str, one: str, other: str) -> list[str]:
    """Two rows exchange a value."""
    moves = ((one, "between"), (other, one), ("between", other))
    return [f"UPDATE {table} SET {column} = '{new}' WHERE {column} = '{old}'" for old, new in moves]


DEFINES = ("CREATE", "ALTER", "DROP")
T = {f"T{number}": f"\"transaction\" = 'T{number}'" for number in range(1, 6)}
HELD, OVER = "name = 'case-1'", "name = 'case-2'"
FILED = "name = 'filed'"
# By table: a name, the statements, and what a fault says of the row.
EDITS: dict[str, tuple[list[str] | str, str]] = {
    # Holds.
    "holds: other datasets": (f"UPDATE holds SET content = replace(content, 'lake/*', 'lake/z') WHERE {HELD}", "of holds was changed past the ledger: it says {"),
    "holds: released in silence": (f"UPDATE holds SET released_at = placed_at, released_by = 'x' WHERE {HELD}", "of holds was changed"),
    "holds: in force again": (f"UPDATE holds SET released_at = NULL WHERE {OVER}", "of holds was changed"),
    "holds: removed": (f"DELETE FROM holds WHERE {HELD}", 'of holds was removed past the ledger; row 3 of the audit (HOLD) recorded {"datasets": {"include": ["lake/*"]}'),
    "holds: added": (same("holds", HELD, "id=id+1", "name='new'"), "of holds was added past the ledger"),
    "holds: moved": (f"UPDATE holds SET id = id + 1 WHERE {HELD}", "of holds was removed past the ledger"),
    "holds: swapped": (swap("holds", "name", "case-1", "case-2"), "of holds was changed"),
    # Holds of files.
    "file holds: other words": (f"UPDATE file_holds SET content = 'x' WHERE {FILED}", "of file_holds was changed"),
    "file holds: back": ("UPDATE file_holds SET gone_at = NULL WHERE name = 'gone'", "of file_holds was changed"),
    "file holds: removed": (f"DELETE FROM file_holds WHERE {FILED}", "of file_holds was removed"),
    # Realms.
    "realms: another state": ("UPDATE realms SET status = 'PURGING' WHERE name = 'acme'", 'Row acme of realms was changed past the ledger: it says {"act"'),
    "realms: removed": ("DELETE FROM realms WHERE name = 'acme'", "Row acme of realms was removed"),
    "realms: added": (same("realms", "name = 'beta'", "name='new'"), "Row new of realms was added past the ledger: no act wrote it"),
    "realms: moved": ("UPDATE realms SET name = 'other' WHERE name = 'beta'", "Row beta of realms was removed"),
    "realms: swapped": (swap("realms", "name", "acme", "beta"), "Row beta of realms was changed"),
    # The policy book.
    "policies: other words": ("UPDATE policy_versions SET content = replace(content, '3d', '1d') WHERE version = 2", "Row p, 2 of policy_versions was changed"),
    "policies: removed": ("DELETE FROM policy_versions WHERE version = 2", "Row p, 2 of policy_versions was removed"),
    "policies: added": (same("policy_versions", "version = 1", "version=3"), "Row p, 3 of policy_versions was added"),
    "policies: swapped": (
        ["UPDATE policy_versions SET version = -version + 100", "UPDATE policy_versions SET version = version - 97"], "Row p, 1 of policy_versions was changed",
    ),
    # Visibility.
    "visibility: lowered": ("UPDATE visibility SET visible_from = (SELECT due_by FROM reports) WHERE dataset = 'lake/d'", "Row lake/d of visibility was changed"),
    "visibility: removed": ("DELETE FROM visibility WHERE dataset = 'lake/d'", "Row lake/d of visibility was removed"),
    "visibility: added": (same("visibility", "dataset = 'lake/d'", "dataset='lake/z'"), "Row lake/z of visibility was added"),
    "visibility: moved": ("UPDATE visibility SET dataset = 'lake/z' WHERE dataset = 'lake/d'", "Row lake/d of visibility was removed"),
    # The clock.
    "clock: accepted": ("UPDATE clock SET accepted_until = (SELECT until FROM holds WHERE until IS NOT NULL)", "Row 1 of clock was changed"),
    "clock: next id": ("UPDATE clock SET next_mark = 2", "The clock says that the next mark is 2, and there is a mark 5"),
    "clock: next id is taken": ("UPDATE clock SET next_mark = 5", "The clock says that the next mark is 5, and there is a mark 5"),
    "clock: removed": ("DELETE FROM clock", "Row 1 of clock was removed"),
    # Objections.
    "objections: taken back": ("UPDATE objections SET withdrawn_at = raised_at WHERE dataset = 'lake/x'", "Row lake/x, some_check of objections was changed"),
    "objections: removed": ("DELETE FROM objections WHERE dataset = 'lake/x'", "Row lake/x, some_check of objections was removed"),
    "objections: standing again": ("UPDATE objections SET withdrawn_at = NULL WHERE dataset = 'lake/y'", "Row lake/y, some_check of objections was changed"),
    # Plans and what is planned.
    "plans: as of": ("UPDATE plans SET as_of = planned_at WHERE finished_at IS NOT NULL", "of plans was changed"),
    "plans: going on": ("UPDATE plans SET finished_at = NULL", "of plans was changed"),
    "plans: removed": (["DELETE FROM planned WHERE plan = (SELECT id FROM plans WHERE finished_at IS NULL)", "DELETE FROM plans WHERE finished_at IS NULL"], "of plans was removed"),
    "plans: added": (same("plans", "finished_at IS NULL", "id=id+1"), "of plans was added"),
    "planned: a note": ("UPDATE planned SET note = 'x' WHERE mark = 3", "Mark 3 of plan "),
    "planned: another mark": ("UPDATE planned SET mark = 1 WHERE mark = 3", "Mark 1 of plan "),
    "planned: removed": ("DELETE FROM planned WHERE mark = 3", "(PLAN) is about 3 planned marks, and there are 2"),
    "planned: added": (same("planned", "mark = 3", "mark=1"), "Mark 1 of plan "),
    "planned: without a seal": ("UPDATE planned SET seal = '' WHERE mark = 3", "Mark 3 of plan "),
    "planned: sealed anew": ("UPDATE planned SET seal = 'x' WHERE mark = 3", "(PLAN) is about other planned marks than there are"),
    # Marks: what is set once, and their lives.
    **{
        f"marks: {column}": (f"UPDATE marks SET {column} = {value} WHERE {T['T5']}", "Mark 5 (")
        for column, value in {
            '"transaction"': "'T9'", "dataset": "'lake/z'", "policy": "'x'", "policy_version": "2", "reason": "'x'", "bytes": "1",
            "grace": "'1d'", "due_at": "marked_at",
        }.items()
    },
    "marks: of another act": ("UPDATE marks SET act = act + 1 WHERE id = 5", "there are 4. Removed: 5."),
    "marks: swapped": (
        ["UPDATE marks SET id = -id WHERE id IN (1, 2)", "UPDATE marks SET id = 3 + id WHERE id < 0"], "Mark 1 (T2 of lake/d) was changed",
    ),
    "marks: removed": (["DELETE FROM steps WHERE mark = 2", "DELETE FROM marks WHERE id = 2"], "(MARK) is about 5 marks, and there are 4. Removed: 2."),
    "marks: added": (same("marks", "id = 1", "id=99"), "Mark 99 (T1 of lake/d) was changed"),
    "marks: taken back again": (f"UPDATE marks SET status = 'MARKED' WHERE {T['T1']}", "Mark 1 (T1 of lake/d) is said to be MARKED"),
    "marks: why it was taken back": (f"UPDATE marks SET why = 'x' WHERE {T['T1']}", "Mark 1 (T1 of lake/d) was changed: its why is x, and its steps say still needed."),
    "marks: why it was spared": (f"UPDATE marks SET why = NULL WHERE {T['T2']}", "Mark 2 (T2 of lake/d) was changed: its why is None, and its steps say a tag."),
    "marks: a why that nobody gave": (f"UPDATE marks SET why = 'x' WHERE {T['T3']}", "Mark 3 (T3 of lake/d) was changed: its why is x, and its steps say None."),
    "marks: attempts": (f"UPDATE marks SET attempts = 0 WHERE {T['T4']}", "Mark 4 (T4 of lake/d) was changed: its attempts is 0, and its steps say 1."),
    "marks: attempts that nobody made": (f"UPDATE marks SET attempts = 3 WHERE {T['T5']}", "Mark 5 (T5 of lake/d) was changed: its attempts is 3, and its steps say 0."),
    "marks: the last error": (f"UPDATE marks SET last_error = 'x' WHERE {T['T4']}", "Mark 4 (T4 of lake/d) was changed: its last_error is x, and its steps say no."),
    "marks: who changed it": (f"UPDATE marks SET changed_by = 'x' WHERE {T['T1']}", "Mark 1 (T1 of lake/d) was changed: its changed_by is x, and its steps say ann."),
    "marks: when it changed": (f"UPDATE marks SET changed_at = marked_at WHERE {T['T1']}", "Mark 1 (T1 of lake/d) was changed: its changed_at is 2026-01-01"),
    "marks: by which act": (f"UPDATE marks SET changed_act = act WHERE {T['T1']}", "Mark 1 (T1 of lake/d) is said to be UNMARKED"),
    # Steps and outcomes.
    "steps: why": ("UPDATE steps SET why = 'x' WHERE mark = 1", "The step of mark 1 to UNMARKED was changed"),
    "steps: an outcome": ("UPDATE steps SET outcome = 'ALREADY_GONE' WHERE mark = 3 AND outcome IS NOT NULL", "The step of mark 3 to SWEPT was changed"),
    "steps: a state": ("UPDATE steps SET status = 'SPARED' WHERE mark = 1", "The step of mark 1 to SPARED was changed"),
    "steps: removed": ("DELETE FROM steps WHERE mark = 3 AND outcome IS NOT NULL", "(SETTLE) is about 2 steps, and there are 1"),
    "steps: added": (same("steps", "mark = 1", "mark=2"), "The step of mark 2 to UNMARKED was changed"),
    "steps: moved": ("UPDATE steps SET mark = 5 WHERE mark = 1", "The step of mark 5 to UNMARKED was changed"),
    # Reports.
    "reports: less to delete": ("UPDATE reports SET to_delete = to_delete - 1", "Row 2026-01-08, lake/d of reports was changed"),
    "reports: another day": ("UPDATE reports SET execution_date = '2026-01-09'", "Row 2026-01-08, lake/d of reports was removed"),
    "reports: removed": ("DELETE FROM reports", "Row 2026-01-08, lake/d of reports was removed"),
    # Days on which somebody looked.
    "days: nothing was due": ("UPDATE days SET due = 0", "Row 2026-01-08 of days was changed"),
    "days: nobody looked": ("DELETE FROM days", "Row 2026-01-08 of days was removed"),
    # Scans.
    "places: another": ("UPDATE places SET place = '/x' WHERE id = 1", "Row 1 of places was changed"),
    "places: removed": ("DELETE FROM places", "Row 1 of places was removed"),
    "noted heads: elsewhere": ("UPDATE noted_heads SET place = '/x'", "of noted_heads was added"),
    "noted heads: removed": ("DELETE FROM noted_heads", "of noted_heads was removed"),
    "scans: kept": ("UPDATE scans SET status = 'kept' WHERE id = 2", "Row 2 of scans was changed"),
    "scans: accepted in silence": ("UPDATE scans SET accepted_at = started_at, accepted_by = 'x' WHERE id = 1", "Row 1 of scans was changed"),
    "scans: removed": ("DELETE FROM scans WHERE id = 2", "Row 2 of scans was removed"),
    "scans: added": (same("scans", "id = 2", "id=3"), "Row 3 of scans was added"),
    # What is published.
    "published: another folder": ("UPDATE published SET folder = 'x' WHERE dataset = 'lake/d'", "Row log, lake/d of published was changed"),
    "published: an older folder": ("UPDATE published SET folder = 'w/log/r1', run = 'r1' WHERE dataset = 'lake/e'", "Row log, lake/e of published was changed"),
    "published: removed": ("DELETE FROM published WHERE dataset = 'lake/e'", "Row log, lake/e of published was removed"),
    "published: added": (same("published", "dataset = 'lake/d'", "dataset='lake/z'"), "Row log, lake/z of published was added"),
    "published: swapped": (swap("published", "dataset", "lake/d", "lake/e"), "Row log, lake/d of published was changed"),
    # What no act is about.
    "leases: another holder": ("UPDATE leases SET holder = 'x' WHERE dataset = 'lake/e'", "Row lake/e of leases was changed or added past the ledger"),
    "leases: held for ever": ("UPDATE leases SET given_up = NOT given_up WHERE dataset = 'lake/d'", "Row lake/d of leases was changed or added"),
    "leases: removed": ("DELETE FROM leases WHERE dataset = 'lake/e'", "The table leases has 2 rows, and the ledger wrote 3: at least one was added or removed"),
    "leases: added": (same("leases", "dataset = 'lake/d'", "dataset='lake/z'"), "Row lake/z of leases was changed or added"),
    "lease parts: another attempt": ("UPDATE lease_parts SET attempt = 9", "Row lake/d, 1 of lease_parts was changed or added"),
    "lease parts: removed": ("DELETE FROM lease_parts", "The table lease_parts has 0 rows, and the ledger wrote 1"),
    "paces: not before": ("UPDATE paces SET next_at = (SELECT max(until) FROM holds) WHERE policy = 'p'", "Row p of paces was changed or added"),
    "paces: removed": ("DELETE FROM paces WHERE policy = 'q'", "The table paces has 1 rows, and the ledger wrote 2"),
    "looks: not before": ("UPDATE looks SET next_look = NULL WHERE dataset = 'lake/d'", "Row lake/d of looks was changed or added"),
    "looks: removed": ("DELETE FROM looks WHERE dataset = 'lake/f'", "The table looks has 1 rows, and the ledger wrote 2"),
    "stops: another reason": ("UPDATE stops SET reason = 'x'", "Row sweeper of stops was changed or added"),
    "stops: removed": ("DELETE FROM stops", "The table stops has 0 rows, and the ledger wrote 1"),
    "violations: over": ("UPDATE violations SET over_at = since WHERE dataset = 'lake/d'", "Row some_check, lake/d of violations was changed or added"),
    "violations: removed": ("DELETE FROM violations", "The table violations has 0 rows, and the ledger wrote 2"),
    "whole checks: another time": ("UPDATE whole_checks SET looked_at = (SELECT max(until) FROM holds)", "Row some_check of whole_checks was changed or added"),
    "whole checks: removed": ("DELETE FROM whole_checks", "The table whole_checks has 0 rows, and the ledger wrote 1"),
    "task progress: another": ("UPDATE task_progress SET progress = 'x' WHERE task = 0", "Row sweeper, 0 of task_progress was changed or added"),
    "row counts: one less": (["DELETE FROM stops", "UPDATE row_counts SET rows = 0 WHERE name = 'stops'"], "Row stops of row_counts was changed or added"),
    "clock: next id is far": ("UPDATE clock SET next_mark = 1000", "The clock says that the next mark is 1000, and there is a mark 5; by the record it is 6"),
    # The chain.
    "audit: an act removed": ("DELETE FROM audit WHERE deed = 'HOLD' AND position = 3", "Row 3 of the audit is missing"),
    "audit: the end removed": (
        [
            "DELETE FROM audit WHERE position = (SELECT max(position) FROM audit)",
            "UPDATE audit_head SET position = (SELECT max(position) FROM audit), hash = (SELECT hash FROM audit ORDER BY position DESC LIMIT 1)",
        ],
        "The audit knows nothing of 1 steps",
    ),
    "audit: what an act said": ("UPDATE audit SET detail = '{}' WHERE deed = 'REALM'", "(REALM) was changed"),
    "audit: the head": ("UPDATE audit_head SET hash = 'x'", "The head of the audit says that it ends with row"),
    "audit: another ledger": ("UPDATE audit_head SET ledger = 'x'", "The head of the audit says that this is ledger x"),
}  # fmt: skip


def named(ledger: Ledger, statements: list[str] | str, sentence: str) -> None:
    """Somebody writes past the ledger: a fault names the row. Nothing of it stays."""
    from retention_assets.ledger import verify

    engine = ledger.database.engine
    with engine.connect() as connection:
        with connection.begin() as transaction:
            for statement in [statements] if isinstance(statements, str) else statements:
                assert connection.execute(text(statement)).rowcount or statement.split()[0] in DEFINES, statement
            faults = verify(connection).faults
            transaction.rollback()
        assert [fault for fault in faults if sentence in fault], faults


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_past_the_ledger_is_named(on_file: Ledger, edit: str) -> None:
    named(on_file, *EDITS[edit])


def test_there_are_as_many_kinds_of_edits_as_somebody_may_think_of() -> None:
    assert len(EDITS) > 100
    tables = {edit.partition(":")[0] for edit in EDITS}
    assert {name.replace("_", " ").replace("policy versions", "policies") for name in map(str, SEALED)} <= tables


def another(column: Column[object], kind: str) -> str:
    """Another value of the type of a column, as a statement has it."""
    name = f'"{column.name}"'
    if (table := column.table) is not None and column.name in ("status", "outcome"):
        other = {"realms": "ACTIVE", "scans": "superseded"}.get(str(table), "UNMARKED" if column.name == "status" else "HIDDEN")
        return f"CASE WHEN {name} = '{other}' THEN 'SPARED' ELSE '{other}' END"
    if isinstance(column.type, Boolean):
        return f"NOT coalesce({name}, {'0' if kind == 'sqlite' else 'false'})"
    if isinstance(column.type, Date):
        return "'2031-01-01'"
    if isinstance(column.type, Text):
        return f"coalesce({name}, '') || 'x'"
    if kind == "postgresql" and isinstance(column.type, InstantColumn):
        return f"coalesce({name}, '2031-01-01Z') + INTERVAL '1 microsecond'"
    return f"coalesce({name}, 0) + 1000"


# An id that nothing but this row says: "one" stands in its table's condition, so that another value can't be written.
# A ledger of another revision is refused before anybody verifies it.
UNCHANGED = {("clock", "id"), ("audit_head", "id"), ("ledger_revision", "revision")}


def unseen(connection: Connection, table: Table, column: Column[object], value: str) -> list[str]:
    """The rows in which a column is given another value past the ledger, and no fault names their table."""
    from retention_assets.ledger import verify

    keys = [key.name for key in table.primary_key]
    listed = ", ".join(f'"{name}"' for name in keys)
    rows = connection.exec_driver_sql(f"SELECT {listed} FROM {table.name} ORDER BY {listed} LIMIT 6").all()
    assert rows, f"no row of {table.name}"
    missed = []
    for row in rows:
        with connection.begin_nested() as savepoint:
            where = " AND ".join(f'"{name}" = :key_{name}' for name in keys)
            parameters = {f"key_{name}": key for name, key in zip(keys, row, strict=True)}
            done = connection.execute(text(f'UPDATE {table.name} SET "{column.name}" = {value} WHERE {where}'), parameters)
            assert done.rowcount == 1
            # The next id is compared with the newest mark and not sealed.
            name = f"of {table.name} was" if table in SEALED and column.name != "next_mark" else ""
            if not [fault for fault in verify(connection).faults if name in fault]:
                missed.append(f"{column} of {row} to {value}")
            savepoint.rollback()
    return missed


@pytest.mark.parametrize("table", METADATA.sorted_tables, ids=str)
def test_another_value_in_any_column_of_any_table_is_found(on_file: Ledger, table: Table) -> None:
    with on_file.database.engine.connect() as connection, connection.begin() as transaction:
        connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
        columns = [column for column in table.columns if (table.name, column.name) not in UNCHANGED]
        missed = [row for column in columns for row in unseen(connection, table, column, another(column, "sqlite"))]
        # A file takes a value of any type; a whole number alone is a row id.
        typed = [column for column in columns if not (column.primary_key and len(table.primary_key) == 1)]
        for value in ("'no value'", "x'ff00'", "1e300"):
            missed += [row for column in typed for row in unseen(connection, table, column, value)]
        assert missed == []
        transaction.rollback()


@pytest.mark.parametrize("table", METADATA.sorted_tables, ids=str)
def test_another_value_in_any_column_of_any_table_is_found_on_postgresql(on_server: Ledger, table: Table) -> None:
    with on_server.database.engine.connect() as connection, connection.begin() as transaction:
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        columns = [column for column in table.columns if (table.name, column.name) not in UNCHANGED]
        missed = [row for column in columns for row in unseen(connection, table, column, another(column, "postgresql"))]
        assert missed == []
        transaction.rollback()


FOREIGN = {
    "CREATE TRIGGER undo AFTER UPDATE ON marks BEGIN UPDATE marks SET status = 'MARKED'; END": "The trigger undo on marks is not",
    "CREATE TABLE theirs (id INTEGER)": "The table theirs in the ledger's file is not",
    "CREATE VIEW theirs AS SELECT * FROM marks": "The view theirs in the ledger's file is not",
    "CREATE INDEX theirs ON marks (status)": "The index theirs on marks is not",
    "DROP INDEX uq_marks_open": "The index uq_marks_open of the ledger is missing",
}


@pytest.mark.parametrize("statement", FOREIGN)
def test_what_is_in_a_file_and_is_not_the_ledgers_is_named(on_file: Ledger, statement: str) -> None:
    named(on_file, statement, FOREIGN[statement])


FUNCTION = "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
ON_SERVER = {
    "CREATE TRIGGER undo BEFORE UPDATE ON marks FOR EACH ROW EXECUTE FUNCTION nothing()": "The trigger undo on marks is not",
    "CREATE RULE keep AS ON UPDATE TO holds DO INSTEAD NOTHING": "The rule keep on holds is not",
    "ALTER TABLE holds ENABLE ROW LEVEL SECURITY": "The row level security holds on holds is not",
    "CREATE TABLE more () INHERITS (holds)": "The table that inherits more on holds is not",
}


@pytest.mark.parametrize("statement", ON_SERVER)
def test_what_acts_on_the_ledgers_tables_on_a_server_is_named_and_sweeps_nothing(on_server: Ledger, statement: str) -> None:
    from retention_assets.ledger import rule_faults

    with on_server.database.engine.connect() as connection, connection.begin() as transaction:
        connection.execute(text(FUNCTION))
        connection.execute(text(statement))
        assert [words for _, words in rule_faults(connection) if ON_SERVER[statement] in words]
        transaction.rollback()
    named(on_server, [FUNCTION, statement], ON_SERVER[statement])


def test_another_table_in_the_schema_of_a_server_is_a_remark(on_server: Ledger) -> None:
    from retention_assets.ledger import verify

    with on_server.database.engine.connect() as connection, connection.begin() as transaction:
        connection.execute(text("CREATE TABLE runs (id INTEGER)"))
        result = verify(connection)
        transaction.rollback()
    assert (result.faults, result.remarks) == ((), ("The table runs in the ledger's schema is not the ledger's.",))


# Where PostgreSQL's foreign keys stand in the way, the edit can't be made.
GUARDED = {"marks: swapped", "planned: another mark"}


@pytest.mark.parametrize("table", sorted({edit.partition(":")[0] for edit in EDITS}))
def test_an_edit_past_the_ledger_is_named_on_postgresql(on_server: Ledger, table: str) -> None:
    for edit, (statements, sentence) in EDITS.items():
        if edit.partition(":")[0] == table and edit not in GUARDED:
            named(on_server, statements, sentence)
    assert on_server.verify().faults == ()

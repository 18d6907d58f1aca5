"""Every kind of edit past the ledger, in every table that decides anything: verifying names the row."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from itertools import cycle, islice, product
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import Boolean, Column, Connection, Date, Table, Text, event, select, text, true, tuple_, update
from sqlalchemy.exc import IntegrityError

from retention_assets.errors import Refused
from retention_assets.ledger import (
    ALL_NAMES,
    AskedBy,
    DatasetPart,
    Ledger,
    NotedPlace,
    OpenedReport,
    Planned,
    Publication,
    ScanEnd,
    ScanStatus,
    Settlement,
    TransactionLife,
    Violation,
    due_mark_faults,
    life_of,
    open_ledger,
    remember_places,
    rule_faults,
    scan_lease,
    verify,
)
from retention_assets.ledger.audit.chain import mark_seals
from retention_assets.ledger.audit.rows import SEALED
from retention_assets.ledger.schema import METADATA
from retention_assets.outcomes import Order, Outcome
from retention_assets.policy import Duration, Hold, Policy
from retention_assets.sql.columns import IdsColumn, InstantColumn
from retention_assets_tests.databases import new_schema
from retention_assets_tests.ledger.states import (
    LATER,
    T0,
    candidates,
    ids,
    plan_of,
    raise_visibility,
    store,
    take_lease,
    write_past_ledger,
)
from retention_assets_tests.ledger.test_invariants import INVARIANTS, ask
from retention_assets_tests.rounds import rounds

DAY = date(2026, 1, 8)
FAR = LATER + timedelta(days=1_000)
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


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """A ledger that has everything. Each test undoes what it did."""
    is_file = request.param == "sqlite"
    file = tmp_path_factory.mktemp("built") / "ledger.db"
    with open_ledger(f"sqlite:///{file}" if is_file else new_schema(request.getfixturevalue("server"))) as ledger:
        assert build(ledger).verify().faults == ()
        if is_file:
            event.listen(ledger.database.engine, "checkout", lambda driver, *_: driver.execute("PRAGMA foreign_keys = OFF"))
        yield ledger


IN_A_FILE = pytest.mark.parametrize("built", ["sqlite"], indirect=True)
ON_A_SERVER = pytest.mark.parametrize("built", ["postgresql"], indirect=True)


@contextmanager
def undone(ledger: Ledger) -> Iterator[Connection]:
    """A connection of somebody who writes past the ledger and minds no foreign keys. Nothing of it stays."""
    with ledger.database.engine.connect() as connection, connection.begin() as transaction:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        yield connection
        transaction.rollback()


def same(table: str, where: str, *values: str) -> str:
    """A statement that adds a row like another one, with other values in its columns."""
    names = [column.name for column in METADATA.tables[table].columns]
    new = dict(one.split("=", 1) for one in values)
    listed = ", ".join(f'"{name}"' for name in names)
    return f"INSERT INTO {table} ({listed}) SELECT {', '.join(new.get(name, f'{chr(34)}{name}{chr(34)}') for name in names)} FROM {table} WHERE {where}"


def swap(table: str, column: str, one: str, other: str) -> list[str]:
    moves = ((one, "between"), (other, one), ("between", other))
    return [f"UPDATE {table} SET {column} = '{new}' WHERE {column} = '{old}'" for old, new in moves]


DEFINES = ("CREATE", "ALTER", "DROP")
T = {f"T{number}": f"\"transaction\" = 'T{number}'" for number in range(1, 6)}
HELD = "name = 'case-1'"
# By table: a name, the statements, and what a fault says of the row.
EDITS: dict[str, tuple[list[str] | str, str]] = {
    # Holds.
    "holds: other datasets": (f"UPDATE holds SET content = replace(content, 'lake/*', 'lake/z') WHERE {HELD}", "of holds was changed past the ledger: it contains {"),
    "holds: removed": (f"DELETE FROM holds WHERE {HELD}", 'of holds was removed past the ledger; row 3 of the audit (HOLD) recorded {"datasets": {"include": ["lake/*"]}'),
    "holds: swapped": (swap("holds", "name", "case-1", "case-2"), "of holds was changed"),
    # Realms.
    "realms: added": (same("realms", "name = 'beta'", "name='new'"), "Row new of realms was added past the ledger: no act wrote it"),
    "realms: swapped": (swap("realms", "name", "acme", "beta"), "Row beta of realms was changed"),
    # The policy book.
    "policies: swapped": (
        ["UPDATE policy_versions SET version = -version + 100", "UPDATE policy_versions SET version = version - 97"], "Row p, 1 of policy_versions was changed",
    ),
    # The clock.
    "clock: next id is taken": ("UPDATE clock SET next_mark = 5", "The clock names 5 as the next mark, but a mark 5 exists"),
    # Plans and what is planned.
    "plans: removed": (["DELETE FROM planned WHERE plan = (SELECT id FROM plans WHERE finished_at IS NULL)", "DELETE FROM plans WHERE finished_at IS NULL"], "of plans was removed"),
    "planned: a note": ("UPDATE planned SET note = 'x' WHERE mark = 3", "Mark 3 of plan "),
    "planned: removed": ("DELETE FROM planned WHERE mark = 3", "(PLAN) counts 3 planned marks, but there are 2"),
    "planned: sealed anew": ("UPDATE planned SET seal = 'x' WHERE mark = 3", "(PLAN) names other planned marks than there are"),
    # Marks: what is set once, and their lives.
    "marks: of another act": ("UPDATE marks SET act = act + 1 WHERE id = 5", "there are 4. Removed: 5."),
    "marks: swapped": (
        ["UPDATE marks SET id = -id WHERE id IN (1, 2)", "UPDATE marks SET id = 3 + id WHERE id < 0"], "Mark 1 (T2 of lake/d) was changed",
    ),
    "marks: removed": ("DELETE FROM marks WHERE id = 2", "(MARK) counts 5 marks, but there are 4. Removed: 2."),
    "marks: added": (same("marks", "id = 1", "id=99"), "Mark 99 (T1 of lake/d) was changed"),
    "marks: taken back again": (f"UPDATE marks SET status = 'MARKED' WHERE {T['T1']}", "Mark 1 (T1 of lake/d) has the status MARKED"),
    "marks: why it was taken back": (f"UPDATE marks SET why = 'x' WHERE {T['T1']}", "The end of mark 1 was changed"),
    "marks: by which act": (f"UPDATE marks SET changed_act = act WHERE {T['T1']}", "Mark 1 (T1 of lake/d) has the status UNMARKED"),
    # Steps and outcomes.
    "steps: removed": ("DELETE FROM steps WHERE mark = 4 AND outcome IS NOT NULL", "(SETTLE) counts 2 steps, but there are 1"),
    "marks: its bytes": ("UPDATE marks SET freed = 11 WHERE id = 3", "The end of mark 3 was changed"),
    "batches: of other marks": ("UPDATE batches SET last = last + 1 WHERE open_ids IS NULL", "was changed: its hash is wrong"),
    "batches: settled": ("UPDATE batches SET open_ids = NULL WHERE open_ids IS NOT NULL", "Mark 5 (T5 of lake/d) was changed past the ledger: the batch that"),
    "batches: not settled": ("UPDATE batches SET open_ids = ids WHERE open_ids IS NULL", "Mark 4 (T4 of lake/d) was changed past the ledger: the batch that"),
    "batches: removed": ("DELETE FROM batches WHERE open_ids IS NOT NULL", "(BEGIN) counts 1 members, but there are none."),
    # What is published.
    "published: swapped": (swap("published", "dataset", "lake/d", "lake/e"), "Row log, lake/d of published was changed"),
    # What no act is about.
    "leases: removed": ("DELETE FROM leases WHERE dataset = 'lake/e'", "The table leases has 2 rows, and the ledger wrote 3: rows were added or removed"),
    "row counts: one less": (["DELETE FROM stops", "UPDATE row_counts SET rows = 0 WHERE name = 'stops'"], "Row stops of row_counts was changed or added"),
    "clock: next id is far": ("UPDATE clock SET next_mark = 1000", "The clock names 1000 as the next mark, but a mark 5 exists and the record names 6"),
    # The chain.
    "audit: an act removed": ("DELETE FROM audit WHERE deed = 'HOLD' AND position = 3", "Row 3 of the audit is missing"),
    "audit: the end removed": (
        [
            "DELETE FROM audit WHERE position = (SELECT max(position) FROM audit)",
            "UPDATE audit_head SET position = (SELECT max(position) FROM audit), hash = (SELECT hash FROM audit ORDER BY position DESC LIMIT 1)",
        ],
        "The audit does not know 1 batches",
    ),
    "audit: another ledger": ("UPDATE audit_head SET ledger = 'x'", "The head of the audit names ledger x"),
}  # fmt: skip


def named(ledger: Ledger, statements: list[str] | str, sentence: str) -> None:
    """Somebody writes past the ledger: a fault names the row."""
    with undone(ledger) as connection:
        for statement in [statements] if isinstance(statements, str) else statements:
            assert connection.execute(text(statement)).rowcount or statement.split()[0] in DEFINES, statement
        faults = verify(connection).faults
    assert [fault for fault in faults if sentence in fault], faults


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_past_the_ledger_is_named(built: Ledger, edit: str) -> None:
    named(built, *EDITS[edit])


def another(column: Column[object], kind: str) -> str:
    name = f'"{column.name}"'
    if (table := column.table) is not None and column.name in ("status", "outcome"):
        other = {"realms": "ACTIVE", "scans": "superseded"}.get(str(table), "UNMARKED" if column.name == "status" else "HIDDEN")
        return f"CASE WHEN {name} = '{other}' THEN 'SPARED' ELSE '{other}' END"
    if isinstance(column.type, IdsColumn):
        return f"coalesce({name}, ids) || 1000" if kind == "postgresql" else f"replace(coalesce({name}, ids), '[', '[1000,')"
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

# Values of other types, which a file takes. Where one means what was there (a truth), a sweep goes on, and verifying names it.
ODD = ("'no value'", "x'ff00'", "1e300")
# What a sweep looks at before it begins.
RULES = ("holds", "file_holds", "realms", "policy_versions", "visibility", "clock", "objections", "places", "noted_heads")


def is_missed(connection: Connection, table: Table, statement: str, **values: object) -> bool:
    """Whether a row is written past the ledger and the record, or what a sweep looks at before it begins, has no fault of it."""
    with connection.begin_nested() as savepoint:
        try:
            assert connection.execute(text(statement), values).rowcount == 1, statement
        except IntegrityError:
            # An index has it once.
            assert statement.startswith("INSERT")
            savepoint.rollback()
            return False
        # The next id is compared with the newest mark and not sealed.
        name = f"of {table.name} was" if table in SEALED and "next_mark" not in statement else ""
        looks = [[*verify(connection).faults]]
        if table.name in RULES and not any(value in statement for value in ODD):
            looks.append([words for _, words in rule_faults(connection)])
        savepoint.rollback()
    return not all(any(name in fault for fault in faults) for faults in looks)


def missed(connection: Connection, table: Table, values: Mapping[str, str], odd: Sequence[str]) -> list[str]:
    """Edits of rows, at most three of a file and two on a server, that nobody sees: another or an odd value, a removal, a second row."""
    keys = [key.name for key in table.primary_key]
    listed = ", ".join(f'"{name}"' for name in keys)
    most = len(ODD) if connection.dialect.name == "sqlite" else 2
    rows = connection.exec_driver_sql(f"SELECT {listed} FROM {table.name} ORDER BY {listed} LIMIT {rounds(most)}").all()
    assert rows, f"no row of {table.name}"
    where = " AND ".join(f'"{name}" = :key_{name}' for name in keys)
    found = []
    for at, row in enumerate(rows):
        # Each column has each odd value in one row, and all of them where there are few.
        several = product(odd, ODD) if len(rows) < rounds(most) else zip(odd, islice(cycle(ODD), at, None), strict=False)
        updates = [*values.items(), *(several if at < len(ODD) else ())]
        edits = [f'UPDATE {table.name} SET "{name}" = {value} WHERE {where}' for name, value in updates]
        if table.name not in ("ledger_revision", "audit_head", "clock"):
            new = same(table.name, where, f"{keys[-1]}={another(table.c[keys[-1]], connection.dialect.name)}")
            edits += [f"DELETE FROM {table.name} WHERE {where}", new]
        parameters = {f"key_{name}": key for name, key in zip(keys, row, strict=True)}
        found += [f"{row}: {edit}" for edit in edits if is_missed(connection, table, edit, **parameters)]
    return found


@pytest.mark.parametrize("table", METADATA.sorted_tables, ids=str)
def test_any_row_of_any_table_that_is_changed_in_any_column_removed_or_added_is_found(built: Ledger, table: Table) -> None:
    kind = built.database.engine.dialect.name
    columns = [column for column in table.columns if (table.name, column.name) not in UNCHANGED]
    values = {column.name: another(column, kind) for column in columns}
    odd: list[str] = []
    with undone(built) as connection:
        if kind == "sqlite":
            connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
            # A file takes a value of any type; a whole number alone is a row id.
            odd = [one.name for one in columns if not (one.primary_key and len(table.primary_key) == 1)]
        assert missed(connection, table, values, odd) == []


FOREIGN = {
    "CREATE TRIGGER undo AFTER UPDATE ON marks BEGIN UPDATE marks SET status = 'MARKED'; END": "The trigger undo on marks is not",
    "CREATE TABLE theirs (id INTEGER)": "The table theirs in the ledger's file is not",
    "CREATE VIEW theirs AS SELECT * FROM marks": "The view theirs in the ledger's file is not",
    "CREATE INDEX theirs ON marks (status)": "The index theirs on marks is not",
    "DROP INDEX uq_marks_open": "The index uq_marks_open of the ledger is missing",
}


@IN_A_FILE
@pytest.mark.parametrize("statement", FOREIGN)
def test_what_is_in_a_file_and_is_not_the_ledgers_is_named(built: Ledger, statement: str) -> None:
    named(built, statement, FOREIGN[statement])


FUNCTION = "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
ON_SERVER = {
    "CREATE TRIGGER undo BEFORE UPDATE ON marks FOR EACH ROW EXECUTE FUNCTION nothing()": "The trigger undo on marks is not",
    "CREATE RULE keep AS ON UPDATE TO holds DO INSTEAD NOTHING": "The rule keep on holds is not",
    "ALTER TABLE holds ENABLE ROW LEVEL SECURITY": "The row level security holds on holds is not",
    "CREATE TABLE more () INHERITS (holds)": "The table that inherits more on holds is not",
}


@ON_A_SERVER
@pytest.mark.parametrize("statement", ON_SERVER)
def test_what_acts_on_the_ledgers_tables_on_a_server_is_named_and_sweeps_nothing(built: Ledger, statement: str) -> None:
    with undone(built) as connection:
        connection.execute(text(FUNCTION))
        connection.execute(text(statement))
        assert [words for _, words in rule_faults(connection) if ON_SERVER[statement] in words]
    named(built, [FUNCTION, statement], ON_SERVER[statement])


def faults_after(ledger: Ledger, statements: list[str] | str, *datasets: str) -> list[str]:
    with undone(ledger) as connection:
        for statement in [statements] if isinstance(statements, str) else statements:
            assert connection.exec_driver_sql(statement.replace("%", "%%")).rowcount, statement
        faults = [*rule_faults(connection), *due_mark_faults(connection, datasets or ["lake/d"], LATER)]
    return [sentence for _, sentence in faults]


@pytest.mark.parametrize("edit", [edit for edit in EDITS if edit.partition(":")[0] in RULES])
def test_a_sweep_names_every_row_of_the_rules_that_was_changed(built: Ledger, edit: str) -> None:
    statements, sentence = EDITS[edit]
    assert [fault for fault in faults_after(built, statements) if sentence in fault]


MARKS = {
    "another transaction": ("UPDATE marks SET \"transaction\" = 'T9' WHERE id = 5", "Mark 5 (T9 of lake/d) was changed"),
    "due earlier": ("UPDATE marks SET due_at = marked_at WHERE id = 4", "Mark 4 (T4 of lake/d) was changed"),
    "brought back": ("UPDATE marks SET status = 'MARKED' WHERE id = 1", "Mark 1 (T1 of lake/d) has the status MARKED"),
    "not begun": ("UPDATE batches SET open_ids = NULL WHERE open_ids IS NOT NULL", "Mark 5 (T5 of lake/d) was changed past"),
    "of a batch that was changed": (
        "UPDATE batches SET begun_by = 'x' WHERE open_ids IS NOT NULL",
        "was changed: its hash is wrong",
    ),
    "of a batch that is open again": (
        "UPDATE batches SET open_ids = ids WHERE open_ids IS NULL",
        "Mark 4 (T4 of lake/d) was changed past",
    ),
    "no attempt": ("UPDATE marks SET attempts = 0 WHERE id = 4", "its attempts is 0, but by its steps it is 1"),
    "changed at another time": (
        "UPDATE marks SET changed_at = marked_at WHERE id = 4",
        "Mark 4 (T4 of lake/d) was changed: its changed_at",
    ),
    "of an act that marks nothing": (
        "UPDATE marks SET act = (SELECT act FROM audit WHERE deed = 'UNMARK') WHERE id = 4",
        "Marks 4 to 4 (lake/d among others) were added past the ledger",
    ),
    "of no act": ("UPDATE marks SET act = 1 WHERE id = 4", "Marks 4 to 4 (lake/d among others) were added past the ledger"),
    "an act that was changed": ("UPDATE audit SET actor = 'x' WHERE deed = 'RELEASE'", "(RELEASE) was changed"),
}


def replays(ledger: Ledger, *ends: Outcome) -> None:
    """A person has T3 deleted again, which was deleted before; and it is settled, if an end is given."""
    lease, (mark,) = take_lease(ledger), ids(ledger, "T3")
    assert ledger.trash.begin([lease], [mark], Order.REPLAY, AskedBy("ann", "why")).marks == {mark: "lake/d"}
    ledger.sweeps.settle([lease], [Settlement(mark, end, 10) for end in ends], DAY)
    ledger.leases.give_up([lease])


REPLAYED = {
    "of another outcome": ("UPDATE steps SET outcome = 'FAILED' WHERE mark = 3", "The step of mark 3 to SWEPT was changed"),
    "of fewer bytes": ("UPDATE steps SET bytes = 9 WHERE mark = 3", "The step of mark 3 to SWEPT was changed"),
    "of another mark": ("UPDATE steps SET mark = 4 WHERE mark = 3", "The step of mark 4 to SWEPT was changed"),
    "removed": ("DELETE FROM steps WHERE mark = 3", "Mark 3 (T3 of lake/d) was changed past the ledger: the batch that"),
    "open again": (
        f"UPDATE batches SET open_ids = ids WHERE order_given = '{Order.REPLAY}'",
        "Mark 3 (T3 of lake/d) was changed past the ledger: the batch that",
    ),
}


@pytest.mark.parametrize("edit", REPLAYED)
def test_an_edited_step_of_a_replay_is_named(tmp_path: Path, edit: str) -> None:
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db", simulated=True) as ledger:
        build(ledger)
        replays(ledger, Outcome.DELETED)
        assert ledger.verify().faults == ()
        named(ledger, *REPLAYED[edit])


@pytest.mark.parametrize("column", ["\"transaction\" = 'T9'", "opened_at = marked_at", "outcome = 'ALREADY_GONE'", "act = 1"])
def test_a_deleted_mark_that_was_edited_is_not_replayed_and_stops_a_sweep_once_that_has_begun(
    tmp_path: Path, column: str
) -> None:
    with open_ledger(f"sqlite:///{tmp_path}/ledger.db", simulated=True) as ledger:
        build(ledger)
        (mark,) = ids(ledger, "T3")
        replays(ledger)
        assert faults_after(ledger, f"UPDATE marks SET {column} WHERE id = {mark}") != []
        lease = take_lease(ledger)
        ledger.sweeps.settle([lease], [Settlement(mark, Outcome.FAILED, 0, "no")], DAY)
        write_past_ledger(ledger, f"UPDATE marks SET {column} WHERE id = {mark}")
        with pytest.raises(Refused, match=r"Nothing was deleted\. "):
            ledger.trash.begin([lease], [mark], Order.REPLAY, AskedBy("ann", "why"))


@pytest.mark.parametrize("edit", MARKS)
def test_a_sweep_names_every_due_mark_that_was_changed(built: Ledger, edit: str) -> None:
    statement, sentence = MARKS[edit]
    faults = faults_after(built, statement)
    assert [fault for fault in faults if sentence in fault], faults


# A mark of the stored ledger in each state, and edits after which a sweep would act on it, or tell its store that it is gone.
STATES = {
    "MARKED": ("lake/m", "S1"), "SWEEPING": ("lake/m", "S3"), "failed": ("lake/d", "S4"), "UNMARKED": ("lake/m", "S2"),
    "SPARED": ("lake/u", "U5"), "SPARED by the upgrade": ("lake/k", "V1"), "RESTORED": ("lake/u", "U2"),
    "SET_ASIDE": ("lake/u", "U1"), "SWEPT": ("lake/d", "S1"), "deleted for good": ("lake/u", "U3"),
}  # fmt: skip
EDITED = {
    "MARKED": "status = 'MARKED'",
    "SWEPT": "status = 'SWEPT'",
    "deleted": "status = 'SWEPT', outcome = 'DELETED'",
    "SET_ASIDE": "status = 'SWEPT', outcome = 'SET_ASIDE', until = due_at",
}
_AS_THEY_ARE = {
    ("MARKED", "MARKED"), ("SWEEPING", "MARKED"), ("failed", "MARKED"), ("SET_ASIDE", "SWEPT"), ("SWEPT", "SWEPT"),
    ("SWEPT", "deleted"), ("deleted for good", "SWEPT"), ("deleted for good", "deleted"),
}  # fmt: skip


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """The ledger of 0.2.0, brought up to date. Each test undoes what it did."""
    folder = tmp_path_factory.mktemp("stored")
    is_file = request.param == "sqlite"
    url = f"sqlite:///{folder / 'ledger.db'}" if is_file else new_schema(request.getfixturevalue("server"))
    with open_ledger(store(url, folder), simulated=True) as ledger:
        yield ledger


@pytest.mark.parametrize(("state", "edit"), sorted({*product(STATES, EDITED)} - _AS_THEY_ARE))
def test_a_sweep_names_a_mark_whose_status_was_edited(stored: Ledger, state: str, edit: str) -> None:
    dataset, transaction = STATES[state]
    where = f"WHERE dataset = '{dataset}' AND \"transaction\" = '{transaction}'"
    with undone(stored) as connection:
        assert [*due_mark_faults(connection, [dataset], FAR)] == []
        assert connection.exec_driver_sql(f"UPDATE marks SET {EDITED[edit]} {where}").rowcount == 1
        assert [*due_mark_faults(connection, [dataset], FAR)]


RECORDS = {
    "a step and its mark": [
        "UPDATE steps SET until = until - 86400000000 WHERE outcome = 'SET_ASIDE'",
        "UPDATE marks SET until = until - 86400000000 WHERE outcome = 'SET_ASIDE'",
    ],
    "a step of a failure": ["UPDATE steps SET bytes = 7 WHERE outcome = 'FAILED'"],
    "a note": ["UPDATE planned SET note = 'x' WHERE note IS NOT NULL"],
    "the size of a plan": ["UPDATE planned SET bytes = 7"],
    "the plan of a batch": ["UPDATE batches SET plan = 7 WHERE open_ids IS NOT NULL"],
    "the ids of a batch": ["UPDATE batches SET ids = {ids} WHERE open_ids IS NOT NULL"],
    "the open ids of a batch": ["UPDATE batches SET open_ids = {ids} WHERE open_ids IS NOT NULL"],
}


@pytest.mark.parametrize("edit", RECORDS)
def test_a_sweep_names_what_was_edited_about_marks_that_have_not_ended(stored: Ledger, edit: str) -> None:
    is_file = stored.database.engine.dialect.name == "sqlite"
    statements = [each.format(ids="'[1]'" if is_file else "ARRAY[1]") for each in RECORDS[edit]]
    if not is_file:
        statements = [each.replace("until - 86400000000", "until - interval '1 day'") for each in statements]
    with undone(stored) as connection:
        datasets = ["lake/d", "lake/m", "lake/u"]
        assert [*due_mark_faults(connection, datasets, FAR)] == []
        for statement in statements:
            assert connection.exec_driver_sql(statement).rowcount
        assert [*due_mark_faults(connection, datasets, FAR)]


def test_marks_beyond_those_that_act_reserved_are_named(built: Ledger) -> None:
    """Sealed as the ledger seals: only the ids say that no act has made it."""
    row = built.marks.table(["lake/d"], ["MARKED"]).slice(0, 1)
    forged = row.set_column(0, "id", pa.array([99])).set_column(2, "transaction", pa.array(["LIVE"]))
    (seal,) = mark_seals(forged)
    names = ", ".join(f'"{name}"' for name in row.column_names if name not in ("id", "transaction", "seal"))
    statement = (
        f'INSERT INTO marks (id, "transaction", seal, {names}, changed_act)'
        f" SELECT 99, 'LIVE', '{seal}', {names}, changed_act FROM marks WHERE id = {row['id'][0].as_py()}"
    )
    assert "Marks 4 to 99 (lake/d among others) were added past the ledger: no act made them." in faults_after(built, statement)


def test_marks_that_are_not_due_and_other_datasets_stop_nobody(built: Ledger) -> None:
    assert faults_after(built, "UPDATE marks SET due_at = marked_at WHERE id = 4", "lake/other") == []
    assert faults_after(built, [], "lake/d", "lake/e") == []


def settles(ledger: Ledger) -> None:
    lease = take_lease(ledger)
    plan = plan_of(ledger, lease, ids(ledger), LATER + timedelta(days=1))
    (begun,) = ledger.sweeps.begin([lease], [plan], ids(ledger, "T1")).marks
    ledger.sweeps.settle([lease], [Settlement(begun, Outcome.DELETED, 10)], DAY)


LAUNDERED: dict[str, tuple[str, Callable[[Ledger], object], str]] = {
    "a hold that is released": (
        "UPDATE holds SET content = replace(content, 'lake/*', 'x/y') WHERE name = 'h'", lambda one: one.holds.release("h", "bob", "over"), "of holds",
    ),
    "a hold of a file that goes": ("UPDATE file_holds SET content = 'x'", lambda one: one.holds.note_files([], "run"), "of file_holds"),
    "a realm that goes on": ("UPDATE realms SET grace = 'P0D'", lambda one: one.realms.change("acme", "ACTIVE", "bob", "r"), "Row acme of realms"),
    "a clock that is accepted": (
        "UPDATE clock SET newest_seen_at = newest_mark_at", lambda one: one.clock.accept(LATER, "bob", "r"), "Row 1 of clock",
    ),
    "a clock that sees": (
        "UPDATE clock SET accepted_until = newest_mark_at", lambda one: one.clock.check(LATER, None), "Row 1 of clock",
    ),
    "a clock that marks": (
        "UPDATE clock SET accepted_until = newest_mark_at", lambda one: one.marks.mark(candidates(["T9"]), LATER, "run"), "Row 1 of clock",
    ),
    "a visibility mark that rises": (
        "UPDATE visibility SET raised_by = 'x'", lambda one: raise_visibility(one, "lake/d", LATER, "bob"), "Row lake/d of visibility",
    ),
    "an objection that is taken back": (
        "UPDATE objections SET sentence = 'x'", lambda one: one.objections.withdraw(["lake/d"], "c", "run"), "Row lake/d, c of objections",
    ),
    "a report that counts": ("UPDATE reports SET to_delete = 0", settles, "Row 2026-01-08, lake/d of reports"),
    "a report that counts what was taken back": (
        "UPDATE reports SET to_delete = 0", lambda one: one.unmark.all_of("bob", "r", "lake/d"), "Row 2026-01-08, lake/d of reports",
    ),
}  # fmt: skip


@pytest.fixture
def lived(ledger: Ledger) -> Ledger:
    ledger.holds.place(hold("h"), "ann")
    ledger.holds.note_files([hold("f")], "run")
    ledger.realms.change("acme", "INACTIVE", "ann", "r", Duration(days=3))
    raise_visibility(ledger, "lake/d", T0)
    ledger.objections.object({"lake/d": "a reason"}, "c", "run")
    ledger.clock.check(T0 + timedelta(hours=1), None)
    ledger.marks.mark(candidates(["T1", "T2"]), T0 + timedelta(hours=2), "run")
    ledger.reports.open(DAY, {"lake/d": OpenedReport(classes={"due": 2})}, LATER + timedelta(days=1), "sweeper")
    return ledger


@pytest.mark.parametrize("case", LAUNDERED)
def test_who_changes_a_row_next_does_not_seal_what_was_changed_past_the_ledger(lived: Ledger, case: str) -> None:
    statement, act, name = LAUNDERED[case]
    assert lived.verify().faults == ()
    assert write_past_ledger(lived, statement)
    act(lived)
    assert [fault for fault in lived.verify().faults if name in fault and "was changed past the ledger" in fault]
    # Until a person vouches for it.
    accepted = lived.accept("ann", "looked at", None)
    assert [fault for fault in accepted.faults if name in fault]
    assert lived.verify().faults == ()
    with lived.database.reading() as connection:
        assert [*rule_faults(connection)] == []


def test_a_row_that_was_removed_is_accepted_and_comes_back_by_an_act_alone(lived: Ledger) -> None:
    write_past_ledger(lived, "DELETE FROM realms")
    assert lived.accept("ann", "looked at", None).faults[0].startswith("Row acme of realms was removed past the ledger")
    assert lived.verify().faults == ()
    write_past_ledger(
        lived,
        "INSERT INTO realms (name, status, grace, changed_at, changed_by, act)"
        " SELECT 'acme', 'INACTIVE', '3d', placed_at, 'ann', act FROM holds",
    )
    assert [fault for fault in lived.verify().faults if "Row acme of realms was added past the ledger" in fault]


NEW = {
    "a new row": ("UPDATE realms SET grace = 'x' WHERE name = 'beta'", "Row beta of realms was changed"),
    "a new row removed": ("DELETE FROM realms WHERE name = 'beta'", "Row beta of realms was removed"),
    "a new mark": ("UPDATE marks SET policy = 'x' WHERE \"transaction\" = 'T8'", "(T8 of lake/d) was changed"),
    "a new step": ("UPDATE steps SET why = 'x'", "The step of mark 2 to MARKED was changed"),
    "a new end": ("UPDATE marks SET freed = 9 WHERE status = 'SWEPT'", "The end of mark 3 was changed"),
    "a new end removed": ("UPDATE marks SET end_seal = NULL WHERE status = 'SWEPT'", "(T8 of lake/d) has the status SWEPT"),
    "a new unmarking": ("UPDATE marks SET why = 'x' WHERE \"transaction\" = 'T1'", "The end of mark 1 was changed"),
    "a new unmarking by another": ("UPDATE marks SET changed_by = 'x' WHERE \"transaction\" = 'T1'", "its changed_by is x"),
    "a new batch": ("UPDATE batches SET begun_by = 'x'", "was changed: its hash is wrong"),
    "a new batch open again": ("UPDATE batches SET open_ids = ids", "Mark 3 (T8 of lake/d) was changed past the ledger"),
    "a new plan": ("UPDATE planned SET bytes = 99", "of plan"),
    "a new act": ("UPDATE audit SET actor = 'x' WHERE position = (SELECT max(position) FROM audit)", "was changed"),
    "the act up to which all was verified": (
        "UPDATE audit SET hash = 'x' WHERE position = (SELECT min(position) - 1 FROM audit WHERE deed = 'VERIFY')", "is not the row up to which",
    ),
    "what is new removed": (
        "DELETE FROM audit WHERE position > (SELECT min(position) FROM audit WHERE deed = 'VERIFY')", "are missing",
    ),
}  # fmt: skip


@pytest.mark.parametrize("edit", NEW)
def test_what_came_after_the_last_verification_is_verified_by_the_next_new_one(lived: Ledger, edit: str) -> None:
    lived.verify_and_record("ann")
    lived.realms.change("beta", "INACTIVE", "ann", "r")
    lived.marks.mark(candidates(["T8"]), T0 + timedelta(hours=3), "run")
    lived.unmark.transactions("lake/d", ["T1"], "ann", "r")
    lease = take_lease(lived)
    plan = plan_of(lived, lease, ids(lived, "T2", "T8"), LATER + timedelta(days=1))
    failed, gone = sorted(lived.sweeps.begin([lease], [plan], ids(lived, "T2", "T8")).marks)
    lived.sweeps.settle([lease], [Settlement(failed, Outcome.FAILED, 0, "no"), Settlement(gone, Outcome.DELETED, 10)])
    statement, sentence = NEW[edit]
    assert write_past_ledger(lived, statement)
    faults = lived.verify_and_record("ann", only_new=True).faults
    assert [fault for fault in faults if sentence in fault], faults
    # A verification with a fault is no act: the next one begins where this one did.
    assert lived.verify_and_record("ann", only_new=True).faults == faults


def test_what_was_verified_before_is_no_fault_of_what_is_new(ledger: Ledger) -> None:
    """Nothing is new, or a batch that was begun before is settled."""
    built = build(ledger)
    assert built.verify_and_record("ann").faults == ()
    assert built.verify_and_record("ann", only_new=True).faults == ()
    lease, (begun,) = take_lease(built), built.sweeps.planned(begun_in=["lake/d"])["id"].to_pylist()
    built.sweeps.settle([lease], [Settlement(begun, Outcome.DELETED, 10)], DAY)
    assert built.verify_and_record("ann", only_new=True).faults == ()
    assert built.verify().faults == ()


def test_ids_of_a_new_batch_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:
        ledger.marks.mark(candidates(["T1"]), T0, "run")
        assert ledger.verify_and_record("ann").faults == ()
        lease = take_lease(ledger)
        ledger.sweeps.begin([lease], [plan_of(ledger, lease, ids(ledger))], ids(ledger))
        for odd in ("'x'", "'[\"a\", 1]'"):
            write_past_ledger(ledger, f"UPDATE batches SET ids = {odd}")
            assert [one for one in ledger.verify_and_record("ann", only_new=True).faults if "The batch of act" in one]


def test_without_an_earlier_verification_a_new_one_is_of_everything(lived: Ledger) -> None:
    write_past_ledger(lived, "UPDATE holds SET reason = 'x'")
    assert [fault for fault in lived.verify_and_record("ann", only_new=True).faults if "of holds was changed" in fault]


def test_a_run_verifies_what_is_new_and_the_whole_once_a_day(lived: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lived.verify_in_run("run").rows > 3
    lived.realms.change("beta", "INACTIVE", "ann", "r")
    # The act of the verification, and that of the realm.
    assert lived.verify_in_run("run").rows == 2
    # Before the head: nobody sees it until all is verified.
    assert write_past_ledger(lived, "UPDATE marks SET policy = 'x' WHERE \"transaction\" = 'T1'")
    assert lived.verify_in_run("run").faults == ()
    # After the head: it is seen at once, and by each run until it is mended.
    lived.realms.change("gamma", "INACTIVE", "ann", "r")
    assert write_past_ledger(lived, "UPDATE realms SET grace = 'x' WHERE name = 'gamma'")
    for _ in range(2):
        (fault,) = lived.verify_in_run("run").faults
        assert "Row gamma of realms was changed" in fault
    with monkeypatch.context() as patched:
        patched.setattr("retention_assets.ledger.audit.verify.WHOLE_EVERY", timedelta(0))
        faults = lived.verify_in_run("run").faults
    assert {"T1 of lake/d" in fault for fault in faults} == {True, False}
    # An act that is said to be of everything and is not what was written puts nothing off.
    assert write_past_ledger(lived, "UPDATE audit SET actor = 'x' WHERE deed = 'VERIFY' AND position < 30")
    assert len(lived.verify_in_run("run").faults) > len(faults)


def test_the_act_of_a_hold_says_what_is_held(ledger: Ledger) -> None:
    ledger.holds.place(hold("case", transactions=["T*"], until="2099-01-01T00:00:00Z"), "ann")
    ledger.holds.note_files([hold("filed")], "run")
    ledger.holds.note_files([hold("filed")], "run")
    ledger.holds.note_files([], "run")
    ledger.holds.note_files([hold("filed")], "run")
    lines = [json.loads(line) for line in ledger.audit_lines()]
    said = [{name: line["detail"].get(name) for name in ("name", "source")} for line in lines]
    assert [(line["deed"], one["name"], one["source"]) for line, one in zip(lines, said, strict=True)] == [
        ("HOLD", "case", "ledger"), ("HOLD", "filed", "file"), ("RELEASE", "filed", "file"), ("HOLD", "filed", "file"),
    ]  # fmt: skip
    first = {name: lines[0]["detail"][name] for name in ("datasets", "transactions", "owner", "until")}
    assert first == {
        "datasets": {"include": ["lake/*"]}, "transactions": ["T*"], "owner": "legal", "until": "2099-01-01T00:00:00Z",
    }  # fmt: skip
    assert lines[1]["detail"]["datasets"] == {"include": ["lake/*"]}
    assert ledger.verify().faults == ()


# Edits, with a transaction of lake/u whose history can't say all then, and what it says; None: its words stay as they are.
OF_A_HISTORY: dict[str, tuple[str, str, str | None]] = {
    "the ids of batches": ("UPDATE batches SET ids = {ids}", "U1", "set aside at "),
    "the plans of batches": ("UPDATE batches SET plan = 7 WHERE dataset = 'lake/u'", "U2", "set aside at "),
    "the marks of plans": ("UPDATE planned SET mark = mark + 100", "U3", "set aside at "),
    "no batch": ("DELETE FROM batches", "U2", "set aside at "),
    "no step": ("DELETE FROM steps", "U1", "set aside at "),
    "no step of what is restored": ("DELETE FROM steps", "U2", "restored at "),
    "called swept": ("UPDATE marks SET status = 'SWEPT' WHERE \"transaction\" = 'U6'", "U6", "swept at "),
    "an order that is none": ("UPDATE batches SET order_given = 'x'", "U1", None),
}


@pytest.mark.parametrize("edit", OF_A_HISTORY)
def test_a_history_shows_what_it_can_and_that_the_record_was_changed(url: str, tmp_path: Path, edit: str) -> None:
    statement, transaction, begins = OF_A_HISTORY[edit]
    with open_ledger(store(url, tmp_path)) as ledger:
        before = words(ledger, transaction)
        assert write_past_ledger(ledger, statement.format(ids="'[1]'" if url.startswith("sqlite") else "ARRAY[1]"))
        assert ledger.verify().faults
        for dataset in ("lake/d", "lake/u", "lake/m", "lake/k", "lake/l", "lake/a"):
            for name in set(ledger.marks.table([dataset])["transaction"].to_pylist()):
                assert words(ledger, name, dataset)
        said = words(ledger, transaction)
        if begins is None:
            assert said == before
        else:
            assert said.startswith(begins)
            assert ", but its record was changed past the ledger: `retention audit verify` names the row; policy undo@1" in said


def words(ledger: Ledger, name: str, dataset: str = "lake/u") -> str:
    marks = ledger.histories.of(dataset, [name])[name]
    return life_of(dataset, TransactionLife(name, False, marks=marks), (), FAR).words


@pytest.mark.parametrize("ids", ["x", "7", "{}", "[[1]]", '["a"]', "[1.5]", "[null]"])
def test_ids_that_cannot_be_read_stop_no_look_and_every_sweep(tmp_path: Path, ids: str) -> None:
    with open_ledger(store(f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path)) as ledger:
        for column in ("ids", "open_ids"):
            write_past_ledger(ledger, f"UPDATE batches SET {column} = '{ids}' WHERE open_ids IS NOT NULL")
            assert words(ledger, "S3", "lake/m")
            with ledger.database.reading() as connection:
                assert [*due_mark_faults(connection, ["lake/m"], FAR)]


# A column of text that holds JSON, the act about which it is if it is a detail, how it is read, and how the refusal begins.
OF_JSON: dict[str, tuple[str, str, Callable[[Ledger], object], str]] = {
    "a hold": ("holds.content", "", lambda one: one.holds.recorded(T0), "The hold case-1 of the ledger"),
    "a hold of a file": ("file_holds.content", "", lambda one: one.holds.recorded(), "A row of file_holds of the ledger"),
    "the folders of a hold": ("audit.detail", "HOLD", lambda one: one.holds.recorded(), "An act about a hold of files"),
    "a report": ("reports.bounds", "", lambda one: one.reports.of(DAY), "lake/d in reports of the ledger"),
    "the types of a report": ("reports.archived_types", "", lambda one: one.reports.of(DAY), "lake/d in reports of the ledger"),
    "the classes of a report": ("reports.classes", "", lambda one: ask(one, INVARIANTS["reports"]), "lake/d in reports of the ledger"),
    "an evaluation": ("looks.counts", "", lambda one: one.states.of(["lake/d"], T0, ()), "A row of looks of the ledger"),
    "a scan": ("scans.totals", "", lambda one: one.scans.of("blobs", 1), "Scan 1 of the ledger"),
    "an act about visibility": ("audit.detail", "ADVANCE", lambda one: ask(one, INVARIANTS["times"]), "An act about lake/d"),
}  # fmt: skip


@pytest.mark.parametrize("written", ["x", "[1]"])
@pytest.mark.parametrize("name", OF_JSON)
def test_a_text_that_cannot_be_read_is_refused_with_its_row_and_a_remedy(built: Ledger, name: str, written: str) -> None:
    place, deed, read, row = OF_JSON[name]
    table, column = (
        METADATA.tables[place.partition(".")[0]],
        METADATA.tables[place.partition(".")[0]].c[place.partition(".")[2]],
    )
    query = select(*table.primary_key, column).where(table.c.deed == deed if deed else true())
    with built.database.reading() as connection:
        before = connection.execute(query).all()
    read(built)
    try:
        for *key, _ in before:
            write_past_ledger(built, update(table).where(tuple_(*table.primary_key) == key).values({column: written}))
        if name == "the types of a report" and written == "[1]":
            read(built)
        else:
            with pytest.raises(Refused, match="It was changed past the ledger") as fault:
                read(built)
            assert str(fault.value).startswith(row)
            assert "`retention audit verify` says what the record has. Write that back, or restore" in str(fault.value)
        assert built.verify().faults
    finally:
        for *key, value in before:
            write_past_ledger(built, update(table).where(tuple_(*table.primary_key) == key).values({column: value}))
    assert built.verify().faults == ()


@pytest.mark.parametrize("detail", ["x", "[1]", "{}"])
def test_acts_that_cannot_be_read_are_faults_and_no_errors(lived: Ledger, detail: str) -> None:
    assert lived.verify_and_record("ann").faults == ()
    assert write_past_ledger(lived, f"UPDATE audit SET detail = '{detail}' WHERE deed <> 'ADVANCE'")
    assert lived.verify_and_record("ann", only_new=True).faults
    assert lived.verify_in_run("ann").faults
    assert lived.policy_book.loaded_files() == set()
    assert lived.accepted_policies() == []
    with lived.database.reading() as connection:
        assert [*rule_faults(connection)]
        assert [*due_mark_faults(connection, ["lake/d"], FAR)]
    lived.realms.change("acme", "ACTIVE", "ann", "r")

"""What the database of a records store would do besides: rows of other units of work, open, young or held, that go with one.

Each attack is made with real foreign keys. It is refused before anything goes; that it is one shows where the store accepts it.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from retention_assets.errors import Refused
from retention_assets.outcomes import Outcome
from retention_assets.settings.places import Url
from retention_assets.stores.protocol import SweptTarget, Target
from retention_assets.stores.records.store import RecordsStore
from retention_assets_tests.databases import new_schema
from retention_assets_tests.stores.records.environments import Units

DELETED, FAILED = Outcome.DELETED, Outcome.FAILED
OTHERS = ("held", "open", "young")
KEY = "VARCHAR(60)"


@dataclass(frozen=True)
class Attack:
    """Tables whose rows go, or change, with those of a unit of work that is due."""

    made: tuple[str, ...]
    # What is said of it.
    path: str
    # Counts the rows that nobody may touch, and how many of them the database would.
    victims: str
    touched: int
    children: tuple[dict[str, str], ...] = ()
    but: str = ""
    deletes: bool = True


def table(name: str, *columns: str) -> str:
    return f"CREATE TABLE {name} (n INTEGER PRIMARY KEY, {', '.join(columns)})"


def key(name: str, column: str, to: str, action: str = "ON DELETE CASCADE") -> str:
    return f"CONSTRAINT {name} FOREIGN KEY ({column}) REFERENCES {to} {action}"


INVOICE = table("invoice", f"unit {KEY}", key("invoice_of_unit", "unit", "unit_of_work (id)"))
INVOICES = "INSERT INTO invoice VALUES (1, 'due'), (2, 'due'), (3, 'open')"
SUMMARIES = "(SELECT min(n) FROM summary WHERE unit = 'due')"
ATTACKS = {
    "an unlisted table that takes another for it": Attack(
        (
            table("invoice", f"unit {KEY} DEFAULT 'open'", key("invoice_of_unit", "unit", "unit_of_work (id)", "ON DELETE SET DEFAULT")),
            INVOICES,
        ),
        "unit_of_work -> invoice by invoice_of_unit (unit, ON DELETE SET DEFAULT)",
        "SELECT count(*) FROM invoice WHERE unit = 'due'", 2, deletes=False, but="mysql",
    ),
    "an unlisted grandchild": Attack(
        (
            table("line", "of_summary INTEGER", key("line_of_summary", "of_summary", "summary (n)")),
            f"INSERT INTO line VALUES (1, {SUMMARIES}), (2, {SUMMARIES})",
        ),
        "summary -> line by line_of_summary (of_summary, ON DELETE CASCADE)", "SELECT count(*) FROM line", 2,
    ),
    "a table behind an unlisted one": Attack(
        (
            INVOICE, INVOICES,
            table("line", "invoice INTEGER", key("line_of_invoice", "invoice", "invoice (n)")),
            "INSERT INTO line VALUES (1, 1), (2, 1), (3, 2), (4, 3)",
        ),
        "unit_of_work -> invoice by invoice_of_unit (unit, ON DELETE CASCADE) -> line by line_of_invoice (invoice, ON DELETE CASCADE)",
        "SELECT count(*) FROM line", 3,
    ),
    "tables behind one that only changes": Attack(
        (
            table("label", f"unit {KEY} UNIQUE", key("label_of_unit", "unit", "unit_of_work (id)", "ON DELETE SET NULL")),
            table("sticker", f"label {KEY} UNIQUE", key("sticker_of_label", "label", "label (unit)", "ON UPDATE CASCADE")),
            table("print", f"sticker {KEY}", key("print_of_sticker", "sticker", "sticker (label)", "ON UPDATE SET NULL")),
            # What refers to a column that does not change does not either.
            table("stamp", "label INTEGER", key("stamp_of_label", "label", "label (n)", "ON UPDATE CASCADE")),
            "INSERT INTO label VALUES (1, 'due'), (2, 'open')", "INSERT INTO sticker VALUES (1, 'due'), (2, 'open')",
            "INSERT INTO print VALUES (1, 'due'), (2, 'open')", "INSERT INTO stamp VALUES (1, 1), (2, 2)",
        ),
        "-> label by label_of_unit (unit, ON DELETE SET NULL) -> sticker by sticker_of_label (label, ON UPDATE CASCADE)"
        " -> print by print_of_sticker (sticker, ON UPDATE SET NULL)",
        "SELECT count(*) FROM print WHERE sticker IS NOT NULL", 1, deletes=False,
    ),
    "a listed child by another column": Attack(
        (
            table("detail", f"unit {KEY}", "of_summary INTEGER", key("detail_of_summary", "of_summary", "summary (n)")),
            f"INSERT INTO detail VALUES (1, 'open', {SUMMARIES}), (2, 'young', {SUMMARIES}), (3, 'due', {SUMMARIES})",
        ),
        "summary -> detail by detail_of_summary (of_summary, ON DELETE CASCADE)",
        "SELECT count(*) FROM detail WHERE unit <> 'due'", 2, ({"table": "detail", "key": "unit"},),
    ),
    "a listed child that also refers to another unit": Attack(
        (
            table("detail", f"unit {KEY}", f"previous {KEY}", key("detail_of_previous", "previous", "unit_of_work (id)")),
            "INSERT INTO detail VALUES (1, 'open', 'due'), (2, 'held', 'due'), (3, 'due', 'young')",
        ),
        "unit_of_work -> detail by detail_of_previous (previous, ON DELETE CASCADE)",
        "SELECT count(*) FROM detail WHERE unit <> 'due'", 2, ({"table": "detail", "key": "unit"},),
    ),
    "a listed child that names another column of the root": Attack(
        (
            f"ALTER TABLE unit_of_work ADD COLUMN code {KEY}", "CREATE UNIQUE INDEX by_code ON unit_of_work (code)",
            "UPDATE unit_of_work SET code = 'open' WHERE id = 'due'",
            table("detail", f"unit {KEY}", key("detail_of_code", "unit", "unit_of_work (code)")),
            "INSERT INTO detail VALUES (1, 'open')",
        ),
        "unit_of_work -> detail by detail_of_code (unit, ON DELETE CASCADE)", "SELECT count(*) FROM detail", 1,
        ({"table": "detail", "key": "unit"},),
    ),
    "a child that is listed by two keys": Attack(
        (
            table("pair", f"one {KEY}", f"other {KEY} UNIQUE"),
            table("note", f"unit {KEY}", key("note_of_pair", "unit", "pair (other)")),
            "INSERT INTO pair VALUES (1, 'due', 'open')", "INSERT INTO note VALUES (1, 'open')",
        ),
        "pair -> note by note_of_pair (unit, ON DELETE CASCADE)", "SELECT count(*) FROM note", 1,
        ({"table": "pair", "key": "one"}, {"table": "pair", "key": "other"}, {"table": "note", "key": "unit"}),
    ),
    "other units by way of a table": Attack(
        (
            table("bundle", f"unit {KEY}", key("bundle_of_unit", "unit", "unit_of_work (id)")),
            "INSERT INTO bundle VALUES (1, 'due')",
            "ALTER TABLE unit_of_work ADD COLUMN bundle INTEGER",
            "UPDATE unit_of_work SET bundle = 1 WHERE id <> 'due'",
        ),
        "-> bundle by bundle_of_unit (unit, ON DELETE CASCADE) -> unit_of_work by ",
        "SELECT count(*) FROM unit_of_work WHERE id <> 'due'", 3,
    ),
    "other units that name it their parent": Attack(
        (f"ALTER TABLE unit_of_work ADD COLUMN parent {KEY}", "UPDATE unit_of_work SET parent = 'due' WHERE id <> 'due'"),
        "unit_of_work -> unit_of_work by ", "SELECT count(*) FROM unit_of_work WHERE id <> 'due'", 3,
    ),
}  # fmt: skip
# Keys of a table that is there already: SQLite takes them only with the column.
LATER = {
    "other units by way of a table": ("bundle", "bundle (n)"),
    "other units that name it their parent": ("parent", "unit_of_work (id)"),
}


def count(units: Units, query: str) -> int:
    with units.engine.connect() as connection:
        return int(connection.execute(text(query)).scalar() or 0)


def store_of(units: Units, *children: dict[str, str], **parts: Any) -> RecordsStore:
    listed = [*children, *units.settings["children"]]
    return units.store(**{"children": listed, **parts})


def planned(store: RecordsStore) -> list[Target]:
    return [Target(one.transaction, one.note) for one in store.prepare(store.dataset, ["due"])]


def swept(store: RecordsStore, targets: list[Target]) -> SweptTarget:
    [found] = store.sweep(store.dataset, targets, 4)
    return found


def is_attacked(units: Units, name: str) -> Attack:
    attack = ATTACKS[name]
    if attack.but == units.dialect:
        pytest.skip("this database has no such key")
    for statement in attack.made:
        column, to = LATER.get(name, ("", ""))
        if column and statement.startswith("ALTER TABLE"):
            reference = f"REFERENCES {to} ON DELETE CASCADE"
            if units.dialect == "sqlite":
                units.do(f"{statement} {reference}")
            else:
                units.do(statement, f"ALTER TABLE unit_of_work ADD CONSTRAINT later FOREIGN KEY ({column}) {reference}")
        else:
            units.do(statement)
    return attack


@pytest.fixture
def units(units: Units) -> Units:
    return units.has("due").has("open", closed=None).has("young", closed="2026-01-01").has("held")


@pytest.mark.parametrize("name", ATTACKS)
def test_nothing_goes_where_more_would_until_that_is_accepted_and_then_it_is_named(units: Units, name: str) -> None:
    targets = planned(units.store())
    attack = is_attacked(units, name)
    before, victims = units.everything(), count(units, attack.victims)
    store = store_of(units, *attack.children)
    for question in (store.datasets, lambda: store.prepare(units.dataset, ["due"])):
        with pytest.raises(Refused) as fault:
            question()
        assert attack.path in str(fault.value)
        assert "cascades: accepted" in str(fault.value)
    found = swept(store, targets)
    assert (found.outcome, attack.path in str(found.error)) == (FAILED, True)
    assert any(attack.path in sentence for sentence in store.warnings())
    assert (units.everything(), count(units, attack.victims)) == (before, victims)
    what_is_accepted_goes_and_is_named(units, attack)


def what_is_accepted_goes_and_is_named(units: Units, attack: Attack) -> None:
    store = store_of(units, *attack.children, cascades="accepted")
    assert store.datasets() == [units.dataset]
    sentence = str(store.accepted_cascades())
    assert store.warnings().count(sentence) == 1
    effects = sentence.removeprefix("The store ods accepts cascades: with swept rows, the database also ")
    paths = {path: effect for effect, _, path in (part.partition(": ") for part in effects.removesuffix(".").split("; "))}
    [path] = [path for path in paths if attack.path in path]
    table = path.rpartition(" -> ")[2].partition(" by ")[0]
    assert paths[path] == f"{'deletes' if attack.deletes else 'changes'} rows of {table}"
    # Each table on the way, and no other.
    assert all(path.startswith(part) for part in paths)
    assert len(paths) == path.count(" -> ")
    before = count(units, attack.victims)
    assert swept(store, planned(store)).outcome is DELETED
    assert before - count(units, attack.victims) == attack.touched
    assert not [one for table in units.tables for one in units.there(table) if one == "due"]


def test_a_key_in_another_schema_counts(store_url: str) -> None:
    units = Units(store_url).has("due", "open")
    if units.dialect == "sqlite":
        pytest.skip("SQLite has one schema")
    with units.engine.connect() as connection:
        asked = "current_schema()" if units.dialect == "postgresql" else "database()"
        own = str(connection.execute(text(f"SELECT {asked}")).scalar())
    units.do(
        f"CREATE SCHEMA {own}_billing{' COLLATE utf8mb4_bin' if units.dialect == 'mysql' else ''}",
        INVOICE.replace("invoice (", f"{own}_billing.invoice (").replace("REFERENCES ", f"REFERENCES {own}."),
    )
    units.do(f"INSERT INTO {own}_billing.invoice VALUES (1, 'due')")
    store = store_of(units)
    with pytest.raises(Refused, match=rf"unit_of_work -> {own}_billing.invoice by invoice_of_unit"):
        store.prepare(units.dataset, ["due"])
    path = f"{own}_billing.invoice: unit_of_work -> {own}_billing.invoice by invoice_of_unit (unit, ON DELETE CASCADE)."
    assert str(store_of(units, cascades="accepted").accepted_cascades()).endswith(f"also deletes rows of {path}")
    store.close()


HARMLESS = {
    "a listed child that goes by the key that joins it": (
        f"CREATE TABLE detail (n INTEGER PRIMARY KEY, unit {KEY}, {key('detail_of_unit', 'unit', 'unit_of_work (id)')})",
    ),
    "a listed child that forgets by the key that joins it": (
        f"CREATE TABLE detail (n INTEGER PRIMARY KEY, unit {KEY}, {key('d', 'unit', 'unit_of_work (id)', 'ON DELETE SET NULL')})",
    ),
    "a listed child of a child of the same unit": (
        "CREATE UNIQUE INDEX by_unit ON summary (unit, n)",
        f"CREATE TABLE detail (n INTEGER PRIMARY KEY, unit {KEY}, part INTEGER,"
        f" {key('detail_of_summary', 'unit, part', 'summary (unit, n)')})",
    ),
    "a customer of whom nothing is deleted": (
        "CREATE TABLE customer (id INTEGER PRIMARY KEY)",
        f"CREATE TABLE detail (n INTEGER PRIMARY KEY, unit {KEY}, customer INTEGER, {key('c', 'customer', 'customer (id)')})",
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", HARMLESS)
def test_rows_of_the_unit_itself_may_go_with_it(units: Units, how: str) -> None:
    units.do(*HARMLESS[how], "INSERT INTO detail (n, unit) VALUES (1, 'due'), (2, 'open')")
    store = store_of(units, {"table": "detail", "key": "unit"})
    assert store.datasets() == [units.dataset]
    assert store_of(units, {"table": "detail", "key": "unit"}, cascades="accepted").accepted_cascades() is None
    assert [one for one in store.warnings() if "index" not in one] == []
    assert swept(store, planned(store)).outcome is DELETED
    assert count(units, "SELECT count(*) FROM detail WHERE unit = 'open'") == count(units, "SELECT count(*) FROM detail") == 1


def test_what_goes_with_other_units_is_named_as_well(units: Units) -> None:
    units.do(table("detail", f"unit {KEY}", key("detail_of_unit", "unit", "unit_of_work (id)")))
    is_attacked(units, "other units that name it their parent")
    sentence = str(store_of(units, {"table": "detail", "key": "unit"}, cascades="accepted").accepted_cascades())
    assert "also deletes rows of unit_of_work: unit_of_work -> unit_of_work by " in sentence
    assert "; deletes rows of detail: unit_of_work -> unit_of_work by " in sentence
    assert sentence.endswith("-> detail by detail_of_unit (unit, ON DELETE CASCADE).")


@pytest.mark.parametrize("action", ["", "ON DELETE RESTRICT"])
def test_a_row_that_refers_to_a_child_without_an_action_keeps_that_unit_alone_and_whole(units: Units, action: str) -> None:
    """Also on SQLite, where keys are off unless a connection asks for them."""
    units.do(
        table("invoice", "of_summary INTEGER", key("i", "of_summary", "summary (n)", action)),
        f"INSERT INTO invoice VALUES (1, {SUMMARIES})",
    )
    store = store_of(units)
    assert store.datasets() == [units.dataset]
    targets = [Target(one.transaction, one.note) for one in store.prepare(units.dataset, ["due", "held"])]
    found = {one.transaction: one for one in store.sweep(units.dataset, targets, 1)}
    assert {name: one.outcome for name, one in found.items()} == {"due": FAILED, "held": DELETED}
    assert "foreign key" in str(found["due"].error).lower()
    assert str(found["due"].error).endswith(LIST_IT.format("invoice"))
    assert units.whole("due", "open", "young")
    assert count(units, "SELECT count(*) FROM invoice") == 1


LIST_IT = (
    "List `{}` under `children` by the column that holds the key of the unit of work, or delete those rows before the sweep."
)


@pytest.mark.parametrize("action", ["", "ON DELETE RESTRICT"])
def test_a_key_of_a_table_that_nobody_listed_is_foreseen(units: Units, action: str) -> None:
    units.do(
        table("audit_row", f"unit {KEY}", key("audit_of_unit", "unit", "unit_of_work (id)", action)),
        "INSERT INTO audit_row VALUES (1, 'due')",
    )
    store = store_of(units)
    # MariaDB has one name for both.
    action = action or f"ON DELETE {'RESTRICT' if units.dialect == 'mysql' else 'NO ACTION'}"
    sentence = (
        "The database of the store ods keeps each row that a row of an unlisted table refers to: audit_row refers to unit_of_work"
        f" by audit_of_unit (unit, {action}). {LIST_IT.format('audit_row')}"
    )
    assert (store.warnings(), store.accepted_cascades()) == ([sentence], sentence)
    assert str(swept(store, planned(store)).error).endswith(sentence)
    listed = store_of(units, {"table": "audit_row", "key": "unit"})
    assert (listed.accepted_cascades(), swept(listed, planned(listed)).outcome) == (None, DELETED)


def test_a_key_to_what_the_database_deletes_besides_is_foreseen_as_well(units: Units) -> None:
    units.do(INVOICE, table("line", "invoice INTEGER", key("line_of_invoice", "invoice", "invoice (n)", "")))
    units.do("INSERT INTO invoice VALUES (1, 'due')", "INSERT INTO line VALUES (1, 1)")
    store = store_of(units, cascades="accepted")
    assert str(store.accepted_cascades()).endswith(LIST_IT.format("line"))
    assert str(swept(store, planned(store)).error).endswith(LIST_IT.format("line"))
    assert units.whole("due", *OTHERS)


def test_a_row_that_a_trigger_keeps_is_not_put_down_to_a_key(units: Units) -> None:
    units.do(table("audit_row", f"unit {KEY}", key("audit_of_unit", "unit", "unit_of_work (id)", "")))
    store = store_of(units)
    targets = planned(store)
    with units.broken("due", "unit_of_work"):
        assert "audit_row" not in str(swept(store, targets).error)


def test_a_root_that_refers_to_itself_without_an_action_is_fine(units: Units) -> None:
    added, reference = "ALTER TABLE unit_of_work ADD COLUMN parent VARCHAR(60)", "REFERENCES unit_of_work (id)"
    later = [added, f"ALTER TABLE unit_of_work ADD FOREIGN KEY (parent) {reference}"]
    units.do(*([f"{added} {reference}"] if units.dialect == "sqlite" else later))
    assert units.store().datasets() == [units.dataset]


def test_a_row_that_refers_and_is_asked_about_at_the_end_keeps_its_unit_whole_as_well(server: str) -> None:
    units = Units(new_schema(server)).has("due", "held")
    units.do(
        table("invoice", "of_object INTEGER REFERENCES process_object (n) DEFERRABLE INITIALLY DEFERRED"),
        "INSERT INTO invoice SELECT 1, min(n) FROM process_object WHERE unit = 'due'",
    )
    store = store_of(units)
    targets = [Target(one.transaction, one.note) for one in store.prepare(units.dataset, ["due", "held"])]
    found = {one.transaction: one.outcome for one in store.sweep(units.dataset, targets, 1)}
    assert found == {"due": FAILED, "held": DELETED}
    assert units.whole("due")
    store.close()


def test_a_key_that_comes_after_the_plan_is_seen_by_the_store_that_made_it(units: Units) -> None:
    store = store_of(units)
    targets = planned(store)
    units.do(INVOICE, "INSERT INTO invoice VALUES (1, 'due')")
    assert swept(store, targets).outcome is FAILED
    assert units.whole("due", *OTHERS)
    assert count(units, "SELECT count(*) FROM invoice") == 1
    units.do("DROP TABLE invoice")
    assert swept(store, targets).outcome is DELETED


def test_no_time_is_given_but_one_is_taken_back_and_put_off_where_more_would_go(store_url: str) -> None:
    """Housekeeping goes on: it only keeps rows."""
    units = Units(store_url, ttl={"document_ttl": "180d"}).has("due", expires="2026-01-02")
    store, at = units.store(), datetime(2026, 1, 1, tzinfo=UTC)
    targets = planned(store)
    units.do(INVOICE)
    assert [one.outcome for one in store.expire(units.dataset, targets, at, 1)] == [FAILED]
    assert len(units.expires("due")) == 1
    assert store.datasets() == [units.dataset]
    later = datetime(2026, 6, 1, tzinfo=UTC)
    assert [one.outcome for one in store.postpone(units.dataset, targets, datetime(2026, 1, 3, tzinfo=UTC), later)] == [
        Outcome.EXPIRING
    ]
    assert [one.outcome for one in store.expire(units.dataset, targets, None, 1)] == [Outcome.EXPIRING]
    assert units.expires("due") == {None}
    store.close()


def test_a_key_that_names_no_columns_of_a_root_without_a_primary_key_is_refused_too(tmp_path: Path) -> None:
    (tmp_path / "s.db").touch()
    units = Units(f"sqlite:///{tmp_path / 's.db'}")
    units.do(
        "CREATE TABLE work AS SELECT * FROM unit_of_work",
        table("detail", "unit TEXT REFERENCES work ON DELETE CASCADE"),
    )  # fmt: skip
    root = {**units.settings["root"], "table": "work"}
    with pytest.raises(Refused, match=r"work -> detail by \(unit, ON DELETE CASCADE\)"):
        store_of(units, {"table": "detail", "key": "unit"}, root=root).datasets()
    accepting = store_of(units, {"table": "detail", "key": "unit"}, root=root, cascades="accepted")
    assert "also deletes rows of detail: work -> detail by " in str(accepting.accepted_cascades())


@pytest.mark.parametrize("as_", ["root", "child"])
def test_a_view_is_refused_by_name(units: Units, as_: str) -> None:
    """A view of other columns over the root would have other units of work deleted from it."""
    units.do("CREATE VIEW shown AS SELECT id, opened, closed, archived, kind, kind AS unit FROM unit_of_work")
    parts: dict[str, Any] = {"root": {**units.settings["root"], "table": "shown"}} if as_ == "root" else {}
    store = store_of(units, *([{"table": "shown", "key": "unit"}] if as_ == "child" else []), cascades="accepted", **parts)
    before = units.everything()
    with pytest.raises(Refused, match="shown of the store ods is a view"):
        store.datasets()
    assert [one.outcome for one in store.sweep(store.dataset, [Target("due", None)], 1)] == [FAILED]
    assert "is a view" in store.warnings()[0]
    assert units.everything() == before


@pytest.mark.parametrize("as_", ["root", "child"])
def test_a_child_that_shares_rows_with_the_root_is_refused_by_name(server: str, as_: str) -> None:
    units = Units(new_schema(server)).has("due")
    units.do(
        f"CREATE TABLE special (parent {KEY}) INHERITS (unit_of_work)",
        "INSERT INTO special (id, opened, closed, parent) VALUES ('open', now(), NULL, 'due')",
    )
    root = {**units.settings["root"], "table": "special"}
    store = {
        "root": lambda: store_of(units, {"table": "special", "key": "parent"}, cascades="accepted"),
        "child": lambda: store_of(units, {"table": "unit_of_work", "key": "kind"}, root=root, cascades="accepted"),
    }[as_]()
    name = {"root": "special", "child": "unit_of_work"}[as_]
    with pytest.raises(Refused, match=f"The table {name} among the children of the store ods shares rows with the root's"):
        store.prepare(store.dataset, ["due"])
    assert swept(store, [Target("due", None)]).outcome is FAILED
    assert units.there() == ["due", "open"]
    store.close()


def test_keys_of_partitions_and_of_what_inherits_count_and_listed_ones_do_not(server: str) -> None:
    """A foreign key to a partition alone, one from a partitioned table, and the copies that each partition has."""
    url = new_schema(server)
    units = Units(url)
    columns = f"id {KEY}, opened timestamptz, closed timestamptz, archived timestamptz, kind {KEY}"
    units.do(
        f"CREATE TABLE work ({columns}, PRIMARY KEY (id)) PARTITION BY LIST (id)",
        "CREATE TABLE work_due PARTITION OF work FOR VALUES IN ('due')",
        "CREATE TABLE work_rest PARTITION OF work DEFAULT",
        f"CREATE TABLE part (unit {KEY} REFERENCES work ON DELETE CASCADE, n INTEGER) PARTITION BY LIST (n)",
        "CREATE TABLE part_1 PARTITION OF part FOR VALUES IN (1)",
        "CREATE TABLE part_2 PARTITION OF part FOR VALUES IN (2)",
        "INSERT INTO work VALUES ('due', '2021-01-01', '2021-01-02'), ('open', '2021-01-01', NULL)",
        "INSERT INTO part VALUES ('due', 1), ('due', 2), ('open', 2)",
    )
    root = {**units.settings["root"], "table": "work"}
    listed = {"root": root, "children": [{"table": "part", "key": "unit"}]}
    store = store_of(units, **listed)
    assert store_of(units, **listed, cascades="accepted").accepted_cascades() is None
    # One partition alone: rows of the others would go.
    with pytest.raises(Refused, match=r"work -> part by part_unit_fkey \(unit, ON DELETE CASCADE\)\. List"):
        store_of(units, root=root, children=[{"table": "part_1", "key": "unit"}]).datasets()
    units.do(f"CREATE TABLE extra (unit {KEY} REFERENCES work_due ON DELETE CASCADE)")
    with pytest.raises(Refused, match="work_due -> extra by extra_unit_fkey"):
        store.prepare(store.dataset, ["due"])
    units.do("DROP TABLE extra")
    # Of one partition to another, between tables that are listed.
    units.do("ALTER TABLE part_1 ADD FOREIGN KEY (unit) REFERENCES work_due ON DELETE CASCADE")
    assert swept(store, planned(store)).outcome is DELETED
    assert count(units, "SELECT count(*) FROM part") == count(units, "SELECT count(*) FROM work") == 1
    store.close()


def test_where_nobody_can_see_what_refers_nothing_goes_unless_that_is_accepted(server: str) -> None:
    units = Units(new_schema(server)).has("due", "open")
    targets = planned(units.store())
    url = Url(f"{units.url}%20-csession_replication_role%3Dreplica")
    store, accepting = store_of(units, url=url), store_of(units, url=url, cascades="accepted")
    with pytest.raises(Refused, match=r"cannot be read: session_replication_role is replica .* Or write `cascades: accepted`"):
        store.datasets()
    found = swept(store, targets)
    assert (found.outcome, "cannot be read" in str(found.error)) == (FAILED, True)
    assert units.whole("due", "open")
    assert any("cannot be read" in one and "accepts that" in one for one in accepting.warnings())
    assert swept(accepting, targets).outcome is DELETED
    store.close()


@pytest.mark.parametrize("kind", ["DO INSTEAD", "DO ALSO"])
def test_a_rule_of_deletions_is_refused_by_name(server: str, kind: str) -> None:
    units = Units(new_schema(server)).has("due", "open")
    units.do(f"CREATE RULE odd AS ON DELETE TO summary {kind} DELETE FROM process_object WHERE unit <> OLD.unit")
    said = {"DO INSTEAD": "replaces deletions with something else", "DO ALSO": "does more at each deletion than delete rows"}
    with pytest.raises(Refused, match=f"The rule odd of the table summary of the store ods {said[kind]}"):
        store_of(units).prepare(units.dataset, ["due"])
    accepting = store_of(units, cascades="accepted")
    if kind == "DO INSTEAD":
        with pytest.raises(Refused, match="rule odd"):
            accepting.datasets()
    else:
        assert accepting.datasets() == [units.dataset]
    assert any("The rule odd" in one for one in accepting.warnings())
    assert units.whole("due", "open")
    accepting.close()


def test_a_trigger_of_deletions_is_told(units: Units) -> None:
    # What runs at insertions is no matter.
    quiet = {"sqlite": "BEGIN SELECT 1; END", "mysql": "SET @x = 1", "postgresql": "EXECUTE FUNCTION broken()"}[units.dialect]
    with units.broken("nobody", "summary"):
        units.do(f"CREATE TRIGGER quiet AFTER INSERT ON summary FOR EACH ROW {quiet}")
        [said] = [one for one in units.store().warnings() if "trigger" in one]
        assert "The trigger broken of the table summary of the store ods runs at each deletion" in said
        assert units.store().datasets() == [units.dataset]
    assert units.store().warnings() == []

"""The records store: the contract, keys of all kinds, what it refuses, what keeps a unit of work, and other writers."""

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import pairwise
from operator import ne
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.types import BigInteger, Integer, TypeEngine

from retention_assets.errors import Refused
from retention_assets.frames import sound_log
from retention_assets.outcomes import Outcome
from retention_assets.sql.guarded_delete import LOCKED, GuardedDelete
from retention_assets.stores.protocol import Remains, SweptTarget, Target
from retention_assets.stores.records import delete
from retention_assets.stores.records.delete import reason_changed
from retention_assets.stores.records.log import lines_of
from retention_assets_tests.databases import new_schema
from retention_assets_tests.stores.contract import Contract
from retention_assets_tests.stores.records.environments import TOLD_TO, Records, Units

DELETED, GONE, FAILED, SPARED = Outcome.DELETED, Outcome.ALREADY_GONE, Outcome.FAILED, Outcome.SPARED


@pytest.fixture
def postgresql(server: str) -> Iterator[Units]:
    """For what only a server with connections of its own can do; MariaDB's are the same to the store."""
    units = Units(new_schema(server), pooled=True)
    yield units
    units.close()


def targets(units: Units, *names: str) -> list[Target]:
    return [Target(one.transaction, one.note) for one in units.opened.prepare(units.dataset, names)]


def swept(units: Units, planned: list[Target], parallelism: int = 4) -> dict[str, SweptTarget]:
    return {one.transaction: one for one in units.opened.sweep(units.dataset, planned, parallelism)}


def outcomes(units: Units, planned: list[Target], parallelism: int = 4) -> dict[str, Outcome]:
    return {name: one.outcome for name, one in swept(units, planned, parallelism).items()}


# --- keys and names ---

SOME = [uuid.UUID(int=number) for number in (1, 2**64, 2**127 + 5)]
KEYS: dict[str, tuple[TypeEngine[Any], list[Any]]] = {
    "text with anything in it": (sa.String(60), ["plain", 'it\'s "quoted"', "ключ 🗄 %s :x", "back\\slash", "a,b;--"]),
    "text that only differs in case": (sa.String(60), ["abc", "ABC", "Abc "]),
    "text without a length": (sa.Text().with_variant(sa.String(60), "mysql", "mariadb"), ["a", "b", "x" * 50]),
    "integer": (BigInteger().with_variant(Integer(), "sqlite"), [0, -1, 7, 2**62]),
    "uuid": (sa.Uuid(), SOME),
    "uuid as char": (sa.CHAR(36), [str(one) for one in SOME]),
    "number": (sa.Numeric(20, 0).with_variant(Integer(), "sqlite"), [1, 10**15, -5]),
    "bytes": (sa.LargeBinary().with_variant(mysql.BINARY(16), "mysql", "mariadb"), [one.bytes for one in SOME]),
}


@pytest.mark.parametrize("kind", KEYS)
def test_any_key_is_read_as_text_and_found_again_by_it(store_url: str, kind: str) -> None:
    key, ids = KEYS[kind]
    units = Units(store_url, key=key).has(*ids)
    store = units.store()
    if kind == "bytes" and units.dialect == "sqlite":
        # Nothing leads from a text back to them there, so the whole dataset is refused rather than half of it read.
        assert sound_log(store.read([units.dataset])).datasets["fault"].to_pylist() == ["missing id"]
        return
    names = sorted(sound_log(store.read([units.dataset])).transactions["transaction"].to_pylist())
    assert len(set(names)) == len(ids)
    planned = targets(units, *names)
    assert outcomes(units, planned[:1]) == {names[0]: DELETED}
    assert len(units.there()) == len(ids) - 1
    assert outcomes(units, planned) == {names[0]: GONE, **dict.fromkeys(names[1:], DELETED)}
    assert units.whole()
    store.close()


@pytest.mark.parametrize("kind", ["integer", "uuid", "uuid as char", "number"])
def test_texts_that_no_key_can_be_delete_nothing(store_url: str, kind: str) -> None:
    key, ids = KEYS[kind]
    units = Units(store_url, key=key).has(*ids, *([1] if kind == "integer" else []))
    before = units.everything()
    names = ["no such key", "", "1 or 1=1", "0x1", "9" * 30, "1.0", "\N{ARABIC-INDIC DIGIT ONE}", "+1", " 1", "1e0"]
    assert outcomes(units, [Target(name, "{}") for name in names]) == dict.fromkeys(names, GONE)
    assert units.everything() == before
    units.store().close()


def test_keys_that_the_database_takes_for_the_same_are_not(store_url: str) -> None:
    """A key that only differs in blanks or case is another unit of work, or it is nobody's."""
    units = Units(store_url, key=sa.CHAR(8)).has("abc")
    before = units.everything()
    assert set(outcomes(units, [Target("abc ", None), Target("ABC", None)]).values()) == {GONE}
    assert units.everything() == before
    units.store().close()


def test_what_the_column_of_a_child_takes_for_the_same_is_still_of_another(store_url: str) -> None:
    """The root tells "abc" from "ABC"; a column of a child that does not must not have it lose the rows of both."""
    strict, loose = {"mysql": ("utf8mb4_bin", "utf8mb4_general_ci"), "sqlite": ("BINARY", "NOCASE")}.get(
        sa.make_url(store_url).get_backend_name(), (None, None)
    )
    if strict is None:
        pytest.skip("it takes an ICU of its own for a loose comparison in PostgreSQL")
    units = Units(store_url, key=sa.String(8, collation=strict), child_key=sa.String(8, collation=loose))
    units.has("abc", "ABC", "other")
    assert outcomes(units, targets(units, "abc")) == {"abc": DELETED}
    assert units.whole("ABC", "other")
    # What is left of one whose root is gone is found to the byte as well.
    units.loses(units.root, "ABC")
    assert outcomes(units, [Target("abc", None)]) == {"abc": GONE}
    assert units.there(units.children[0]) == ["ABC", "ABC", "other", "other"]
    units.store().close()


def test_tables_may_have_any_name(store_url: str) -> None:
    units = Units(store_url, 'Unit "of" `work`', ("summary é ключ", "process's objects")).has("a", "b")
    assert units.store().datasets() == ['ods/Unit "of" `work`']
    assert units.store().warnings() == []
    assert outcomes(units, targets(units, "a")) == {"a": DELETED}
    assert units.whole("b")
    units.store().close()


# --- the log ---


def test_a_unit_of_work_is_open_until_it_has_closed_and_carries_its_type(units: Units) -> None:
    units.has("a", closed=None, kind="PAYMENT").has("b", closed="2021-06-01T10:00:00.000001", archived="2022-01-01")
    rows = {row["transaction"]: row for row in sound_log(units.store().read([units.dataset])).transactions.to_pylist()}
    assert [(rows[name]["type"], rows[name]["status"]) for name in "ab"] == [("RECORD", "OPEN"), ("RECORD", "COMMITTED")]
    assert rows["b"]["closed_at"] == datetime(2021, 6, 1, 10, 0, 0, 1, UTC)
    assert (rows["a"]["archived_at"], rows["b"]["archived_at"]) == (None, datetime(2022, 1, 1, tzinfo=UTC))
    assert [rows[name]["attributes"] for name in "ab"] == [[("type", "PAYMENT")], []]


def test_pages_of_any_size_make_the_same_log(units: Units) -> None:
    names = ["1", "10", "2", "A", "a", "b'c", "é"]
    units.has(*names)
    store, sizes = units.store(), (1, 3, len(names), 100)
    found = {
        size: lines_of(store.database, store.tables, units.dataset, [units.dataset], size)["transaction"].to_pylist()
        for size in sizes
    }
    assert {size: sorted(some) for size, some in found.items()} == dict.fromkeys(sizes, sorted(names))


def test_pages_go_on_in_the_order_of_numbers(store_url: str) -> None:
    units = Units(store_url, key=BigInteger().with_variant(Integer(), "sqlite")).has(*range(-3, 12))
    store = units.store()
    assert lines_of(store.database, store.tables, units.dataset, [units.dataset], 4)["transaction"].to_pylist() == [
        str(n) for n in range(-3, 12)
    ]
    store.close()


CHANGES: dict[str, Callable[[Units], Any]] = {
    "an insert": lambda units: units.has("c"),
    "a deletion": lambda units: units.loses(units.root, "a"),
    "reopening": lambda units: units.becomes("a", closed=None),
    "archiving": lambda units: units.becomes("a", archived="2022-01-01"),
    "another type": lambda units: units.becomes("a", kind="RECALL"),
    "times that change places": lambda units: (
        units.becomes("a", closed="2021-05-20"),
        units.becomes("b", closed="2021-05-16"),
    ),
    "a deletion and an insert": lambda units: (units.loses(units.root, "a"), units.has("d")),
    "a time that becomes another": lambda units: units.becomes("a", closed=None, archived="2021-05-16"),
}


def test_every_change_of_the_log_changes_the_token_and_the_same_log_has_the_same(units: Units) -> None:
    store, unseen = units.store(), []
    units.has("a").has("b", closed="2021-05-20")
    before = store.tokens([units.dataset])
    for name, change in CHANGES.items():
        change(units)
        if store.tokens([units.dataset]) == before:
            unseen.append(name)
        for unit in "abcd":
            units.loses(units.root, unit)
        units.has("a").has("b", closed="2021-05-20")
        assert store.tokens([units.dataset]) == before, name
    assert unseen == []


def test_an_empty_table_is_an_empty_log(units: Units) -> None:
    log = sound_log(units.store().read([units.dataset]))
    assert len(log.transactions) == 0
    assert units.store().tokens([units.dataset])


@pytest.mark.parametrize("written", [1684281600, 1684281600000, 2460000.5, "yesterday", "17.05.2021", ""])
def test_sqlite_times_that_are_no_instants_refuse_the_dataset(tmp_path: Path, written: object) -> None:
    """Seconds taken for microseconds are a day in January 1970, and everything would go."""
    (tmp_path / "ods.db").touch()
    units = Units(f"sqlite:///{tmp_path / 'ods.db'}").has("a")
    with units.engine.begin() as connection:
        # A column of declared type TEXT would make a text of the number.
        connection.exec_driver_sql("ALTER TABLE unit_of_work ADD COLUMN bare BLOB")
        connection.exec_driver_sql("UPDATE unit_of_work SET bare = ?", (written,))
    store = units.store(root={**units.settings["root"], "closed_at": "bare"})
    (fault,) = sound_log(store.read([units.dataset])).datasets["fault"].to_pylist()
    assert "is not an instant" in fault


def test_an_infinite_time_refuses_the_dataset(postgresql: Units) -> None:
    postgresql.has("a")
    with postgresql.engine.begin() as connection:
        connection.execute(sa.text("UPDATE unit_of_work SET closed = '-infinity'"))
    (fault,) = sound_log(postgresql.store().read([postgresql.dataset])).datasets["fault"].to_pylist()
    assert "closed_at of one of its rows is infinite" in fault


# --- settings against tables ---


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"root": {"table": "units", "key": "id", "opened_at": "opened", "closed_at": "closed"}}, "no table units"),
        (
            {"root": {"table": "unit_of_work", "key": "id", "opened_at": "began", "closed_at": "closed"}},
            "has no column began. It has id",
        ),
        ({"children": [{"table": "summary", "key": "unit_id"}]}, "The table summary of the store ods has no column unit_id"),
        ({"ttl": {"column": "ttl", "document_ttl": "180d"}}, "The table unit_of_work of the store ods has no column ttl"),
    ],
)
def test_what_is_not_there_is_refused_by_name(units: Units, part: dict[str, Any], said: str) -> None:
    store = units.store(**part)
    with pytest.raises(Refused, match=said):
        store.datasets()


def test_a_column_that_holds_no_times_is_refused(units: Units) -> None:
    if units.dialect == "sqlite":
        pytest.skip("what SQLite holds shows only when it is read")
    root = {**units.settings["root"], "closed_at": "kind"}
    store = units.store(root=root)
    with pytest.raises(
        Refused, match=r"The column kind of the table unit_of_work of the store ods is of the type VARCHAR\(40\).*a timestamp"
    ):
        store.read([units.dataset])


def test_a_missing_index_is_told_with_what_makes_it_and_making_it_helps(store_url: str) -> None:
    units = Units(store_url, indexed=False, ttl={"document_ttl": "180d"})
    remarks = units.store().warnings()
    assert [remark.split(",")[0] for remark in remarks] == [
        "The table summary has no index that begins with unit",
        "The table process_object has no index that begins with unit",
        "The table unit_of_work has no index that begins with expires",
    ]
    with units.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for remark in remarks:
            connection.execute(sa.text(remark.partition("Create one: ")[2].removesuffix(";")))
    assert units.store().warnings() == []
    units.store().close()


# --- what is deleted, and what is not ---


def test_a_child_that_fails_keeps_its_root_and_everything_else_of_it(units: Units) -> None:
    names = [f"u{number:03}" for number in range(200)]
    units.has(*names)
    planned = targets(units, *names)
    with units.broken("u123"):
        found = swept(units, planned)
    assert {one.outcome for name, one in found.items() if name != "u123"} == {DELETED}
    assert (found["u123"].outcome, found["u123"].bytes) == (FAILED, 0)
    assert TOLD_TO in (found["u123"].error or "")
    assert units.whole("u123")
    assert outcomes(units, planned[120:130]) == {name: DELETED if name == "u123" else GONE for name in names[120:130]}
    assert units.whole()


def test_what_is_left_of_a_root_that_is_gone_goes_too(units: Units) -> None:
    units.has("a", "b")
    planned = targets(units, "a")
    units.loses(units.root, "a")
    assert outcomes(units, planned) == {"a": GONE}
    assert units.whole("b")


def test_a_batch_that_deletes_the_last_row_still_knows_what_was_gone(units: Units, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is empty only because of the batch itself, which is no sign of another table."""
    units.has("a", "b")
    planned = {one.transaction: one for one in targets(units, "a", "b")}
    units.loses(units.root, "a")
    monkeypatch.setattr("retention_assets.stores.records.delete._AT_ONCE", 1)
    assert outcomes(units, [planned["b"], planned["a"]], parallelism=1) == {"b": DELETED, "a": GONE}
    assert not units.there()


CHANGED: dict[str, tuple[dict[str, str | None], str]] = {
    "reopened": ({"closed": None}, "It was reopened: closed_at was 2021-05-16"),
    "closed again": ({"closed": "2023-01-01"}, "closed_at was 2021-05-16"),
    "archived": ({"archived": "2023-01-01"}, "archived_at was empty and is 2023-01-01"),
    "of another type": ({"kind": "PAYMENT"}, "type was empty and is PAYMENT now"),
}


def test_what_changed_since_the_plan_is_spared_whole_with_a_sentence(units: Units) -> None:
    units.has(*CHANGED, "unchanged")
    planned = targets(units, *CHANGED, "unchanged")
    for name, (values, _) in CHANGED.items():
        units.becomes(name, **values)
    found = swept(units, planned)
    assert {name: one.outcome for name, one in found.items()} == {**dict.fromkeys(CHANGED, SPARED), "unchanged": DELETED}
    assert [name for name, (_, said) in CHANGED.items() if said not in (found[name].error or "")] == []
    assert units.whole(*CHANGED)


def test_another_one_under_the_key_of_one_that_was_gone_is_spared(units: Units) -> None:
    planned = targets(units, "a")
    units.has("a")
    found = swept(units, planned)
    assert (found["a"].outcome, "another unit with the same key" in (found["a"].error or "")) == (SPARED, True)
    assert units.whole("a")


def test_a_note_that_says_less_than_the_store_now_knows_spares() -> None:
    assert reason_changed('{"closed_at":"x"}', '{"closed_at":"x","type":"PAYMENT"}') == (
        "It was changed since the sweep was planned: type was empty and is PAYMENT now."
    )


def test_children_that_refer_to_each_other_go_in_the_order_of_the_settings(units: Units) -> None:
    units.has("a", "b")
    apart = Remains.ALL if units.dialect == "sqlite" else Remains.UNKNOWN
    assert units.store().remains(units.dataset, targets(units, "a")) == {"a": apart}
    reference = (
        "REFERENCES process_object (n)" if units.dialect == "sqlite" else ", FOREIGN KEY (p) REFERENCES process_object (n)"
    )
    with units.engine.begin() as connection:
        unit = "unit varchar(60) CHARACTER SET utf8mb4" if units.dialect == "mysql" else "unit varchar(60)"
        connection.execute(sa.text(f"CREATE TABLE detail ({unit}, p integer {reference})"))
        other = units.tables["process_object"]
        for row in connection.execute(sa.select(other.c.unit, other.c.n)).all():
            connection.execute(sa.text("INSERT INTO detail VALUES (:unit, :n)"), {"unit": row.unit, "n": row.n})
    children = [{"table": "detail", "key": "unit"}, *units.settings["children"]]
    store = units.store(children=children)
    assert store.cascades().is_entangled
    # All tables are one transaction: a root that is there has all of its rows.
    assert store.remains(units.dataset, targets(units, "a")) == {"a": Remains.ALL}
    assert [one.outcome for one in store.sweep(units.dataset, targets(units, "a"), 4)] == [DELETED]
    assert units.whole("b")


def test_a_permit_is_asked_before_each_table_is_committed(postgresql: Units) -> None:
    postgresql.has("a", "b")
    planned, seen = targets(postgresql, "a", "b"), list[list[int]]()

    def permit() -> None:
        seen.append([len(postgresql.there(table)) for table in postgresql.tables])

    assert {one.outcome for one in postgresql.opened.sweep(postgresql.dataset, planned, 1, permit)} == {DELETED}
    changed = [sum(map(ne, before, after)) for before, after in pairwise([*seen, [0, 0, 0]])]
    assert (max(changed), sum(changed)) == (1, 3)


# --- others at work ---


@pytest.mark.parametrize("names", ["a", "ab"])
def test_a_writer_that_has_a_child_and_waits_for_the_root_gets_it(postgresql: Units, names: str) -> None:
    """The sweep has the root and waits for the child: in one connection the database would end the transaction that waits longer,
    the writer's; in two it sees no circle. The sweep lets go before that."""
    postgresql.has("a", "b")
    planned = targets(postgresql, *names)
    has_child, has_root = threading.Event(), threading.Event()

    def writer() -> None:
        with postgresql.engine.begin() as connection:
            connection.execute(sa.text("UPDATE summary SET content = 'new' WHERE unit = 'a'"))
            has_child.set()
            has_root.wait()
            connection.execute(sa.text("UPDATE unit_of_work SET closed = NULL WHERE id = 'a'"))

    def permit() -> None:
        with postgresql.engine.connect() as onlooker:
            if onlooker.execute(sa.text("SELECT 1 FROM unit_of_work WHERE id = 'a' FOR UPDATE SKIP LOCKED")).all():
                return
            onlooker.rollback()
            has_root.set()
            while not (writing.done() or onlooker.execute(sa.text("SELECT 1 FROM pg_locks WHERE NOT granted")).all()):
                onlooker.rollback()

    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(writer)
        has_child.wait()
        found = {one.transaction: one for one in postgresql.opened.sweep(postgresql.dataset, planned, 1, permit)}
        writing.result()
    assert {name: one.outcome for name, one in found.items()} == dict.fromkeys(names, DELETED) | {"a": SPARED}
    assert postgresql.whole("a", *({"b"} - {*names}))


@pytest.fixture
def racing(units: Units) -> Units:
    if units.dialect == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    return units


def test_a_unit_of_which_somebody_holds_a_row_of_a_child_fails_alone_and_whole(racing: Units) -> None:
    names = [f"u{number}" for number in range(9)]
    racing.has(*names)
    planned = targets(racing, *names)
    with racing.engine.connect() as writer, writer.begin() as writing:
        writer.execute(sa.text("UPDATE summary SET content = 'new' WHERE unit = 'u4'"))
        found = swept(racing, planned, 1)
        writing.rollback()
    assert {name: one.error for name, one in found.items() if one.outcome is not DELETED} == {"u4": LOCKED}
    assert racing.whole("u4")
    assert outcomes(racing, planned)["u4"] is DELETED


@pytest.mark.parametrize("fails", [None, "u7"])
def test_what_other_parts_of_a_batch_kept_from_being_done_is_done_when_they_are(
    racing: Units, monkeypatch: pytest.MonkeyPatch, fails: str | None
) -> None:
    """Some databases lock what lies between rows, so that a part may be in the way of its neighbour; one that fails for good
    as well, then, is in nobody's way."""
    names = [f"u{number}" for number in range(9)]
    racing.has(*names)
    planned = targets(racing, *names)
    once_more = GuardedDelete._once_more
    broken = racing.broken(fails) if fails else nullcontext()
    with broken, racing.engine.connect() as neighbour, neighbour.begin() as deleting:
        neighbour.execute(sa.text("UPDATE summary SET content = 'new' WHERE unit IN ('u4', 'u7')"))

        def ended(deletion: GuardedDelete[Any, Any], names: Sequence[str]) -> list[SweptTarget]:
            # Parts have threads of their own.
            if threading.current_thread() is threading.main_thread():
                assert "u4" in names
                deleting.rollback()
            return once_more(deletion, names)

        monkeypatch.setattr(GuardedDelete, "_once_more", ended)
        done = swept(racing, planned)
    assert {name for name, one in done.items() if one.outcome is not DELETED} == ({fails} if fails else set())
    assert fails is None or TOLD_TO in (done[fails].error or "")
    assert racing.whole(*([fails] if fails else []))


def test_a_root_row_whose_deletion_waits_for_somebody_fails_alone_and_whole(racing: Units) -> None:
    """With the root goes a row of another table, as the store accepts, and that one somebody holds."""
    racing.has("a", "b", "c")
    with racing.engine.begin() as connection:
        for statement in (
            "CREATE TABLE invoice (unit VARCHAR(60) PRIMARY KEY, paid INTEGER, FOREIGN KEY (unit) REFERENCES unit_of_work (id)"
            " ON DELETE CASCADE)",
            "INSERT INTO invoice VALUES ('a', 0), ('b', 0), ('c', 0)",
        ):
            connection.execute(sa.text(statement))
    store = racing.store(cascades="accepted")
    planned = [Target(one.transaction, one.note) for one in store.prepare(racing.dataset, ["a", "b", "c"])]
    with racing.engine.connect() as writer, writer.begin() as writing:
        writer.execute(sa.text("UPDATE invoice SET paid = 1 WHERE unit = 'b'"))
        found = {one.transaction: one for one in store.sweep(racing.dataset, planned, 1)}
        writing.rollback()
    assert {name: one.error for name, one in found.items() if one.outcome is not DELETED} == {"b": LOCKED}
    assert racing.whole("b")


def test_children_of_a_root_that_came_back_after_the_look_stay(racing: Units, monkeypatch: pytest.MonkeyPatch) -> None:
    racing.has("a", "b", "c", "stays")
    planned = targets(racing, "a", "b", "c")
    for name in "ab":
        racing.loses(racing.root, name)
    look = delete.present_of

    def comes_back(connection: sa.Connection, tables: Any, ids: Sequence[str], locked: bool = False) -> dict[str, str]:
        found = look(connection, tables, ids, locked)
        # Both looks have been: at the roots that are free, and at those that somebody holds.
        if not locked and "a" not in racing.there():
            racing.loses("summary", "a").loses("process_object", "a").has("a")
        return found

    monkeypatch.setattr(delete, "present_of", comes_back)
    assert outcomes(racing, planned, parallelism=1) == {"a": GONE, "b": GONE, "c": DELETED}
    assert racing.there("summary").count("a") == racing.there("process_object").count("a") == 2
    monkeypatch.undo()
    # What is left of the other goes when nobody comes back.
    assert outcomes(racing, [one for one in planned if one.transaction == "b"]) == {"b": GONE}
    assert racing.whole("a", "stays")


def test_writers_go_on_during_a_sweep_and_nothing_of_theirs_is_lost(postgresql: Units) -> None:
    old, live = [f"old{number:03}" for number in range(400)], [f"live{number:02}" for number in range(20)]
    postgresql.has(*old).has(*live, closed=None)
    planned = targets(postgresql, *old)
    root, summary = postgresql.tables["unit_of_work"], postgresql.tables["summary"]

    def writes(writer: int) -> int:
        for number in range(60):
            with postgresql.engine.begin() as connection:
                name = f"new{writer}-{number}"
                connection.execute(sa.insert(root).values(id=name, opened=datetime(2023, 5, 1, tzinfo=UTC)))
                rows = [{"n": 10**6 + writer * 1000 + number * 2 + part, "unit": name} for part in (0, 1)]
                connection.execute(sa.insert(summary), rows)
                touched = live[(writer * 7 + number) % len(live)]
                connection.execute(sa.update(root).where(root.c.id == touched).values(kind=f"{writer}-{number}"))
        return 60

    with ThreadPoolExecutor(3) as threads:
        writing = [threads.submit(writes, writer) for writer in (1, 2, 3)]
        found = [one for at in range(0, len(planned), 50) for one in swept(postgresql, planned[at : at + 50], 8).values()]
        assert [one.result() for one in writing] == [60] * 3
    assert {one.outcome for one in found} == {DELETED}
    new = [f"new{writer}-{number}" for writer in (1, 2, 3) for number in range(60)]
    assert postgresql.there() == sorted([*live, *new])
    assert postgresql.there("summary") == sorted([*live, *live, *new, *new])


def test_two_sweeps_of_the_same_batch_delete_it_once(postgresql: Units) -> None:
    names = [f"u{number:03}" for number in range(120)]
    postgresql.has(*names)
    planned = targets(postgresql, *names)
    with ThreadPoolExecutor(2) as threads:
        both = list(threads.map(lambda order: outcomes(postgresql, order), (planned, planned[::-1])))
    assert postgresql.whole()
    counted = [sum(one is DELETED for one in found.values()) for found in both]
    assert sum(counted) == 120


@pytest.mark.parametrize("store_url", ["mariadb"], indirect=True)
def test_connections_that_go_back_wait_for_locks_as_long_as_before(units: Units) -> None:
    """All stores of a URL have them in common. PostgreSQL forgets it with the transaction, and SQLite has no pool."""
    store = units.has("a", "b").store()
    planned = [Target(one.transaction, one.note) for one in store.prepare(units.dataset, ["a", "b"])]
    assert [one.outcome for one in store.sweep(units.dataset, planned, 2)] == [DELETED, DELETED]
    with ExitStack() as stack:
        opened = [stack.enter_context(store.database.engine.connect()) for _ in range(8)]
        assert {one.exec_driver_sql("SELECT @@innodb_lock_wait_timeout").scalar_one() for one in opened} == {10}
    store.close()


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (sa.Boolean(), True, "true"),
        (sa.Boolean(), False, "false"),
        (Integer(), 7, "7"),
        (sa.Numeric(10, 2), Decimal("1.50"), "1.50"),
        (sa.Date(), date(2026, 1, 31), "2026-01-31"),
        (sa.DateTime(timezone=True), datetime(2026, 1, 31, 10, tzinfo=UTC), "2026-01-31T10:00:00Z"),
        (sa.DateTime(timezone=True), datetime(2026, 1, 31, 10, 0, 0, 5, tzinfo=UTC), "2026-01-31T10:00:00.000005Z"),
        (sa.Float(53), 1.0, None),
        (sa.Time(), time(10), None),
        (sa.DateTime(), datetime(2026, 1, 31, 10), None),  # noqa: DTZ001 - that is what is refused
    ],
    ids=str,
)
def test_a_column_is_an_attribute_or_refused(units: Units, kind: TypeEngine[Any], value: Any, said: str | None) -> None:
    if units.dialect == "sqlite" and not isinstance(kind, Integer):
        pytest.skip("it has numbers and texts alone")
    if units.dialect == "mysql" and isinstance(kind, sa.Boolean | sa.DateTime):
        pytest.skip("it has numbers for truths, and times without a zone")
    times = [sa.Column(name, sa.Text() if units.dialect == "sqlite" else sa.DateTime(timezone=True)) for name in ("o", "c")]
    made = sa.Table("typed", sa.MetaData(), sa.Column("id", Integer, primary_key=True), sa.Column("kind", kind), *times)
    made.create(units.engine)
    with units.engine.begin() as connection:
        connection.execute(sa.insert(made), [{"id": 1, "kind": value}, {"id": 2, "kind": None}])
    root = {"table": "typed", "key": "id", "type": "kind", "opened_at": "o", "closed_at": "c"}
    store = units.store(root=root, children=[])
    try:
        if said is None:
            with pytest.raises(Refused, match=r"The column kind of the table .*typed is of the type .*, but an attribute is"):
                store.read([store.dataset])
            return
        rows = {row["transaction"]: dict(row["attributes"]) for row in store.read([store.dataset]).to_pylist()}
        assert rows == {"1": {"type": said}, "2": {}}
    finally:
        store.close()


class TestRecordsStore(Contract):
    @pytest.fixture
    def environment(self, store_url: str) -> Iterator[Records]:
        environment = Records(store_url, pooled=True)
        yield environment
        environment.units.close()

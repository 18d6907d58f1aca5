"""HEAD.json in the warehouse: an older ledger, another one or a fresh one sweeps nothing and removes no folder, until somebody
vouches for it.

Belongs here: the file, and the attacks that it is for, through the operations that people use. What a run in Dagster refuses is
in dagster/assets/test_swept_transactions.py.
"""

import json
import logging
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from retention_assets.environment import Environment
from retention_assets.errors import Refused
from retention_assets.ledger import Publication
from retention_assets.ledger.ledger import LedgerHead, head_of
from retention_assets.people.audit import AcceptRequest, VerifyRequest, audit_accept, audit_verify
from retention_assets.people.holds import HoldRequest, ReleaseRequest, release
from retention_assets.people.holds import hold as place_hold
from retention_assets.people.marks import UnmarkRequest, unmark
from retention_assets.people.realms import RealmRequest, Status, change_realm
from retention_assets.pipeline.head_file import HeadFile
from retention_assets.pipeline.warehouse import Warehouse
from retention_assets.sql.engines import sqlite_file
from retention_assets_tests.histories import AS_OF
from retention_assets_tests.ledger.states import raise_visibility
from retention_assets_tests.sweep.lakes import Lake

SOME = "main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@80d=10 - S3:SNAPSHOT@1d=10"
WHY = AcceptRequest(actor="ann", reason="restored on purpose")


@pytest.fixture
def lake(tmp_path: Path, url: str) -> Lake:
    """Two marks in a ledger on either database; nothing was noted in the warehouse yet."""
    lake = Lake(tmp_path / "lake", url).has(SOME)
    assert lake.marks() == 2
    return lake


def noted(lake: Lake) -> LedgerHead | None:
    return next(iter(Environment(lake.settings).head_file.heads()), None)


def hold(lake: Lake, name: str = "h") -> None:
    place_hold(HoldRequest(actor="ann", reason="r", name=name, datasets=("lake/x",)), Environment(lake.settings))


def publish(lake: Lake) -> None:
    with Environment(lake.settings).ledger() as ledger:
        ledger.publications.publish([Publication("log", "lake/d", "w/log/r1", "r1")], "run")


ACTS: dict[str, Callable[[Lake], object]] = {
    "a hold": hold,
    "an unmark": lambda lake: unmark(
        UnmarkRequest(actor="ann", reason="r", dataset="lake/d"), Environment(lake.settings)
    ),
    "a realm": lambda lake: change_realm(
        RealmRequest(actor="ann", reason="r", name="acme", status=Status.INACTIVE), Environment(lake.settings)
    ),
    "a publication": publish,
    "a release": lambda lake: release(ReleaseRequest(actor="ann", reason="over", name="h"), Environment(lake.settings)),
}  # fmt: skip


def checked(lake: Lake) -> str | None:
    with Environment(lake.settings).ledger() as ledger:
        try:
            HeadFile(str(lake.settings.warehouse)).check(ledger.database)
        except Refused as fault:
            return str(fault)
    return None


@pytest.mark.parametrize("act", ACTS)
def test_the_end_of_the_record_is_noted_after_what_must_not_be_forgotten(lake: Lake, act: str) -> None:
    assert (noted(lake), checked(lake)) == (None, None)
    ACTS["a hold" if act != "a hold" else "a publication"](lake)
    ACTS[act](lake)
    with lake.opened() as ledger, ledger.database.reading() as connection:
        assert noted(lake) == head_of(connection)
    # What needs no note comes after it: the chain still holds it.
    with Environment(lake.settings).ledger() as ledger:
        before = noted(lake)
        raise_visibility(ledger, "lake/d", AS_OF)
    assert (noted(lake), checked(lake)) == (before, None)
    assert [file.name for file in (lake.folder / "warehouse").iterdir() if "HEAD" in file.name] == ["HEAD.json"]


def without_ledger(lake: Lake) -> Path:
    """The ledger's file is taken away; where it was."""
    file = sqlite_file(lake.ledger_url)
    assert file is not None
    for end in ("", "-wal", "-shm"):
        file.with_name(f"{file.name}{end}").unlink(missing_ok=True)
    return file


def older(lake: Lake) -> None:
    """Somebody puts back what the ledger was before the newest hold."""
    copy = lake.folder / "backup.db"
    with sqlite3.connect(sqlite_file(lake.ledger_url) or "", isolation_level=None) as connection:
        connection.execute(f"VACUUM INTO '{copy}'")
    connection.close()
    hold(lake, "newer")
    shutil.copy(copy, without_ledger(lake))


def removed(lake: Lake) -> None:
    """The file is gone: the next to open it makes a fresh one."""
    without_ledger(lake)
    lake.marks()


def forked(lake: Lake) -> None:
    """An older copy was put back, and has gone on by itself: as long as the other, and another."""
    older(lake)
    with lake.opened() as ledger:
        ledger.realms.change("other", "INACTIVE", "ann", "r")


def damaged(lake: Lake) -> None:
    (lake.folder / "warehouse" / "HEAD.json").write_text('{"ledger": "x", "posi')


ATTACKS: dict[str, tuple[Callable[[Lake], None], str]] = {
    "an older ledger": (older, "ends with row 6: an older copy of the ledger was restored"),
    "an older ledger that went on": (forked, "has another row there: an older copy of the ledger was restored"),
    "a fresh ledger": (removed, "Either another ledger writes there, or this ledger is a replacement"),
    "a damaged note": (damaged, "is damaged: it names no end of a record"),
}


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_ledger_that_is_not_the_newest_sweeps_nothing_until_somebody_vouches_for_it(lake: Lake, attack: str) -> None:
    with Environment(lake.settings).ledger() as ledger:
        raise_visibility(ledger, "lake/d", AS_OF)
    hold(lake)
    commit, sentence = ATTACKS[attack]
    commit(lake)
    said = checked(lake)
    assert said is not None
    assert sentence in said
    assert "retention audit accept --head --reason" in said
    # What happens next in that ledger hides nothing.
    before = (lake.folder / "warehouse" / "HEAD.json").read_text()
    hold(lake, "one more")
    # A ledger of the same id, which went on by itself, stands beside it.
    assert (lake.folder / "warehouse" / "HEAD.json").read_text().startswith(before)
    assert checked(lake)
    accepted = audit_accept(WHY, Environment(lake.settings)).data
    assert checked(lake) is None
    assert noted(lake) == LedgerHead(accepted["ledger"], accepted["position"], noted(lake).hash)  # type: ignore[union-attr]
    with lake.opened() as ledger:
        line = json.loads([*ledger.audit_lines()][-1])
        assert (line["deed"], line["actor"], line["reason"]) == ("ACCEPT", "ann", "restored on purpose")
        assert line["detail"]["noted"] == (json.loads(before) if attack != "a damaged note" else None)
        assert ledger.verify().faults == ()
    hold(lake, "and on")
    assert checked(lake) is None


def test_accepting_seals_rows_as_they_are_and_says_which(lake: Lake) -> None:
    hold(lake)
    with lake.opened() as ledger, ledger.database.engine.execution_options(ledger_writes=True).begin() as connection:
        connection.exec_driver_sql("UPDATE holds SET owner = 'x'")
    environment = Environment(lake.settings)
    assert audit_verify(VerifyRequest(actor="ann"), environment).data["faults"]
    (fault,) = audit_accept(WHY, environment).data["faults"]
    assert "of holds was changed past the ledger" in fault
    assert audit_verify(VerifyRequest(actor="ann"), environment).data["faults"] == ()


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_warehouse_that_is_away_is_a_warning_of_the_hold_and_stops_the_sweep(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(lake.folder / "warehouse", ignore_errors=True)
    (lake.folder / "warehouse").write_text("a file where a folder belongs")
    with caplog.at_level(logging.WARNING):
        hold(lake)
    assert "The end of the record was not noted in" in caplog.text
    with lake.opened() as ledger:
        assert [one.name for one in ledger.holds.recorded(AS_OF).placed] == ["h"]
    with pytest.raises(Refused, match="can't be written"):
        audit_accept(WHY, Environment(lake.settings))


def test_two_ledgers_with_one_warehouse_remove_nothing_of_each_other(lake: Lake, tmp_path: Path) -> None:
    warehouse = Warehouse(str(lake.settings.warehouse))
    with Environment(lake.settings).ledger() as ledger:
        ledger.publications.publish(warehouse.publications("log", "r1", ["lake/d"]), "run")
    folder = Path(warehouse.folder("log", "r1"))
    folder.mkdir(parents=True)
    other = Lake(tmp_path / "other")
    settings = other.settings.model_copy(update={"warehouse": lake.settings.warehouse})
    with lake.opened() as ledger:
        own = ledger.id
    with Environment(settings).ledger() as second:
        assert second.id != own
        for refuse in (
            lambda: warehouse.head_file.check_owner(second.id),
            lambda: warehouse.clean(second, ["log"], lambda *_: True),
        ):
            with pytest.raises(Refused) as refusal:
                refuse()
            assert second.id in str(refusal.value)
            assert own in str(refusal.value)
            assert "Give each ledger its own warehouse" in str(refusal.value)
        assert folder.is_dir()
    with Environment(lake.settings).ledger() as ledger:
        ledger.publications.publish(warehouse.publications("log", "r2", ["lake/d"]), "run")
        assert warehouse.clean(ledger, ["log"], lambda *_: True) == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"ledger": "a", "position": 1, "hash": "short"}', '{"position": 1}', "\x00"])
def test_what_is_no_note_is_never_taken_for_one(tmp_path: Path, text: str) -> None:
    (tmp_path / "HEAD.json").write_text(text)
    with pytest.raises(Refused, match="is damaged"):
        HeadFile(str(tmp_path)).heads()


@pytest.mark.parametrize("form", ["{}", "{}/", "file://{}"])
def test_the_note_is_read_as_it_was_written_wherever_the_warehouse_is(tmp_path: Path, form: str) -> None:
    file = HeadFile(form.format(tmp_path / "w"))
    assert file.heads() == []
    head = LedgerHead("a" * 32, 3, "b" * 64)
    file.write(LedgerHead("x", 1, "c" * 64))
    file.write(head)
    assert file.heads() == [head]
    assert json.loads((tmp_path / "w" / "HEAD.json").read_text()) == asdict(head)
    assert [one.name for one in (tmp_path / "w").iterdir()] == ["HEAD.json"]

"""What is set aside of a `files` store, whatever happens to it: each order, first and again after a kill."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from retention_assets.outcomes import Order, Outcome
from retention_assets.stores.protocol import SweptTarget, Target
from retention_assets_tests.stores.files.environments import LocalFiles
from retention_assets_tests.stores.files.sweeps import filled, line

SIZE = len("lake/a T1")
SET, BACK, GONE = Order.SET_ASIDE, Order.RESTORE, Order.DELETE_ASIDE


class Due:
    """T1 of a lake, as planned."""

    def __init__(self, folder: Path) -> None:
        self.lake = filled(LocalFiles(folder))
        self.store: Any = self.lake.store()
        [prepared] = self.store.prepare("lake/a", ["T1"])
        self.target = Target("T1", prepared.note, place_known=True, aside="7/3")
        self.root, self.place = folder / "data", folder / "data" / "a" / "T1"
        self.aside, self.note = self.root / ".retention-trash/7/3/T1", self.root / ".retention-trash/7/3.json"

    @property
    def whole(self) -> Path:
        return self.aside if self.aside.exists() else self.place

    def gives(self, order: Order, begun: bool = False) -> SweptTarget:
        swept: list[SweptTarget] = self.store.carry_out(order, "lake/a", [replace(self.target, begun_earlier=begun)], 1)
        [one] = swept
        return one

    def state(self) -> dict[str, bytes]:
        """Every file in the root but notes of the trash."""
        files = self.lake.everything().items()
        return {place: content for place, content in files if place.startswith("data/") and not place.endswith("/7/3.json")}


@pytest.fixture
def due(tmp_path: Path) -> Due:
    return Due(tmp_path)


def unmounts(due: Due) -> None:
    due.root.rename(due.root.with_name("unmounted"))
    due.root.mkdir()


def mounts_another(due: Due) -> None:
    unmounts(due)
    (due.root / "another" / "T1").mkdir(parents=True)
    (due.root / "another" / "T1" / "x").write_bytes(b"x")


def occupies(due: Due) -> None:
    due.place.mkdir()
    (due.place / "new").write_bytes(b"new")


# the answers to each order, and to each that is given again, as its store was killed with T1 in the trash
SPARED, FAILED = Outcome.SPARED, Outcome.FAILED
EVENTS: dict[str, tuple[Callable[[Due], object], str, dict[tuple[Order, bool], Outcome]]] = {
    "nothing happens": (
        lambda _: None, "",
        {(SET, False): Outcome.SET_ASIDE, (SET, True): Outcome.SET_ASIDE, (BACK, False): Outcome.RESTORED,
         (BACK, True): Outcome.RESTORED, (GONE, False): Outcome.DELETED, (GONE, True): Outcome.DELETED},
    ),
    "it is gone": (
        lambda due: shutil.rmtree(due.whole), "^Neither .retention-trash/7/3/T1 nor a/T1 is in|retention trash forget",
        {(SET, False): Outcome.ALREADY_GONE, (SET, True): Outcome.ALREADY_GONE, (BACK, False): FAILED, (BACK, True): FAILED,
         (GONE, False): FAILED, (GONE, True): Outcome.ALREADY_GONE},
    ),
    "the trash is moved away": (
        lambda due: (due.root / ".retention-trash").rename(due.root.with_name("moved")), "Neither|retention trash forget",
        {(SET, True): Outcome.ALREADY_GONE, (BACK, False): FAILED, (BACK, True): FAILED, (GONE, False): FAILED,
         (GONE, True): Outcome.ALREADY_GONE},
    ),
    "it loses a file": (
        lambda due: (due.whole / "part.parquet").unlink(), "2 files of .* bytes then, 1 of",
        {(SET, False): SPARED, (SET, True): SPARED, (BACK, False): SPARED, (BACK, True): SPARED, (GONE, False): SPARED,
         (GONE, True): Outcome.DELETED},
    ),
    "it gets a file": (
        lambda due: (due.whole / "new").write_bytes(b""), "2 files of .* bytes then, 3 of",
        {(order, begun): SPARED for order in (SET, BACK, GONE) for begun in (False, True)},
    ),
    "it gets other bytes": (
        lambda due: (due.whole / "part.parquet").write_bytes(b"others" * 9), "Its files changed",
        {(order, begun): SPARED for order in (SET, BACK, GONE) for begun in (False, True)},
    ),
    "the disk is not mounted": (
        unmounts, "is empty|Neither|retention trash forget|no sign of the data",
        {(order, begun): FAILED for order in (SET, BACK, GONE) for begun in (False, True)},
    ),
    "another disk is mounted": (
        mounts_another, "Neither|retention trash forget|no sign of the data",
        {(order, begun): FAILED for order in (SET, BACK, GONE) for begun in (False, True)},
    ),
    "something is in its place": (
        occupies, "Something else is at 'a/T1'",
        {(SET, True): Outcome.SET_ASIDE, (BACK, False): FAILED, (BACK, True): FAILED, (GONE, False): Outcome.DELETED,
         (GONE, True): Outcome.DELETED},
    ),
    "the log loses it": (
        lambda due: due.lake.put_log("0.jsonl", line(transaction="T10")), "does not know 'T1'",
        {(SET, False): FAILED, (BACK, False): Outcome.RESTORED, (GONE, False): Outcome.DELETED, (GONE, True): Outcome.DELETED},
    ),
    "the log loses its dataset": (
        lambda due: due.lake.put_log("0.jsonl", line(dataset="lake/b")), "does not know 'T1'",
        {(SET, False): FAILED, (BACK, False): Outcome.RESTORED, (GONE, False): Outcome.DELETED, (GONE, True): Outcome.DELETED},
    ),
    "the log can't be read": (
        lambda due: due.lake.put_log("0.jsonl", "{"), "0.jsonl",
        {(SET, False): FAILED, (BACK, False): Outcome.RESTORED, (GONE, False): Outcome.DELETED, (GONE, True): Outcome.DELETED},
    ),
}  # fmt: skip
CASES = [(event, order, begun) for event, (_, _, answers) in EVENTS.items() for order, begun in answers]


@pytest.mark.parametrize(("event", "order", "begun"), CASES)
def test_what_happens_to_it_is_told_and_nothing_else_goes(due: Due, event: str, order: Order, begun: bool) -> None:
    happens, why, answers = EVENTS[event]
    if begun or order.starts_in_trash:
        assert due.gives(SET) == SweptTarget("T1", Outcome.SET_ASIDE, SIZE)
    happens(due)
    before, was_aside = due.state(), due.aside.exists()
    swept = due.gives(order, begun)
    after = due.state()
    assert swept.outcome is answers[order, begun]
    assert (swept.outcome in (FAILED, SPARED)) == bool(re.search(why, swept.error or "") and why)
    if swept.outcome is Outcome.DELETED:
        assert (swept.bytes, due.note.exists()) == (SIZE, False)
        assert after == {place: content for place, content in before.items() if "/.retention-trash/" not in place}
        return
    # every byte is at one of the two places
    assert sorted(after.values()) == sorted(before.values())
    comes_back = swept.outcome is Outcome.RESTORED or (swept.outcome, order) == (SPARED, SET)
    assert due.aside.exists() == ((was_aside or (order is SET and swept.outcome is Outcome.SET_ASIDE)) and not comes_back)
    assert due.note.exists() == due.aside.exists() or swept.outcome is FAILED


def test_a_note_beside_it_says_where_it_was_and_what_there_was(due: Due) -> None:
    file = due.place / "part.parquet"
    newest = max(path.stat().st_mtime_ns for path in due.place.rglob("*") if path.is_file())
    due.gives(SET)
    note = json.loads(due.note.read_text())
    assert not file.exists()
    assert (note["plan"], note["mark"], note["path"]) == ("7", "3", "a/T1")
    assert [note["note"][name] for name in ("files", "size", "newest")] == [2, SIZE, newest]


@pytest.mark.parametrize("event", ["it loses a file", "it gets a file", "it gets other bytes"])
def test_by_its_note_alone_it_comes_back_whole_or_not_at_all(due: Due, event: str) -> None:
    """Where the folder could not be listed when it was planned."""
    due.target = replace(due.target, note=None)
    for answer in (FAILED, Outcome.RESTORED):
        assert due.gives(SET).outcome is Outcome.SET_ASIDE
        whole = due.root.with_name("whole")
        if answer is FAILED:
            shutil.copytree(due.aside, whole)
            EVENTS[event][0](due)
            before = due.state()
            assert (due.gives(BACK).outcome, due.state()) == (SPARED, before)
            shutil.rmtree(due.aside)
            whole.rename(due.place)
        else:
            assert due.gives(BACK).outcome is Outcome.RESTORED


def test_by_its_note_alone_it_moves_back_if_it_was_written_to_before_it_moved(due: Due) -> None:
    asked = count()

    def writes() -> None:
        # it is looked at after the first permit, and moved after the second
        if next(asked):
            (due.place / "new").write_bytes(b"new")

    [swept] = due.store.carry_out(SET, "lake/a", [replace(due.target, note=None)], 1, writes)
    assert swept.outcome is SPARED
    assert ((due.place / "new").exists(), (due.root / ".retention-trash").exists()) == (True, False)


@pytest.mark.parametrize("text", ["", None])
def test_without_a_note_its_plan_says_what_there_was(due: Due, text: str | None) -> None:
    """An earlier release left none, and a crash an empty one."""
    for order, outcome in ((BACK, Outcome.RESTORED), (GONE, Outcome.DELETED)):
        due.gives(SET)
        due.note.unlink()
        if text is not None:
            due.note.write_text(text)
        assert due.gives(order).outcome is outcome
        assert not (due.root / ".retention-trash").exists()


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("order", [SET, BACK])
def test_without_a_note_it_is_compared_with_its_plan_though_it_was_begun(due: Due, order: Order, begun: bool) -> None:
    due.gives(SET)
    due.note.unlink()
    (due.aside / "part.parquet").unlink()
    before = due.state()
    assert due.gives(order, begun).outcome is SPARED
    assert sorted(due.state().values()) == sorted(before.values())


@pytest.mark.parametrize(
    "text", ["{", "[]", "7", '"a"', '{"path": 7}', '{"path": "a/T1", "note": {}}', '{"path": "", "note": null}']
)
@pytest.mark.parametrize("order", [SET, BACK, GONE])
def test_a_note_that_is_none_is_named_and_nothing_moves(due: Due, text: str, order: Order) -> None:
    due.gives(SET)
    due.note.write_text(text)
    before = due.state()
    swept = due.gives(order, begun=True)
    assert (swept.outcome, due.state()) == (FAILED, before)
    assert ".retention-trash/7/3.json" in (swept.error or "")
    assert "Bring it back, or remove it" in (swept.error or "")


@pytest.mark.parametrize("path", ["a/..", "..", "a/T1/../..", ""])
def test_a_note_leads_nowhere_else(due: Due, path: str) -> None:
    due.gives(SET)
    note = json.loads(due.note.read_text())
    due.note.write_text(json.dumps({**note, "path": path}))
    before = due.state()
    assert [due.gives(order).outcome for order in (BACK, GONE)] == [FAILED, FAILED]
    assert "Error" not in (due.gives(GONE).error or "")
    assert due.state() == before


def test_where_its_place_has_another_name_by_now_it_goes_for_good_but_does_not_come_back(due: Due) -> None:
    due.gives(SET)
    others = {place: content for place, content in due.state().items() if "/.retention-trash/" not in place}
    settings = {"name": "lake", "log": "log", "data": "data/{dataset}/version-{transaction}"}
    moved = type(due.store.settings).model_validate(settings, context={"folder": str(due.root.parent)})
    due.store = type(due.store)(moved)
    back = due.gives(BACK)
    assert back.outcome is FAILED
    assert "It was set aside from 'a/T1', and its place is 'a/version-T1' now" in (back.error or "")
    assert due.gives(GONE) == SweptTarget("T1", Outcome.DELETED, SIZE)
    assert due.state() == others


def test_what_comes_back_tells_that_readers_do_not_see_files_that_its_log_names_as_deleted(due: Due) -> None:
    due.lake.put_log("tombstones.jsonl", line(transaction="retention-T1", type="DELETE"))
    due.gives(SET)
    assert "Readers of a latest view do not see" in (due.gives(BACK).error or "")

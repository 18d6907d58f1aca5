"""Rounds: every source is read until it says that it was whole, and whatever goes wrong says which source it was."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.errors import Refused
from retention_assets.stores.concurrency import TasksHere
from retention_assets.stores.objects import sources
from retention_assets.stores.objects.references import ShareEnd, SourceNotWhole
from retention_assets.stores.objects.sources import ShareRows, read_whole
from retention_assets_tests.stores.objects.references.sources import Said


@dataclass
class Reader:
    """Keeps what it read, and in which round."""

    fails: bool = False
    keys: list[tuple[int, str]] = field(default_factory=list)

    def __call__(self, rows: ShareRows) -> None:
        for batch in rows:
            if self.fails:
                raise ValueError("the disk is full")
            self.keys += [(int(rows.name.split("-")[1]), key) for key in batch["object"].to_pylist()]


def test_a_source_that_changed_is_read_again_and_no_other() -> None:
    again, reader = [["all"]], Reader()
    sources = [Said([("a", None, None)]), Said([("b", None, None)], proof=lambda: again.pop() if again else [])]
    found = read_whole(TasksHere(), sources, reader)
    assert [one.source for one in found] == [0, 1, 1]
    assert reader.keys == [(0, "a"), (0, "b"), (1, "b")]


def test_each_source_is_asked_about_its_own_ends_alone() -> None:
    @dataclass
    class Noted(Said):
        ends: Sequence[ShareEnd] = ()

        def finish(self, ends: Sequence[ShareEnd]) -> list[str]:
            self.ends = ends
            return []

    sources = [Noted([("a", None, None)]), Noted([("b", None, None), ("c", None, None)])]
    read_whole(TasksHere(), sources, Reader())
    assert [[end.rows for end in one.ends] for one in sources] == [[1], [2]]


def test_however_many_rows_come_at_once_all_of_them_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_MOST", 2)
    reader = Reader()
    read_whole(TasksHere(), [Said([(key, None, None) for key in "abcde"], at_once=5)], reader)
    assert [key for _, key in reader.keys] == list("abcde")


def test_what_never_comes_to_rest_is_named() -> None:
    restless = Said([("a", None, None)], "mails", proof=lambda: ["all"])
    with pytest.raises(SourceNotWhole, match=r"^mails changed each of the 5 times that it was read\. Try again"):
        read_whole(TasksHere(), [Said([], "calm"), restless], Reader())


class Broken(Said):
    """Fails where it is told to, in words that have a password."""

    def _fail(self, where: str) -> None:
        if self.label.endswith(where):
            raise KeyError("postgresql://me:secret@host/db")

    def shares(self, wanted: int) -> list[str]:
        self._fail("shares")
        return super().shares(wanted)

    def read(self, share: str) -> Generator[pa.RecordBatch, None, ShareEnd]:
        self._fail("read")
        return (yield from super().read(share))

    def finish(self, ends: Any) -> list[str]:
        self._fail("finish")
        return super().finish(ends)


@pytest.mark.parametrize("where", ["shares", "read", "finish"])
def test_what_a_source_raises_is_said_with_its_name_and_without_passwords(where: str) -> None:
    with pytest.raises(SourceNotWhole, match=rf"^mails {where}: KeyError: .*host/db") as fault:
        read_whole(TasksHere(), [Said([("a", None, None)]), Broken([("b", None, None)], f"mails {where}")], Reader())
    assert "secret" not in str(fault.value)


def test_what_a_source_refuses_is_said_as_it_says_it() -> None:
    def refuse() -> list[str]:
        raise Refused("the last line is missing")

    with pytest.raises(Refused, match=r"^the last line is missing$"):
        read_whole(TasksHere(), [Said([], proof=refuse)], Reader())


def test_what_goes_wrong_with_the_rows_is_no_fault_of_the_source() -> None:
    with pytest.raises(ValueError, match=r"^the disk is full$"):
        read_whole(TasksHere(), [Said([("a", None, None)])], Reader(fails=True))


class TwoTasks(TasksHere):
    slots = 2


def test_tasks_that_read_side_by_side_share_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(sources, "moment", lambda: SimpleNamespace(running=clock[0]))
    monkeypatch.setattr(sources, "sleep", lambda seconds: clock.append(clock.pop() + seconds))
    read_whole(TwoTasks(), [Said([("a", None, None)] * 8, at_once=2) for _ in range(2)], Reader(), rate=4)
    # Two a second, one share after the other here.
    assert clock == [8.0]

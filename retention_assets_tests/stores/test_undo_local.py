"""Setting aside on disks: killed before any system call, refused, and nothing replaced. Beside the contract's promises."""

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from retention_assets.errors import Refused
from retention_assets.outcomes import Order, Outcome
from retention_assets.stores.places import DeletionPace, DueObject, TrashPlace, open_place
from retention_assets_tests.stores.contract import Environment, Undo, write_chains
from retention_assets_tests.stores.files.environments import LocalFiles
from retention_assets_tests.stores.objects.environments import LocalObjects
from retention_assets_tests.stores.places.mounts import run_with_mounts

KINDS = ("files", "objects")
TRASH = ".retention-trash"


class Killed(BaseException):
    pass


class Due(Undo):
    """A transaction on a disk: a folder of a `files` store, or a file of an `objects` store."""

    def __init__(self, folder: Path, kind: str) -> None:
        folder.mkdir()
        environment: Environment = LocalFiles(folder) if kind == "files" else LocalObjects(folder)
        super().__init__(environment, [write_chains(environment)["T1"]])
        self.root = folder / ("data" if kind == "files" else "objects")
        self.path, self.aside = self.root / "a" / "T1", self.root / TRASH / "7" / "0" / "T1"
        self.inner = "part.parquet" if kind == "files" else ""

    @property
    def place(self) -> TrashPlace:
        place = open_place(str(self.root))
        assert isinstance(place, TrashPlace)
        return place

    def act(self, act: Order, begun: bool = False) -> Outcome:
        [outcome] = self.order(act, begun)
        return outcome

    def state(self) -> dict[str, bytes | None]:
        """Everything in the root, folders and links too."""
        paths = sorted(self.root.rglob("*"))
        return {str(path.relative_to(self.root)): path.read_bytes() if path.is_file() else None for path in paths}

    def guard(self) -> None:
        ledger = self.root.parent / "ledger.db"
        os.link(self.path / self.inner, ledger)
        store: Any = self.environment.store()
        store.settings.guard((f"sqlite:///{ledger}",))
        self.environment.store = lambda: store  # type: ignore[method-assign]


@pytest.fixture(params=KINDS)
def due(request: pytest.FixtureRequest, tmp_path: Path) -> Due:
    return Due(tmp_path / "store", request.param)


@contextmanager
def killed_before(monkeypatch: pytest.MonkeyPatch, left: int) -> Iterator[None]:
    """End the program, as it were, before one of the system calls that change a disk."""
    counted = iter(range(left))

    def counts(call: Callable[..., Any]) -> Callable[..., Any]:
        def stop(*arguments: Any, **more: Any) -> Any:
            if next(counted, None) is None:
                raise Killed
            return call(*arguments, **more)

        return stop

    with monkeypatch.context() as patch:
        for name in ("mkdir", "rename", "link", "unlink", "rmdir"):
            patch.setattr(os, name, counts(getattr(os, name)))
        yield


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("act", "then"),
    [
        (Order.SET_ASIDE, Order.SET_ASIDE), (Order.SET_ASIDE, Order.RESTORE), (Order.RESTORE, Order.RESTORE), (Order.RESTORE, Order.SET_ASIDE),
        (Order.DELETE_ASIDE, Order.DELETE_ASIDE), (Order.DELETE_ASIDE, Order.RESTORE),
    ],
)  # fmt: skip
def test_killed_before_any_system_call_it_is_whole_at_one_place_after_the_next_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, act: Order, then: Order
) -> None:
    for left in range(30):
        due = Due(tmp_path / str(left), kind)
        before, is_killed = due.state(), False
        if act is not Order.SET_ASIDE:
            due.act(Order.SET_ASIDE)
        try:
            with killed_before(monkeypatch, left):
                due.act(act)
        except Killed:
            is_killed = True
        outcome = due.act(then, begun=True)
        if act is Order.DELETE_ASIDE and outcome in (Outcome.FAILED, Outcome.SPARED):
            # some of it was deleted for good: the rest does not come back as if it were all
            assert (then, due.path.exists()) == (Order.RESTORE, False)
        elif then is Order.RESTORE:
            assert (outcome, due.state()) == (Outcome.RESTORED, before)
        elif then is Order.SET_ASIDE:
            assert (outcome, due.path.exists()) == (Outcome.SET_ASIDE, False)
            assert (due.act(Order.RESTORE), due.state()) == (Outcome.RESTORED, before)
        else:
            assert outcome in (Outcome.DELETED, Outcome.ALREADY_GONE)
            assert due.state() == {place: before[place] for place in before if not place.startswith("a/T1")}
        if not is_killed:
            break
    assert 3 < left < 30


REFUSED: dict[str, tuple[Callable[[Due], object], str]] = {
    "a symlink in its place": (lambda due: _swap(due, due.path), "is a symlink|not a file"),
    "a symlink above it": (lambda due: _swap(due, due.root / "a"), "is a symlink"),
    "a symlink as the trash": (lambda due: (due.root / TRASH).symlink_to(due.root.parent), "is a symlink"),
    "another thing in its trash": (lambda due: (due.aside.parent / "else").mkdir(parents=True), "holds 'else'"),
    "a file of retention in it": (Due.guard, "belongs to retention itself"),
}


def _swap(due: Due, path: Path) -> None:
    path.rename(due.root.parent / "outside")
    path.symlink_to(due.root.parent / "outside")


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_moves(due: Due, case: str) -> None:
    change, why = REFUSED[case]
    change(due)
    before = due.state()
    assert due.act(Order.SET_ASIDE) is Outcome.FAILED
    assert re.search(why, due.error)
    assert due.state() == before


ASIDES = ("", "12", "../12", "12/..", "12/34/56", "/12/34", "12/34\n")
KEYS = ("", "..", "a/../T1", "a//T1", "a/", f"{TRASH}/7/0/T1", ".retention-store")


@pytest.mark.parametrize(("key", "aside"), [("a/T1", aside) for aside in ASIDES] + [(key, "7/0") for key in KEYS])
def test_only_paths_below_the_root_move_and_only_to_two_numbers(due: Due, key: str, aside: str) -> None:
    before = due.state()
    for act in (Order.SET_ASIDE, Order.RESTORE, Order.DELETE_ASIDE):
        [swept] = due.place.carry_out(act, [DueObject(key, aside=aside)], lambda _: None, lambda: None, DeletionPace(0), 1)
        assert swept.outcome is Outcome.FAILED
        if aside in ASIDES:
            with pytest.raises(Refused, match="no folder of the trash"):
                due.place.carry_out_tree(act, ("a", "T1"), aside, lambda: None, lambda _: None)
    assert due.state() == before


def test_nobody_who_lists_sees_the_trash_and_no_sweep_deletes_in_it(due: Due) -> None:
    due.act(Order.SET_ASIDE)
    key, place = str((due.aside / due.inner).relative_to(due.root)), due.place
    keys = [entry.key for wanted in (1, 3) for share in place.shares(wanted) for entry in place.entries(share)]
    assert not [name for name in (*keys, *place.names_in()) if name.startswith(TRASH)]
    assert not list(place.find([key]))
    assert not place.has((TRASH, "7"))
    [swept] = place.delete([DueObject(key)], str, lambda: None, DeletionPace(0), 1)
    assert (swept.outcome, (due.aside / due.inner).exists()) == (Outcome.FAILED, True)


def test_what_changed_in_the_trash_neither_comes_back_nor_goes(due: Due) -> None:
    due.act(Order.SET_ASIDE)
    (due.aside / due.inner).write_bytes(b"changed")
    before = due.state()
    assert [due.act(act) for act in (Order.RESTORE, Order.DELETE_ASIDE)] == [Outcome.SPARED, Outcome.SPARED]
    assert due.state() == before


@pytest.mark.parametrize("obstacle", ["a file", "an empty folder", "a folder", "a dangling link"])
def test_nothing_comes_back_onto_what_is_there(due: Due, obstacle: str) -> None:
    due.act(Order.SET_ASIDE)
    if obstacle == "a file":
        due.path.write_bytes(b"new")
    elif obstacle == "a dangling link":
        due.path.symlink_to("nowhere")
    else:
        (due.path / "new" if obstacle == "a folder" else due.path).mkdir(parents=True)
    before = due.state()
    assert due.act(Order.RESTORE) is Outcome.FAILED
    assert "Something else is at 'a/T1'" in due.error
    # what was set aside is whole, and a second order finds it
    assert due.act(Order.SET_ASIDE, begun=True) is Outcome.SET_ASIDE
    assert due.state() == before


@pytest.mark.parametrize("is_taken", [False, True])
def test_what_is_written_while_it_moves_moves_back_with_it(due: Due, monkeypatch: pytest.MonkeyPatch, is_taken: bool) -> None:
    """Unless something else is there by then: it stays begun, and both are kept."""
    rename = os.rename

    def meanwhile(name: str, to: str, src_dir_fd: int, dst_dir_fd: int) -> None:
        monkeypatch.undo()
        (due.path / due.inner).write_bytes(b"newer")
        rename(name, to, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        if is_taken:
            due.path.write_bytes(b"another")

    monkeypatch.setattr(os, "rename", meanwhile)
    assert due.act(Order.SET_ASIDE) is (Outcome.WITHHELD if is_taken else Outcome.SPARED)
    assert ((due.aside if is_taken else due.path) / due.inner).read_bytes() == b"newer"
    assert due.path.read_bytes() == b"another" if is_taken else not (due.root / TRASH).exists()


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EROFS])
def test_a_disk_that_moves_nothing_is_found_by_a_try_and_leaves_nothing_half(
    due: Due, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuses(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    before = due.state()
    monkeypatch.setattr(os, "mkdir" if code == errno.EROFS else "rename", refuses)
    assert due.act(Order.SET_ASIDE) is Outcome.FAILED
    fault = due.place.undo_fault() or ""
    assert all(os.strerror(code) in text for text in (due.error, fault))
    assert "Leave `undo` out" in fault
    assert due.state() == before


def test_it_comes_back_where_nobody_may_link_and_without_its_parents(due: Due, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    before = due.state()
    due.act(Order.SET_ASIDE)
    for folder in set(due.root.iterdir()) - {due.root / TRASH}:
        shutil.rmtree(folder)
    with pytest.raises(Refused, match="is empty"):
        due.place.check_root()
    monkeypatch.setattr(os, "link", refuses)
    assert due.act(Order.RESTORE) is Outcome.RESTORED
    assert due.state() == {place: before[place] for place in before if place == "a" or place.startswith("a/T1")}


OVERLAY = """
import json, os, subprocess, sys
from retention_assets.stores.places.local import LocalPlace
answers = {}
for name in ("old", "new"):
    layers = {layer: f"{sys.argv[1]}/{name}/{layer}" for layer in ("lower", "upper", "work", "root")}
    for path in (*layers.values(), *([f"{layers['lower']}/old"] if name == "old" else [])):
        os.makedirs(path)
    options = "lowerdir={lower},upperdir={upper},workdir={work}".format_map(layers)
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, layers["root"]], check=True)
    os.makedirs(f"{layers['root']}/{name}", exist_ok=True)
    answers[name] = LocalPlace(layers["root"]).undo_fault(), os.listdir(layers["root"])
print(json.dumps(answers))
"""


@pytest.mark.long
def test_an_overlay_that_moves_only_what_is_new_is_found_by_a_try(tmp_path: Path) -> None:
    answers = run_with_mounts(OVERLAY, tmp_path, None)
    assert "set aside: Invalid cross-device link. Leave `undo` out" in answers["old"][0]
    assert (answers["old"][1], answers["new"]) == (["old"], [None, ["new"]])

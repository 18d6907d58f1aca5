"""Setting aside on disks: killed before any system call, refused, and nothing replaced. Beside the contract's promises."""

import ctypes
import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from retention_assets.errors import Refused
from retention_assets.outcomes import Order, Outcome
from retention_assets.stores.places import DeletionPace, DueObject, Place, open_place
from retention_assets_tests.stores.contract import Environment, write_chains
from retention_assets_tests.stores.files.environments import LocalFiles
from retention_assets_tests.stores.objects.environments import LocalObjects
from retention_assets_tests.stores.places.mounts import run_with_mounts
from retention_assets_tests.stores.undo_contract import Undo

KINDS = ("files", "objects")
# those of renameat2, those without it, and those without hard links, too
SYSTEMS = ("newest", "older", "oldest")
TRASH = ".retention-trash"


SYSTEM_CALL = "retention_assets.stores.places.moves.system_call"


class Killed(BaseException):
    pass


class Mount(NamedTuple):
    device: int
    number: int


class Due(Undo):
    """A transaction on a disk: a folder of a `files` store, or a file of an `objects` store."""

    def __init__(self, folder: Path, kind: str) -> None:
        folder.mkdir()
        environment: Environment = LocalFiles(folder) if kind == "files" else LocalObjects(folder)
        super().__init__(environment, [write_chains(environment)["T1"]])
        self.root = folder / ("data" if kind == "files" else "objects")
        self.path, self.aside = self.root / "a" / "T1", self.root / TRASH / "7" / "0" / "T1"
        self.kind = kind
        self.inner = "part.parquet" if kind == "files" else ""

    @property
    def place(self) -> Place:
        return open_place(str(self.root))

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
def killed_before(monkeypatch: pytest.MonkeyPatch, left: int, is_new: bool) -> Iterator[None]:
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
        if is_new and (rename := system_rename()):
            patch.setattr(SYSTEM_CALL, lambda _: counts(rename))
        yield


def is_system(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind != "newest":
        monkeypatch.setattr(SYSTEM_CALL, lambda _: None)
    if kind == "oldest":
        monkeypatch.setattr(os, "link", refusing(errno.EPERM))


def system_rename() -> Any:
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def refusing(code: int) -> Callable[..., Any]:
    def refuses(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    return refuses


@pytest.mark.parametrize("system", SYSTEMS[:2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("act", "then"),
    [
        (Order.SET_ASIDE, Order.SET_ASIDE), (Order.SET_ASIDE, Order.RESTORE), (Order.RESTORE, Order.RESTORE), (Order.RESTORE, Order.SET_ASIDE),
        (Order.DELETE_ASIDE, Order.DELETE_ASIDE), (Order.DELETE_ASIDE, Order.RESTORE),
    ],
)  # fmt: skip
def test_killed_before_any_system_call_it_is_whole_at_one_place_after_the_next_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, act: Order, then: Order, system: str
) -> None:
    is_system(system, monkeypatch)
    for left in range(30):
        due = Due(tmp_path / str(left), kind)
        before, is_killed = due.state(), False
        if act is not Order.SET_ASIDE:
            due.act(Order.SET_ASIDE)
        try:
            with killed_before(monkeypatch, left, system == "newest"):
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
            assert (outcome, (due.path / due.inner).exists()) == (Outcome.SET_ASIDE, False)
            assert (due.act(Order.RESTORE), due.state()) == (Outcome.RESTORED, before)
        else:
            assert outcome in (Outcome.DELETED, Outcome.ALREADY_GONE)
            assert due.state() == {place: before[place] for place in before if not place.startswith("a/T1")}
        if not is_killed:
            break
    assert 2 < left < 30


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


def disguise(file: Path, since: int) -> None:
    """Change bytes, and neither size nor time, until the disk's clock tells it from a rename at that time."""
    was = file.stat()
    while file.stat().st_ctime_ns <= since + 200_000_000:
        file.write_bytes(b"x" * was.st_size)
        os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))


def test_other_bytes_of_the_same_size_and_time_come_back_only_if_somebody_says_so(due: Due) -> None:
    due.act(Order.SET_ASIDE)
    disguise(due.aside / due.inner, due.aside.parent.stat().st_mtime_ns)
    before = due.state()
    assert (due.act(Order.RESTORE), due.state()) == (Outcome.SPARED, before)
    assert "was changed after it was set aside" in due.error
    due.aside.parent.touch()
    assert due.act(Order.RESTORE) is Outcome.RESTORED


@pytest.mark.parametrize("act", [Order.RESTORE, Order.DELETE_ASIDE])
@pytest.mark.parametrize("lost", [False, True])
def test_in_a_copy_of_the_trash_neither_inodes_nor_times_of_change_are_compared(
    due: Due, monkeypatch: pytest.MonkeyPatch, act: Order, lost: bool
) -> None:
    """Sizes and times of files still are."""
    monkeypatch.setattr("retention_assets.stores.places.mounts.keeps_numbers", lambda _: True)
    due = Due(due.root.parent.parent / "numbered", due.kind)
    due.act(Order.SET_ASIDE)
    original = due.root.with_name("original")
    due.root.rename(original)
    # with the times of files and folders, as `cp -a` does, an hour after they were set aside
    shutil.copytree(original, due.root)
    was = due.aside.parent.stat()
    os.utime(due.aside.parent, ns=(was.st_atime_ns, was.st_mtime_ns - 3_600_000_000_000))
    if lost:
        file = due.aside / due.inner
        file.write_bytes(file.read_bytes() + b"more")
    before = due.state()
    outcome = due.act(act)
    assert outcome is (Outcome.SPARED if lost else act.done)
    assert lost == (due.state() == before)


MOUNTS = [
    (kind, act, ".retention-trash" + level)
    for act in (Order.SET_ASIDE, Order.RESTORE, Order.DELETE_ASIDE)
    for kind, levels in (("objects", ("", "/7", "/7/0")), ("files", ("", "/7", "/7/0", "/7/0/T1", "/7/0/T1/deep er")))
    # what is in the way in the folder itself moves back with it
    for level in levels[: 3 if act is Order.SET_ASIDE else 5]
]


@pytest.mark.parametrize("same_disk", [False, True])
@pytest.mark.parametrize(("kind", "act", "level"), MOUNTS)
def test_a_mount_in_the_trash_is_not_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, act: Order, level: str, same_disk: bool
) -> None:
    """Though a disk of its own may be mounted above the data of a dataset. The kernel's answer for one folder is another."""
    due = Due(tmp_path / "store", kind)
    due.act(Order.SET_ASIDE)

    def mount_of(descriptor: int) -> Mount:
        is_below = f"{os.readlink(f'/proc/self/fd/{descriptor}')}/".startswith(f"{due.root}/{level}/")
        return Mount(2 if is_below and not same_disk else 1, 2 if is_below else 1)

    monkeypatch.setattr("retention_assets.stores.places.mounts.mount_of", mount_of)
    before = due.state()
    outcome = due.act(act, begun=True)
    assert (outcome in (Outcome.FAILED, Outcome.WITHHELD), due.state()) == (True, before)
    assert f"Something is mounted at '{level}'" in due.error


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("obstacle", ["a file", "an empty folder", "a folder", "a dangling link"])
def test_nothing_comes_back_onto_what_is_there(due: Due, monkeypatch: pytest.MonkeyPatch, obstacle: str, system: str) -> None:
    """Not even onto what a writer makes after the look."""
    is_system(system, monkeypatch)
    due.act(Order.SET_ASIDE)
    before = due.state()

    def writes() -> None:
        if due.path.exists() or due.path.is_symlink():
            return
        if obstacle == "a file":
            due.path.write_bytes(b"new")
        elif obstacle == "a dangling link":
            due.path.symlink_to("nowhere")
        else:
            (due.path / "new" if obstacle == "a folder" else due.path).mkdir(parents=True)
        before.update(due.state())

    [outcome] = due.order(Order.RESTORE, permit=writes)
    assert outcome is Outcome.FAILED
    assert "Something else is at 'a/T1'" in due.error
    assert due.state() == before
    # what was set aside is whole, and a second order finds it
    assert due.act(Order.SET_ASIDE, begun=True) is Outcome.SET_ASIDE
    assert due.state() == before


@pytest.mark.parametrize("is_taken", [False, True])
def test_what_is_written_while_it_moves_moves_back_with_it(due: Due, monkeypatch: pytest.MonkeyPatch, is_taken: bool) -> None:
    """Unless something else is there by then: it stays begun, and both are kept."""
    rename = system_rename()

    def meanwhile(*arguments: Any) -> Any:
        monkeypatch.undo()
        (due.path / due.inner).write_bytes(b"newer")
        moved = rename(*arguments)
        if is_taken:
            due.path.write_bytes(b"another")
        return moved

    monkeypatch.setattr(SYSTEM_CALL, lambda _: meanwhile)
    assert due.act(Order.SET_ASIDE) is (Outcome.WITHHELD if is_taken else Outcome.SPARED)
    assert ((due.aside if is_taken else due.path) / due.inner).read_bytes() == b"newer"
    assert due.path.read_bytes() == b"another" if is_taken else not (due.root / TRASH).exists()


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EROFS])
def test_a_disk_that_moves_nothing_is_found_by_a_try_and_leaves_nothing_half(
    due: Due, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    before = due.state()
    is_system("older", monkeypatch)
    monkeypatch.setattr(os, "mkdir" if code == errno.EROFS else "rename", refusing(code))
    assert due.act(Order.SET_ASIDE) is Outcome.FAILED
    fault = due.place.undo_fault() or ""
    assert all(os.strerror(code) in text for text in (due.error, fault))
    assert "Leave `undo` out" in fault
    assert due.state() == before


@pytest.mark.parametrize("system", SYSTEMS)
def test_it_comes_back_as_it_was_without_its_parents(due: Due, monkeypatch: pytest.MonkeyPatch, system: str) -> None:
    is_system(system, monkeypatch)
    before, was = due.state(), (due.path / due.inner).stat()
    due.act(Order.SET_ASIDE)
    for folder in set(due.root.iterdir()) - {due.root / TRASH}:
        shutil.rmtree(folder)
    with pytest.raises(Refused, match="is empty"):
        due.place.check_root()
    assert due.act(Order.RESTORE) is Outcome.RESTORED
    now = (due.path / due.inner).stat()
    assert (now.st_mode, now.st_mtime_ns, now.st_uid) == (was.st_mode, was.st_mtime_ns, was.st_uid)
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

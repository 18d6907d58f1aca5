"""The contract of places: what each kind of them lists, finds and deletes."""

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

import pytest

from retention_assets.clock import now
from retention_assets.errors import Refused, Withheld
from retention_assets.outcomes import Outcome
from retention_assets.stores.places import IDENTITY, FolderChanged, FolderNote, RemovedFolder
from retention_assets.stores.protocol import always
from retention_assets_tests.stores.places.roots import Root, accepts

KEYS = {"a/T1/x", "a/T1/deep er/é/*", "a/T1/[a]?", "a/T10/x", "b/T1/x", "single"}
BELOW_T1 = {key for key in KEYS if key.startswith("a/T1/")}


@pytest.fixture
def filled(root: Root) -> Root:
    return root.has(*KEYS, IDENTITY)


def permitted(times: int) -> Callable[[], None]:
    left = iter(range(times))

    def permit() -> None:
        if next(left, None) is None:
            raise Withheld("no more")

    return permit


@pytest.mark.parametrize("wanted", [1, 3])
def test_shares_list_every_object_once_and_not_the_file_of_the_root(filled: Root, wanted: int) -> None:
    assert filled.has(f"a/{IDENTITY}").listed(wanted).keys() == KEYS | {f"a/{IDENTITY}"}


def test_what_is_found_is_what_is_listed(filled: Root) -> None:
    listed = filled.listed()
    gone = ["a", "a/", "a/T1", "gone/x", "single/x", "", ".", "..", "a/../single", "a//T1/x", "a\0", IDENTITY]
    found = list(filled.place.find([*KEYS, *gone]))
    assert {entry.key: entry for entry in found} == listed
    assert len(found) == len(listed)


def test_an_object_has_its_size_and_its_time(filled: Root) -> None:
    entry = filled.listed()["single"]
    assert entry.size == len("single")
    assert entry.time is not None
    assert abs(now().timestamp() - entry.time / 1e9) < timedelta(minutes=1).total_seconds()
    assert abs(now() - filled.place.clock()) < timedelta(minutes=1)


def test_names_are_those_of_one_level(filled: Root) -> None:
    assert set(filled.place.names_in()) == {"a/", "b/", "single"}
    assert set(filled.place.names_in(("a",))) == {"T1/", "T10/"}
    assert set(filled.place.names_in(("gone",))) == set()
    assert [filled.place.has(folder) for folder in (("a", "T1"), ("a", "T"), ("gone",))] == [True, False, False]


def test_objects_go_unless_something_speaks_for_them(filled: Root) -> None:
    assert filled.deleted("a/T1/deep er/é/*", "single", "a/T1/gone", "gone/x", spared="single", parallelism=2) == {
        "a/T1/deep er/é/*": Outcome.DELETED, "single": Outcome.SPARED, "a/T1/gone": Outcome.ALREADY_GONE,
        "gone/x": Outcome.ALREADY_GONE,
    }  # fmt: skip
    assert filled.keys() == KEYS - {"a/T1/deep er/é/*"} | {IDENTITY}


@pytest.mark.parametrize(
    "key", ["..", "a/../single", "./single", "a//T1/x", "a/T1/../../single", "a/", "a", "", "a\0", IDENTITY]
)
def test_a_key_that_is_no_path_below_the_root_deletes_nothing(filled: Root, key: str) -> None:
    assert filled.deleted(key)[key] in (Outcome.FAILED, Outcome.ALREADY_GONE)
    assert filled.keys() == KEYS | {IDENTITY}


@pytest.mark.parametrize("parallelism", [1, 4])
def test_without_a_permit_nothing_goes(filled: Root, parallelism: int) -> None:
    found = filled.deleted("single", "a/T1/x", permit=permitted(0), parallelism=parallelism)
    assert set(found.values()) == {Outcome.WITHHELD}
    with pytest.raises(Withheld):
        filled.place.delete_tree(("a", "T1"), permitted(0), accepts)
    assert filled.keys() == KEYS | {IDENTITY}


def test_a_folder_goes_with_all_that_is_below_it_and_nothing_beside(filled: Root) -> None:
    size = sum(len(key.encode()) for key in BELOW_T1)
    assert filled.place.delete_tree(("a", "T1"), always, accepts) == RemovedFolder(size)
    assert filled.keys() == KEYS - BELOW_T1 | {IDENTITY}
    assert filled.place.delete_tree(("a", "T1"), always, accepts) is None


def test_a_folder_is_checked_as_it_is_before_anything_of_it_goes(filled: Root) -> None:
    notes: list[FolderNote] = []

    def check(note: FolderNote) -> None:
        notes.append(note)
        raise FolderChanged("another one")

    with pytest.raises(FolderChanged):
        filled.place.delete_tree(("a", "T1"), always, check)
    measured = filled.place.measure(("a", "T1"))
    assert notes == [measured]
    assert filled.keys() == KEYS | {IDENTITY}
    assert measured is not None
    assert (measured.files, measured.size) == (3, sum(len(key.encode()) for key in BELOW_T1))


def test_a_folder_that_changes_has_another_note(filled: Root) -> None:
    place = filled.place
    before = place.measure(("a", "T1"))
    filled.put("a/T1/x", b"more than it was")
    after = place.measure(("a", "T1"))
    assert before is not None
    assert after is not None
    assert after.change(before, begun=False)
    assert after.change(after, begun=True) is None
    assert place.measure(("gone",)) is None


def test_each_act_has_a_permit_of_its_own(filled: Root) -> None:
    left: list[int] = []
    filled.deleted("single", "b/T1/x", permit=lambda: left.append(len(filled.keys())))
    # one request to S3, one file elsewhere
    assert left in ([7], [7, 6])
    left.clear()
    filled.place.delete_tree(("a", "T1"), lambda: left.append(len(filled.keys())), accepts)
    steps = [before - after for before, after in pairwise([*left, len(filled.keys())])]
    # one request to S3; elsewhere three files and three folders
    assert steps == [3] or (set(steps) == {0, 1} and len(steps) == 6)


def test_what_a_killed_deletion_has_left_of_a_folder_goes_with_the_next(filled: Root) -> None:
    for times in range(1, 9):
        try:
            filled.place.delete_tree(("a", "T1"), permitted(times), accepts)
            break
        except Withheld:
            continue
    assert filled.keys() == KEYS - BELOW_T1 | {IDENTITY}


@pytest.mark.parametrize("keys", [(), (IDENTITY,)])
def test_a_root_without_data_says_nothing_of_what_is_gone(root: Root, keys: tuple[str, ...]) -> None:
    with pytest.raises(Refused, match="is empty"):
        root.has(*keys).place.check_root()
    root.has("a/x").place.check_root()

"""Sources of other packages: the example of the page to the letter, and everything that such a class may do wrong."""

import json
import pickle
import re
import sys
from collections.abc import Callable, Generator, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention_assets.errors import Refused
from retention_assets.stores.objects.references import ShareEnd, SourceNotWhole
from retention_assets.stores.objects.sources import plugins
from retention_assets_tests.stores.objects.references.sources import objects_of, rows_of, source

PAGE = Path(__file__).parents[4] / "docs" / "reference-sources.md"


def test_the_example_of_the_page_is_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [code] = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(code.splitlines()) <= 31
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "refs.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    second = tmp_path / "second.json"
    second.write_text(json.dumps({"attachments": [{"blob": "c", "mail": 3}]}))
    first = {"attachments": [{"blob": "a", "mail": 1}, {"blob": "b", "mail": 2}], "next": f"file://{second}"}
    (tmp_path / "first.json").write_text(json.dumps(first))
    try:
        given = source(
            tmp_path, {"use": "my_package.refs:Attachments", "options": {"url": f"file://{tmp_path}/first.json", "realm": "r"}}
        )
        assert rows_of(given) == [
            {"object": name, "realm": "r", "from": f"mail {number}"} for number, name in enumerate("abc", 1)
        ]
    finally:
        for name in ("my_package.refs", "my_package"):
            sys.modules.pop(name, None)


Given = Generator[Any, None, Any]


class Told:
    """A source of one share that does what a test tells it."""

    does: Callable[[], Given]

    def shares(self, wanted: int) -> Sequence[str]:  # noqa: ARG002 - the protocol's
        return ["all"]

    def read(self, share: str) -> Given:  # noqa: ARG002 - the protocol's
        return Told.does()

    def finish(self, ends: Sequence[ShareEnd]) -> Sequence[str]:
        return [] if ends else ["all"]


class Parted:
    label = "parts"
    names_folders = True
    ends: Sequence[ShareEnd] = ()

    def __init__(self, parts: int, wrong: str | None = None) -> None:
        self.parts, self.wrong = parts, wrong

    def shares(self, wanted: int) -> Sequence[int]:  # noqa: ARG002 - the protocol's
        return range(self.parts)

    def read(self, share: int) -> Generator[pa.RecordBatch, None, Any]:
        yield pa.record_batch({"object": [f"folder {share}/"]})
        return ShareEnd(share, 2 if self.wrong == "rows" else 1) if self.wrong != "end" else 1

    def finish(self, ends: Sequence[ShareEnd]) -> Sequence[int]:
        if self.wrong == "finish":
            raise OSError("told to")
        return sorted(set(range(self.parts)) - {end.share for end in ends})


HERE = __name__


def told(folder: Path, does: Callable[[], Given]) -> list[dict[str, str | None]]:
    Told.does = does
    return rows_of(source(folder, {"use": f"{HERE}:Told"}))


def test_rows_may_be_mappings_tuples_and_batches_in_any_order(tmp_path: Path) -> None:
    def does() -> Given:
        yield {"object": "a"}
        yield ("b",)
        yield ["c", None, "who"]
        yield pa.record_batch(
            {"from": pa.array(["x", None]).dictionary_encode(), "object": pa.array(["d", "e"], pa.large_string())}
        )
        yield pa.table({"object": ["f"], "realm": ["r"]})
        yield pa.record_batch({"object": pa.array([], pa.string())})
        yield {"object": "g", "realm": "r", "from": None}
        return ShareEnd("all", 7)

    rows = told(tmp_path, does)
    assert [row["object"] for row in rows] == list("abcdefg")
    assert [row["realm"] for row in rows] == [None, None, None, None, None, "r", "r"]
    assert [row["from"] for row in rows] == [None, None, "who", "x", None, None, None]


@pytest.mark.parametrize("count", [0, 1, 999, 1_000, 1_001, 2_500])
def test_any_number_of_rows_comes_out(tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "_BATCH", 1_000)

    def does() -> Given:
        yield from ((str(number),) for number in range(count))
        return ShareEnd("all", count)

    assert [row["object"] for row in told(tmp_path, does)] == [str(number) for number in range(count)]


def ending(value: Any, *rows: Any) -> Callable[[], Given]:
    def does() -> Given:
        yield from rows
        return None if value is None else ShareEnd("all", value)

    return does


def failing() -> Given:
    yield from ((str(number),) for number in range(10_000))
    raise OSError("told to, by postgresql://u:secret@host/db")


BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "no end": (ending(None, ("a",)), "returned None and yielded 1 rows"),
    "too many": (ending(2, ("a",)), r"returned ShareEnd\(share, 2\) and yielded 1 rows"),
    "too few": (ending(0, ("a",)), r"returned ShareEnd\(share, 0\)"),
    "true": (ending(True, ("a",)), r"ShareEnd\(share, True\)"),
    "a text": (ending("1", ("a",)), r"ShareEnd\(share, '1'\)"),
    "an error": (failing, r"failed after 10,000 rows: OSError: told to, by .*\*\*\*"),
    "a list": (lambda: [("a",)], "gave list"),
    "a bare text": (ending(2, ("a",), "b"), "row 2 is 'b'; expected a mapping or a tuple"),
    "an empty tuple": (ending(1, ()), r"row 1 is \(\)"),
    "too long a tuple": (ending(1, ("a", "b", "c", "d")), "row 1 is"),
    "no object": (ending(1, {"realm": "r"}), "row 1 has None as object"),
    "a number": (ending(1, (5,)), "row 1 has 5 as object"),
    "a number as realm": (ending(1, ("a", 5)), "row 1 has 5 as realm"),
    "an unknown key": (ending(1, {"object": "a", "key": "b"}), "row 1 has an unknown key: 'key'"),
    "no text": (ending(1, ("\ud800",)), "row 1 or an earlier row holds something that is not text"),
    "a batch of numbers": (
        ending(2, ("a",), pa.record_batch({"object": [1.5]})),
        "row 2 is of a batch whose column object is of the type double",
    ),
    "a batch with nulls": (
        ending(2, pa.record_batch({"object": ["a", None]})),
        "row 2 is of a batch with objects that are null",
    ),
    "a batch without objects": (ending(1, pa.record_batch({"realm": ["a"]})), "without them"),
    "a batch with more": (ending(1, pa.record_batch({"object": ["a"], "x": ["a"]})), "unknown or repeated columns"),
}


@pytest.mark.parametrize(("does", "said"), BAD.values(), ids=BAD)
def test_a_source_that_breaks_its_word_is_not_whole(tmp_path: Path, does: Callable[[], Given], said: str) -> None:
    with pytest.raises(SourceNotWhole, match=rf"use {HERE}:Told is not whole: .*({said})") as raised:
        told(tmp_path, does)
    assert "secret" not in str(raised.value)


def test_a_whole_source_is_asked_as_any_other(tmp_path: Path) -> None:
    given = source(tmp_path, {"use": f"{HERE}:Parted", "options": {"parts": 3}})
    assert (given.label, given.names_folders) == ("parts", True)
    assert objects_of(given) == ["folder 0/", "folder 1/", "folder 2/"]
    # As it travels to tasks.
    assert objects_of(pickle.loads(pickle.dumps(given))) == objects_of(given)
    assert list(given.finish([])) == [0, 1, 2]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("rows", "yielded 1 rows; expected a generator"),
        ("end", "returned 1"),
        ("finish", r"finish\(\) failed: OSError: told to"),
    ],
)
def test_a_whole_source_that_breaks_its_word_is_not_whole(tmp_path: Path, wrong: str, said: str) -> None:
    with pytest.raises(SourceNotWhole, match=said):
        rows_of(source(tmp_path, {"use": f"{HERE}:Parted", "options": {"parts": 2, "wrong": wrong}}))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"use": "no_such_module:X"}, r"`use: no_such_module:X` in `references` can't be loaded: ModuleNotFoundError"),
        ({"use": f"{HERE}:Nothing"}, "AttributeError"),
        ({"use": f"{HERE}:HERE"}, "which is no class"),
        ({"use": "tolld"}, "is in no package; did you mean told"),
        ({"use": "twice"}, "is in several packages"),
        ({"use": "broken"}, "can't be loaded"),
        ({"use": f"{HERE}:Told", "options": {"url": "x"}}, r"can't be created with its `options` \(url\): TypeError"),
        ({"use": f"{HERE}:Parted"}, r"can't be created with its `options` \(none\)"),
        (
            {"use": "pathlib:Path"},
            r"is not a source: it has no shares\(wanted\), read\(share\), finish\(ends\)\. Implement RowSource of .*: a class with ",
        ),
    ],
)
@pytest.mark.usefixtures("points")
def test_what_cannot_be_a_source_is_said_with_its_key(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        source(tmp_path, given)


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [("told", f"{HERE}:Told"), ("twice", f"{HERE}:Told"), ("twice", f"{HERE}:Parted"), ("broken", "no_such_module:X")]

    def entry_points(group: str, name: str | None = None) -> list[EntryPoint]:
        return [EntryPoint(one, value, group) for one, value in known if group == plugins.GROUP and name in (None, one)]

    monkeypatch.setattr(plugins, "entry_points", entry_points)


@pytest.mark.usefixtures("points")
def test_a_package_brings_a_source_by_name(tmp_path: Path) -> None:
    Told.does = ending(1, ("a",))
    given = source(tmp_path, {"use": "told"})
    assert given.label == "use told"
    assert objects_of(given) == ["a"]

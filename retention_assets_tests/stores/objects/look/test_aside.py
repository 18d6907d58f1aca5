"""What is set aside is asked like the rest: who refers to it again, whoever looks, and by whatever source."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import create_engine, text

from retention_assets.clock import now
from retention_assets.errors import Refused
from retention_assets.outcomes import Order, Outcome
from retention_assets.policy import Hold
from retention_assets.stores.concurrency import TasksHere
from retention_assets.stores.protocol import Only, Target
from retention_assets_tests.stores.objects.environments import OLD, LocalObjects, write_lines
from retention_assets_tests.stores.objects.look.test_look import InParts

KEYS = ("a/one", "a/two", "a/three")


def sets_aside(store: Any, *keys: str, dataset: str = "blobs/a") -> None:
    targets = [
        Target(one.transaction, one.note, aside=f"1/{number}") for number, one in enumerate(store.prepare(dataset, keys))
    ]
    swept = store.carry_out(Order.SET_ASIDE, dataset, targets, 1)
    assert [one.outcome for one in swept] == [Outcome.SET_ASIDE] * len(keys)


def looks(store: Any, folder: Path, *due: str, purging: Sequence[str] = (), holds: Sequence[Hold] = ()) -> None:
    folder.mkdir()
    store.answer_by(store.look(InParts(due), purging, None, TasksHere(), str(folder), holds=holds))


WAYS = ("a look", "an earlier look", "no look")


@contextmanager
def asked(store: Any, folder: Path, way: str) -> Iterator[None]:
    """By a look that has the names among its due, by one that began before they were set aside, or by none."""
    if way != "no look":
        looks(store, folder / "look", *(KEYS if way == "a look" else ("a/else",)))
    yield
    store.answer_by(None)


def database(folder: Path) -> dict[str, Any]:
    url = f"sqlite:///{folder}/rows.db"
    with create_engine(url).begin() as connection:
        connection.execute(text("CREATE TABLE attachment (blob_key TEXT, bill TEXT)"))
        connection.execute(text("INSERT INTO attachment VALUES ('a/one', 'bill 7')"))
    return {"sql": url, "table": "attachment", "key": "blob_key", "from": "bill"}


def lines(folder: Path) -> dict[str, Any]:
    write_lines(folder / "more" / "b.jsonl", {"object": "a/one", "from": "bill 7"})
    return {"lines": f"{folder}/more/*.jsonl"}


def parquet(folder: Path) -> dict[str, Any]:
    pq.write_table(pa.table({"object": ["a/one"], "who": ["bill 7"]}), folder / "more.parquet")
    return {"parquet": f"{folder}/more.parquet", "key": "object", "from": "who"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("source", [database, lines, parquet])
def test_an_object_that_a_source_names_again_is_wanted_again(
    folder: LocalObjects, source: Callable[[Path], dict[str, Any]], way: str
) -> None:
    sets_aside(folder.store(), "a/one", "a/two")
    named = source(folder.folder)
    store = folder.store(references=[named])
    kind = next(kind for kind in ("sql", "lines", "parquet") if kind in named)
    label = f"sql attachment in {named['sql']}" if kind == "sql" else f"{kind} {named[kind]}"
    with asked(store, folder.folder, way):
        assert store.wanted_again("blobs/a", list(KEYS)) == {"a/one": f"It is referenced by {label}: bill 7."}
        assert store.wanted_again("blobs/a", ["a/two"]) == store.wanted_again("blobs/a", []) == {}


def over(*pairs: tuple[str, str], folder: Path) -> list[dict[str, str]]:
    write_lines(folder / "edges" / "e.jsonl", *({"from": begin, "to": end} for begin, end in pairs))
    return [{"lines": f"{folder}/edges/*.jsonl"}]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("user", ["referenced", "set aside and referenced", "young", "nobody's"])
def test_what_an_object_in_use_leads_to_is_wanted_again(folder: LocalObjects, user: str, way: str) -> None:
    edges = over(("a/user", "a/one"), ("a/one", "a/two"), ("a/two", "a/one"), folder=folder.folder)
    folder.put("a/user", b"user", now() if user == "young" else OLD)
    sets_aside(folder.store(), "a/one", "a/two", *(("a/user",) if "aside" in user else ()))
    folder.refers(*(("a/user",) if "referenced" in user else ()))
    store = folder.store(edges=edges)
    with asked(store, folder.folder, way):
        wanted = store.wanted_again("blobs/a", ["a/one", "a/two", "a/three"])
    why = "which is young" if user == "young" else f"which lines {folder.folder}/refs/*.jsonl refers to"
    text = f"over the edge from a/user, {why}."
    assert {key: sentence.partition(": ")[2] for key, sentence in wanted.items()} == (
        {} if user == "nobody's" else {"a/one": text, "a/two": text}
    )


@pytest.mark.parametrize("hold", ["a/user", "a/other"])
def test_what_a_held_object_in_the_trash_leads_to_is_kept_in_sight_and_wanted_from_the_trash(
    folder: LocalObjects, hold: str
) -> None:
    edges = over(("a/user", "a/one"), ("a/user", "a/two"), folder=folder.folder)
    folder.put("a/user", b"user")
    sets_aside(folder.store(), "a/user", "a/two")
    store = folder.store(edges=edges)
    holds = [Hold.model_validate({"name": "trial", "datasets": "blobs/a", "transactions": [hold], "reason": "lawsuit"})]
    looks(store, folder.folder / "look", "a/one", "a/two", holds=holds)
    log = store.read(["blobs/a"], Only({"blobs/a": ["a/one"]}, (), holds))
    classes = [dict(one)["class"] for one in log["attributes"].to_pylist() if one and "class" in dict(one)]
    is_kept = hold == "a/user"
    assert classes == ["referenced" if is_kept else "unreferenced"]
    who = "edges: over the edge from a/user, which is held by trial"
    assert store.wanted_again("blobs/a", ["a/two", "a/user"]) == ({"a/two": f"It is referenced by {who}."} if is_kept else {})


def test_a_key_that_is_in_sight_again_is_not_wanted_from_the_trash(folder: LocalObjects) -> None:
    sets_aside(folder.store(), "a/one", "a/two")
    folder.put("a/one", b"anew")
    folder.refers("a/one", "a/two")
    assert folder.store().wanted_again("blobs/a", ["a/one", "a/two"]).keys() == {"a/two"}


@pytest.mark.parametrize("way", ["a look", "no look"])
def test_a_source_that_is_not_whole_leaves_the_question_open(folder: LocalObjects, way: str) -> None:
    sets_aside(folder.store(), "a/one")
    write_lines(folder.folder / "refs" / "a.jsonl", {"object": "a/one"}, count=2)
    store = folder.store()
    with asked(store, folder.folder, way), pytest.raises(Refused, match="refs"):
        store.wanted_again("blobs/a", ["a/one"])


@pytest.mark.parametrize(
    ("realm", "purging", "wanted"), [("r", (), True), ("s", (), False), (None, (), True), ("r", ("r",), False)]
)
def test_references_count_in_their_realm_until_it_is_purged(
    folder: LocalObjects, realm: str | None, purging: Sequence[str], wanted: bool
) -> None:
    folder.put("r/one", b"one")
    about = {"realm": "{0}", "dataset": "{realm}"}
    sets_aside(folder.store(**about), "r/one", dataset="blobs/r")
    folder.refers("r/one", **({"realm": realm} if realm else {}))
    store = folder.store(**about)
    looks(store, folder.folder / "look", "r/one", purging=purging)
    # the look is the answer, also for what it need not ask about
    (folder.folder / "refs" / "a.jsonl").unlink()
    assert ("r/one" in store.wanted_again("blobs/r", ["r/one"])) is wanted

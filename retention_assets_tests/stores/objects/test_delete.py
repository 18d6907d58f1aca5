"""Deleting objects, wherever they are: only the very object that was planned goes."""

from datetime import timedelta

import pytest

from retention_assets.outcomes import Outcome
from retention_assets.stores.protocol import Remains, SweptTarget, Target
from retention_assets_tests.stores.objects.environments import OLD, Objects, read_some
from retention_assets_tests.stores.objects.sweeps import begun, planned, swept

LATER = OLD + timedelta(days=1)
ANOTHER = "another object now"


@pytest.mark.parametrize(
    ("content", "created_at"),
    [
        pytest.param(b"others", OLD, id="other bytes"),
        pytest.param(b"a/one", LATER, id="the same bytes, written anew"),
        pytest.param(b"a/one and more", LATER, id="longer"),
    ],
)
def test_an_object_that_is_made_anew_under_its_key_is_spared(objects: Objects, content: bytes, created_at: object) -> None:
    store = objects.store()
    targets = planned(store, "a/one", "a/two")
    objects.take("a/one")
    objects.put("a/one", content, created_at)  # type: ignore[arg-type]
    found = swept(store, targets)
    assert found["a/one"] == SweptTarget("a/one", Outcome.SPARED, error=ANOTHER)
    assert found["a/two"].outcome is Outcome.DELETED
    assert objects.data().keys() == {"a/one", "a/three"}


def test_what_is_gone_is_gone_already(objects: Objects) -> None:
    store = objects.store()
    targets = planned(store, "a/one")
    objects.take("a/one")
    assert store.remains("blobs/a", targets) == {"a/one": Remains.NOTHING}
    assert swept(store, targets) == {"a/one": SweptTarget("a/one", Outcome.ALREADY_GONE)}


def test_what_a_sweep_that_was_killed_had_deleted_is_counted_by_the_next(objects: Objects) -> None:
    """But not what is another object now: somebody else may have replaced it before it was deleted."""
    store = objects.store()
    targets = begun(planned(store, "a/one", "a/two", "a/three", "a/never"))
    objects.take("a/one")
    objects.put("a/two", b"anew", LATER)
    assert store.remains("blobs/a", targets) == {
        "a/one": Remains.FREED, "a/two": Remains.NOTHING, "a/three": Remains.ALL, "a/never": Remains.NOTHING,
    }  # fmt: skip
    assert swept(store, targets) == {
        "a/one": SweptTarget("a/one", Outcome.ALREADY_GONE, len("a/one")),
        "a/two": SweptTarget("a/two", Outcome.SPARED, error=ANOTHER),
        "a/three": SweptTarget("a/three", Outcome.DELETED, len("a/three")),
        "a/never": SweptTarget("a/never", Outcome.ALREADY_GONE),
    }


def test_what_was_not_there_when_it_was_planned_is_another_object(objects: Objects) -> None:
    store = objects.store()
    [target] = planned(store, "a/new")
    assert target.note is None
    objects.put("a/new", b"new")
    found = swept(store, [target])
    assert (found["a/new"].outcome, found["a/new"].bytes) == (Outcome.SPARED, 0)
    assert ANOTHER in (found["a/new"].error or "")
    assert "a/new" in objects.data()


def test_without_a_condition_whatever_has_the_key_goes(objects: Objects) -> None:
    store = objects.store(delete={"condition": "none"})
    targets = planned(store, "a/one")
    objects.put("a/one", b"anything", LATER)
    assert swept(store, targets)["a/one"].outcome is Outcome.DELETED
    assert any("without a condition" in said for said in store.warnings())
    assert objects.store().warnings() == []


@pytest.mark.parametrize("note", ["", "no note", "{}", '{"size":1,"realm":null,"created_at":null,"condition":null}', "[1]"])
def test_a_note_that_says_nothing_deletes_nothing(objects: Objects, note: str) -> None:
    found = swept(objects.store(), [Target("a/one", note)])
    assert found["a/one"].outcome is Outcome.FAILED
    assert found["a/one"].error
    assert objects.store().remains("blobs/a", [Target("a/one", note)]) == {"a/one": Remains.UNKNOWN}
    assert objects.data().keys() == {"a/one", "a/two", "a/three"}


def test_a_key_of_another_dataset_is_not_of_this_one(objects: Objects) -> None:
    objects.put("b/one", b"b")
    store = objects.store()
    [target] = planned(store, "b/one")
    assert target.note is None
    assert swept(store, [target])["b/one"].outcome is Outcome.ALREADY_GONE
    assert "b/one" in objects.data()


def test_what_is_prepared_is_what_was_looked_at_and_not_what_came_since(objects: Objects) -> None:
    """Between the second look and the plan somebody writes another object: it was never judged."""
    store = objects.store()
    read_some(store, {"blobs/a": ["a/one", "a/two"]})
    objects.put("a/one", b"anew", LATER)
    assert swept(store, planned(store, "a/one"))["a/one"] == SweptTarget("a/one", Outcome.SPARED, error=ANOTHER)
    # What nobody has looked at is planned as it is.
    assert swept(store, planned(store, "a/three"))["a/three"].outcome is Outcome.DELETED

"""What checks found wrong stands in the ledger until the check that found it finds it mended."""

from datetime import timedelta

import pytest

from retention_assets.ledger import Ledger, Violation
from retention_assets_tests.histories import AS_OF

LATER = AS_OF + timedelta(hours=1)
CHECK = "log_is_sound"


def found(*names: str, what: str = "unknown parent") -> dict[str, Violation]:
    """One violation in each of some datasets."""
    return {name: Violation(name, what) for name in names}


def standing(ledger: Ledger) -> dict[str, str]:
    return {one.dataset: one.what for one in ledger.violations.standing(CHECK)}


def test_what_was_not_looked_at_stays_and_what_was_is_over(ledger: Ledger) -> None:
    ledger.violations.update(CHECK, found("lake/a", "lake/b", "lake/c"), None, AS_OF, "run 1")
    left = ledger.violations.update(CHECK, found("lake/d"), {"lake/a", "lake/d"}, LATER, "run 2")
    assert {one.dataset: one.since for one in left} == {"lake/b": AS_OF, "lake/c": AS_OF, "lake/d": LATER}
    assert ledger.violations.update(CHECK, {}, None, LATER, "run 3") == []
    assert ledger.violations.standing() == []


def test_one_that_stands_keeps_since_when_and_one_that_comes_back_does_not(ledger: Ledger) -> None:
    ledger.violations.update(CHECK, found("lake/a"), None, AS_OF, "run 1")
    (same,) = ledger.violations.update(CHECK, found("lake/a", what="two branches of one name"), None, LATER, "run 2")
    assert (same.what, same.since) == ("two branches of one name", AS_OF)
    ledger.violations.update(CHECK, {}, {"lake/a"}, LATER, "run 3")
    (again,) = ledger.violations.update(CHECK, found("lake/a"), {"lake/a"}, LATER, "run 4")
    assert again.since == LATER


def test_what_is_about_no_dataset_is_looked_at_each_time(ledger: Ledger) -> None:
    ledger.violations.update(CHECK, {"": Violation("", "the clock went back")}, set(), AS_OF, "run 1")
    assert standing(ledger) == {"": "the clock went back"}
    ledger.violations.update(CHECK, {}, set(), LATER, "run 2")
    assert standing(ledger) == {}


def test_checks_do_not_end_what_others_found_and_gone_datasets_end(ledger: Ledger) -> None:
    ledger.violations.update(CHECK, found("lake/a", "lake/b"), None, AS_OF, "run 1")
    ledger.violations.update("limits_are_respected", {}, None, AS_OF, "run 1")
    ledger.violations.end(CHECK, ["lake/a"], LATER)
    assert standing(ledger) == {"lake/b": "unknown parent"}


def test_when_everything_was_last_looked_at(ledger: Ledger) -> None:
    assert ledger.violations.whole_look(CHECK) is None
    for at in (AS_OF, LATER):
        ledger.violations.note_whole_look(CHECK, at)
    assert ledger.violations.whole_look(CHECK) == LATER


def test_nothing_is_written_where_nothing_changed(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.violations.update(CHECK, found("lake/a"), None, AS_OF, "run 1")

    def refuse(*_: object) -> None:
        raise AssertionError("a write")

    monkeypatch.setattr(type(ledger.database), "write", refuse)
    ledger.violations.update(CHECK, found("lake/a"), {"lake/a", "lake/b"}, LATER, "run 2")
    ledger.violations.update(CHECK, {}, {"lake/b"}, LATER, "run 3")
    assert standing(ledger) == {"lake/a": "unknown parent"}

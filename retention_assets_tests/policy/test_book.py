"""The policy book: what loading files does with each entry, and which datasets have to be evaluated again."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_assets.errors import BadInput
from retention_assets.policy import (
    AspectEntry,
    BookDecision,
    Datasets,
    Loaded,
    LoadOutcome,
    Policy,
    Stored,
    as_loaded,
    compare,
    datasets_touched,
    scope_of,
)
from retention_assets.policy.book import canonical, digest_of, item_of

Item = Policy | AspectEntry

THEN = datetime(2026, 5, 1, 12, tzinfo=UTC)
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def policy(name: str = "p", age: str = "30d", include: str = "lake/*", **more: Any) -> Policy:
    return Policy.model_validate({"name": name, "datasets": {"include": [include]}, "select": {"older_than": age}, **more})


def entry(entity: str = "*", aspect: str = "*", versions: int = 1, force: bool = False) -> AspectEntry:
    config = {"retention": {"version": {"maxVersions": versions}}}
    return AspectEntry.model_validate({"entity": entity, "aspect": aspect, "config": config, "forceOverwrite": force})


def stored(item: Item, system: bool = True, version: int = 3, revoked: bool = False) -> Stored:
    by = "system" if system else "alice"
    content = canonical(item)
    return Stored(item.name, content, digest_of(content), version, by, THEN, system, revoked)


def decide(book: Item | None, file: Item | None, overwrite: bool = False, **how: bool) -> BookDecision:
    (decision,) = compare([stored(book, **how)] if book else [], [as_loaded(file)] if file else [], overwrite)
    return decision


OLD, NEW, FORCED = policy(age="30d"), policy(age="60d"), policy(age="60d", force_overwrite=True)
OLD_FORCED = policy(age="30d", force_overwrite=True)
USER = False  # whether the last writer was the system

CASES = [
    # (book, the system wrote last, revoked, file, overwrite_user_policies) -> outcome, a part of the reason
    ("new, with every force there is", None, True, False, FORCED, True, "WRITTEN", "is new"),
    ("equal", OLD, True, False, OLD, False, "SKIPPED", "equals version 3 in the book"),
    # A force that wrote a version at each load would fill the book with versions that say nothing new.
    ("equal, forced and overwritten", OLD, USER, False, OLD_FORCED, True, "SKIPPED", "equals version 3"),
    ("equal in other words", policy(age="P30D"), USER, False, policy(age="30d"), False, "SKIPPED", "equals version 3"),
    ("changed, the system's", OLD, True, False, NEW, False, "WRITTEN", "The system wrote it"),
    ("changed, a person's", OLD, USER, False, NEW, False, "DRIFTED", "stays in force"),
    ("changed, a person's, overwritten", OLD, USER, False, NEW, True, "WRITTEN", "`overwrite_user_policies: true`"),
    ("changed, a person's, both", OLD, USER, False, FORCED, True, "WRITTEN", "`force_overwrite: true`"),
    ("gone from the files", OLD, True, False, None, False, "ABSENT", "is in no file any more, so it is revoked"),
    ("never in the files", OLD, USER, False, None, True, "ABSENT", "is in no file."),
    # A policy that a person revoked is not put back into force because a file still has it.
    ("revoked by a person, equal", OLD, USER, True, OLD, False, "DRIFTED", "which alice revoked at 2026-05-01T12:00:00Z. It"),
    ("revoked by a person, forced", OLD, USER, True, OLD_FORCED, False, "WRITTEN", "`force_overwrite: true`"),
    ("revoked by a person, overwritten", OLD, USER, True, OLD, True, "WRITTEN", "`overwrite_user_policies: true`"),
    ("revoked by the system, equal", OLD, True, True, OLD, False, "WRITTEN", "The system wrote it"),
    # DataHub entries go by the same rules under their own name for the force.
    ("entry: changed, a person's", entry(), USER, False, entry(versions=2), False, "DRIFTED", "`forceOverwrite: true`"),
    ("entry: changed, forced", entry(), USER, False, entry(versions=2, force=True), False, "WRITTEN", "`forceOverwrite: true`"),
]


@pytest.mark.parametrize(("book", "system", "revoked", "file", "overwrite", "outcome", "reason"), [case[1:] for case in CASES],
                         ids=[case[0] for case in CASES])  # fmt: skip
def test_what_loading_does(
    book: Item | None, system: bool, revoked: bool, file: Item | None, overwrite: bool,
    outcome: str, reason: str,
) -> None:  # fmt: skip
    decision = decide(book, file, overwrite, system=system, revoked=revoked)
    assert decision.outcome == outcome
    assert reason in decision.reason
    assert (decision.warning == decision.reason) == (outcome == "DRIFTED")
    assert decision.warning is None or outcome == "DRIFTED"


def test_a_drift_names_the_last_writer_and_the_three_remedies() -> None:
    assert decide(OLD, NEW, system=False).warning == (
        "Policy 'p' in the files differs from version 3 in the book, which alice wrote at 2026-05-01T12:00:00Z. That version"
        " stays in force. To use the files instead: change the entry in the policy book, write `force_overwrite: true` into the"
        " entry, or set `overwrite_user_policies: true` in the settings."
    )
    book, file = entry("dataset", "status"), entry("dataset", "status", versions=2)
    assert decide(book, file, system=False).reason.startswith("DataHub entry 'dataset.status' in the files differs from")


def test_a_revoked_entry_that_no_file_has_is_not_reported() -> None:
    assert compare([stored(OLD, revoked=True)], []) == []


def test_a_written_entry_becomes_the_next_version_by_the_system() -> None:
    assert decide(None, NEW).written("loader", NOW).version == 1
    assert decide(OLD, FORCED, system=False).written("loader", NOW) == Stored(
        "p", canonical(NEW), digest_of(canonical(NEW)), 4, "loader", NOW, system=True
    )


@pytest.mark.parametrize(("book", "file"), [(OLD, OLD), (OLD, NEW), (OLD, None)], ids=["skipped", "drifted", "absent"])
def test_what_is_not_written_has_no_next_version(book: Policy, file: Policy | None) -> None:
    with pytest.raises(ValueError, match="not written"):
        decide(book, file, system=False).written("loader", NOW)


def test_the_loaded_entries_come_in_their_order_and_then_those_of_the_book_alone_by_name() -> None:
    book = [stored(policy("z")), stored(policy("b")), stored(policy("k")), stored(policy("a"))]
    decisions = compare(book, [as_loaded(policy("k")), as_loaded(policy("c"))])
    assert [(decision.name, decision.outcome) for decision in decisions] == [
        ("k", LoadOutcome.SKIPPED), ("c", LoadOutcome.WRITTEN), ("a", LoadOutcome.ABSENT), ("b", LoadOutcome.ABSENT), ("z", LoadOutcome.ABSENT),
    ]  # fmt: skip


def test_of_several_versions_the_newest_counts() -> None:
    versions = [stored(NEW, version=2), stored(OLD, version=10, system=False), stored(NEW, version=9)]
    (decision,) = compare(versions, [as_loaded(NEW)])
    assert (decision.outcome, decision.stored) == ("DRIFTED", versions[1])


def test_one_name_twice_in_a_load_is_refused() -> None:
    with pytest.raises(BadInput, match="policy 'p': is loaded twice"):
        compare([], [as_loaded(OLD), as_loaded(NEW)])


def test_a_policy_cannot_take_the_name_of_a_datahub_entry() -> None:
    """The book would compare a policy with an entry, each of which another tool owns."""
    with pytest.raises(BadInput, match=r"'datahub:\*\.\*': name: has a name that begins with datahub:"):
        as_loaded(policy("datahub:*.*"))


CONTENTS = [
    # (what, one select, another, whether they mean the same)
    ("a duration in other words", {"older_than": "30d"}, {"older_than": "P30D"}, True),
    ("weeks are days", {"older_than": "2w"}, {"older_than": "14d"}, True),
    ("years are months", {"older_than": "1y"}, {"older_than": "P12M"}, True),
    ("a shorthand", {"older_than": "30d"}, {"older_than": {"age": "30d"}}, True),
    ("a default written out", {"older_than": "30d"}, {"older_than": {"age": "30d", "of": "closed"}}, True),
    ("the order of keys", {"beyond": {"views": 1}, "older_than": "1d"}, {"older_than": "1d", "beyond": {"views": 1}}, True),
    ("another length", {"older_than": "30d"}, {"older_than": "31d"}, False),
    ("a month is not 30 days", {"older_than": "1mo"}, {"older_than": "30d"}, False),
    ("another line", {"older_than": "30d"}, {"older_than": "30d", "beyond": {"views": 1}}, False),
    ("another clock", {"older_than": "30d"}, {"older_than": {"age": "30d", "of": "opened"}}, False),
    ("false is not absent", {"older_than": "30d"}, {"older_than": "30d", "terminal_only": False}, False),
    ("everything", {"older_than": "30d"}, "all", False),
]


def selecting(select: object) -> Policy:
    return Policy.model_validate({"name": "p", "datasets": {"include": ["a/*"]}, "select": select})


@pytest.mark.parametrize(("one", "two", "same"), [pytest.param(*case[1:], id=case[0]) for case in CONTENTS])
def test_content_is_equal_where_the_meaning_is(one: object, two: object, same: bool) -> None:
    assert (canonical(selecting(one)) == canonical(selecting(two))) is same


WHOLE = {
    "name": "whole", "description": "each key once, ümlaut",
    "datasets": {"include": ["lake/*"], "exclude": ["lake/x"], "with": {"tier": "bronze"}},
    "branches": {"include": ["*"], "exclude": ["tmp-*"], "not_in": "main", "reach": "any",
                 "windows": [{"match": "dev", "older_than": "1d"}]},
    "select": {"older_than": {"age": "P2Y", "align": "day"}, "beyond": {"views": 3, "transactions": 0}, "window": "complete",
               "status": ["COMMITTED"], "types": ["SNAPSHOT", "APPEND"], "where": "bytes > 5"},
    "grace": "0s", "confirm": "no-grace", "latest_view": "allow", "limits": {"transactions": 5, "bytes": 6, "fraction": 0.5},
    "sweep": {"mode": "ttl", "batch": 5, "every": "2s", "parallelism": 2},
}  # fmt: skip


@pytest.mark.parametrize(
    "item",
    [
        pytest.param(Policy.model_validate(WHOLE), id="every key"),
        pytest.param(Policy.model_validate({**WHOLE, "sweep": {}, "undo": "P14D"}), id="undo"),
        pytest.param(selecting("all"), id="every transaction"),
        pytest.param(entry("dataset", "status", 5), id="an entry"),
        pytest.param(
            AspectEntry.model_validate({"entity": "*", "aspect": "*", "config": {"retention": {"indefinite": {}}}}),
            id="indefinite",
        ),
    ],
)
def test_content_reads_back_as_what_it_was(item: Item) -> None:
    """A mark points at a stored version for ever; what the sweep re-checks it by must be the same policy."""
    content = canonical(item)
    assert item_of(item.name, content) == item
    assert canonical(item_of(item.name, content) or item) == content
    assert content == json.dumps(json.loads(content), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert "null" not in content


@pytest.mark.parametrize("item", [FORCED, entry(force=True)])
def test_how_an_entry_is_loaded_is_no_part_of_its_content(item: Item) -> None:
    assert "force" not in canonical(item).lower()
    assert as_loaded(item).force_overwrite is True


def test_defaults_are_part_of_the_content() -> None:
    """Else a later release with another default grace would silently change every policy in the book."""
    assert json.loads(canonical(OLD))["grace"] == "1w"


def test_a_key_that_a_release_adds_with_its_default_is_no_drift() -> None:
    data = json.loads(canonical(OLD))
    del data["sweep"]
    content = json.dumps(data)
    earlier = replace(stored(OLD, system=False), content=content, digest=digest_of(content))
    (decision,) = compare([earlier], [as_loaded(OLD)])
    assert decision.outcome == "SKIPPED"


NOT_UNDERSTOOD = replace(stored(OLD), content='{"name": "p", "rule": "of another release"}', digest="other")


@pytest.mark.parametrize(
    ("book", "file", "scopes"),
    [
        pytest.param(None, policy(include="a/*"), [["a/*"]], id="new: its own"),
        pytest.param(stored(policy(age="1d")), policy(age="2d"), [["lake/*"]], id="changed within its datasets: those, once"),
        pytest.param(
            stored(policy(include="a/*")), policy(include="b/*"), [["b/*"], ["a/*"]], id="moved: where it came from too"
        ),
        pytest.param(
            stored(policy(include="a/*"), revoked=True), policy(include="b/*"), [["b/*"]], id="revoked: reached nothing"
        ),
        pytest.param(stored(OLD), OLD, [], id="skipped"),
        pytest.param(stored(OLD, system=False), NEW, [], id="drifted: what is in force stays"),
        pytest.param(stored(OLD), None, [], id="absent: what is in force stays"),
        pytest.param(NOT_UNDERSTOOD, OLD, [["lake/*"], ["*"]], id="not understood any more: may have been anywhere"),
        pytest.param(None, entry(), [["meta/*.*"]], id="entry for all"),
        pytest.param(None, entry("dataset", "*"), [["meta/dataset.*"]], id="entry for an entity"),
        pytest.param(None, entry("*", "status"), [["meta/*.status"]], id="entry for an aspect"),
        pytest.param(stored(entry()), entry(versions=2), [["meta/*.*"]], id="entry changed: it stays where it is"),
    ],
)
def test_what_has_to_be_evaluated_again(book: Stored | None, file: Item | None, scopes: list[list[str]]) -> None:
    decisions = compare([book] if book else [], [as_loaded(file)] if file else [], stores=["meta"])
    assert datasets_touched(decisions) == [Datasets(include=tuple(include)) for include in scopes]


@pytest.mark.parametrize(
    ("stores", "include"),
    [
        ([], ("*/dataset.status",)),
        (["b", "a"], ("a/dataset.status", "b/dataset.status")),
        (["a[1]"], ("a[[]1]/dataset.status",)),
    ],
)
def test_an_entry_reaches_over_the_aspect_stores(stores: list[str], include: tuple[str, ...]) -> None:
    item = entry("dataset", "status")
    assert scope_of(item.name, canonical(item), stores) == Datasets(include=include)


def test_a_policys_exceptions_are_part_of_its_scope() -> None:
    item = Policy.model_validate(WHOLE)
    assert scope_of(item.name, canonical(item)) == item.datasets


ITEMS = st.builds(
    policy, name=st.sampled_from("abcd"), age=st.sampled_from(["1d", "2d", "P1D"]), include=st.sampled_from(["lake/*", "a/*"]),
    force_overwrite=st.booleans(),
) | st.builds(entry, entity=st.sampled_from(["*", "e"]), versions=st.integers(1, 2), force=st.booleans())  # fmt: skip
BOOKS = st.lists(
    st.builds(stored, ITEMS, system=st.booleans(), version=st.integers(1, 9), revoked=st.booleans()),
    max_size=6, unique_by=lambda one: one.name,
)  # fmt: skip
FILES = st.lists(ITEMS.map(as_loaded), max_size=6, unique_by=lambda one: one.name)


def after(book: list[Stored], decisions: list[BookDecision]) -> list[Stored]:
    versions = {entry.name: entry for entry in book}
    versions |= {found.name: found.written("loader", NOW) for found in decisions if found.outcome is LoadOutcome.WRITTEN}
    return list(versions.values())


@given(BOOKS, FILES, st.booleans())
def test_loading_again_writes_nothing(book: list[Stored], files: list[Loaded], overwrite: bool) -> None:
    """Else every start of the program would write versions, and re-evaluate for nothing."""
    first = compare(book, files, overwrite)
    second = compare(after(book, first), files, overwrite)
    expected = [LoadOutcome.SKIPPED if one.outcome is LoadOutcome.WRITTEN else one.outcome for one in first]
    assert [one.outcome for one in second] == expected
    assert datasets_touched(second) == []


@given(BOOKS, FILES, st.booleans())
def test_an_entry_gets_one_decision_and_none_leaves_the_book(book: list[Stored], files: list[Loaded], overwrite: bool) -> None:
    decisions = compare(book, files, overwrite)
    names = [decision.name for decision in decisions]
    silent = {one.name for one in book if one.revoked} - {one.name for one in files}
    assert len(names) == len(set(names))
    assert set(names) | silent == {one.name for one in book} | {one.name for one in files}
    assert {one.name for one in after(book, decisions)} >= {one.name for one in book}


@given(BOOKS, FILES)
def test_what_a_person_wrote_falls_only_to_a_force_or_the_setting(book: list[Stored], files: list[Loaded]) -> None:
    forced = {one.name for one in files if one.force_overwrite}
    by_people = {one.name: one for one in book if not one.system and one.name not in forced}
    left = {one.name: one for one in after(book, compare(book, files))}
    assert {name: left[name] for name in by_people} == by_people


@given(BOOKS, FILES)
def test_with_the_setting_nothing_drifts_and_the_files_are_in_force(book: list[Stored], files: list[Loaded]) -> None:
    decisions = compare(book, files, overwrite_user_policies=True)
    left = {one.name: one for one in after(book, decisions)}
    assert all(decision.warning is None for decision in decisions)
    assert all((left[one.name].content, left[one.name].revoked) == (one.content, False) for one in files)


@given(BOOKS, FILES, st.booleans(), st.randoms())
def test_no_order_changes_a_decision(book: list[Stored], files: list[Loaded], overwrite: bool, random: Any) -> None:
    shuffled_book, shuffled_files = random.sample(book, len(book)), random.sample(files, len(files))
    by_name = {one.name: one for one in compare(book, files, overwrite)}
    assert {one.name: one for one in compare(shuffled_book, shuffled_files, overwrite)} == by_name

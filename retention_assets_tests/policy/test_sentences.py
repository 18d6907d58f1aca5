"""Policies as sentences: what a person agrees to, and what is said of a transaction that is marked or swept. A key that the sentence
leaves out is a rule nobody sees."""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import retention_assets
from retention_assets.policy import (
    AttributeTime,
    Beyond,
    Branches,
    Datasets,
    Hold,
    Limits,
    OlderThan,
    Policy,
    Selection,
    Sweep,
    Window,
    datahub,
    deletion_message,
    hold_sentence,
    load_policies,
    sentence,
)

EXAMPLES = sorted((Path(retention_assets.__file__).parents[1] / "policies" / "examples").glob("*.yaml"))

BASE: dict[str, Any] = {
    "name": "p",
    "datasets": {"include": ["lake/*"]},
    "select": {"older_than": {"age": "30d"}, "beyond": {"views": 2}},
}
WINDOW: dict[str, Any] = {"match": "dev", "older_than": {"age": "3d"}, "beyond": {"views": 1}}

# Per key of every part: two mappings of a policy that differ in that key alone.
CHANGES: dict[tuple[type[BaseModel], str], tuple[dict[str, Any], dict[str, Any]]] = {
    (Policy, "datasets"): ({}, {"datasets": {"include": ["ods/*"]}}),
    (Policy, "branches"): ({}, {"branches": {"only_in": "main"}}),
    (Policy, "select"): ({}, {"select": "all"}),
    (Policy, "grace"): ({}, {"grace": "8d"}),
    (Policy, "confirm"): ({}, {"grace": "0s", "confirm": "no-grace"}),
    (Policy, "undo"): ({"undo": "13d"}, {"undo": "14d"}),
    (Policy, "latest_view"): ({}, {"latest_view": "allow"}),
    (Policy, "limits"): ({}, {"limits": {"bytes": 1}}),
    (Policy, "sweep"): ({}, {"sweep": {"mode": "ttl"}}),
    (Datasets, "include"): ({}, {"datasets": {"include": ["lake/*", "ods/*"]}}),
    (Datasets, "exclude"): ({}, {"datasets": {"include": ["lake/*"], "exclude": ["lake/a"]}}),
    (Datasets, "with_"): ({}, {"datasets": {"include": ["lake/*"], "with": {"tier": "bronze"}}}),
    (Branches, "include"): ({}, {"branches": {"include": ["dev"]}}),
    (Branches, "exclude"): ({}, {"branches": {"exclude": ["dev"]}}),
    (Branches, "only_in"): ({}, {"branches": {"only_in": "dev"}}),
    (Branches, "not_in"): ({}, {"branches": {"not_in": "dev"}}),
    (Branches, "windows"): ({}, {"branches": {"windows": [WINDOW]}}),
    (Branches, "reach"): ({"branches": {"reach": "any"}}, {"branches": {"reach": "unreachable"}}),
    **{
        (Window, key): ({"branches": {"windows": [WINDOW]}}, {"branches": {"windows": [{**WINDOW, key: value}]}})
        for key, value in {
            "match": "main", "older_than": {"age": "4d"}, "beyond": {"views": 2}, "window": "complete",
        }.items()
    },
    **{
        (Selection, key): ({}, {"select": {**BASE["select"], key: value}})
        for key, value in {
            "older_than": {"age": "31d"}, "beyond": {"views": 3}, "in_views_older_than": "9d", "window": "complete",
            "status": ["ABORTED"], "types": ["APPEND"], "superseded": True, "terminal_only": True,
            "archived_before_purge": ["PAYMENT"], "unreferenced": True, "where": "bytes > 0",
        }.items()
    },
    (Selection, "from_table"): ({"select": {"types": ["APPEND"]}}, {"select": {"types": ["APPEND"], "from_table": True}}),
    (Selection, "expired_refs"): ({"select": {"from_table": True}}, {"select": {"from_table": True, "expired_refs": "drop"}}),
    (OlderThan, "age"): ({}, {"select": {"older_than": {"age": "1mo"}, "beyond": {"views": 2}}}),
    (OlderThan, "of"): ({}, {"select": {"older_than": {"age": "30d", "of": "opened"}, "beyond": {"views": 2}}}),
    (OlderThan, "align"): ({}, {"select": {"older_than": {"age": "30d", "align": "day"}, "beyond": {"views": 2}}}),
    (Beyond, "views"): ({}, {"select": {"older_than": {"age": "30d"}, "beyond": {"views": 1}}}),
    **{
        (Beyond, key): ({"select": {"beyond": {"daily": 2}}}, {"select": {"beyond": {"daily": 2, key: value}}})
        for key, value in {
            "transactions": 3, "bytes": "1GiB", "hourly": 3, "daily": 3, "weekly": 3, "monthly": 3, "yearly": 3, "zone": "Asia/Tokyo",
            "where": "bytes > 0", "per": ["tag"],
        }.items()
    },
    (AttributeTime, "attribute"): (
        {"select": {"older_than": {"age": "30d", "of": {"attribute": "last_pull"}}}},
        {"select": {"older_than": {"age": "30d", "of": {"attribute": "last_access"}}}},
    ),
    **{
        (Limits, key): ({"limits": {key: before}}, {"limits": {key: after}})
        for key, before, after in (("transactions", 1, 2), ("bytes", 1, 2), ("fraction", 0.5, 0.25))
    },
    **{
        (Sweep, key): ({}, {"sweep": {key: value}})
        for key, value in {"mode": "ttl", "batch": 1, "every": "2s", "parallelism": 1}.items()
    },
}  # fmt: skip

# What decides nothing about what is deleted, and stands beside the sentence where it is shown.
UNSAID = {(Policy, "name"), (Policy, "description"), (Policy, "force_overwrite")}


def parts(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for field in model.model_fields.values():
        for found in _models(field.annotation):
            yield from parts(found)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _models(argument)


def test_every_key_of_every_part_of_a_policy_is_in_the_table() -> None:
    # A new key without a phrase fails here, before anybody can write it into a file.
    known = {(part, key) for part in parts(Policy) for key in part.model_fields}
    assert known == CHANGES.keys() | UNSAID


def policy_of(change: dict[str, Any]) -> Policy:
    return Policy.model_validate({**BASE, **change})


@pytest.mark.parametrize(("before", "after"), CHANGES.values(), ids=[f"{part.__name__}.{key}" for part, key in CHANGES])
def test_every_key_changes_the_sentence(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert sentence(policy_of(before)) != sentence(policy_of(after))


CLOCKS = ("closed", "opened", "closed_or_opened", "superseded", "archived")


def test_every_word_of_a_key_has_a_phrase_of_its_own() -> None:
    ages = {sentence(policy_of({"select": {"older_than": {"age": "30d", "of": clock}}})) for clock in CLOCKS}
    assert len(ages) == len(CLOCKS)
    reaches = {sentence(policy_of({"branches": {"reach": reach}})) for reach in ("live", "unreachable", "any")}
    assert len(reaches) == 3
    finished = {sentence(policy_of({"select": {**BASE["select"], **more}})) for more in
                ({}, {"terminal_only": True}, {"terminal_only": False})}  # fmt: skip
    assert len(finished) == 3


def test_a_key_written_out_at_its_default_says_what_it_says_left_out() -> None:
    written = {
        "branches": {"include": ["*"], "exclude": [], "windows": [], "reach": "live"},
        "select": {"older_than": {"age": "30d", "of": "closed"}, "beyond": {"views": 2}, "window": "strict"},
        "grace": "P7D",
        "sweep": {"mode": "delete", "batch": 500, "every": "1s", "parallelism": 8},
    }
    assert sentence(policy_of(written)) == sentence(policy_of({}))


@pytest.mark.parametrize(
    "change",
    [
        {"name": "case-1"},
        {"datasets": {"include": ["ods/*"]}},
        {"datasets": {"include": ["lake/*"], "exclude": ["lake/a"]}},
        {"datasets": {"include": ["lake/*"], "with": {"a": "b"}}},
        {"transactions": ["T1"]},
        {"reason": "evidence"},
        {"owner": "legal"},
        {"until": "2027-01-01"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_key_of_a_hold_changes_its_sentence_but_its_name(change: dict[str, Any]) -> None:
    before = hold_sentence(Hold.model_validate({"datasets": "lake/*"}))
    after = hold_sentence(Hold.model_validate({"datasets": "lake/*", **change}))
    assert (before == after) == ("name" in change)


def test_no_grace_is_said_out_loud() -> None:
    assert "at once, without grace" in sentence(policy_of({"grace": "0s", "confirm": "no-grace"}))


def test_undo_is_said_last() -> None:
    assert sentence(policy_of({"undo": "2w"})).endswith(
        " 1 second apart. What is swept is set aside for 14 days and then deleted for good."
    )


@pytest.mark.parametrize(("number", "words"), [(1, "1 view "), (2, "2 views "), (1000, "1,000 views ")])
def test_numbers_agree_with_their_nouns(number: int, words: str) -> None:
    assert words in sentence(policy_of({"select": {"beyond": {"views": number}}}))


TAIL = "in batches of 500, 8 in parallel, 1 second apart."
GOLDEN = {
    "aborted": "Marks aborted transactions of the datasets lake/*, when they closed (unfinished ones: were opened) more than 1 "
    f"day ago. Latest views are never touched. Marks are swept 1 day later, {TAIL}",
    "aborted-and-lost": "Marks aborted transactions of the datasets lake/*, only those that no live branch reaches, when they closed "
    "(unfinished ones: were opened) more than 1 day ago. Latest views are never touched. Marks are swept 1 day later, "
    f"{TAIL}",
    "derived-in-the-trash": "Marks every closed transaction of the datasets lake/* where trashed is 'true'; and derived is 'true', also "
    "those that no live branch reaches. It may also take transactions of a latest view: current data can be deleted. If it would take "
    f"more than 10,000,000,000,000 bytes of one dataset at once, it takes nothing there. Marks are swept 30 days later, {TAIL}",
    "orders": "Marks transactions of the datasets lake/orders*, when they closed more than 30 days ago. Latest views are never "
    f"touched. Marks are swept 7 days later, {TAIL}",
    "branch-windows": "Marks transactions of the datasets lake/mart.*, looking at the branches * except backup/*, when they closed more "
    "than 3 days ago. On branches main it asks instead that they closed more than 1 year ago; and they are not of the "
    "view that was current at that cut-off. On branches release/* it asks instead that they closed more than 1 month "
    "ago; and they are outside the newest 2 views of every branch. Latest views are never touched. Marks are swept 7 "
    f"days later, {TAIL}",
    "raw-30-days": "Marks transactions of the datasets lake/raw.* except lake/raw.legal_* where tier is 'bronze', when they closed "
    "more than 30 days ago; and they are outside the newest 3 views of every branch. Latest views are never touched. "
    "If it would take more than 0.25 of the transactions of one dataset at once, it takes nothing there. Marks are "
    f"swept 7 days later, {TAIL}",
    "tables-as-they-wish": "Marks transactions of the datasets ice/* where gc.enabled is 'true', when they are older than the dataset itself "
    "wants to keep them and not among the newest that it keeps, on each branch by the branch's own numbers where it "
    "has some; a dataset that says nothing about this keeps everything. Latest views are never touched. Marks are "
    f"swept 7 days later, {TAIL}",
    "orphan-files": "Marks transactions of the datasets orphans/*, when they closed more than 7 days ago; and nothing retained refers "
    f"to them. Latest views are never touched. Marks are swept 7 days later, {TAIL}",
    "units-of-work": "Marks transactions of the datasets ods/unit_of_work, when they closed more than 2 years ago, counted from 00:00 "
    "UTC; they are finished; and they were archived (for the record types PAYMENT). Latest views are never touched. "
    f"Marks are swept 7 days later, {TAIL}",
    "datahub:*.*": "Marks a version of every aspect of every entity when it is not among the newest 20 versions before the current one "
    "and is more than 90 days old. The current version always stays.",
    "datahub:dataset.datasetProfile": "Marks a version of aspect datasetProfile of entity dataset when it is not the newest one before "
    "the current one. The current version always stays.",
    "datahub:*.ownership": "Keeps every version of aspect ownership of every entity.",
    "case-2026-017": "Holds transactions 2025-* of the datasets lake/orders* except lake/orders.scratch: nothing of it is marked or "
    "swept until 2027-01-01 00:00 UTC, because: Orders of 2025 are evidence. (owner legal@example.com).",
}


def test_the_sentences_of_the_examples_are_these() -> None:
    policies = load_policies(EXAMPLES)
    said = {policy.name: sentence(policy) for policy in policies.policies}
    said |= {entry.name: datahub.sentence(entry) for entry in policies.entries}
    said |= {str(hold.name): hold_sentence(hold) for hold in policies.holds}
    assert said == GOLDEN


DUE, BEFORE, CHANGED = (datetime(2026, 1, day, tzinfo=UTC) for day in (8, 7, 9))
KEEP = "To keep it: the job `act_keep`, or `retention keep 'lake/a b' T1 --reason …`."
SCHEDULED = "This transaction has been scheduled for deletion."
message_of = partial(deletion_message, dataset="lake/a b", transaction="T1", policy="p@1", due_at=DUE, changed_at=CHANGED)


@pytest.mark.parametrize(
    ("status", "as_of", "message", "details"),
    [
        ("MARKED", BEFORE, SCHEDULED, f"It is due at 2026-01-08 00:00 UTC, by policy p@1. {KEEP}"),
        ("MARKED", DUE, SCHEDULED, f"It is due since 2026-01-08 00:00 UTC, by policy p@1. {KEEP}"),
        (
            "SWEEPING", DUE, SCHEDULED,
            "It is being deleted since 2026-01-09 00:00 UTC, by policy p@1, and can't be taken back any more.",
        ),
        (
            "SWEPT", DUE, "Transaction data has been deleted.",
            "It was deleted at 2026-01-09 00:00 UTC, by policy p@1, and can't be recovered.",
        ),
    ],
)  # fmt: skip
def test_a_message_says_when_by_whom_and_what_to_do(status: str, as_of: datetime, message: str, details: str) -> None:
    said = message_of(status, as_of=as_of)
    assert said is not None
    assert (said.message, said.details, str(said)) == (message, details, f"{message} {details}")


@pytest.mark.parametrize(
    ("status", "outcome"),
    [("UNMARKED", None), ("SPARED", None), ("RESTORED", None), ("SWEPT", "HIDDEN")],
)
def test_of_what_stays_nothing_is_said(status: str, outcome: str | None) -> None:
    assert message_of(status, as_of=DUE, outcome=outcome) is None


def test_what_is_set_aside_is_not_called_deleted() -> None:
    said = message_of("SWEPT", as_of=DUE, outcome="SET_ASIDE", until=datetime(2026, 1, 22, tzinfo=UTC))
    assert str(said) == (
        "Transaction data is set aside until 2026-01-22 00:00 UTC. It was set aside at 2026-01-09 00:00 UTC, by policy p@1. To "
        "bring it back: the job `act_restore`, or `retention restore 'lake/a b' T1 --reason …`."
    )

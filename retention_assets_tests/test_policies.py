"""Random policies, holds and retain rules: all are accepted, and together they use every key that decides."""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

from retention_assets.policy import Hold, Policy, RetainRule
from retention_assets_tests import policies as material


def _keys(value: Any, at: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"{at}{key}"
            yield from _keys(item, f"{at}{key}.")
    elif isinstance(value, list):
        for item in value:
            yield from _keys(item, at)
    else:
        yield f"{at}{value}"


def test_random_policies_and_holds_are_accepted_and_use_every_key_that_decides() -> None:
    rng = random.Random(12)
    book, holds = material.random_policies(rng, 3000), material.random_holds(rng, 300)
    rules = material.random_retain_rules(rng, 300)
    assert len({Policy.model_validate(entry).name for entry in book}) == 3000
    assert len({Hold.model_validate(entry).name for entry in holds}) == 300
    assert len({RetainRule.model_validate(entry).name for entry in rules}) == 300
    seen = Counter(key for entry in book for key in set(_keys(entry)))
    seen += Counter(f"retain.{key}" for entry in rules for key in set(_keys(entry)))
    counts = ("transactions", "hourly", "daily", "weekly", "monthly", "yearly", "zone", "where", "per")
    wanted = [
        "datasets.exclude", "datasets.with", "branches.include", "branches.exclude", "branches.only_in", "branches.not_in",
        "branches.windows.older_than", "branches.windows.beyond", "branches.windows.window.complete",
        "branches.reach.live", "branches.reach.unreachable", "branches.reach.any",
        *(f"select.older_than.of.{of}" for of in ("closed", "opened", "closed_or_opened", "superseded", "archived")),
        "select.older_than.of.attribute", "select.older_than.age.0s", "select.in_views_older_than", "select.where",
        *(f"select.older_than.align.{align}" for align in ("day", "week", "month", "quarter", "year")),
        *(f"{place}beyond.{count}" for place in ("select.", "branches.windows.") for count in ("views", "bytes", *counts)),
        *(f"retain.newest.{count}" for count in counts), "retain.where", "retain.younger_than",
        "select.window.complete", "select.window.strict", "select.status", "select.types", "select.superseded",
        "select.from_table", "select.unreferenced.True", "select.terminal_only.True", "select.terminal_only.False", "select.archived_before_purge", "select.all",
        "latest_view", "limits.transactions", "limits.bytes", "limits.fraction",
    ]  # fmt: skip
    assert {key: seen[key] for key in wanted if seen[key] < 20} == {}

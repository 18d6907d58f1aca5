"""A sweep of a files store as the engine does it, filled environments, and lines of a log."""

import json
from typing import Any, TypeVar

from retention_assets.frames import sound_log
from retention_assets.outcomes import Outcome
from retention_assets.stores.protocol import Store, SweptTarget, Target
from retention_assets_tests.histories import history, to_lines
from retention_assets_tests.stores.files.environments import Files

Some = TypeVar("Some", bound=Files)


def filled(environment: Some) -> Some:
    environment.write("lake/a", "main: T1:SNAPSHOT@9d - T2:SNAPSHOT@8d - T10:SNAPSHOT@7d")
    return environment


def swept(store: Store, dataset: str, *transactions: str, seen: bool = False) -> list[SweptTarget]:
    found = store.sweep(dataset, [Target(name, in_latest_view=seen) for name in transactions], 2)
    return sorted(found, key=lambda one: transactions.index(one.transaction))


def refusal(store: Store, dataset: str, transaction: str) -> str:
    [found] = swept(store, dataset, transaction)
    assert (found.outcome, found.bytes) == (Outcome.FAILED, 0)
    assert found.error
    return found.error


def line(**changed: Any) -> str:
    whole = {
        "dataset": "lake/a", "transaction": "T1", "type": "APPEND", "status": "COMMITTED",
        "opened_at": "2026-01-01T00:00:00Z", "closed_at": "2026-01-01T00:05:00Z",
    }  # fmt: skip
    return json.dumps({**whole, **changed}) + "\n"


def head(store: Store, branch: str = "main") -> dict[str, Any]:
    rows = sound_log(store.read(["lake/a"])).transactions.to_pylist()
    [row] = [row for row in rows if branch in row["heads"]]
    return {"all": len(rows), **row, "attributes": dict(row["attributes"] or ())}


def seen(environment: Some, drawing: str, name: str = "a.jsonl") -> Some:
    drawn = history(drawing, dataset="lake/a")
    text = "".join(f"{line}\n" for line in to_lines([drawn]))
    environment.put_place(name, text.encode()) if name == "log.jsonl" else environment.put_log(name, text)
    for row in drawn.transactions:
        environment.put("lake/a", row["transaction"], "part", b"x")
    return environment

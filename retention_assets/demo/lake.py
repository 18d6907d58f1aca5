"""The lake of the demonstration: histories that each show one thing, and a file of bytes for each step.

Times count from one instant, so that the page is the same on every day.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from retention_assets.policy.durations import text_of

# day on which the demonstration begins
AS_OF = datetime(2026, 6, 1, tzinfo=UTC)


@dataclass
class Sketch:
    """Dataset under construction; each step hangs on the one before unless it says otherwise."""

    dataset: str
    lines: list[dict[str, Any]] = field(default_factory=list)
    last: str | None = None
    # day from which `days_ago` counts
    as_of: datetime = AS_OF

    def step(
        self, name: str, type_: str, days_ago: float, size: int = 4096, parent: str | None = None, status: str = "COMMITTED"
    ) -> "Sketch":
        closed = self.as_of - timedelta(days=days_ago)
        self.lines.append(
            {
                "dataset": self.dataset,
                "transaction": name,
                "parent": parent or self.last,
                "type": type_,
                "status": status,
                "opened_at": text_of(closed - timedelta(minutes=10)),
                "closed_at": None if status == "OPEN" else text_of(closed),
                "bytes": size,
            }
        )
        if status == "COMMITTED":
            self.last = name
        return self

    def say(self, **words: Any) -> "Sketch":
        self.lines.append({"dataset": self.dataset, **words})
        return self


def sketches() -> Iterator[Sketch]:
    """Datasets of the demonstration, each with what it shows."""
    # The history of the Foundry documentation: T1 and T2 are behind abc's latest view, and inside xyz's.
    shared = Sketch("lake/demo.shared_branch")
    shared.step("T1", "APPEND", 90).step("T2", "APPEND", 80).step("T3", "SNAPSHOT", 70).step("T4", "APPEND", 60)
    yield shared.step("T5", "APPEND", 50, parent="T2").say(branch="abc", head="T4").say(branch="xyz", head="T5")
    for name, every, count in (("events", 5, 40), ("clicks", 2, 90), ("payments", 7, 26), ("legal_mail", 7, 26)):
        snapshots = Sketch(f"lake/raw.{name}")
        for number in range(count):
            snapshots.step(f"S{number + 1}", "SNAPSHOT", (count - number) * every, (number + 1) * 256)
        yield snapshots.say(branch="main", head=f"S{count}").say(attributes={"tier": "bronze"})
    tagged = Sketch("lake/raw.models")
    for number in range(12):
        tagged.step(f"S{number + 1}", "SNAPSHOT", (12 - number) * 14)
    yield (
        tagged.say(branch="main", head="S12")
        .say(tag="published", head="S3", expires_at=None)
        .say(tag="last-year", head="S1", expires_at=text_of(AS_OF - timedelta(days=1)))
    )
    failing = Sketch("lake/raw.flaky")
    for number in range(20):
        failing.step(f"S{number + 1}", "SNAPSHOT", (20 - number) * 3).step(
            f"X{number + 1}", "APPEND", (20 - number) * 3 - 1, status="ABORTED"
        )
    yield failing.step("now", "APPEND", 0, status="OPEN").say(branch="main", head="S20")
    daily = Sketch("lake/raw.appends").step("S1", "SNAPSHOT", 120)
    for number in range(60):
        daily.step(f"A{number + 1}", "APPEND", 119 - number)
    yield daily.say(branch="main", head="A60")
    for name in ("features", "scores"):
        yield (
            Sketch(f"lake/derived.{name}")
            .step("S1", "SNAPSHOT", 40)
            .step("S2", "SNAPSHOT", 20)
            .say(branch="main", head="S2")
            .say(attributes={"derived": "true", "trashed": "true" if name == "features" else "false"})
        )
    wide = Sketch("lake/wide.table")
    for number in range(10):
        wide.step(f"S{number + 1}", "SNAPSHOT", (10 - number) * 10)
    yield wide.say(branch="main", head="S10")
    # A log that is not sound: A2 names a parent that is not there. The dataset is refused, the others go on.
    yield Sketch("lake/broken.log").step("A1", "APPEND", 9).step("A2", "APPEND", 8, parent="A9").say(branch="main", head="A2")


def write_lake(folder: Path) -> None:
    """Write the log and the data, as a pipeline would have left them."""
    for name, content in lake_files(list(sketches())).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def lake_files(drawn: Sequence[Sketch]) -> Mapping[str, bytes]:
    """Files of some datasets below the folder of their lake: the data of each transaction, and one log."""
    lines = [(sketch.dataset, line) for sketch in drawn for line in sketch.lines]
    files = {
        f"data/{dataset.partition('/')[2]}/{line['transaction']}/part-0.bin": (
            f"{dataset} {line['transaction']}\n".encode().ljust(line["bytes"], b".")
        )
        for dataset, line in lines
        if "transaction" in line
    }
    return {**files, "log/log.jsonl": "".join(f"{json.dumps(line)}\n" for _, line in lines).encode()}


def add_branch(folder: Path, dataset: str, branch: str, head: str) -> None:
    with (folder / "log" / "log.jsonl").open("a") as log:
        log.write(json.dumps({"dataset": dataset, "branch": branch, "head": head}) + "\n")

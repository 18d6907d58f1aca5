"""A small lake with histories worth looking at, written below one folder: settings, policies and a log.

Belongs here: what the environment holds. Every history shows one thing, and says so. Times hang on one instant, so that the
page is the same on every day.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from retention_assets.policy.instants import text_of

AS_OF = datetime(2026, 6, 1, tzinfo=UTC)
MARKER = ".retention-demo"

SETTINGS = """\
# The settings of the demonstration. Everything lies below this folder.
ledger: sqlite:///ledger.db
warehouse: warehouse
policies: policies
spark: {master: "local[2]", conf: {}}
stores:
  - {name: lake, kind: files, log: log, data: "data/{dataset}/{transaction}"}
"""

POLICIES = """\
# The policies of the demonstration.
policies:
  - name: raw-30-days
    description: Old raw data, once three newer views exist.
    datasets: {include: ["lake/raw.*"], exclude: ["lake/raw.legal_*"]}
    select: {older_than: 30d, beyond: {views: 3}}
  - name: shared-history
    description: What the demonstration of shared branches is about.
    datasets: {include: ["lake/demo.*"]}
    select: {older_than: 30d}
  - name: aborted
    description: Transactions that never became part of the data.
    datasets: {include: ["lake/*"]}
    select: {status: [ABORTED], older_than: 3d}
  - name: trash
    description: Derived data in the trash can be built again.
    datasets: {include: ["lake/*"], with: {trashed: "true", derived: "true"}}
    select: all
    latest_view: allow
  - name: careful
    description: A mistake that its limits catch.
    datasets: {include: ["lake/wide.*"]}
    select: {older_than: 1d}
    limits: {fraction: 0.5}
holds:
  - name: audit-2026
    datasets: ["lake/raw.payments"]
    reason: An audit asked for everything.
    owner: legal
    until: 2026-12-31
"""


@dataclass
class Sketch:
    """A dataset under construction; each step hangs on the one before unless it says otherwise."""

    dataset: str
    lines: list[dict[str, Any]] = field(default_factory=list)
    last: str | None = None

    def step(
        self, name: str, type_: str, days_ago: float, size: int = 1 << 20, parent: str | None = None, status: str = "COMMITTED"
    ) -> "Sketch":
        """Add a transaction."""
        closed = AS_OF - timedelta(days=days_ago)
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
        """Add a branch, a tag or attributes."""
        self.lines.append({"dataset": self.dataset, **words})
        return self


def sketches() -> Iterator[Sketch]:
    """The datasets, each with what it shows."""
    # The history of the Foundry documentation: T1 and T2 are behind abc's latest view, and inside xyz's.
    shared = Sketch("lake/demo.shared_branch")
    shared.step("T1", "APPEND", 90).step("T2", "APPEND", 80).step("T3", "SNAPSHOT", 70).step("T4", "APPEND", 60)
    yield shared.step("T5", "APPEND", 50, parent="T2").say(branch="abc", head="T4").say(branch="xyz", head="T5")
    for name, every, count in (("events", 5, 40), ("clicks", 2, 90), ("payments", 7, 26), ("legal_mail", 7, 26)):
        snapshots = Sketch(f"lake/raw.{name}")
        for number in range(count):
            snapshots.step(f"S{number + 1}", "SNAPSHOT", (count - number) * every, (number + 1) << 18)
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


def build(folder: Path) -> Path:
    """Write the environment anew below a folder that is empty or was made by this function. Returns its settings file."""
    if folder.exists() and any(folder.iterdir()) and not (folder / MARKER).exists():
        raise FileExistsError(f"{folder} holds something that is not the demonstration. Name an empty folder.")
    for part in ("log", "policies"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / MARKER).write_text("Made by `retention demo`; everything here can be built again.\n")
    (folder / "retention.yaml").write_text(SETTINGS)
    (folder / "policies" / "demo.yaml").write_text(POLICIES)
    lines = [json.dumps(line) for sketch in sketches() for line in sketch.lines]
    (folder / "log" / "log.jsonl").write_text("\n".join(lines) + "\n")
    return folder / "retention.yaml"

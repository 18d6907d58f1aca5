"""Lakes of drawn histories that each show one thing, with a file of bytes for each step: the demonstration's, and a sample.

The demonstration counts from one instant, so that its page is the same on every day; the sample of `retention init --sample`
ends today.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
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
    # of the names of its views
    prefix: str = "S"

    def step(
        self, name: str, type_: str, days_ago: float, size: int = 4096, parent: str | None = None, status: str = "COMMITTED"
    ) -> "Sketch":
        closed = self.as_of - timedelta(days=days_ago)
        opened_at, closed_at = text_of(closed - timedelta(minutes=10)), None if status == "OPEN" else text_of(closed)
        about = {"transaction": name, "parent": parent or self.last, "type": type_, "status": status}
        self.say(**about, opened_at=opened_at, closed_at=closed_at, bytes=size)
        if status == "COMMITTED":
            self.last = name
        return self

    def views(self, count: int, every: float, size: Callable[[int], int] = lambda _: 4096) -> "Sketch":
        """Add snapshots, one every so many days."""
        for number in range(1, count + 1):
            self.step(f"{self.prefix}{number}", "SNAPSHOT", (count + 1 - number) * every, size(number))
        return self

    def say(self, **words: Any) -> "Sketch":
        self.lines.append({"dataset": self.dataset, **words})
        return self


def _sketches() -> Iterator[Sketch]:
    # The history of the Foundry documentation: T1 and T2 are behind abc's latest view, and inside xyz's.
    shared = Sketch("lake/demo.shared_branch")
    shared.step("T1", "APPEND", 90).step("T2", "APPEND", 80).step("T3", "SNAPSHOT", 70).step("T4", "APPEND", 60)
    yield shared.step("T5", "APPEND", 50, parent="T2").say(branch="abc", head="T4").say(branch="xyz", head="T5")
    for name, every, count in (("events", 5, 40), ("clicks", 2, 90), ("payments", 7, 26), ("legal_mail", 7, 26)):
        snapshots = Sketch(f"lake/raw.{name}").views(count, every, lambda number: number * 256)
        yield snapshots.say(branch="main", head=f"S{count}").say(attributes={"tier": "bronze"})
    models = Sketch("lake/raw.models").views(12, 14).say(branch="main", head="S12")
    models.say(tag="published", head="S3", expires_at=None)
    yield models.say(tag="last-year", head="S1", expires_at=text_of(AS_OF - timedelta(days=1)))
    failing = Sketch("lake/raw.flaky")
    for number in range(20):
        failing.step(f"S{number + 1}", "SNAPSHOT", (20 - number) * 3)
        failing.step(f"X{number + 1}", "APPEND", (20 - number) * 3 - 1, status="ABORTED")
    yield failing.step("now", "APPEND", 0, status="OPEN").say(branch="main", head="S20")
    daily = Sketch("lake/raw.appends").step("S1", "SNAPSHOT", 120)
    for number in range(60):
        daily.step(f"A{number + 1}", "APPEND", 119 - number)
    yield daily.say(branch="main", head="A60")
    for name, trashed in (("features", "true"), ("scores", "false")):
        derived = Sketch(f"lake/derived.{name}").views(2, 20).say(branch="main", head="S2")
        yield derived.say(attributes={"derived": "true", "trashed": trashed})
    yield Sketch("lake/wide.table").views(10, 10).say(branch="main", head="S10")
    # A log that is not sound: A2 names a parent that is not there. The dataset is refused, the others go on.
    yield Sketch("lake/broken.log").step("A1", "APPEND", 9).step("A2", "APPEND", 8, parent="A9").say(branch="main", head="A2")


def write_lake(folder: Path) -> None:
    """Write the log and the data, as a pipeline would have left them."""
    for name, content in _lake_files(_sketches()).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def _lake_files(sketches: Iterable[Sketch]) -> Mapping[str, bytes]:
    lines = [line for sketch in sketches for line in sketch.lines]
    files = dict[str, bytes]()
    for line in (line for line in lines if "transaction" in line):
        dataset, transaction = line["dataset"], line["transaction"]
        content = f"{dataset} {transaction}\n".encode().ljust(line["bytes"], b".")
        files[f"data/{dataset.partition('/')[2]}/{transaction}/part-0.bin"] = content
    return {**files, "log/log.jsonl": "".join(f"{json.dumps(line)}\n" for line in lines).encode()}


def add_branch(folder: Path, dataset: str, branch: str, head: str) -> None:
    with (folder / "log" / "log.jsonl").open("a") as log:
        log.write(json.dumps({"dataset": dataset, "branch": branch, "head": head}) + "\n")


SAMPLE_STORES = """\
stores:
  - name: lake
    kind: files
    log: {lake}/log
    data: "{lake}/data/{{dataset}}/{{transaction}}"
"""
SAMPLE_SETTINGS = f"""\
# The settings of a sample. Everything is in this folder.

# The record of every mark, decision and act.
ledger: sqlite:///.retention/ledger.db
# The tables of the assets, as Parquet.
warehouse: .retention/warehouse
# Policy files: a folder with *.yaml files.
policies: policies

# You move the clock: with `--as-of 'in 8d'` a week of grace is over. That is for samples and tests, so these settings reach
# only their own folder. For your own data, run `retention init` in a new folder.
clock: {{simulated: true}}

# The data: a log of transactions, and a folder of data for each.
{SAMPLE_STORES.format(lake="lake")}"""

SAMPLE_POLICIES = """\
policies:
  - name: raw-30-days
    description: Old raw views, once a newer view exists.
    datasets:
      include: ["lake/raw.*"]
    select:
      older_than: 30d
      beyond: {views: 1}
    grace: 7d

  - name: aborted
    description: Transactions that never became part of the data.
    datasets:
      include: ["lake/*"]
    select:
      status: [ABORTED]
      older_than: 3d
    grace: 7d

holds:
  - name: audit
    datasets: ["lake/raw.payments"]
    reason: The auditors asked for everything
    owner: finance
"""


def sample_files(now: datetime) -> Mapping[str, bytes]:
    """Files of the lake, by their names below the folder of the settings."""
    files = _lake_files(_sample(now - timedelta(minutes=30)))
    return {f"lake/{name}": content for name, content in files.items()}


def _sample(now: datetime) -> Iterator[Sketch]:
    orders = Sketch("lake/raw.orders", as_of=now).step("T1", "SNAPSHOT", 90, 40_960).step("T2", "SNAPSHOT", 60, 45_056)
    orders.step("X1", "APPEND", 45, 8_192, status="ABORTED").step("T3", "SNAPSHOT", 20, 49_152)
    yield orders.step("T4", "SNAPSHOT", 1, 53_248).say(branch="main", head="T4")
    # T1 and T2 are behind the latest view of main, and in that of the branch year-end.
    clicks = Sketch("lake/raw.clicks", as_of=now).step("T1", "SNAPSHOT", 80, 16_384).step("T2", "APPEND", 70, 4_096)
    clicks.step("T3", "SNAPSHOT", 40, 20_480).step("T4", "APPEND", 2, 4_096)
    yield clicks.say(branch="main", head="T4").say(branch="year-end", head="T2")
    models = Sketch("lake/raw.models", as_of=now, prefix="T").views(6, 14, lambda _: 8_192)
    yield models.say(branch="main", head="T6").say(tag="published", head="T2", expires_at=None)
    yield Sketch("lake/raw.payments", as_of=now, prefix="T").views(3, 35, lambda _: 12_288).say(branch="main", head="T3")

"""The sample of `retention init --sample`: a small lake whose history ends today, with settings and policies that fit it.

Each dataset shows one thing: what goes, what branches share, what a tag pins, what a hold holds.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from retention_assets.demo.lake import Sketch, lake_files

LAKE = "lake"

SETTINGS = """\
# The settings of a sample. Everything lies below this folder.

# The record of every mark, decision and act.
ledger: sqlite:///.retention/ledger.db
# The tables of the assets, as Parquet.
warehouse: .retention/warehouse
# Policy files: a folder with *.yaml files.
policies: policies

# Days pass here as you say: `--as-of 'in 8d'` is a week later, and a week of grace is over. That is for samples and tests: such
# settings reach nothing but their own folder. With your own data begin in a new folder, with `retention init`.
clock: {simulated: true}

# What is retained: a log of transactions, and one folder of data for each.
stores:
  - name: lake
    kind: files
    log: lake/log
    data: "lake/data/{dataset}/{transaction}"
"""

POLICIES = """\
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
    files = lake_files(list(_sketches(now - timedelta(minutes=30))))
    return {f"{LAKE}/{name}": content for name, content in files.items()}


def _sketches(now: datetime) -> Iterator[Sketch]:
    orders = Sketch("lake/raw.orders", as_of=now).step("T1", "SNAPSHOT", 90, 40_960).step("T2", "SNAPSHOT", 60, 45_056)
    orders.step("X1", "APPEND", 45, 8_192, status="ABORTED").step("T3", "SNAPSHOT", 20, 49_152)
    yield orders.step("T4", "SNAPSHOT", 1, 53_248).say(branch="main", head="T4")
    # T1 and T2 are behind the latest view of main, and in that of the branch year-end.
    clicks = Sketch("lake/raw.clicks", as_of=now).step("T1", "SNAPSHOT", 80, 16_384).step("T2", "APPEND", 70, 4_096)
    clicks.step("T3", "SNAPSHOT", 40, 20_480).step("T4", "APPEND", 2, 4_096)
    yield clicks.say(branch="main", head="T4").say(branch="year-end", head="T2")
    models = Sketch("lake/raw.models", as_of=now)
    for number in range(1, 7):
        models.step(f"T{number}", "SNAPSHOT", (7 - number) * 14, 8_192)
    yield models.say(branch="main", head="T6").say(tag="published", head="T2", expires_at=None)
    payments = Sketch("lake/raw.payments", as_of=now)
    for number in range(1, 4):
        payments.step(f"T{number}", "SNAPSHOT", (4 - number) * 35, 12_288)
    yield payments.say(branch="main", head="T3")

"""Rules that people know from other tools: each row of the table in docs/policies.md keeps what the tool's own pages say."""

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from retention_assets.policy import load_policies
from retention_assets_tests.histories import History, history, log_of
from retention_assets_tests.oracle.agreement import judged

PAGE = Path(__file__).parents[2] / "docs" / "policies.md"
DEFAULTS = {"name": "r", "reason": "the same as there", "datasets": "*"}


def daily(first: date, last: date, but: Iterable[date] = ()) -> History:
    """A backup at eleven on each day but some, named by its day, seen on the next morning."""
    days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    steps = " - ".join(f"{day}:SNAPSHOT@{day}T11:00:00Z" for day in days if day not in but)
    return history(f"main: {steps}", as_of=datetime(last.year, last.month, last.day, 8, tzinfo=UTC) + timedelta(days=1))


def restic(days: Iterable[date], **counts: int) -> str:
    """restic goes from the newest back, and each of its rules takes the first of a period that it has not seen."""
    calendars: dict[str, Any] = {
        "daily": lambda day: day, "weekly": lambda day: day.isocalendar()[:2], "monthly": lambda day: (day.year, day.month),
        "yearly": lambda day: day.year,
    }  # fmt: skip
    kept: set[date] = set()
    for rule, left in counts.items():
        seen = None
        for day in sorted(days, reverse=True):
            if left and calendars[rule](day) != seen:
                kept, seen, left = kept | {day}, calendars[rule](day), left - 1
    return " ".join(map(str, kept))


SUNDAYS = "main: " + " - ".join(f"S{week}:SNAPSHOT@{(12 - week) * 7 + 2}d" for week in range(1, 13))
THREE_YEARS = daily(date(2023, 4, 1), date(2026, 3, 31))
ALL_OF_2015 = daily(date(2015, 1, 1), date(2015, 12, 31), but=[date(2015, 12, 19)])
IMAGES = (
    "-: A:RECORD@90d{tag=prod-1} | -: B:RECORD@80d{tag=dev-1} | -: C:RECORD@70d{tag=prod-2} | -: D:RECORD@60d |"
    "-: E:RECORD@50d{tag=prod-3} | -: F:RECORD@40d{tag=dev-1-keep} | -: G:RECORD@30d{tag=prod-4} | -: H:RECORD@20d{tag=dev-2} |"
    "-: I:RECORD@10d | -: J:RECORD@9d{tag=dev-3}"
)
VERSIONS = "main: V1:SNAPSHOT@90d - V2:SNAPSHOT@60d - V3:SNAPSHOT@29d - V4:SNAPSHOT@20d - V5:SNAPSHOT@1d"
SEGMENTS = " | ".join(f"-: S{number}:RECORD@{9 - number}d=40" for number in range(1, 6))

# What the first cell of a row says, a history, and what stays of it.
PEERS: dict[str, tuple[str | History, str]] = {
    "restic `--keep-last 3`": (SUNDAYS, "S10 S11 S12"),
    # The example of restic's manual: a backup on each of twelve Sundays.
    "restic `--keep-daily 4`": (SUNDAYS, "S9 S10 S11 S12"),
    "restic, AWS Backup: 7 daily, 5 weekly, 12 monthly, 3 yearly": (THREE_YEARS, restic(
        [date.fromisoformat(row["transaction"]) for row in THREE_YEARS.transactions], daily=7, weekly=5, monthly=12, yearly=3
    )),
    # The example of borg's manual, but for its rule for years.
    "borg `--keep-daily 14 --keep-monthly 6`": (ALL_OF_2015, " ".join(
        [f"2015-12-{day}" for day in range(17, 32) if day != 19]
        + ["2015-11-30", "2015-10-31", "2015-09-30", "2015-08-31", "2015-07-31", "2015-06-30"]
    )),
    "restic `--keep-within 2y5m7d3h`": (
        "main: A:SNAPSHOT@2023-10-24T08:59:59Z - B:SNAPSHOT@2023-10-24T09:00:00Z - C:SNAPSHOT@1d", "B C"),
    "restic `--keep-tag release --keep-last 1`": (
        "main: A:SNAPSHOT@9d{tag=release} - B:SNAPSHOT@8d - C:SNAPSHOT@7d{tag=other} - D:SNAPSHOT@6d", "A D"),
    "ECR `imageCountMoreThan: 3`, tag prefix `prod`": (IMAGES, "B C D E F G H I J"),
    "ECR `sinceImagePushed: 14 days`, untagged": (IMAGES, "A B C E F G H I J"),
    "ECR `sinceImagePulled: 60 days`": (
        "-: A:RECORD@90d{last_pull=2026-01-30T11:00:00Z} | -: B:RECORD@90d{last_pull=2026-03-01T00:00:00Z} | -: C:RECORD@90d", "B C"),
    "Harbor: the 2 most recently pushed of `v*`": (
        "-: A:RECORD@9d{tag=v1} | -: B:RECORD@8d{tag=v2} | -: C:RECORD@7d{tag=x} | -: D:RECORD@6d{tag=v3}", "B D"),
    # F is old enough and not the newest, and its name says keep; J is the newest.
    "GitLab `name_regex: dev.*`, `keep_n: 1`, `older_than: 14d`, `name_regex_keep: .*-keep`": (IMAGES, "A C D E F G I J"),
    "Artifact Registry: delete `olderThan: 30d`, keep `mostRecentVersions: 2`": (
        "-: A1:RECORD@90d{package=a} | -: A2:RECORD@80d{package=a} | -: A3:RECORD@70d{package=a} | -: B1:RECORD@90d{package=b} | "
        "-: C1:RECORD@99d{package=c} | -: C2:RECORD@9d{package=c} | -: C3:RECORD@8d{package=c}", "A2 A3 B1 C2 C3"),
    "Velero `ttl`, GCS `daysSinceCustomTime: 0`": (
        "-: A:RECORD@9d{expires_at=2026-03-31T11:00:00Z} | -: B:RECORD@99d{expires_at=2026-04-01T00:00:00Z} | -: C:RECORD@99d", "B C"),
    "GCS `numNewerVersions: 3`": (VERSIONS, "V3 V4 V5"),
    "Azure `daysAfterLastAccessTimeGreaterThan: 90`": (
        "-: A:RECORD@99d{last_access=2025-12-31T11:59:59Z} | -: B:RECORD@99d{last_access=2025-12-31T12:00:00Z} | -: C:RECORD@99d", "B C"),
    # V2 was replaced 29 days ago; of those before it V1 is the third that is not current.
    "S3 `NoncurrentDays: 30`, `NewerNoncurrentVersions: 2`": (VERSIONS, "V2 V3 V4 V5"),
    "Kafka `retention.bytes=70`, segments of 40 bytes": (SEGMENTS, "S4 S5"),
    "journald `SystemMaxUse`, Curator `disk_space`": (SEGMENTS, "S4 S5"),
    "Object lock: 7 years, whatever else": (
        "main: A:SNAPSHOT@2019-03-31T11:59:59Z - B:SNAPSHOT@2019-03-31T12:00:00Z - C:SNAPSHOT@9d - D:SNAPSHOT@1d", "B C D"),
    "Delta `deletedFileRetentionDuration = 7 days`": (
        "main: A:SNAPSHOT@90d - B:SNAPSHOT@8d - C:SNAPSHOT@7d - D:SNAPSHOT@1d", "B C D"),
    "Iceberg `expire_snapshots(older_than => 5 days, retain_last => 2)`": (
        "main: A:SNAPSHOT@9d - B:SNAPSHOT@8d - C:SNAPSHOT@7d", "B C"),
    # A was replaced on dev 25 days ago and on main 26: long enough for dev alone. X was on dev only.
    "lakeFS `default_retention_days: 21`, `main: 28`": (
        "main: A:SNAPSHOT@90d - B:SNAPSHOT@26d | dev: A - X:SNAPSHOT@25d - Y:SNAPSHOT@22d", "A B Y"),
}  # fmt: skip


def rows() -> dict[str, str]:
    table = PAGE.read_text().partition("| you know | write | differs |")[2].partition("\n\n")[0]
    cells = [[cell.strip() for cell in line.split("|")[1:4]] for line in table.splitlines()[2:]]
    return {known: write for known, write, _ in cells}


def test_every_row_of_the_page_is_run() -> None:
    assert rows().keys() == PEERS.keys()


@pytest.mark.parametrize("known", PEERS)
def test_what_the_page_writes_keeps_what_the_peer_keeps(known: str, tmp_path: Path) -> None:
    parts: dict[str, Any] = {}
    for written in re.findall("`([^`]+)`", rows()[known]):
        parts |= yaml.safe_load(written)
    retain = [{**DEFAULTS, **rule} for rule in parts.pop("retain", [])]
    file = {"policies": [{"name": "p", "datasets": {"include": ["*"]}, **parts}], "retain": retain}
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(file))
    loaded = load_policies([tmp_path])
    drawn, kept = PEERS[known]
    one = history(drawn) if isinstance(drawn, str) else drawn
    found = judged(log_of([one]), loaded.policies, loaded.holds, one.as_of)
    assert {name for (_, name), row in found.items() if row["verdict"] != "mark"} == set(kept.split())

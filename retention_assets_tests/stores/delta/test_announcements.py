"""VACUUM START and END: put only where no commit is, and left out or refused where that can't be promised."""

import json
from pathlib import Path
from typing import Any

import pytest

from retention_assets.outcomes import Outcome
from retention_assets.stores.protocol import Target
from retention_assets_tests.stores.contract import write_chains
from retention_assets_tests.stores.delta.environments import S3Tables, keep, open_tables
from retention_assets_tests.stores.delta.golden import timed
from retention_assets_tests.stores.delta.tables import Table
from retention_assets_tests.stores.files.environments import S3


def operations(folder: Path) -> list[str]:
    found = []
    for file in sorted((folder / "_delta_log").glob("*.json")):
        found += [json.loads(line).get("commitInfo", {}).get("operation") for line in file.read_text("utf-8").splitlines()]
    return [one for one in found if one and one.startswith("VACUUM")]


def table(folder: Path) -> Path:
    written = Table(folder, 0)
    written.overwrite(1)
    return written.folder


def test_nothing_is_announced_where_the_settings_say_never(tmp_path: Path) -> None:
    folder = table(tmp_path / "t")
    assert keep(folder, 1, announce="never").outcomes() == {0: Outcome.DELETED}
    assert operations(folder) == []


@pytest.mark.parametrize(("announce", "outcome"), [("auto", Outcome.DELETED), ("always", Outcome.FAILED)])
def test_a_disk_without_hard_links_has_no_announcements(
    announce: str, outcome: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    folder = table(tmp_path / "t")
    monkeypatch.setattr("os.link", no_links)
    swept = keep(folder, 1, announce=announce)
    assert swept.outcomes() == {0: outcome}
    assert operations(folder) == []
    assert ("can't be announced" in str(swept.answers[0].error)) == (announce == "always")


def test_a_table_with_times_in_its_commits_gets_one_in_each_announcement(tmp_path: Path) -> None:
    written = timed(tmp_path / "t")
    keep(written.folder, written.version)
    infos = [json.loads((written.log / f"{number:020}.json").read_text("utf-8"))["commitInfo"] for number in (4, 5)]
    last = json.loads((written.log / f"{3:020}.json").read_text("utf-8").splitlines()[0])["commitInfo"]["inCommitTimestamp"]
    assert last < infos[0]["inCommitTimestamp"] < infos[1]["inCommitTimestamp"]
    assert len(open_tables(tmp_path).read(["lh/t"])) > 6


@pytest.fixture
def bucket(s3: S3, tmp_path: Path) -> S3Tables:
    return S3Tables(tmp_path, s3)


def sweep(bucket: S3Tables, **settings: Any) -> tuple[list[Outcome], list[str]]:
    ids = write_chains(bucket)
    store = bucket.open(**settings)
    targets = [Target(one.transaction, one.note) for one in store.prepare("lh/t1", [ids["T1"]])]
    answers = store.sweep("lh/t1", targets, 2)
    added = sorted(name for name in bucket.everything() if name.startswith("t1/_delta_log/"))[5:]
    return [answer.outcome for answer in answers], [name.rpartition("/")[2][18:20] for name in added]


def test_a_bucket_has_announcements(bucket: S3Tables) -> None:
    assert sweep(bucket) == ([Outcome.DELETED], ["05", "06"])


def test_a_commit_of_the_same_instant_is_not_replaced(bucket: S3Tables) -> None:
    other = b'{"commitInfo":{"operation":"another"}}'

    def commits(method: str, query: str, body: bytes) -> None:
        if method == "PUT" and f"{5:020}.json" in query and len(bucket.s3.faults) == 1:
            bucket.s3.faults.append(lambda *_: None)
            bucket.s3.put(f"{bucket.root}/t1/_delta_log/{5:020}.json", other)

    bucket.s3.faults.append(commits)
    assert sweep(bucket) == ([Outcome.DELETED], ["05", "06", "07"])
    assert bucket.everything()[f"t1/_delta_log/{5:020}.json"] == other


@pytest.mark.parametrize(
    ("announce", "outcome"), [("auto", Outcome.DELETED), ("always", Outcome.FAILED), ("never", Outcome.DELETED)]
)
def test_a_server_that_replaces_although_it_is_told_not_to_gets_no_announcements(
    announce: str, outcome: Outcome, bucket: S3Tables
) -> None:
    def replaces(method: str, query: str, body: bytes) -> tuple[str, str] | None:
        return ("200 OK", "") if method == "PUT" and ".retention-store" in query else None

    bucket.s3.faults.append(replaces)
    assert sweep(bucket, announce=announce) == ([outcome], [])


def test_an_answer_that_was_lost_is_looked_for(bucket: S3Tables) -> None:
    def loses(method: str, query: str, body: bytes) -> tuple[str, str] | None:
        if method != "PUT" or f"{5:020}.json" not in query:
            return None
        bucket.s3.put(f"{bucket.root}/t1/_delta_log/{5:020}.json", _content(body))
        return "500 Internal Server Error", "<Error><Code>InternalError</Code></Error>"

    bucket.s3.faults.append(loses)
    assert sweep(bucket) == ([Outcome.DELETED], ["05", "06"])


def _content(body: bytes) -> bytes:
    # a client may send it in one chunk, with its length and a checksum
    return body[body.index(b"{") : body.rindex(b"}") + 1] + b"\n"

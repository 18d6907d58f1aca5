"""Silence is bounded: who accepts and says nothing is named after `timeout`, and the other stores go on."""

import json
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from retention_assets.outcomes import Outcome
from retention_assets.stores.dry_run import RecordingStore
from retention_assets.stores.protocol import Permit, Store, SweptTarget, Target, always
from retention_assets_tests.people.conftest import script
from retention_assets_tests.sweep.lakes import Lake

LINE = {"dataset": "lake/d", "transaction": "T1", "type": "SNAPSHOT", "status": "COMMITTED"}
TIMES = {"opened_at": "2020-01-01T00:00:00Z", "closed_at": "2020-01-01T01:00:00Z"}
LAKE = {"name": "lake", "kind": "files", "log": "log", "data": "data/{dataset}/{transaction}"}
SENTENCE = "nothing came for 1 s, the `timeout` of the settings"
PLUGIN = """
import threading


class Silent:
    def shares(self, wanted):
        return ["all"]

    def read(self, share):
        threading.Event().wait()
        yield

    def finish(self, ends):
        return []
"""


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that accepts whoever comes, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = []

        def accept() -> None:
            while True:
                try:
                    taken.append(server.accept()[0])
                except OSError:
                    return

        thread = Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in taken:
            connection.close()


def environment(folder: Path, *stores: dict[str, Any]) -> None:
    (folder / "log").mkdir()
    (folder / "log/log.jsonl").write_text(json.dumps(LINE | TIMES) + "\n")
    (folder / "policies").mkdir()
    (folder / "policies/p.yaml").write_text(
        "policies: [{name: p, datasets: {include: ['*']}, branches: {reach: any}, select: {older_than: 1d}}]"
    )
    (folder / "retention.yaml").write_text(json.dumps({"timeout": "1s", "stores": [*stores, LAKE]}))


ROOT = {"table": "t", "key": "id", "opened_at": "a", "closed_at": "b"}
SERVERS = {
    "a REST catalog": {"kind": "iceberg", "catalog": {"type": "rest", "uri": "http://127.0.0.1:PORT"}},
    "a SQL catalog": {"kind": "iceberg", "catalog": {"type": "sql", "uri": "postgresql+psycopg://u:p@127.0.0.1:PORT/d"}},
    "a PostgreSQL": {"kind": "records", "url": "postgresql://u:p@127.0.0.1:PORT/d", "root": ROOT},
    "a MySQL": {"kind": "records", "url": "mysql://u:p@127.0.0.1:PORT/d", "root": ROOT},
    "an http log": {"kind": "files", "log": "http://127.0.0.1:PORT/log.jsonl", "data": "far/{dataset}/{transaction}"},
    "an S3 log": {"kind": "files", "log": "s3://bucket/log", "data": "away/{dataset}/{transaction}"},
}


@pytest.mark.program
def test_silent_servers_are_named_and_another_store_is_judged(silent: int, tmp_path: Path) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "some-secret-key", "AWS_DEFAULT_REGION": "us-east-1"}
    stores = json.loads(json.dumps(SERVERS).replace("PORT", str(silent)))
    environment(tmp_path, *({"name": name, **store} for name, store in stores.items()))
    place = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent}", **keys}
    done = script(tmp_path, "preview", "--format", "json", "--as-of", "2021-01-01T00:00:00Z", **place)
    named = [line.partition(" failed: ")[0] for line in done.stderr.splitlines() if SENTENCE in line]
    assert named == [f"the store {name}" for name in SERVERS]
    assert [row["transaction"] for row in json.loads(done.stdout)["transactions"]] == ["T1"]


@pytest.mark.program
def test_a_silent_server_of_the_ledger_ends_the_command(silent: int, tmp_path: Path) -> None:
    environment(tmp_path)
    settings = json.loads((tmp_path / "retention.yaml").read_text())
    url = f"postgresql://u:p@127.0.0.1:{silent}/d"
    (tmp_path / "retention.yaml").write_text(json.dumps({**settings, "ledger": url}))
    done = script(tmp_path, "audit", "verify")
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot be opened: connection timeout expired. Check the key ledger in the settings" in done.stderr


@pytest.mark.program
def test_a_silent_plugin_fails_its_scan_and_the_other_store_is_marked(tmp_path: Path) -> None:
    (tmp_path / "quiet.py").write_text(PLUGIN)
    (tmp_path / "far").mkdir()
    store = {"kind": "objects", "dataset": "{1}", "listing": {"path": "far"}, "references": [{"use": "quiet:Silent"}]}
    environment(tmp_path, {"name": "far", **store})
    done = script(tmp_path, "plan", "--format", "json", "--as-of", "2021-01-01T00:00:00Z")
    assert f"use quiet:Silent: {SENTENCE}" in done.stderr
    assert json.loads(done.stdout)["totals"]["newly_marked"]["transactions"] == 1


@pytest.mark.program
@pytest.mark.parametrize("names", [["retention.yaml"], ["policies/q.yaml"], ["log/pipe.jsonl", "refs/pipe.jsonl"]])
def test_a_pipe_in_the_place_of_a_file_is_refused_at_once(names: list[str], tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "refs").mkdir()
    store = {"kind": "objects", "dataset": "{1}", "listing": {"path": "far"}, "references": [{"lines": "refs/*"}]}
    environment(tmp_path, {"name": "far", **store})
    for name in names:
        (tmp_path / name).unlink(missing_ok=True)
        os.mkfifo(tmp_path / name)
    done = script(tmp_path, "plan", "--as-of", "2021-01-01T00:00:00Z")
    for name in names:
        assert f"{name}: is a pipe, a device or a socket; expected a regular file" in done.stderr


class Sleeper(RecordingStore):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.woken, self.done, self.swept = Event(), Event(), list[SweptTarget]()

    @property
    def innermost(self) -> Store:
        return self

    def sweep(self, dataset: str, targets: Sequence[Target], parallelism: int, permit: Permit = always) -> list[SweptTarget]:
        self.woken.wait(60)
        self.swept = self.store.sweep(dataset, targets, parallelism, permit)
        self.done.set()
        return self.swept


def test_a_store_that_wakes_after_its_time_deletes_nothing(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake").has("main: S1:SNAPSHOT@90d=10 - S2:SNAPSHOT@1d=10", "lake/a")
    lake.marks()
    settings = json.loads(lake.settings_file.read_text())
    lake.settings_file.write_text(json.dumps({**settings, "timeout": "1s"}))
    sleeper = Sleeper(lake.stores["lake"])
    (result,) = lake.sweeps(stores={"lake": sleeper}).values()
    assert (result.outcomes, lake.statuses("lake/a")) == ({Outcome.FAILED: 1}, {"S1": "MARKED"})
    assert SENTENCE in lake.why("S1", "lake/a")
    sleeper.woken.set()
    sleeper.done.wait(60)
    assert [(target.outcome, target.error) for target in sleeper.swept] == [
        (Outcome.WITHHELD, f"nobody waits any longer: {SENTENCE}")
    ]
    assert lake.there("lake/a") == {"S1", "S2"}


@pytest.mark.program
def test_a_database_that_falls_silent_after_it_let_one_in_is_named(tmp_path: Path) -> None:
    def message(kind: bytes, body: bytes) -> bytes:
        return kind + struct.pack("!I", len(body) + 4) + body

    def serve() -> None:
        with server.accept()[0] as connection:
            connection.recv(1000)
            connection.sendall(message(b"R", struct.pack("!I", 0)) + message(b"Z", b"I"))
            while connection.recv(1000):
                pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        Thread(target=serve, daemon=True).start()
        url = f"postgresql://u:p@127.0.0.1:{server.getsockname()[1]}/d?sslmode=disable&gssencmode=disable"
        environment(tmp_path, {"name": "far", "kind": "records", "url": url, "root": ROOT})
        done = script(tmp_path, "preview", "--format", "json", "--as-of", "2021-01-01T00:00:00Z")
    assert SENTENCE in done.stderr
    assert [row["transaction"] for row in json.loads(done.stdout)["transactions"]] == ["T1"]

"""Folders in the data of a `files` store that no log knows: exactly they go, whatever the format of the log."""

import json
import os
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention_assets_tests.histories import AS_OF, history, to_lines
from retention_assets_tests.stores.objects.blobs import DUE, MARKED, Blobs

KNOWN = {"data/a/T1/p", "data/a/T1/deep/q", "data/a/T2/p", "data/a/T2/deep/q", "data/b c/é/T1/p", "data/b c/é/T1/deep/q"}
STRAYS = {"data/a/T3/p", "data/a/T3/deep/q", "data/a/T22/p", "data/gone/T1/p", "data/b c/T1/p", "data/loose", "data/a/loose"}


@pytest.fixture(params=["jsonl", "parquet"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Blobs:
    """A lake of two datasets, and what writers that failed have left in it."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    store = {"name": "lake", "kind": "files", "log": "log", "data": "data/{dataset}/{transaction}"}
    blobs = Blobs(tmp_path / "b", {"listing": {"path": "data"}, "references": [{"store": "lake"}]}, others=(store,))
    drawn = [
        history("main: T1:SNAPSHOT@90d - T2:APPEND@80d", dataset="lake/a"),
        history("main: T1:SNAPSHOT@90d", dataset="lake/b c/é"),
    ]
    (blobs.folder / "log").mkdir()
    lines = blobs.folder / "log" / "log.jsonl"
    lines.write_text("".join(f"{line}\n" for line in to_lines(drawn)))
    if request.param == "parquet":
        rows = [row for row in map(json.loads, lines.read_text().splitlines()) if "transaction" in row]
        columns = {name: [row[name] for row in rows] for name in ("dataset", "transaction", "type", "status")}
        times = {name: [AS_OF - timedelta(days=80)] * len(rows) for name in ("opened_at", "closed_at")}
        pq.write_table(pa.table({**columns, **times}), lines.with_name("log.parquet"))
        lines.unlink()
    at = (AS_OF - timedelta(days=60)).timestamp()
    for name in KNOWN | STRAYS:
        place = blobs.folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"x")
        os.utime(place, (at, at))
    return blobs


def files_of(lake: Blobs) -> set[str]:
    found = (str(file.relative_to(lake.folder)) for file in (lake.folder / "data").rglob("*") if file.is_file())
    return {name for name in found if "/.retention-" not in name}


@pytest.mark.usefixtures("shared_jobs")
def test_exactly_what_no_log_knows_goes(lake: Blobs) -> None:
    assert lake.runs(MARKED).troubles == ()
    assert files_of(lake) == KNOWN | STRAYS
    # Its log is written at last: what it knows by then stays.
    late = {"dataset": "lake/a", "transaction": "T3", "type": "APPEND", "status": "ABORTED"}
    (lake.folder / "log" / "late.jsonl").write_text(f"{json.dumps(late)}\n")
    assert lake.runs(DUE).troubles == ()
    assert files_of(lake) == KNOWN | {name for name in STRAYS if name.startswith("data/a/T3/")}
    assert lake.verified() == ()

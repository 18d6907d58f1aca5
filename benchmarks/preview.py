"""`retention preview` as a user starts it: one command, from JSON lines to JSON, measured from outside.

Belongs here: the file of lines and the command. Start of Python, imports, reading and printing all count.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import pyarrow as pa
import pyarrow.compute as pc

import retention_assets
from benchmarks.environments import AS_OF
from benchmarks.policies import DOCUMENTS
from retention_assets.frames import Log
from retention_assets.policy import text_of

# The command notes its own peak when it ends: asked from outside, the system would answer with that of this Python, if higher.
_MAIN = """
import atexit, os
from pathlib import Path
from retention_assets.cli import main
from benchmarks.measures import peak
atexit.register(lambda: Path(os.environ["BENCHMARK_PEAK"]).write_text(str(peak("self") or "")))
main()
"""


def write_lines(log: Log, path: Path) -> None:
    """The log in the exchange format: transactions in the order of the log, then branches and tags."""
    rows = log.transactions
    dataset = rows["dataset"].cast(pa.string())
    written = [_joined(
        '{"dataset":"', dataset, '","transaction":"', rows["transaction"], '","parent":', _quoted(rows["parent"]),
        ',"type":"', rows["type"].cast(pa.string()), '","status":"', rows["status"].cast(pa.string()),
        '","opened_at":', _instant(rows["opened_at"]), ',"closed_at":', _instant(rows["closed_at"]),
        ',"bytes":', rows["bytes"].cast(pa.string()), ',"files":', rows["files"].cast(pa.string()), "}",
    )]  # fmt: skip
    for column, kind in (("heads", "branch"), ("tags", "tag")):
        lists = rows[column].combine_chunks()
        at = pc.list_parent_indices(lists)
        more: tuple[str | pa.Array, ...] = ()
        if kind == "tag":
            more = (',"expires_at":', _instant(pc.list_flatten(rows["tag_expiries"].combine_chunks())))
        written.append(_joined(
            '{"dataset":"', dataset.take(at), f'","{kind}":"', pc.list_flatten(lists),
            '","head":"', rows["transaction"].take(at), '"', *more, "}",
        ))  # fmt: skip
    with path.open("w") as file:
        for lines in written:
            for start in range(0, len(lines), 100_000):
                file.writelines(line + "\n" for line in lines[start : start + 100_000].to_pylist())


def write_policies(path: Path) -> None:
    """The policies of the benchmark as a file; JSON is YAML."""
    path.write_text(json.dumps({"policies": DOCUMENTS}))


def preview(lines: Path, policies: Path, output: Path) -> tuple[float, float | None]:
    """Run the command. Returns seconds and the peak of its memory in MiB, None where the system does not tell."""
    root = str(Path(retention_assets.__file__).parent.parent)
    # No settings of the checkout: the folder of the log has none.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RETENTION_")}
    options = ["--log", str(lines), "--policies", str(policies), "--as-of", text_of(AS_OF), "--format", "json"]
    noted = lines.parent / "peak"
    environment |= {"PYTHONPATH": root, "BENCHMARK_PEAK": str(noted)}
    begin = perf_counter()
    with output.open("wb") as sink:
        command = [sys.executable, "-c", _MAIN, "preview", *options]
        subprocess.run(command, stdout=sink, cwd=lines.parent, env=environment, check=True)
    return perf_counter() - begin, float(noted.read_text() or 0) or None


def _joined(*parts: str | pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    return pc.binary_join_element_wise(*parts, "")


def _quoted(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.fill_null(_joined('"', column, '"'), "null")


def _instant(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    return _quoted(pc.strftime(column, "%Y-%m-%dT%H:%M:%SZ"))

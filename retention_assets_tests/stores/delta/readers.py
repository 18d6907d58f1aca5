"""DuckDB as a second reader of Delta tables, also of deletion vectors, column mapping and checkpoints that deltalake refuses.

Its Delta extension comes as a package for DuckDB 1.5, so it runs as a program in an environment of its own, which is made once.
"""

import fcntl
import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterable, Mapping
from pathlib import Path

from retention_assets_tests.stores.delta import tables
from retention_assets_tests.stores.delta.tables import Row, Unreadable

PINS = Path(__file__).with_name("readers.txt")
ENVIRONMENT = Path(sys.prefix) / "delta-readers"
# Answers each line with one. Nothing is remembered between two of them, and nothing is looked for in a network.
PROGRAM = """
import json, pathlib, sys
import duckdb, duckdb_extension_delta
(extension,) = pathlib.Path(duckdb_extension_delta.__file__).parent.glob("extensions/*/delta.duckdb_extension")
off = ("autoinstall_known_extensions", "autoload_known_extensions", "enable_external_file_cache")
connection = duckdb.connect(config={"threads": 1} | dict.fromkeys(off, False))
connection.load_extension(str(extension))
for line in sys.stdin:
    try:
        answer = connection.execute("FROM delta_scan($folder, version := $version)", json.loads(line)).fetchall()
    except duckdb.Error as error:
        answer = str(error)
    print(json.dumps(answer, default=str), flush=True)
"""


class DuckDBReader:
    """A program that reads tables for a whole session: starting it takes longer than reading a hundred versions."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self.program = subprocess.Popen([python_with_duckdb(), "-c", PROGRAM], stdin=pipe, stdout=pipe, text=True)

    def rows(self, folder: Path, version: int) -> list[Row]:
        """The same as `tables.rows` of what both can read."""
        assert self.program.stdin
        assert self.program.stdout
        self.program.stdin.write(json.dumps({"folder": str(folder), "version": version}) + "\n")
        self.program.stdin.flush()
        line = self.program.stdout.readline()
        assert line, "the program with DuckDB has ended"
        answer = json.loads(line)
        if isinstance(answer, str):
            raise Unreadable(answer)
        return sorted(map(tuple, answer), key=repr)

    def close(self) -> None:
        self.program.communicate()


def python_with_duckdb() -> Path:
    """Makes the environment if it is not there, also when several sessions ask for it at once."""
    python, ready = ENVIRONMENT / "bin" / "python", ENVIRONMENT / ".ready"
    wanted = f"{sys.version}\n{PINS.read_text('utf-8')}"
    with ENVIRONMENT.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not python.exists() or not ready.exists() or ready.read_text("utf-8") != wanted:
            venv.create(ENVIRONMENT, clear=True, symlinks=True)
            pip = (sys.executable, "-m", "pip", "--python", str(python), "--quiet", "--disable-pip-version-check")
            install = (*pip, "install", "--no-deps", "--only-binary", ":all:", "--requirement", str(PINS))
            # The project's own pins may be in the environment.
            variables = {**os.environ, "PIP_CONSTRAINT": str(PINS)}
            for command in (install, (python, "-c", PROGRAM)):
                subprocess.run(command, env=variables, check=True, input="", capture_output=True, text=True, timeout=300)
            ready.write_text(wanted, "utf-8")
    return python


def readings(reader: DuckDBReader, folder: Path, versions: Iterable[int]) -> Mapping[tuple[str, int], list[Row]]:
    """What each reader reads of each version, without those that it refuses."""
    found = {}
    for version in versions:
        for name, read in (("deltalake", tables.rows), ("DuckDB", reader.rows)):
            try:
                found[name, version] = read(folder, version)
            except Unreadable:
                continue
    return found

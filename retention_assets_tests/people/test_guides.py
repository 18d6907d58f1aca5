"""README, the quickstart and the guides, done as a reader does them: their files, their commands, and what these print."""

import os
import re
import runpy
import shlex
import subprocess
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from textwrap import dedent

import psycopg
import pytest

from retention_assets_tests.databases import new_schema
from retention_assets_tests.people.conftest import ROOT, Run

PAGES = [
    "README.md",
    "docs/quickstart.md",
    "docs/stores/delta.md",
    *(f"docs/guides/{page.name}" for page in sorted((ROOT / "docs/guides").glob("*.md"))),
]
BLOCK = re.compile(r'^( *)```(\w+)(?: title="([^"]+)")?\n(.*?)^\1```$', re.MULTILINE | re.DOTALL)
# Days and minutes are those of the reader.
TIMES = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::[\d.]+)?Z?)?|\b\d{1,2} [JFMASOND][a-z]{2,8}\b")

pytestmark = pytest.mark.usefixtures("local_spark")


@pytest.fixture
def readers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, run: Run) -> str:
    """The text of a page, in a shell that has what it presumes: a PostgreSQL with a role, a bucket."""
    text = (ROOT / str(request.param)).read_text("utf-8")
    monkeypatch.setenv("COLUMNS", "110")
    Path("retention.yaml").unlink()
    if "DATABASE_URL" in text:
        server = request.getfixturevalue("server")
        store = new_schema(server)
        with psycopg.connect(store, autocommit=True) as connection:
            with suppress(psycopg.errors.DuplicateObject):
                connection.execute("CREATE ROLE retention LOGIN")
            connection.execute(f"GRANT USAGE ON SCHEMA {store.rpartition('%3D')[2]} TO retention".encode())
        monkeypatch.setenv("ADMIN_URL", store)
        monkeypatch.setenv("DATABASE_URL", store.replace("//postgres:@", "//retention@"))
        monkeypatch.setenv("LEDGER_URL", new_schema(server))
    if "BUCKET" in text:
        s3 = request.getfixturevalue("s3_server")
        s3.empty()
        for name, value in {**s3.environment, "BUCKET": s3.bucket}.items():
            monkeypatch.setenv(name, value)
    return text


@pytest.mark.parametrize("readers", PAGES, indirect=True)
def test_a_page_does_what_it_shows(readers: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = ""
    for _, language, name, block in BLOCK.findall(readers):
        text = dedent(block)
        if name:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(text)
        elif language == "sql":
            with psycopg.connect(os.environ["ADMIN_URL"], autocommit=True) as connection:
                connection.execute(text.encode())
        elif language == "sh":
            printed = "".join(does(line, run, monkeypatch) for line in text.splitlines() if line and not line.startswith("#"))
        elif language == "text":
            for part in plain(text).split("…"):
                assert part.strip() in (page := plain(printed)), f"{part}\n\n{page}"


def does(line: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a command in this program, or another program. It succeeds, or exits as the comment behind it says."""
    command, _, comment = line.partition("  #")
    word, *arguments = shlex.split(command)
    if word == "export":
        name, _, value = arguments[0].partition("=")
        if name not in os.environ:
            monkeypatch.setenv(name, value)
        return ""
    if word == "cd":
        monkeypatch.chdir(arguments[0])
        return ""
    if word == "python":
        with redirect_stdout(StringIO()) as printed:
            runpy.run_path(arguments[0], run_name="__main__")
        return printed.getvalue()
    if word != "retention":
        return subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout
    code, out, err = run(*arguments)
    # 3: there is something to do.
    expected = [int(number) for number in re.findall(r"exit code (\d)", comment)] or [0, 3]
    assert code in expected, f"{line}: {code}\n{out}{err}"
    return out + err


def plain(text: str) -> str:
    """Words alone: lines break elsewhere, and lines of tables are as wide as their columns."""
    return " ".join(TIMES.sub("WHEN", re.sub(r"─+", "─", text)).split())

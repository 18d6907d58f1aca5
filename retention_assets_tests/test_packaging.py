"""What people install: the wheel does its work alone, the archives hold no tests, and a missing extra is named."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from fsspec.registry import _registry as opened_before  # type: ignore[import-untyped]

from retention_assets.errors import Refused
from retention_assets.sql.engines import foreign_engine
from retention_assets.stores.places.file_systems import open_file_system

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
# A dozen calls of one console script. Each is a program of its own, forked from one that has loaded what they all need: that
# takes longer than all that they do.
CALLS = """
import importlib.metadata, os, shlex, sys
from retention_assets import ledger
from retention_assets.dagster import headless
from retention_assets.evaluation import explain, preview
from retention_assets.people import plan
from retention_assets.stores.files import store
(script,) = importlib.metadata.entry_points(group="console_scripts", name="retention")
retention = script.load()
for line in sys.stdin.read().splitlines():
    word, *arguments = shlex.split(line)
    if word == "cd":
        os.chdir(*arguments)
        continue
    program = os.fork()
    if not program:
        sys.argv = [word, *arguments]
        try:
            {"retention": retention}[word]()
        except SystemExit as left:
            sys.stdout.flush()
            # Taking apart all that was loaded for others takes as long as loading it.
            os._exit(left.code)
    code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    # 3 says of what looks ahead that there is something to do.
    if code not in (0, 3):
        sys.exit(f"{line}: {code}")
"""


def pip(*arguments: str) -> None:
    pins = str(ROOT / "constraints.txt")
    environment = {**os.environ, "PIP_CONSTRAINT": pins, "PIP_BUILD_CONSTRAINT": pins, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    ran = subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist, built as anybody would build them."""
    backend, folder = tmp_path_factory.mktemp("backend"), tmp_path_factory.mktemp("dist")
    pip("install", "--target", str(backend), "hatchling")
    # Both archives from one backend; `pip wheel` alone makes no sdist.
    ran = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(backend)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of a shell in a fresh venv with the wheel. What the wheel needs is taken from here; the checkout is not there,
    because Python reads no further .pth files in a folder that one has named.
    """
    folder = tmp_path_factory.mktemp("installed")
    (wheel,) = built.glob("*.whl")
    venv.create(folder)
    pip("--python", str(folder / "bin" / "python"), "install", "--no-deps", "--no-index", str(wheel))
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "needed.pth").write_text(sysconfig.get_path("purelib"))
    hidden = ("RETENTION_", "DAGSTER_", "PYTHON")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    environment |= {"PATH": f"{folder / 'bin'}:{environment['PATH']}"}
    found = shell("python -c 'import retention_assets; print(retention_assets.__file__)'", environment, folder)
    assert found.startswith(str(packages)), "the tests would be about the checkout"
    return environment


def shell(script: str, environment: Mapping[str, str], folder: Path) -> str:
    """What a script says. It has to succeed."""
    return said(["bash", "-euo", "pipefail", "-c", script], environment, folder)


def said(command: Sequence[str], environment: Mapping[str, str], folder: Path, types: str = "") -> str:
    ran = subprocess.run(command, cwd=folder, env=environment, input=types, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    return ran.stdout


@pytest.mark.program
@pytest.mark.long
def test_the_wheel_holds_the_package_alone(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"retention_assets"}
    package = {str(file.relative_to(ROOT)) for file in (ROOT / "retention_assets").rglob("*") if file.is_file()}
    expected = {name for name in package if "__pycache__" not in name}
    assert {name for name in names if name.startswith("retention_assets/")} == expected


@pytest.mark.program
@pytest.mark.long
def test_the_sdist_holds_what_builds_the_wheel_and_what_people_read(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tops = {name.partition("/")[0] for name in names}
    assert tops == {
        ".gitignore", "ARCHITECTURE.md", "CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "constraints.txt", "docs", "mkdocs.yml",
        "policies", "pyproject.toml", "retention.yaml", "retention_assets", "workspace.yaml",
    }  # fmt: skip
    assert {"docs/sweep.md", "docs/pictures/asset-graph.png", "policies/schema.json"} <= names


@pytest.mark.program
@pytest.mark.long
def test_the_wheel_answers_without_the_checkout(installed: Mapping[str, str], tmp_path: Path) -> None:
    assert "sweep, report" in shell("retention --help", installed, tmp_path)
    assert shell("retention schema", installed, tmp_path) == (ROOT / "policies" / "schema.json").read_text("utf-8")


@pytest.mark.program
@pytest.mark.long
@pytest.mark.spark
def test_the_first_five_minutes_are_as_readme_tells_them(installed: Mapping[str, str], tmp_path: Path) -> None:
    chapter = README.read_text("utf-8").partition("\n## Five minutes")[2].partition("\n## ")[0]
    commands = re.findall(r"^```sh\n(.*?)^```$", chapter, flags=re.MULTILINE | re.DOTALL)
    python = shutil.which("python", path=installed["PATH"])
    assert python
    said([python, "-c", CALLS], installed, tmp_path, "".join([*commands, "retention validate\n", "retention marks\n"]))
    folder = tmp_path / "five-minutes"
    data = [place for place in (folder / "lake" / "data").iterdir() if place.is_dir()]
    left = {place.name: sorted(one.name for one in place.iterdir()) for place in data}
    # Marked and swept; taken back and held; kept for a branch, a tag and a hold of the policy file.
    assert left["raw.orders"] == ["T2", "T3", "T4"]
    assert left["raw.clicks"] == ["T1", "T2", "T3", "T4"]
    assert left["raw.models"] == ["T2", "T5", "T6"]
    assert left["raw.payments"] == ["T1", "T2", "T3"]
    assert (folder / "report.html").stat().st_size > 1_000


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("s3://bucket/log", "s3fs is not installed. S3 needs it: pip install 'retention-assets[s3]'."),
        ("gs://bucket/log", "The driver for this place is not installed: Please install gcsfs to access Google Storage."),
    ],
)
def test_a_file_system_without_driver_says_what_to_install(place: str, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for protocol, module in (("s3", "s3fs"), ("gs", "gcsfs")):
        monkeypatch.setitem(sys.modules, module, None)
        # What was opened before in this program is known by its protocol.
        monkeypatch.delitem(opened_before, protocol, raising=False)
    with pytest.raises(Refused, match=re.escape(sentence)):
        open_file_system(place)


@pytest.mark.parametrize("backend", ["mysql", "mariadb"])
def test_a_database_without_its_driver_says_what_to_install(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(Refused) as refused:
        foreign_engine(f"{backend}://nobody@127.0.0.1:1/without_a_driver")
    assert str(refused.value) == "pymysql is not installed. MariaDB and MySQL need it: pip install 'retention-assets[mysql]'."

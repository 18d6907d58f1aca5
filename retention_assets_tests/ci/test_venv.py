"""How `.ci/venv` makes a virtual environment, or says why it cannot."""

from pathlib import Path

import pytest

from retention_assets_tests.ci.machine import Machine, readable

# A python that knows its version, and makes environments once the file `ensurepip` is there.
PYTHON = """
case "$*" in
    --version) echo "Python {version}.4" ;;
    *"sys.exit(sys.version_info"*) exit {too_old} ;;
    *"print("*) echo "python{version}-venv" ;;
    *"import ensurepip"*) [ -e '{root}/ensurepip' ] ;;
    "-m pip --version") [ -e '{root}/ensurepip' ] ;;
    "-m venv --clear "*)
        [ -e '{root}/ensurepip' ] || {{ echo "ensurepip is not available."; exit 1; }}
        echo made >> '{root}/made'
        mkdir -p "$4/bin"; cat "$0" > "$4/bin/python"; chmod +x "$4/bin/python" ;;
    *) echo "unexpected: $*" >&2; exit 9 ;;
esac"""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def put_python(machine: Machine, version: str = "3.12", too_old: int = 0, ensurepip: bool = True) -> None:
    machine.command("python3", PYTHON.format(version=version, too_old=too_old, root=machine.root))
    if ensurepip:
        (machine.root / "ensurepip").touch()


def made(machine: Machine) -> None:
    said = machine.run("venv", "python3", ".venv")
    assert (said.returncode, said.stdout, said.stderr) == (0, "", ""), readable(said)
    assert (machine.root / ".venv/bin/python").exists()
    assert (machine.root / "made").read_text() == "made\n"


def refused(machine: Machine, *advice: str) -> None:
    said = machine.run("venv", "python3", ".venv")
    assert said.returncode == 1, readable(said)
    assert [words for words in advice if words not in said.stderr] == []
    assert not (machine.root / ".venv").exists()


def test_an_environment_is_made_without_a_word_and_one_that_works_is_left_as_it_is(machine: Machine) -> None:
    put_python(machine)
    made(machine)
    (machine.bin / "python3").unlink()
    made(machine)


@pytest.mark.parametrize("body", ["exit 1", "exec /not/there"], ids=["broken", "moved away"])
def test_an_environment_that_does_not_work_is_made_anew(machine: Machine, body: str) -> None:
    put_python(machine)
    machine.command("python", body, machine.root / ".venv/bin")
    made(machine)


def test_a_python_that_is_not_there_is_asked_for(machine: Machine) -> None:
    refused(machine, "There is no python3 here", "add PYTHON=")


def test_a_python_that_is_too_old_is_refused_by_its_version(machine: Machine) -> None:
    put_python(machine, "3.9", too_old=1)
    refused(machine, "python3 is Python 3.9.4, and Python 3.11 or newer is needed")


def test_debians_missing_package_is_named(machine: Machine) -> None:
    put_python(machine, ensurepip=False)
    refused(machine, "sudo apt-get install -y python3.12-venv")


def test_debians_missing_package_is_installed_where_that_may_be_done(machine: Machine) -> None:
    put_python(machine, ensurepip=False)
    machine.become_root()
    machine.apt_get("python3.12-venv", installs=f"echo > '{machine.root}/ensurepip'")
    said = machine.run("venv", "python3", ".venv")
    assert said.returncode == 0, readable(said)
    assert machine.asked == ["-qq", "python3.12-venv"]
    assert (machine.root / "made").read_text() == "made\n"

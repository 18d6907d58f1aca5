"""How `.ci/java` finds a Java that Spark runs on, installs one, or says what to do."""

from pathlib import Path

import pytest

from retention_assets_tests.ci.machine import SCRIPTS, Machine, readable

HOME_17 = "usr/lib/jvm/java-17-openjdk-amd64"
ADVICE = (SCRIPTS.parent / "retention_assets" / "pipeline" / "java.txt").read_text()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def installing(machine: Machine, version: str, home: str) -> str:
    """Lines of shell that put a Java where a package would put it."""
    prepared = machine.java(f"packages/{version}", version)
    return f"""mkdir -p '{machine.root}/{home}/bin'
        sed 's#{prepared}#{machine.root}/{home}#' '{prepared}/bin/java' > '{machine.root}/{home}/bin/java'
        chmod +x '{machine.root}/{home}/bin/java'"""


def taken(machine: Machine, home: str, **environment: str) -> None:
    said = machine.run("java", **environment)
    assert (said.returncode, said.stdout, said.stderr) == (0, f"{home}\n", ""), readable(said)


def refused(machine: Machine, advice: str = ADVICE) -> str:
    said = machine.run("java")
    assert (said.returncode, said.stdout) == (1, ""), readable(said)
    assert advice in said.stderr
    return said.stderr


@pytest.mark.parametrize("version", ["17", "21"])
def test_the_java_of_java_home_or_of_the_path_is_taken_where_spark_runs_on_it(machine: Machine, version: str) -> None:
    home = machine.java("opt/java", version, on_path=True)
    taken(machine, home)
    chosen = machine.java("chosen", version)
    taken(machine, chosen, JAVA_HOME=chosen)


@pytest.mark.parametrize("version", ["1.8", "11", "22", "25", "170", "", "seventeen", "17\n    java.specification.version = 8"])
def test_a_java_that_spark_does_not_run_on_is_not_taken(machine: Machine, version: str) -> None:
    machine.java(HOME_17, version, on_path=True)
    refused(machine)


IMPOSTORS = {
    "fails": "exit 1",
    "says too little": "echo 'openjdk version \"17.0.1\"' >&2",
    "stands in for a Java that is not installed": "echo 'No Java runtime present, requesting install.' >&2; exit 1",
    "has no home": "echo '    java.specification.version = 17'",
    "has a home that is not there": "echo '    java.home = /nowhere'; echo '    java.specification.version = 17'",
}


@pytest.mark.parametrize("body", IMPOSTORS.values(), ids=IMPOSTORS)
def test_something_that_only_looks_like_java_is_not_taken(machine: Machine, body: str) -> None:
    machine.command("java", body)
    refused(machine)


@pytest.mark.parametrize(
    "place",
    [
        HOME_17,
        "Library/Java/JavaVirtualMachines/temurin-17.jdk/Contents/Home",
        "opt/homebrew/opt/openjdk@17",
        "usr/local/opt/openjdk@17",
        "home/.sdkman/candidates/java/17.0.15-tem",
    ],
)
def test_a_java_in_one_of_the_usual_places_is_found_beside_others(machine: Machine, place: str) -> None:
    machine.java("usr/lib/jvm/java-11-openjdk-amd64", "11", on_path=True)
    machine.java("usr/lib/jvm/java-25-openjdk-amd64", "25")
    (machine.root / "usr/lib/jvm/openjdk-17").mkdir()  # what the package of the sources leaves: a folder without a java
    taken(machine, machine.java(place, "17"))


@pytest.mark.parametrize("chosen", ["11", "not there"])
def test_a_chosen_java_that_will_not_do_is_replaced_with_a_word(machine: Machine, chosen: str) -> None:
    old = "/not/there" if chosen == "not there" else machine.java("old", chosen)
    home = machine.java(HOME_17, "17")
    said = machine.run("java", JAVA_HOME=old)
    assert (said.returncode, said.stdout) == (0, f"{home}\n"), readable(said)
    assert said.stderr == f"JAVA_HOME ({old}) is no Java 17 or 21, which Spark needs; taking {home}.\n"


def test_without_java_and_apt_it_says_what_to_do_on_each_system(machine: Machine) -> None:
    machine.become_root()
    said = refused(machine)
    advised = ("openjdk-17-jre-headless", "dnf install", "brew install openjdk@17", "sdk install", "JAVA_HOME")
    assert [words for words in advised if words not in said] == []


@pytest.mark.parametrize("version", ["17", "21"])
def test_root_gets_java_installed(machine: Machine, version: str) -> None:
    machine.become_root()
    home, package = f"usr/lib/jvm/java-{version}-openjdk-amd64", f"openjdk-{version}-jre-headless"
    machine.apt_get(package, installs=installing(machine, version, home))
    said = machine.run("java")
    assert (said.returncode, said.stdout) == (0, f"{machine.root}/{home}\n"), readable(said)
    assert machine.asked == ["-qq", *dict.fromkeys(("openjdk-17-jre-headless", package))]
    assert said.stderr.splitlines()[0] == "Installing openjdk-17-jre-headless with apt-get …"


def test_nothing_is_installed_where_a_java_is_there(machine: Machine) -> None:
    machine.become_root()
    machine.apt_get("openjdk-17-jre-headless")
    machine.java(HOME_17, "17")
    assert machine.run("java").returncode == 0
    assert machine.asked == []


def test_what_apt_refuses_is_shown_with_the_advice(machine: Machine) -> None:
    machine.become_root()
    machine.apt_get()
    assert "E: Unable to locate package openjdk-21-jre-headless" in refused(machine)


def test_an_installation_that_brings_no_java_is_no_success(machine: Machine) -> None:
    machine.become_root()
    machine.apt_get("openjdk-17-jre-headless", installs="true")
    refused(machine)


def test_sudo_is_used_where_it_asks_for_no_password(machine: Machine) -> None:
    machine.command("sudo", f"""echo sudo >> '{machine.root}/sudone'; [ "$1" = -n ] || exit 1; shift; exec "$@\"""")
    machine.command("true", "exit 0")
    machine.apt_get("openjdk-17-jre-headless", installs=installing(machine, "17", HOME_17))
    said = machine.run("java")
    assert (said.returncode, said.stdout) == (0, f"{machine.root}/{HOME_17}\n"), readable(said)
    assert (machine.root / "sudone").read_text() == "sudo\n" * 3  # may it? update, install


@pytest.mark.parametrize(
    "sudo", [None, "echo 'sudo: a password is required' >&2; exit 1"], ids=["no sudo", "sudo with a password"]
)
def test_without_the_right_to_install_nothing_is_tried(machine: Machine, sudo: str | None) -> None:
    if sudo:
        machine.command("sudo", sudo)
    machine.apt_get("openjdk-17-jre-headless")
    assert "password is required" not in refused(machine)
    assert machine.asked == []


def test_an_update_that_fails_does_not_stop_the_installation(machine: Machine) -> None:
    machine.become_root()
    machine.apt_get("openjdk-17-jre-headless", installs=installing(machine, "17", HOME_17))
    apt = machine.bin / "apt-get"
    apt.write_text(apt.read_text().replace("update) exit ;;", "update) exit 100 ;;"))
    assert machine.run("java").returncode == 0

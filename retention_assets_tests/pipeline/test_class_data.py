"""The class-data archive: whose it is, when it is made and used, and that nothing which goes wrong with it stops a start.

Belongs here: a Java and a Spark of files alone, and a training that writes what it is told to. That a real Java takes no harm from a
broken archive is in test_spark.py.
"""

import atexit
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from retention_assets.pipeline.class_data import JAVA_OPTIONS, VARIABLE, ClassData, Note, find_class_data
from retention_assets.pipeline.make_class_data import _main, make_class_data, train_apart

LOCAL = {"spark.master": "local[2]"}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java that only fails, a Spark of two jars, and a folder for archives."""
    for file in ("java/release", "java/lib/server/libjvm.so", "spark/jars/a.jar", "spark/jars/b.jar", "java/bin/java"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "java/bin/java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv(VARIABLE, str(tmp_path / "archives"))
    for word in ("SPARK_CONF_DIR", "JAVA_TOOL_OPTIONS"):
        monkeypatch.delenv(word, raising=False)
    return tmp_path


@pytest.fixture
def data(installed: Path) -> ClassData:
    """The archive of what is installed, which is not there yet."""
    return found()


def found() -> ClassData:
    data = find_class_data(LOCAL)
    assert data is not None
    return data


@dataclass
class Trained:
    """Trains by writing a file or not; fails where it is told to."""

    writes: bytes | None = b"an archive"
    fails: str = "never"
    asked: list[str] = field(default_factory=list)

    def __call__(self, options: str) -> bool:
        self.asked.append(options)
        if "ArchiveClassesAtExit" in options and self.writes is not None:
            file = Path(options.split('"')[1])
            file.write_bytes(self.writes)
            # As Java leaves it.
            file.chmod(0o444)
        return self.fails not in options


def _append(file: Path) -> None:
    with file.open("a") as opened:
        opened.write("more")


CHANGES: dict[str, Callable[[Path], None]] = {
    "another release of Java": lambda root: _append(root / "java/release"),
    "another build of Java": lambda root: _append(root / "java/lib/server/libjvm.so"),
    "another jar": lambda root: _append(root / "spark/jars/c.jar"),
    "a jar of another size": lambda root: _append(root / "spark/jars/a.jar"),
    "a jar of another time": lambda root: os.utime(root / "spark/jars/a.jar", (1, 1)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_installed_in_its_place_makes_another_archive_necessary(change: str, installed: Path, data: ClassData) -> None:
    assert make_class_data(data, Trained())
    assert found() == data
    assert found().options() is not None
    CHANGES[change](installed)
    assert found().options() is None
    # It is written over the old one, so that upgrades don't fill the disk.
    assert found().archive == data.archive
    assert make_class_data(found(), Trained())
    assert found().options() is not None


def test_another_class_path_is_another_key(data: ClassData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    assert found().key != data.key


@pytest.mark.parametrize(
    "conf",
    [
        {"spark.master": "spark://host:7077"},
        {"spark.remote": "sc://host"},
        {**LOCAL, "spark.driver.extraClassPath": "/mine.jar"},
        {**LOCAL, JAVA_OPTIONS: "-Xshare:off"},
        {**LOCAL, JAVA_OPTIONS: "-XX:SharedArchiveFile=mine.jsa"},
        {**LOCAL, JAVA_OPTIONS: "-Dx=1 -XX:ArchiveClassesAtExit=mine.jsa"},
    ],
)
def test_clusters_and_who_has_chosen_are_left_alone(conf: dict[str, str], data: ClassData) -> None:
    assert find_class_data(conf) is None


@pytest.mark.parametrize(
    ("word", "value"),
    [(VARIABLE, "off"), (VARIABLE, '/with"quote'), ("JAVA_HOME", "/no/java"), ("JAVA_TOOL_OPTIONS", "-Xshare:off")],
)
def test_there_is_none_where_it_is_off_or_cannot_be(
    word: str, value: str, data: ClassData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(word, value)
    assert find_class_data(LOCAL) is None


def test_it_lies_in_the_cache_of_the_user(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(installed / "cache"))
    assert found().folder == installed / "cache" / "retention_assets"
    # What is not absolute is to be ignored, says the standard.
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", str(installed))
    assert found().folder == installed / ".cache" / "retention_assets"


def test_it_is_made_after_the_second_start_and_not_more_than_three_times(
    data: ClassData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container whose every start is the first, making it would cost each of them."""
    wished = list[Callable[[], None]]()
    monkeypatch.setattr(atexit, "register", wished.append)
    data.wish()
    assert not wished
    data.wish()
    assert len(wished) == 1
    for _ in range(3):
        assert not make_class_data(data, Trained(writes=None))
    data.wish()
    assert len(wished) == 1


def test_it_is_made_by_a_program_that_nobody_waits_for(data: ClassData, monkeypatch: pytest.MonkeyPatch) -> None:
    python = data.folder.parent / "python"
    python.write_text('#!/bin/sh\nprintf "%s " "$(pwd)" "$@" > "$0.said"\n')
    python.chmod(0o755)
    popen = subprocess.Popen
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(subprocess, "Popen", lambda *words, **more: popen(*words, **more).wait())
    data.folder.mkdir()
    data._make_apart()
    said = python.with_suffix(".said").read_text()
    assert said == f"{data.folder} -m retention_assets.pipeline.make_class_data "
    # A Python that is gone meanwhile is nobody's trouble.
    monkeypatch.setattr(sys, "executable", "/no/python")
    data._make_apart()


def test_it_is_used_once_it_has_been_tried(data: ClassData) -> None:
    train = Trained()
    assert data.options() is None
    assert make_class_data(data, train)
    assert "-Xshare:on" in train.asked[1]
    assert data.options() == f'-XX:SharedArchiveFile="{data.archive}" -XX:+VerifySharedSpaces -Xlog:cds*=off'
    # Who asks again is not made to wait.
    assert make_class_data(data, train)
    assert len(train.asked) == 2
    # What was lost is made again.
    data.archive.unlink()
    assert data.options() is None
    assert make_class_data(data, train)
    assert data.options() is not None


@pytest.mark.parametrize(
    "train",
    [
        pytest.param(Trained(fails="ArchiveClassesAtExit"), id="it ended before its end"),
        pytest.param(Trained(writes=None), id="it wrote nothing"),
        pytest.param(Trained(fails="-Xshare:on"), id="a full disk: Java does not take what was written"),
    ],
)
def test_what_cannot_be_used_is_not_adopted_and_fills_no_disk(train: Trained, data: ClassData) -> None:
    assert not make_class_data(data, train)
    assert data.options() is None
    assert not data.archive.exists()
    assert sum(file.stat().st_size for file in data.folder.glob("*.jsa")) == 0
    # What was left behind is in nobody's way.
    assert make_class_data(data, Trained())
    assert data.archive.read_bytes() == b"an archive"


def test_two_do_not_make_it_at_a_time(data: ClassData) -> None:
    data.folder.mkdir()
    train = Trained()
    with data.lock.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert not make_class_data(data, train)
    assert not train.asked
    assert make_class_data(data, train)


@pytest.mark.parametrize("said", ["", "{", "[]", '{"key": 1}', '{"key": "another", "made": true, "tries": 0}'])
def test_a_note_that_says_nothing_of_it_counts_for_nothing(said: str, data: ClassData) -> None:
    assert make_class_data(data, Trained())
    (data.folder / f"{data.name}.json").write_text(said)
    assert data.options() is None


def test_what_others_could_have_written_is_not_run(data: ClassData) -> None:
    """Java runs what is in an archive."""
    assert make_class_data(data, Trained())
    for path, right, wrong in ((data.archive, 0o644, 0o664), (data.folder, 0o700, 0o777)):
        path.chmod(wrong)
        assert data.options() is None
        path.chmod(right)
        assert data.options() is not None


def test_a_folder_that_cannot_be_written_stops_nobody(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (installed / "file").touch()
    monkeypatch.setenv(VARIABLE, str(installed / "file" / "archives"))
    data = found()
    for _ in range(2):
        data.wish()
        assert data.options() is None
    assert _main([]) == 1


def test_a_full_disk_stops_nobody(data: ClassData, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    data.wish()
    data.write(Note(data.key, made=True))
    assert data.options() is None


def test_a_java_that_does_not_start_trains_nothing(
    installed: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SPARK_HOME")
    assert not train_apart("-Dx=1")
    assert "JAVA_GATEWAY_EXITED" in capfd.readouterr().err

"""The class-data archive: what Java made of Spark's classes once, so that the next start need not read and check them again.

Belongs here: where the archive of an installation lies, whether it may be used, and when it is worth making.
Does not belong here: making it (make_class_data.py). Whatever goes wrong here, Spark starts as without.
"""

import atexit
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

# `off`, or the folder of the archives.
VARIABLE = "RETENTION_CLASS_DATA"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# What Java has to say of an archive that it does not take: it goes on without.
QUIET = "-Xlog:cds*=off"
MAKER = "retention_assets.pipeline.make_class_data"
# A machine on which it failed so often will not do it.
_MOST_TRIES = 3
# Who names an archive decides for himself; two cannot be had.
_CHOSEN = re.compile(
    r"-Xshare|-XX:(SharedArchiveFile|SharedClassListFile|ArchiveClassesAtExit|DumpLoadedClassList|Flags)|-XX:.AutoCreate"
)
# What the launcher of Spark puts on the class path besides its jars.
_CLASS_PATH = ("SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "SPARK_PREPEND_CLASSES", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
# Java reads a `:` as two archives, and a quote ends the option.
_UNFIT = re.compile(r"[:\"'\\\n]")


@dataclass(frozen=True)
class Note:
    """What is known of an archive. It is of one key: after an upgrade it says nothing."""

    key: str
    made: bool = False
    tries: int = 0


@dataclass(frozen=True)
class ClassData:
    """The archive of a Java and a Spark: named by where these are installed, so that an upgrade replaces it."""

    folder: Path
    name: str
    key: str

    @property
    def archive(self) -> Path:
        """The file, 160 MB."""
        return self.folder / f"{self.name}.jsa"

    @property
    def unfinished(self) -> Path:
        """Where it is written: one place, so that what was left behind is written over."""
        return self.folder / f"{self.name}.unfinished.jsa"

    @property
    def lock(self) -> Path:
        """Held by who makes it."""
        return self.folder / f"{self.name}.lock"

    def options(self) -> str | None:
        """Java's options to use it, if it is there and nobody else could have written it."""
        note = self._note()
        try:
            if not (note and note.made and _is_ours(self.folder) and _is_ours(self.archive)):
                return None
        except OSError:
            return None
        # The checksums cost a tenth of a second. Java looks at the class path by itself.
        return f'-XX:SharedArchiveFile="{self.archive}" -XX:+VerifySharedSpaces {QUIET}'

    def wish(self) -> None:
        """Note that there was a start without it; from the second on, have it made as soon as this Python has ended.

        Where each start is the first, as in most containers, making it would never pay.
        """
        if (note := self._note()) is None:
            self.write(Note(self.key))
        elif note.tries < _MOST_TRIES and os.access(self.folder, os.W_OK):
            atexit.register(self._make_apart)

    def begin(self) -> None:
        """Note a try."""
        self.write(Note(self.key, tries=self._tries() + 1))

    def adopt(self) -> None:
        """Take what was written and has been tried."""
        with self.unfinished.open("rb") as file:
            os.fsync(file.fileno())
        self.unfinished.replace(self.archive)
        self.write(Note(self.key, True, self._tries()))

    def give_up(self) -> None:
        """Never use it and never make it for these versions."""
        self.write(Note(self.key, tries=_MOST_TRIES))

    def write(self, note: Note) -> None:
        """Keep a note. Where that can't be, there is none."""
        with suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            beside = self.folder / f"{self.name}.{os.getpid()}.json"
            beside.write_text(json.dumps(asdict(note)))
            beside.replace(self.folder / f"{self.name}.json")

    def _note(self) -> Note | None:
        try:
            said = json.loads((self.folder / f"{self.name}.json").read_text())
            note = Note(str(said["key"]), said["made"] is True, int(said["tries"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return note if note.key == self.key else None

    def _tries(self) -> int:
        note = self._note()
        return note.tries if note else 0

    def _make_apart(self) -> None:
        # Nobody waits for it, and it holds nothing of this Python's.
        with suppress(OSError):
            subprocess.Popen(
                [sys.executable, "-m", MAKER],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(os.path.isabs, sys.path))},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )


def find_class_data(conf: Mapping[str, str]) -> ClassData | None:
    """The archive for a session, there or not; none where it is switched off or could not fit."""
    options = " ".join(filter(None, (conf.get(JAVA_OPTIONS), os.environ.get("JAVA_TOOL_OPTIONS"))))
    if not conf.get("spark.master", "").startswith("local") or "spark.driver.extraClassPath" in conf or _CHOSEN.search(options):
        return None
    try:
        return _class_data()
    except (OSError, RuntimeError):
        # No Java, no home: who starts Spark says so where it matters.
        return None


def _class_data() -> ClassData | None:
    from pyspark.find_spark_home import _find_spark_home

    place = os.environ.get(VARIABLE) or _cache()
    java = _java()
    if java is None or place == "off" or _UNFIT.search(str(place)):
        return None
    spark = Path(_find_spark_home()).resolve()
    name = _digest([str(java), str(spark)])[:16]
    return ClassData(Path(place).absolute(), f"spark-{name}", _digest(_facts(java, spark)))


def _cache() -> str:
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return str((Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "retention_assets")


def _java() -> Path | None:
    """The home of the Java that Spark starts."""
    home = os.environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java")
    return Path(found).resolve().parents[1] if found and os.access(found, os.X_OK) else None


def _facts(java: Path, spark: Path) -> Iterable[str]:
    """All that makes another archive necessary."""
    yield platform.machine()
    release = java / "release"
    yield release.read_text() if release.is_file() else ""
    for file in (java / "bin" / "java", *sorted((java / "lib" / "server").glob("*")), *sorted((spark / "jars").glob("*.jar"))):
        seen = file.stat()
        yield f"{file} {seen.st_size} {seen.st_mtime_ns}"
    for word in _CLASS_PATH:
        yield f"{word}={os.environ.get(word)}"


def _digest(words: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


def _is_ours(path: Path) -> bool:
    """Whether only this user or root could have written there: Java runs what is in an archive."""
    seen = path.stat()
    return seen.st_uid in (os.geteuid(), 0) and not seen.st_mode & 0o022

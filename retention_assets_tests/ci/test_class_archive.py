"""`.ci/class_archive` makes one archive, and the tests go on without where it can't."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def options(folder: Path, python: str) -> str:
    """Call the script with programs in place of Java and Python, which is also asked for the version of Spark."""
    for name, script in (("java", "echo 'openjdk version \"17.0.15\"' >&2"), ("python", python)):
        program = folder / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    done = subprocess.run(
        [ROOT / ".ci" / "class_archive", folder / "bin" / "python", folder / "archives"],
        env={**os.environ, "JAVA_HOME": str(folder)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


TRAINED = """[ "$1" = -c ] && echo {version} && exit
archive=${{SPARK_SUBMIT_OPTS#-XX:ArchiveClassesAtExit=}}
echo classes > "${{archive%% *}}"; exit {code}"""


def test_an_archive_is_made_once_for_each_spark_and_replaces_the_older(tmp_path: Path) -> None:
    first = options(tmp_path, TRAINED.format(version="4.0", code=0))
    (archive,) = (tmp_path / "archives").iterdir()
    assert first == f"-XX:SharedArchiveFile={archive} -Xlog:cds*=off"
    assert options(tmp_path, TRAINED.format(version="4.0", code=1)) == first
    assert options(tmp_path, TRAINED.format(version="4.1", code=0)) != first
    assert len(list((tmp_path / "archives").iterdir())) == 1


def test_what_was_not_made_whole_is_not_used(tmp_path: Path) -> None:
    assert options(tmp_path, TRAINED.format(version="4.0", code=1)) == "-Xshare:auto"

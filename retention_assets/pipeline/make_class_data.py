"""Making the class-data archive: a Spark of its own is started, does what ours do, and writes the classes at its end.

Belongs here: the program `python -m retention_assets.pipeline.make_class_data`, for the build of an image, and as what is
started in the background. No run is touched by it: the archive is made beside, tried, and only then put into its place.
"""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from retention_assets.pipeline.class_data import JAVA_OPTIONS, MAKER, QUIET, ClassData, find_class_data
from retention_assets.pipeline.spark import session_of, spark_conf

_LONGEST = 900

# Starts a Spark with these options of Java, works, and waits until Java has ended; whether all of it went well.
Training = Callable[[str], bool]


def make_class_data(data: ClassData, train: Training) -> bool:
    """Make the archive; whether there is one now. Somebody else who is at it is left alone."""
    data.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with data.lock.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        if data.options():
            return True
        data.begin()
        if _is_made(data.unfinished, train):
            data.adopt()
            return True
        if data.unfinished.exists():
            # It may be what has filled the disk.
            data.unfinished.chmod(0o600)
            data.unfinished.write_bytes(b"")
        return False


def _is_made(file: Path, train: Training) -> bool:
    if not train(f'-XX:ArchiveClassesAtExit="{file}" {QUIET}') or not file.is_file():
        return False
    return train(f'-Xshare:on -XX:SharedArchiveFile="{file}" -XX:+VerifySharedSpaces {QUIET}')


def train_apart(options: str) -> bool:
    """Train in a Python of its own: a Python has one Java."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", MAKER, "--train", options], timeout=_LONGEST, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _train(options: str) -> int:
    """Start a session and do what a stage does; Java's exit code."""
    session = session_of(spark_conf("local[2]", {JAVA_OPTIONS: options}))
    gateway = session.sparkContext._gateway
    for _ in range(2):
        session.range(0, 8, 1, 8).mapInArrow(_same, "id bigint").collect()
    session.stop()
    assert gateway is not None
    # It ends with what it reads from.
    gateway.proc.stdin.close()
    return int(gateway.proc.wait())


def _main(arguments: list[str]) -> int:
    if arguments[:1] == ["--train"]:
        return _train(arguments[1])
    os.nice(19)
    data = find_class_data(spark_conf("local[2]", {}))
    try:
        return 0 if data and make_class_data(data, train_apart) else 1
    except OSError as fault:
        sys.stderr.write(f"There is no class-data archive: {fault}\n")
        return 1


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))

"""Measuring: seconds of contenders in turns, memory of this Python, of Spark's JVM and of its workers, and what machine it was.

Belongs here: clocks and counters of the system. Contenders run A B A B, so that whatever else the machine does in a minute
falls on all of them; a ratio is taken within a round, and the median of the ratios is what counts.
"""

import os
import platform
import statistics
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from time import perf_counter

PACKAGES = ("pyspark", "pyarrow", "numpy", "duckdb", "pyiceberg", "deltalake")

# What a contender returns if it times itself, because not all that it does is its job; else None and the whole call counts.
Contender = Callable[[], float | None]


@dataclass(frozen=True)
class Times:
    """Seconds of one contender, round by round, what they are compared with, and what all cores together worked for it."""

    seconds: tuple[float, ...]
    ratios: tuple[float, ...]
    cpu: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median of its seconds."""
        return statistics.median(self.seconds)

    @property
    def ratio(self) -> float:
        """The median over the rounds of its seconds by those of the first contender."""
        return statistics.median(self.ratios)


def in_turns(contenders: Mapping[str, Contender], rounds: int) -> dict[str, Times]:
    """Run each contender once per round. The first is what the others are compared with."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    cpu: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            before = worked()
            seconds[name].append(timed(run))
            cpu[name].append(worked() - before)
    first = seconds[next(iter(contenders))]
    return {
        name: Times(tuple(own), tuple(mine / other for mine, other in zip(own, first, strict=True)), tuple(cpu[name]))
        for name, own in seconds.items()
    }


def timed(run: Contender) -> float:
    """Seconds of one call."""
    begin = perf_counter()
    own = run()
    return perf_counter() - begin if own is None else own


def worked(*servers: int) -> float:
    """Seconds that cores have worked for this Python and all that it started: what a busy machine changes least.

    A server is a program that was started for this run and is not below this Python, with all that it started.
    """
    return sum(one.worked for one in _family(*servers))


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    return {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }


@dataclass(frozen=True)
class Peaks:
    """Highest resident memory in MiB since `forget_peaks`; None where the system does not tell."""

    driver: float | None
    jvm: float | None
    worker: float | None
    workers: float | None

    def joined(self, other: "Peaks") -> "Peaks":
        """The higher of both."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Peaks(*(max((peak for peak in pair if peak is not None), default=None) for pair in pairs))


def forget_peaks() -> None:
    """Begin to count peaks anew. Workers are reused by Spark, so without it each stage would inherit the largest before it."""
    for one in _family():
        # A worker may end between being seen and being asked; where /proc is read-only, peaks simply grow.
        with suppress(OSError):
            Path(f"/proc/{one.pid}/clear_refs").write_text("5")


def peaks() -> Peaks:
    """Peaks of this Python, of the JVM below it, and of the largest worker and all workers below that."""
    family = [(one, high) for one in _family() if (high := peak(one.pid)) is not None]
    jvm = [high for one, high in family if one.name == "java"]
    # Spark starts its workers through a daemon; it is small, and one of the family.
    workers = [high for one, high in family if one.below_jvm and one.name.startswith("python")]
    return Peaks(peak("self"), max(jvm, default=None), max(workers, default=None), sum(workers) or None)


def peak(pid: int | str) -> float | None:
    """The highest resident memory of a program in MiB.

    VmHWM begins anew when a program is started; getrusage does not, it goes on from the Python that started it.
    """
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return None


@dataclass(frozen=True)
class _Program:
    """What /proc says of a running program."""

    pid: int
    name: str
    parent: int
    worked: float
    below_jvm: bool = False


def _family(*servers: int) -> list[_Program]:
    """This Python, servers and everything below. What has ended counts where it was waited for: in the program that started it."""
    tick = os.sysconf("SC_CLK_TCK")
    children: dict[int, list[_Program]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name stands in brackets and may hold anything; what follows it does not.
            pid, _, rest = entry.read_text().partition(" (")
            name, _, after = rest.rpartition(") ")
            fields = after.split()
            parent, worked = int(fields[1]), sum(map(int, fields[11:15])) / tick
            # Were one below this Python, it would be counted twice.
            children.setdefault(0 if int(pid) in servers else parent, []).append(_Program(int(pid), name, parent, worked))
    own = os.times()
    family = [_Program(os.getpid(), "python", 0, sum(own[:4])), *(one for one in children.get(0, []) if one.pid in servers)]
    for one in family:
        below = one.below_jvm or one.name == "java"
        family += [replace(child, below_jvm=below) for child in children.get(one.pid, [])]
    return family

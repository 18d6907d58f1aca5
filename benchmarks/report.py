"""What came of a run: measurements and agreements, as a table for people and as JSON for machines.

Belongs here: the values that a section hands over and how they are shown. A ratio is per row, and against the first contender
of the same case: 3.0 says three times as long for as many rows.
"""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.measures import Peaks, Times


@dataclass(frozen=True)
class Measurement:
    """One contender in one case. Ratios are per row and round, against the contender that the case begins with."""

    section: str
    case: str
    contender: str
    rows: int
    seconds: tuple[float, ...]
    ratios: tuple[float, ...]
    cpu: tuple[float, ...]
    peaks: Peaks | None = None
    note: str = ""

    @property
    def median(self) -> float:
        """The median of its seconds."""
        return statistics.median(self.seconds)

    @property
    def ratio(self) -> float:
        """The median of its ratios."""
        return statistics.median(self.ratios)


@dataclass(frozen=True)
class Agreement:
    """How many answers of two sides were compared, and how many were not the same."""

    case: str
    compared: int
    different: int


@dataclass
class Report:
    """What a run has found so far."""

    machine: Mapping[str, object]
    sizes: Mapping[str, object]
    measurements: list[Measurement] = field(default_factory=list)
    agreements: list[Agreement] = field(default_factory=list)

    def add(
        self,
        section: str,
        case: str,
        times: Mapping[str, Times],
        rows: int | Mapping[str, int],
        peaks: Mapping[str, Peaks] | None = None,
        notes: Mapping[str, str] | None = None,
    ) -> None:
        """Take the times of one case; `rows` per contender where they differ."""
        of = {name: rows if isinstance(rows, int) else rows[name] for name in times}
        first = of[next(iter(times))]
        for name, time in times.items():
            ratios = tuple(ratio * first / of[name] for ratio in time.ratios)
            own, note = (peaks or {}).get(name), (notes or {}).get(name, "")
            self.measurements.append(Measurement(section, case, name, of[name], time.seconds, ratios, time.cpu, own, note))

    def agree(self, case: str, compared: int, different: int) -> None:
        """Note a comparison of answers."""
        self.agreements.append(Agreement(case, compared, different))

    @property
    def different(self) -> int:
        """Answers on which two sides did not agree."""
        return sum(agreement.different for agreement in self.agreements)

    def show(self, console: Console) -> None:
        """The tables."""
        facts = self.machine
        console.print(" · ".join(f"{name} {_fact(value)}" for name, value in facts.items()), soft_wrap=True)
        times = Table(title="Speed (medians; ratio: seconds per row against the first of its case)", title_justify="left")
        for name in ("section", "case", "contender"):
            times.add_column(name, overflow="fold")
        for name in ("rows", "seconds", "rows/s", "ratio", "range of ratio", "cpu s", "peak MiB"):
            times.add_column(name, justify="right", no_wrap=True)
        before = None
        for one in self.measurements:
            if before not in (None, (one.section, one.case)):
                times.add_section()
            before = (one.section, one.case)
            span = f"{min(one.ratios):.2f}-{max(one.ratios):.2f}" if len(one.ratios) > 1 else ""
            times.add_row(
                one.section, one.case, f"{one.contender} {one.note}".strip(), f"{one.rows:,}", f"{one.median:.3f}",
                f"{one.rows / one.median:,.0f}", f"{one.ratio:.2f}", span, f"{statistics.median(one.cpu):.2f}", _memory(one.peaks),
            )  # fmt: skip
        console.print(times)
        answers = Table(title="Answers of both sides", title_justify="left")
        for name, justify in (("case", "left"), ("compared", "right"), ("different", "right")):
            answers.add_column(name, justify="right" if justify == "right" else "left")
        for agreement in self.agreements:
            answers.add_row(agreement.case, f"{agreement.compared:,}", f"{agreement.different:,}")
        console.print(answers)

    def write(self, path: Path) -> None:
        """The same and every single round, as JSON."""
        found = [{**asdict(one), "median": one.median, "ratio": one.ratio} for one in self.measurements]
        agreed = [asdict(one) for one in self.agreements]
        whole = {"machine": self.machine, "sizes": self.sizes, "measurements": found, "agreements": agreed}
        path.write_text(json.dumps(whole, indent=2) + "\n")


def _fact(value: object) -> str:
    return "/".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)


def _memory(peaks: Peaks | None) -> str:
    """Driver, JVM and the largest worker, as far as they are known."""
    if peaks is None:
        return ""
    known = (("python", peaks.driver), ("jvm", peaks.jvm), ("worker", peaks.worker))
    return " ".join(f"{name} {value:,.0f}" for name, value in known if value is not None)

"""The command line of the benchmarks: sizes in, table on stdout, JSON in a file. Ends with 1 if two sides disagree.

Belongs here: options. `--quick` takes some minutes; the default is a full run, for a machine that does nothing else.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from benchmarks.measures import machine
from benchmarks.report import Report
from benchmarks.sections import SECTIONS, Bench, Sizes


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for."""
    options = _options(arguments)
    rows = options.rows or (300_000 if options.quick else 10_000_000)
    datasets = options.datasets or max(rows // 1_000, 1)
    sizes = Sizes(rows, datasets, options.branches, options.rounds, options.cores)
    report = Report(machine(), asdict(sizes))
    if options.folder:
        options.folder.mkdir(parents=True, exist_ok=True)
    with (
        TemporaryDirectory(prefix="retention-bench-", dir=options.folder) as folder,
        Bench(sizes, Path(folder), report, _say) as bench,
    ):
        for name in options.only or SECTIONS:
            SECTIONS[name](bench)
    # Without a terminal the table is as wide as it needs to be: it is read in a file, or by a test.
    console = Console(width=None if sys.stdout.isatty() else 200)
    report.show(console)
    if options.json:
        report.write(options.json)
    return 1 if report.different else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="300,000 rows instead of 10,000,000: some minutes")
    parser.add_argument("--rows", type=_count, help="transactions; every section keeps its proportion to them")
    parser.add_argument("--datasets", type=_count, help="a thousandth of the rows when left out")
    parser.add_argument("--branches", type=_count, default=4, help="branches of a forked dataset (4)")
    parser.add_argument("--rounds", type=_count, default=3, help="how often each contender runs (3)")
    parser.add_argument("--cores", type=_count, default=2, help="threads or workers of each contender (2)")
    parser.add_argument("--only", type=_sections, metavar="SECTIONS", help=f"some of {','.join(SECTIONS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every round as JSON")
    parser.add_argument("--folder", type=Path, help="where to work: some GB, removed afterwards")
    return parser.parse_args(arguments)


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return count


def _sections(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in SECTIONS:
            raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(SECTIONS)}")
    return names


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

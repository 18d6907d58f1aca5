"""Report where the tests spend their time, by the times that pytest wrote down: seconds by folder, and the slowest tests.

python -m retention_assets_tests.slowest .venv/tests.xml

Nothing fails by it: how long a test takes depends on the machine and on what else it does.
"""

import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

# seconds above which a test counts as slow, and how many are shown
SLOW, SHOWN = 3.0, 30


def times_of(file: Path) -> list[tuple[float, str]]:
    """Seconds and names, the slowest first; what fixtures take counts for the first test that asks for them."""
    cases = ElementTree.parse(file).getroot().iter("testcase")
    return sorted(((float(case.get("time", 0)), f"{case.get('classname')}.{case.get('name')}") for case in cases), reverse=True)


def folder_of(name: str) -> str:
    """Folder of a test below that of all tests, or the module of one that is in none."""
    return name.split(".")[1]


def main(arguments: Sequence[str]) -> None:
    times, by_folder = times_of(Path(*arguments)), defaultdict[str, float](float)
    for seconds, name in times:
        by_folder[folder_of(name)] += seconds
    for total, folder in sorted(((total, folder) for folder, total in by_folder.items()), reverse=True):
        sys.stdout.write(f"{total:7.1f} s  {folder}\n")
    for seconds, name in times[:SHOWN]:
        sys.stdout.write(f"{seconds:7.1f} s  {name}\n")
    slow = sum(seconds > SLOW for seconds, _ in times)
    sys.stdout.write(f"{slow:,} of {len(times):,} tests took above {SLOW:g} s.\n")


if __name__ == "__main__":
    main(sys.argv[1:])

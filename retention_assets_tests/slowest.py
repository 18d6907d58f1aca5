"""Report the tests that took above three seconds, by the times that pytest wrote down, and which of them nobody expects.

python -m retention_assets_tests.slowest .venv/tests.xml

Belongs here: the list of those that may. Nothing fails by it: how long a test takes depends on the machine and on what else it does.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

SECONDS, MOST = 3.0, 60
# Beginnings of names, and what takes long in these tests.
EXPECTED: Mapping[str, str] = {}


def slow_tests(file: Path) -> list[tuple[float, str]]:
    """Seconds and names, the slowest first; what fixtures take counts for the first test that asks for them."""
    cases = ElementTree.parse(file).getroot().iter("testcase")
    times = ((float(case.get("time", 0)), f"{case.get('classname')}.{case.get('name')}") for case in cases)
    return sorted(((seconds, name) for seconds, name in times if seconds > SECONDS), reverse=True)


def main(arguments: Sequence[str]) -> None:
    slow, expected = slow_tests(Path(*arguments)), tuple(EXPECTED)
    for seconds, name in slow:
        sys.stdout.write(f"{seconds:6.1f} s  {name}{'' if name.startswith(expected) else '  (not expected)'}\n")
    unexpected = sum(not name.startswith(expected) for _, name in slow)
    sys.stdout.write(f"{len(slow)} tests took above {SECONDS:g} s, {unexpected} of them unexpected; at most {MOST} are to.\n")


if __name__ == "__main__":
    main(sys.argv[1:])

"""A swept run of the sample, watched from within: its measures as JSON. It is a program of its own, so that nothing is loaded yet.

Belongs here: watching one run in this process, with all of its threads. Spark's tasks are other programs and are not watched.
"""

import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType

from retention_assets_tests.architecture import IMPORTS, PACKAGE, place_of

MODULES, FUNCTIONS, READS = "modules entered", "functions entered", "read transactions of the ledger"
OPENED, PARSED, UPWARDS = "times the ledger is opened", "times a policy's text is parsed", "calls up a floor"
# functions whose calls are counted
_OPEN, _PARSE = (f"{PACKAGE}.ledger.ledger", "open_ledger"), (f"{PACKAGE}.policy.language", "load_policies")


class Watch:
    """Profile function of all threads: functions of the package that were entered, and how often each called each.

    Comprehensions and lambdas are functions, too. Where a library stands between two functions, nobody has called.
    """

    def __init__(self) -> None:
        self.entered: Counter[CodeType] = Counter()
        self.calls: Counter[tuple[CodeType, CodeType]] = Counter()
        self.modules: dict[CodeType, str] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not self._module(frame):
            return
        self.entered[frame.f_code] += 1
        if frame.f_back is not None and self._module(frame.f_back):
            self.calls[frame.f_back.f_code, frame.f_code] += 1

    def _module(self, frame: FrameType) -> str:
        code = frame.f_code
        if code not in self.modules:
            name = str(frame.f_globals.get("__name__"))
            self.modules[code] = name if name.startswith(f"{PACKAGE}.") and code.co_name != "<module>" else ""
        return self.modules[code]

    def times(self, module: str, name: str) -> int:
        return sum(times for code, times in self.entered.items() if (self.modules[code], code.co_qualname) == (module, name))

    def calls_upwards(self) -> int:
        """Calls from a place to one that stands after it in the table of imports: callbacks, and methods of subclasses."""
        floors = {place: floor for floor, place in enumerate(IMPORTS)}

        def floor_of(code: CodeType) -> int:
            return floors[place_of(self.modules[code]) or "__init__"]

        return sum(times for (caller, called), times in self.calls.items() if floor_of(called) > floor_of(caller))


def watched(work: Callable[[], None]) -> dict[str, int]:
    """Do work and measure it."""
    from sqlalchemy import Connection, Engine, event

    watch, reads = Watch(), list[Connection]()

    def note(connection: Connection) -> None:
        # the option of transactions that only read (sql/engines.py)
        if connection.get_execution_options().get("reads") and str(connection.engine.url.database).endswith("ledger.db"):
            reads.append(connection)

    event.listen(Engine, "begin", note)
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        event.remove(Engine, "begin", note)
    return {
        MODULES: len({watch.modules[code] for code in watch.entered}),
        FUNCTIONS: len(watch.entered),
        READS: len(reads),
        OPENED: watch.times(*_OPEN),
        PARSED: watch.times(*_PARSE),
        UPWARDS: watch.calls_upwards(),
    }


def _command(*arguments: str) -> None:
    from retention_assets.cli import main

    sys.argv = ["retention", *arguments]
    try:
        main()
    except SystemExit as left:
        if left.code:
            raise


def sweep_sample() -> dict[str, int]:
    """Measure the run that deletes the six files of the sample whose grace is over."""
    with TemporaryDirectory(prefix="retention-house-") as folder:
        os.chdir(folder)
        _command("init", ".", "--sample")
        _command("run", "--yes")
        for file in Path(folder).glob("policies/*.yaml"):
            # a program parses again what has changed
            file.write_text(f"{file.read_text()}# looked at\n")
        measures = watched(lambda: _command("run", "--as-of", "in 8d", "--yes"))
        os.chdir("/")
    return measures


if __name__ == "__main__":
    os.environ.pop("RETENTION_CONFIG", None)
    sys.stdout.write(f"{json.dumps(sweep_sample())}\n")

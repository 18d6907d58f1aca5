"""A terminal for tests: the console script in a program of its own, at a pseudo-terminal of 80 columns.

Belongs here: starting it, typing, and what the screen then shows.
"""

import os
import pty
import re
import sys
import termios
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from retention_assets.cli import main
from retention_assets_tests.forked import forking
from retention_assets_tests.people.conftest import ENVIRONMENT

COLUMNS = 80
_ERASE = "\x1b[2K"
_STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def at_terminal(
    folder: Path, *arguments: str, types: str = "", first: Callable[[], None] | None = None, redirected: bool = False
) -> tuple[int | None, list[str]]:
    """`types` is typed when a question stands there. Exit code, and the lines on the screen without their styles.

    With `redirected`, only stdin is the terminal, and the lines are those that stdout has. The program is forked from one that
    has loaded what it needs, which takes ten times as long as what it does; it calls `first` before anything else.
    """
    screen, line = pty.openpty()
    termios.tcsetwinsize(line, (24, COLUMNS))
    environment = {**ENVIRONMENT, "TERM": "xterm", "COLUMNS": str(COLUMNS)}
    if redirected:
        # Nobody sees a question there: what is typed answers it all the same, so that nothing waits for ever.
        os.write(screen, types.encode())
    context = forking()
    said, output = context.Pipe(duplex=False)
    # A connection is what multiprocessing hands over: here for the descriptor in it.
    with said, output, Connection(line) as terminal:
        streams = (terminal, output if redirected else terminal, terminal)
        program = context.Process(target=_script, args=(folder, arguments, environment, streams, first))
        program.start()
        terminal.close()
        output.close()
        shown = _read(said.fileno()) if redirected else _read(screen, types)
        program.join()
    os.close(screen)
    lines = shown.decode().replace("\r\n", "\n").split("\n")
    # What was erased or written over is not on the screen any more.
    seen = (_STYLES.sub("", line.rpartition(_ERASE)[2]).rpartition("\r")[2] for line in lines)
    return program.exitcode, [line.rstrip() for line in seen]


def _script(
    folder: Path,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    streams: Sequence[Connection],
    first: Callable[[], None] | None,
) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
    for stream in set(streams):
        stream.close()
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
    sys.argv = ["retention", *arguments]
    if first is not None:
        first()
    main()


def _read(screen: int, types: str = "") -> bytes:
    """Everything until the program has closed it, which a read of a terminal tells as an error."""
    shown, answer, asked = b"", types.encode(), 0
    while True:
        try:
            some = os.read(screen, 65_536)
        except OSError:
            return shown
        if not some:
            return shown
        shown += some
        # a line for each question
        if answer and shown.count(b"[y/N]: ") > asked:
            asked += 1
            line, _, answer = answer.partition(b"\n")
            os.write(screen, line + b"\n")

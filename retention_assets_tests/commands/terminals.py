"""A terminal for tests: the console script as a program of its own, at a pseudo-terminal of 80 columns.

Belongs here: starting it, typing, and what the screen then shows.
"""

import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path

from retention_assets_tests.commands.conftest import ENTRY, ENVIRONMENT

COLUMNS = 80
_ERASE = "\x1b[2K"
_STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def at_terminal(
    folder: Path, *arguments: str, types: str = "", code: str = ENTRY, redirected: bool = False
) -> tuple[int, list[str]]:
    """`types` is typed when a question stands there. Exit code, and the lines on the screen without their styles.

    With `redirected`, only stdin is the terminal, and the lines are those that stdout has.
    """
    screen, line = pty.openpty()
    termios.tcsetwinsize(line, (24, COLUMNS))
    environment = {**ENVIRONMENT, "TERM": "xterm", "COLUMNS": str(COLUMNS)}
    if redirected:
        # Nobody sees a question there: what is typed answers it all the same, so that nothing waits for ever.
        os.write(screen, types.encode())
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments], cwd=folder, stdin=line, env=environment,
        stdout=subprocess.PIPE if redirected else line, stderr=line,
    ) as program:  # fmt: skip
        os.close(line)
        shown = program.stdout.read() if program.stdout else _read(screen, types)
        ended = program.wait()
    os.close(screen)
    lines = shown.decode().replace("\r\n", "\n").split("\n")
    # What was erased or written over is not on the screen any more.
    seen = (_STYLES.sub("", line.rpartition(_ERASE)[2]).rpartition("\r")[2] for line in lines)
    return ended, [line.rstrip() for line in seen]


def _read(screen: int, types: str) -> bytes:
    """Everything until the program has closed the terminal, which a read tells as an error."""
    shown, answer = b"", types.encode()
    while True:
        try:
            some = os.read(screen, 65_536)
        except OSError:
            return shown
        if not some:
            return shown
        shown += some
        if answer and b"[y/N]: " in shown:
            os.write(screen, answer)
            answer = b""

"""Stops a sweep on SIGINT or SIGTERM after the batch in flight, with its outcomes recorded.

A second signal ends the program at once, and the next sweep resumes.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Yield an event that is set when a signal asks the program to end. Only the main thread hears signals."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def hear(number: int, _: FrameType | None) -> None:
        stop.set()
        signal.signal(number, before[signal.Signals(number)])

    for number in _SIGNALS:
        signal.signal(number, hear)
    try:
        yield stop
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)

"""End calls to stores, catalogs, logs or plugins that stay silent too long."""

import re
from collections.abc import Callable, Generator
from queue import Empty, SimpleQueue
from threading import Thread
from time import perf_counter
from typing import Any, TypeVar

from retention_assets.errors import Refused, Withheld

Answer = TypeVar("Answer")
Row = TypeVar("Row")

# limits of a batch that a thread hands over
_BATCH_ROWS, _BATCH_SECONDS = 10_000, 0.1
_BEAT = object()
# messages of drivers that have no error class for a time-out
_TIMEOUT = re.compile("timed out|curlCode: 28")

_seconds = 60.0


class Silent(Refused):
    """No sign of life within the time-out."""


def bound_silence(seconds: float) -> None:
    """Set `timeout` for this process."""
    global _seconds
    _seconds = seconds


def silence_bound() -> float:
    """`timeout` of the settings in seconds."""
    return _seconds


def silence_text() -> str:
    """End of an error message about a silent party."""
    return f"nothing came for {_seconds:g} s, the `timeout` of the settings"


def is_silence(fault: BaseException | None) -> bool:
    """Recognise a time-out as an error or as its cause. Drivers have no error in common."""
    while fault is not None:
        if isinstance(fault, Silent | TimeoutError) or "timeout" in type(fault).__name__.lower() or _TIMEOUT.search(str(fault)):
            return True
        fault = fault.__cause__ or fault.__context__
    return False


class ForeignThread:
    """Runs foreign code, call after call, in one thread.

    A thread can't be ended from outside, and a process for each plugin would need a copy of what it reads. So a silent thread
    is abandoned: as a daemon it does not keep the program from ending, and its next permit is refused.
    """

    def __init__(self) -> None:
        self._calls, self._answers, self._is_abandoned = SimpleQueue[Callable[[], Any] | None](), SimpleQueue[Any](), False
        Thread(target=_answer_calls, args=(self._calls, self._answers), daemon=True).start()

    def __del__(self) -> None:
        self._calls.put(None)

    def beat(self) -> None:
        """Give a sign of life, from the thread. Raises Withheld once nobody waits for it any more."""
        if self._is_abandoned:
            raise Withheld(f"nobody waits any longer: {silence_text()}")
        self._answers.put(_BEAT)

    def call(self, name: str, question: Callable[[], Answer]) -> Answer:
        """Call in the thread and return the answer. Raises its error, or Silent."""
        self._calls.put(question)
        answer: Any = _BEAT
        while answer is _BEAT:
            try:
                answer = None if self._is_abandoned else self._answers.get(timeout=_seconds)
            except Empty:
                answer = None
        if answer is None:
            self._is_abandoned = True
            raise Silent(f"{name}: {silence_text()}")
        value, fault = answer
        if fault is not None:
            raise fault
        result: Answer = value
        return result

    def rows(self, name: str, given: Generator[Row, None, Answer]) -> Generator[Row, None, Answer]:
        """Yield the rows of a generator that runs in the thread, and return what it returns."""
        while True:
            rows, fault = self.call(name, lambda: _next_batch(given))
            yield from rows
            if isinstance(fault, StopIteration):
                result: Answer = fault.value
                return result
            if fault is not None:
                raise fault


def _next_batch(given: Generator[Row, None, Any]) -> tuple[list[Row], Exception | None]:
    rows, began = list[Row](), perf_counter()
    while len(rows) < _BATCH_ROWS and perf_counter() - began < _BATCH_SECONDS:
        try:
            rows.append(next(given))
        # The rows before an error are handed over first.
        except Exception as fault:  # noqa: BLE001 - StopIteration brings what the generator returns
            return rows, fault
    return rows, None


def _answer_calls(calls: SimpleQueue[Callable[[], Any] | None], answers: SimpleQueue[Any]) -> None:
    while question := calls.get():
        try:
            answers.put((question(), None))
        except Exception as fault:  # noqa: BLE001 - it is raised where the answer is waited for
            answers.put((None, fault))
        del question

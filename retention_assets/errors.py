"""Problems with a place and a remedy, and the exceptions by which input or a request is refused."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Problem:
    """Fault in something a person wrote, and what to do about it.

    `what` says what was found, `expected` what would have been right, `remedy` what to type instead.
    """

    what: str
    file: str | None = None
    line: int | None = None
    policy: str | None = None
    key: str | None = None
    value: str | None = None
    expected: str | None = None
    remedy: str | None = None

    def __str__(self) -> str:
        place = self.file or ""
        if place and self.line is not None:
            place += f":{self.line}"
        named = f"policy '{self.policy}'" if self.policy else ""
        head = ": ".join(part for part in (place, named, self.key or "") if part)
        text = f"{head}: {self.what}" if head else self.what
        if self.value is not None:
            text += f" (found {self.value})"
        if self.expected:
            text += f"; expected {self.expected}"
        if self.remedy:
            text += f". {self.remedy}"
        return text

    def as_dict(self) -> dict[str, str | int]:
        return {key: value for key, value in asdict(self).items() if value is not None}


def irregular(file: str) -> Problem:
    """Problem of a file that is no regular file and may never end, or never begin."""
    return Problem("is a pipe, a device or a socket", file=file, expected="a regular file", remedy="Remove it.")


class Refused(Exception):
    """The request was understood and refused; exit code 1. Nothing was changed."""


class Withheld(Refused):
    """An act that can't be undone must not begin any more. What was not done stays as it is."""


class BadInput(Exception):
    """Input cannot be accepted; exit code 2. Carries every problem found, not just the first."""

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def first_problems(self, most: int = 200) -> list[str]:
        """Sentences of the first problems, and how many more there are."""
        more = len(self.problems) - most
        return [*map(str, self.problems[:most]), *([f"… and {more} more problems."] if more > 0 else [])]


class InvalidValue(ValueError):
    """Wrong value, with what was expected and how to mend it; whoever reads the file adds file, policy and key.

    `key` names the part of the value that is at fault, where the fault lies between two keys; or the way to it.
    """

    def __init__(
        self, what: str, expected: str | None = None, remedy: str | None = None, key: str | tuple[str | int, ...] = ()
    ) -> None:
        super().__init__(what)
        self.what, self.expected, self.remedy = what, expected, remedy
        self.way = (key,) if isinstance(key, str) else key


def quote(value: object, most: int = 60) -> str:
    """Quote and cut a value for a message, so that a hostile one cannot flood a terminal."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def nearest(word: str, known: Sequence[str]) -> str | None:
    """Known key that a typo most likely meant, or None."""
    matches = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return matches[0] if matches else None


def suggest(word: str, known: Sequence[str]) -> str | None:
    """Ask whether the nearest known key was meant; None where none is near."""
    guess = nearest(word, known)
    return f"Did you mean {guess}?" if guess else None


def did_you_mean(name: str, known: Sequence[str], most: int = 3) -> str | None:
    """Suggest names as a question: those that contain what was typed, the shortest first, else those with similar spelling.
    None where nothing is near.
    """
    word = name.strip().casefold()
    containing = sorted((candidate for candidate in known if word and word in candidate.casefold()), key=len)
    matches = (containing or difflib.get_close_matches(name, known, n=most, cutoff=0.5))[:most]
    if not matches:
        return None
    return f"Did you mean {' or '.join([', '.join(matches[:-1]), matches[-1]] if matches[1:] else matches)}?"

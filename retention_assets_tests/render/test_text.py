"""Words for numbers: rounded, but never so that something looks like nothing, or a part like the whole."""

import json
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_assets.policy.sizes import size_of
from retention_assets.render import duration_of, share_of, visible, visible_json, visible_line


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (None, "?"), (0, "0 B"), (1_023, "1023 B"), (1_024, "1.0 KiB"), (1_536, "1.5 KiB"), (1_024**2, "1.0 MiB"),
        (1_024**5, "1.0 PiB"), (3 * 1_024**6, "3072.0 PiB"),
    ],
)  # fmt: skip
def test_a_size_is_in_the_largest_unit_that_it_fills(count: int | None, words: str) -> None:
    assert size_of(count) == words


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (0, "0.0 %"),
        (1, "under 0.1 %"),
        (10, "0.1 %"),
        (5_000, "50.0 %"),
        (9_990, "99.9 %"),
        (9_999, "over 99.9 %"),
        (10_000, "100.0 %"),
    ],
)
def test_a_share_is_nothing_or_all_only_if_it_is(part: int, words: str) -> None:
    assert share_of(part, 10_000) == words


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (timedelta(), "0 ms"),
        (timedelta(seconds=0.0437), "43 ms"),
        (timedelta(seconds=59.5), "59 seconds"),
        (timedelta(minutes=2, seconds=1), "2 minutes"),
        (timedelta(hours=3, seconds=1), "3 hours"),
        (timedelta(days=1, minutes=30), "1 day"),
        (timedelta(days=2, hours=3, minutes=4, seconds=5), "2 days and 3 hours"),
        (timedelta(seconds=-5), "-5 seconds"),
    ],
)
def test_a_duration_is_in_words_of_at_most_two_units(length: timedelta, words: str) -> None:
    assert duration_of(length) == words


# An order to a terminal, one that many terminals take in one character, a text that runs backwards, one that has no width, a line
# end that is none, a tag that nobody sees, and half of a character.
UNSEEN = {
    "\x1b[2J": r"\x1b[2J", "\x9b2J": r"\x9b2J", "\x07": r"\x07", "\r": r"\x0d", "\x00": r"\x00", "\x7f": r"\x7f", "\x85": r"\x85",
    "\u202e": r"\u202e", "\u2066": r"\u2066", "\u2069": r"\u2069", "\u200f": r"\u200f", "\u061c": r"\u061c", "\u200b": r"\u200b",
    "\u2028": r"\u2028", "\ufeff": r"\ufeff", "\xad": r"\xad", "\U000e0041": r"\U000e0041", "\ud800": r"\ud800",
    "\x0b": r"\x0b", "\x1f": r"\x1f", "\x9f": r"\x9f", "\u2060": r"\u2060", "\u206f": r"\u206f",
}  # fmt: skip


@pytest.mark.parametrize("text", UNSEEN, ids=ascii)
def test_what_nobody_would_see_is_shown_as_an_escape(text: str) -> None:
    assert visible(f"a{text}b") == visible_line(f"a{text}b") == f"a{UNSEEN[text]}b"


@pytest.mark.parametrize("text", ["tab\tline\n", "naïve", "日本", "👩‍🚀", "a\\x1b", " ~\xa0\xa1"])
def test_what_can_be_seen_stays_as_it_is(text: str) -> None:
    assert visible(text) == visible_json(text) == text


def test_a_name_of_two_lines_is_shown_in_one() -> None:
    assert visible_line("a\n\tb") == r"a\n\tb"


@given(st.text())
def test_json_that_is_shown_says_the_same_and_hides_nothing(text: str) -> None:
    shown = visible_json(json.dumps({text: [text]}, ensure_ascii=False))
    assert json.loads(shown) == {text: [text]}
    assert visible(shown) == shown


@pytest.mark.parametrize("text", UNSEEN, ids=ascii)
def test_json_writes_what_nobody_would_see_as_json_does(text: str) -> None:
    shown = visible_json(json.dumps(text, ensure_ascii=False))
    assert json.loads(shown) == text
    assert shown.isascii()
    assert shown.isprintable()

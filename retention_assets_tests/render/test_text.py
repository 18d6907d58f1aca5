"""Words for numbers: rounded, but never so that something looks like nothing, or a part like the whole."""

from datetime import timedelta

import pytest

from retention_assets.render.text import duration_of, printable, share_of, size_of


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
        (timedelta(), "0 s"),
        (timedelta(seconds=59.5), "59.5 s"),
        (timedelta(minutes=2), "2 min"),
        (timedelta(hours=3, seconds=1), "3 h 1 s"),
        (timedelta(days=1, seconds=30), "1 d"),
        (timedelta(seconds=-5), "-5 s"),
    ],
)
def test_a_duration_has_seconds_where_they_matter(length: timedelta, words: str) -> None:
    assert duration_of(length) == words


def test_what_cannot_be_printed_is_replaced_and_nothing_else() -> None:
    assert printable("a\x00b\x7fc\x85d\ud800") == "a\ufffdb\ufffdc\ufffdd\ufffd"
    assert printable("tab\tline\nnaïve \u202e <b>") == "tab\tline\nnaïve \u202e <b>"

"""What was parsed is known again by its bytes alone, and never takes more than its share."""

import pytest

from retention_assets.stores.iceberg.manifests import NOTHING_KEPT, ParsedFiles


def ask(parsed: ParsedFiles, location: str, content: bytes, size: int = 0, kind: str = "list") -> list[bytes]:
    return parsed.of(kind, location, content, lambda: [content], lambda _: size)


def test_a_content_is_parsed_once_and_another_one_anew() -> None:
    parsed = ParsedFiles()
    first = ask(parsed, "a", b"1")
    assert ask(parsed, "a", b"1") is first
    assert ask(parsed, "a", b"1", kind="manifest") is not first
    assert ask(parsed, "b", b"1") is not first
    assert ask(parsed, "a", b"2") == [b"2"]
    assert ask(parsed, "a", b"1") is not first


def test_what_was_not_asked_for_the_longest_goes_first() -> None:
    parsed = ParsedFiles(10_000)
    a, b, c = (ask(parsed, name, b"", 1_400) for name in "abc")
    assert ask(parsed, "a", b"", 1_400) is a
    ask(parsed, "d", b"", 1_400)
    ask(parsed, "e", b"", 1_400)
    assert ask(parsed, "a", b"", 1_400) is a
    assert ask(parsed, "c", b"", 1_400) is c
    assert ask(parsed, "b", b"", 1_400) is not b


@pytest.mark.parametrize("size", [0, 500, 1_400, 2_600])
def test_what_is_kept_never_takes_more_than_it_may(size: int) -> None:
    parsed = ParsedFiles(10_000)
    for number in range(40):
        ask(parsed, str(number % 15), bytes([number % 7]), size)
        assert parsed._taken == sum(one[2] for one in parsed._kept.values()) <= 10_000


def test_a_giant_is_not_kept_and_drives_nothing_out() -> None:
    parsed = ParsedFiles(10_000)
    small = ask(parsed, "small", b"")
    giant = ask(parsed, "giant", b"", 5_000)
    assert ask(parsed, "giant", b"", 5_000) is not giant
    assert ask(parsed, "small", b"") is small
    assert ask(NOTHING_KEPT, "a", b"") is not ask(NOTHING_KEPT, "a", b"")


def test_what_cant_be_parsed_is_tried_again() -> None:
    parsed = ParsedFiles()
    with pytest.raises(ZeroDivisionError):
        parsed.of("list", "a", b"", lambda: 1 // 0, lambda _: 0)
    assert ask(parsed, "a", b"") == [b""]

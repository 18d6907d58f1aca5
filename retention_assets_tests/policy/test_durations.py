"""Durations and instants: their text forms, and the calendar between them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention_assets.policy import Duration, from_micros, micros, parse_duration, parse_instant, text_of
from retention_assets.policy.durations import EPOCH, LONGEST_YEARS, parse_moment


def at(text: str) -> datetime:
    return parse_instant(text)


# A part of the bound each, so that any three fit; seconds as many as one number of a text may be.
MONTHS, DAYS, SECONDS = LONGEST_YEARS * 12 // 3, LONGEST_YEARS * 365 // 3, 999_999_999
durations = st.builds(Duration, st.integers(0, MONTHS), st.integers(0, DAYS), st.integers(0, SECONDS))


@given(durations)
def test_both_texts_of_a_duration_parse_back_to_it(duration: Duration) -> None:
    assert parse_duration(str(duration)) == parse_duration(duration.iso()) == duration


@pytest.mark.parametrize(
    ("duration", "text", "iso", "words"),
    [
        (Duration(), "0s", "PT0S", "0 seconds"),
        (Duration(seconds=86_400), "24h", "PT24H", "24 hours"),
        (Duration(days=14), "2w", "P14D", "14 days"),
        (Duration(months=12), "1y", "P1Y", "1 year"),
        (Duration(months=14), "14mo", "P1Y2M", "1 year and 2 months"),
        (Duration(months=24, days=1), "P24M1D", "P2Y1D", "2 years and 1 day"),
        (Duration(days=1, seconds=43_200), "P1DT43200S", "P1DT12H", "1 day and 12 hours"),
    ],
)
def test_a_duration_is_written_in_its_shortest_form_and_in_words(duration: Duration, text: str, iso: str, words: str) -> None:
    assert (str(duration), duration.iso(), duration.words()) == (text, iso, words)


UNITS = {"s": "PT{}S", "m": "PT{}M", "h": "PT{}H", "d": "P{}D", "w": "P{}W", "mo": "P{}M", "y": "P{}Y"}


@given(st.integers(0, 1000), st.sampled_from(list(UNITS)))
def test_a_short_form_and_its_iso_form_are_one_duration(number: int, unit: str) -> None:
    assert parse_duration(f"{number}{unit}") == parse_duration(UNITS[unit].format(number))


@given(st.text(max_size=12))
def test_any_other_text_is_refused_with_a_sentence(text: str) -> None:
    try:
        duration = parse_duration(text)
    except ValueError:
        return
    assert parse_duration(str(duration)) == duration


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "1", "d", "-1d", "+1d", "1.5d", "1 d", " 1d", "1d ", "1D", "1M", "1d1h", "P1H", "PT1D", "p1d",
             "१d", "1d\n", "P1Y1Y", "1000000000000s", "1e3d", "30d;"],
)  # fmt: skip
def test_what_only_looks_like_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["1001y", "12001mo", "365001d", "P1000Y1D", "P1000YT1S", "999999999w", "P1000Y999999999D"])
def test_more_than_a_thousand_years_are_refused(text: str) -> None:
    assert all(map(parse_duration, ("1000y", "12000mo", "365000d", "P1000Y", "P999Y12M")))
    with pytest.raises(ValueError, match="at most 1000 years"):
        parse_duration(text)


@pytest.mark.parametrize("part", ["months", "days", "seconds"])
def test_a_duration_is_never_negative_and_false_only_if_it_is_nothing(part: str) -> None:
    with pytest.raises(ValueError, match="not negative"):
        Duration(**{part: -1})
    assert Duration(**{part: 1})
    assert not Duration()


@pytest.mark.parametrize(
    ("duration", "instant", "before"),
    [
        # Leap days, both ways.
        ("2y", "2024-02-29T12:00:00Z", "2022-02-28T12:00:00Z"),
        ("1y", "2025-02-28T00:00:00Z", "2024-02-28T00:00:00Z"),
        ("365d", "2024-03-01T00:00:00Z", "2023-03-02T00:00:00Z"),
        # No leap day in 1900, one in 2000.
        ("100y", "2000-02-29T00:00:00Z", "1900-02-28T00:00:00Z"),
        # Month ends are clamped, other days are not.
        ("1mo", "2026-03-31T00:00:00Z", "2026-02-28T00:00:00Z"),
        ("1mo", "2026-01-31T00:00:00Z", "2025-12-31T00:00:00Z"),
        # Months first, then exact time: the other way round this were 2026-01-30.
        ("P1M1D", "2026-03-31T00:00:00Z", "2026-02-27T00:00:00Z"),
        # A day is 24 hours, also where people change their clocks.
        ("1d", "2026-03-29T12:00:00+02:00", "2026-03-28T10:00:00Z"),
        ("1000y", "2026-06-01T00:00:00Z", "1026-06-01T00:00:00Z"),
    ],
)
def test_before_is_calendar_arithmetic_in_utc(duration: str, instant: str, before: str) -> None:
    assert parse_duration(duration).before(at(instant)) == at(before)


@pytest.mark.parametrize(
    ("duration", "instant", "after"),
    [("1mo", "2026-01-31", "2026-02-28"), ("1mo", "2024-01-31", "2024-02-29"), ("1y", "2024-02-29", "2025-02-28"),
     ("P1M1D", "2026-01-31", "2026-03-01")],
)  # fmt: skip
def test_after_is_calendar_arithmetic_in_utc(duration: str, instant: str, after: str) -> None:
    assert parse_duration(duration).after(at(instant)) == at(after)


instants = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - Hypothesis wants them so


@given(st.integers(0, 600), instants)
def test_months_back_and_forth_return_to_the_day_or_to_the_end_of_its_month(months: int, instant: datetime) -> None:
    duration = Duration(months=months)
    there = duration.before(instant)
    back = duration.after(there)
    assert (back.year, back.month, back.time()) == (instant.year, instant.month, instant.time())
    assert back.day == (instant.day if there.day == instant.day else there.day)


@given(st.integers(0, 600), st.integers(0, 600), instants)
def test_a_longer_age_never_has_a_later_bound(shorter: int, more: int, instant: datetime) -> None:
    assert Duration(months=shorter + more).before(instant) <= Duration(months=shorter).before(instant)


@given(durations, instants, st.timedeltas(timedelta(0), timedelta(days=100)))
def test_a_bound_never_goes_back_while_time_goes_on(duration: Duration, instant: datetime, later: timedelta) -> None:
    # Else a transaction that was old enough yesterday would not be today.
    try:
        assert duration.before(instant) <= duration.before(instant + later)
    except OverflowError:
        assert duration.months or duration.days or duration.seconds


@pytest.mark.parametrize("duration", ["1y", "1mo", "1d", "1s"])
def test_a_bound_before_the_first_instant_overflows_and_does_not_wrap(duration: str) -> None:
    with pytest.raises(OverflowError):
        parse_duration(duration).before(datetime.min.replace(tzinfo=UTC))


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("2026-01-01T02:00:00+02:00", "2026-01-01T00:00:00Z"),
        ("2025-12-31T18:30:00-05:30", "2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:00.5Z", "2026-01-01T00:00:00.500000Z"),
        ("20260101T000000Z", "2026-01-01T00:00:00Z"),
        ("2026-01-01", "2026-01-01T00:00:00Z"),
    ],
)
def test_an_instant_names_its_zone_and_is_said_in_utc(text: str, meaning: str) -> None:
    instant = parse_instant(text)
    assert instant.utcoffset() == timedelta(0)
    assert text_of(instant) == meaning


NAIVE = ["2026-01-01T00:00:00", "2026-01-01 00:00", "20260101", "2026-01-01T00", "2026-01-01T00:00:00.000"]
NONE = ["", "now", "2026", "2026-13-01", "2026-02-30", "01.02.2026", "1767225600", "2026-01-01T25:00:00Z", "7d", "in 7d"]


@pytest.mark.parametrize("text", [*NAIVE, *NONE])  # nothing in a file is counted from now
def test_what_is_no_instant_or_has_no_zone_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="has no zone" if text in NAIVE else "is not an instant"):
        parse_instant(text)


ZONES = st.sampled_from((UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))))


@given(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=ZONES))  # noqa: DTZ001 - Hypothesis wants them so
def test_an_instant_comes_back_from_its_text_and_from_its_microseconds(instant: datetime) -> None:
    assert parse_instant(text_of(instant)) == instant
    assert from_micros(micros(instant)) == instant


def test_microseconds_count_from_1970_and_are_exact_before_it() -> None:
    assert micros(EPOCH) == 0
    assert micros(EPOCH - timedelta(microseconds=1)) == -1
    assert micros(at("2026-01-01T00:00:00.000001Z")) == 1_767_225_600_000_001


NOW = datetime(2026, 3, 31, 12, 30, 45, 678_901, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "instant"),
    [("7d", "2026-03-24T12:30:45Z"), ("in 7d", "2026-04-07T12:30:45Z"), ("in  P1M", "2026-04-30T12:30:45Z"),
     ("0s", "2026-03-31T12:30:45Z"), ("2026-03-01", "2026-03-01T00:00:00Z"),
     ("2026-03-01T01:00:00+01:00", "2026-03-01T00:00:00Z")],
)  # fmt: skip
def test_an_instant_that_is_typed_may_be_counted_from_now(text: str, instant: str) -> None:
    assert text_of(parse_moment(text, NOW)) == instant


@pytest.mark.parametrize("text", ["in 2026-03-01", "in", "in7d", "-7d", "7", "soon", "in in 7d", "2026-03-01T00:00:00", ""])
def test_what_is_neither_an_instant_nor_counted_from_now_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not|has no zone"):
        parse_moment(text, NOW)


@pytest.mark.parametrize("text", ["1001y", "in 1001y", "P99999999999Y"])
def test_a_length_of_time_that_is_too_long_is_no_instant(text: str) -> None:
    with pytest.raises((OverflowError, ValueError), match="at most"):
        parse_moment(text, NOW)

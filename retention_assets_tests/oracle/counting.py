"""The naive oracle, "Counting, exactly" of DESIGN.md: the newest of something, by number, by size and by calendar period.

And the conditions of random policies, each as a question in Python: `where` has a language of its own, which is tested in frames/.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from retention_assets.policy import Beyond, Newest, RetainRule, Selection
from retention_assets_tests.oracle.views import Facts, Transaction

# None: no answer, which is not a yes.
CONDITIONS: dict[str, Callable[[Transaction], bool | None]] = {
    "attributes['kind'] = 'full'": lambda one: _is(one, "kind", lambda kind: kind == "full"),
    "NOT attributes['kind'] = 'full'": lambda one: _is(one, "kind", lambda kind: kind != "full"),
    "attributes['kind'] IS NULL OR bytes > 5": lambda one: "kind" not in one.attributes or _size(one, lambda size: size > 5),
    "attributes['tag'] LIKE 'prod%'": lambda one: _is(one, "tag", lambda tag: tag.startswith("prod")),
    "type = 'SNAPSHOT'": lambda one: one.type == "SNAPSHOT",
    "type <> 'SNAPSHOT' AND bytes >= 10": lambda one: one.type != "SNAPSHOT" and _size(one, lambda size: size >= 10),
    "status = 'ABORTED'": lambda one: one.status == "ABORTED",
    "closed_at IS NULL OR bytes < 100": lambda one: one.closed_at is None or _size(one, lambda size: size < 100),
    "opened_at IS NULL OR bytes < 100": lambda one: one.opened_at is None or _size(one, lambda size: size < 100),
    "bytes >= 0": lambda one: _size(one, lambda size: size >= 0),
}
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)")


def _is(one: Transaction, key: str, question: Callable[[str], bool]) -> bool | None:
    return question(one.attributes[key]) if key in one.attributes else None


def _size(one: Transaction, question: Callable[[int], bool]) -> bool | None:
    return None if one.bytes is None else question(one.bytes)


def meets(condition: str, one: Transaction) -> bool:
    if condition not in CONDITIONS:
        raise NotImplementedError(f"where: {condition!r} has no oracle")
    return CONDITIONS[condition](one) is True


def by_time(lines: Newest | RetainRule | Selection) -> bool:
    """Periods or a condition about times stand in it."""
    named = lines.where is not None and any(f"{verb}_at" in lines.where.text for verb in ("opened", "closed", "archived"))
    return named or any(getattr(lines, key, None) for key in ("hourly", "daily", "weekly", "monthly", "yearly"))


def instant_in(one: Transaction, attribute: str) -> datetime | None:
    """The instant with a zone in an attribute; null where it is absent or cannot be read."""
    text = one.attributes.get(attribute, "")
    try:
        return datetime.fromisoformat(text) if _INSTANT.fullmatch(text) else None
    except ValueError:
        return None


def start_of(instant: datetime, period: str) -> datetime:
    """The start in UTC of the period that an instant is in."""
    at = instant.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "week":
        return datetime.fromisocalendar(at.isocalendar().year, at.isocalendar().week, 1).replace(tzinfo=UTC)
    first = {"day": at.month, "month": at.month, "quarter": (at.month - 1) // 3 * 3 + 1, "year": 1}[period]
    return at if period == "day" else at.replace(month=first, day=1)


def _period(key: str, closed_at: datetime, zone: str | None) -> tuple[int, ...]:
    """What the calendar and the clock of the zone say. An hour that the clock shows twice is one."""
    shown = closed_at.astimezone(ZoneInfo(zone or "UTC"))
    if key == "weekly":
        return shown.isocalendar()[:2]
    parts = (shown.year, shown.month, shown.day, shown.hour)
    return parts[: ("yearly", "monthly", "daily", "hourly").index(key) + 1]


def newest(line: Sequence[Transaction], counts: Beyond | Newest) -> dict[str, list[Transaction]]:
    """What each key of `counts` counts among the newest of a line, which is oldest first."""
    # ABORTED and DELETE are no data: always beyond.
    data = [one for one in line if one.status == "COMMITTED" and one.type != "DELETE"]
    if counts.where is not None:
        data = [one for one in data if meets(counts.where.text, one)]
    groups: dict[tuple[str | None, ...], list[Transaction]] = {}
    for one in data:
        groups.setdefault(tuple(one.attributes.get(key) for key in counts.per or ()), []).append(one)
    found: dict[str, list[Transaction]] = {}
    for group in groups.values():
        if counts.transactions:
            found.setdefault("transactions", []).extend(group[-counts.transactions :])
        if isinstance(counts, Beyond) and counts.bytes is not None:
            found.setdefault("bytes", []).extend(_that_fit(group, counts.bytes))
        for key in ("hourly", "daily", "weekly", "monthly", "yearly"):
            number = getattr(counts, key)
            if number is not None:
                # A later one of the line takes the place of the one before it in its period.
                last = {_period(key, one.closed_at, counts.zone): one for one in group if one.closed_at is not None}
                found.setdefault(key, []).extend(last[period] for period in sorted(last)[-number:])
    return found


def _that_fit(group: Sequence[Transaction], most: int) -> list[Transaction]:
    """From the newest, up to the first that does not fit."""
    size, fitting = 0, []
    for one in reversed(group):
        size += one.bytes or 0
        if size > most:
            break
        fitting.append(one)
    return fitting


def kept_on_line(line: Sequence[Transaction], counts: Beyond | Newest) -> list[Transaction]:
    """Where there are no branches nothing but what is counted is kept."""
    return [one for kept in newest(line, counts).values() for one in kept]


def kept_on_branch(facts: Facts, branch: str, counts: Beyond | Newest) -> list[Transaction]:
    """A period keeps as a tag would: from the start of the view up to it. So does every count of a retain rule."""
    kept: list[Transaction] = []
    for key, counted in newest(facts.path[branch], counts).items():
        for one in counted:
            is_state = not isinstance(counts, Beyond) or key not in ("transactions", "bytes")
            kept += facts.state_at(branch, one) if is_state else [one]
    return kept

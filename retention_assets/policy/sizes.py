"""Sizes in bytes: read them from text, write them exactly, and write them rounded for people."""

import re

from retention_assets.errors import InvalidValue

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SIZE = re.compile(rf"([0-9]{{1,18}}) ?({'|'.join(_UNITS)})")
SIZE_PATTERN = f"^{_SIZE.pattern}$"
# sums of two such sizes fit 64 bits
MOST_BYTES = 1 << 60
_EXPECTED = f"a size from 1B to {MOST_BYTES >> 50}PiB, such as 10GiB"


def parse_size(value: object) -> int:
    """Read a size with its unit. Raise InvalidValue otherwise."""
    if isinstance(value, int) and not isinstance(value, bool):
        raise InvalidValue("has no unit", _EXPECTED, f"Write for example {value}GiB, or {value}B for bytes.")
    size = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if size is None:
        raise InvalidValue("is not a size", _EXPECTED, f"Units are {', '.join(_UNITS)}.")
    count = int(size[1]) << 10 * _UNITS.index(size[2])
    if not 0 < count <= MOST_BYTES:
        raise InvalidValue("is out of bounds", _EXPECTED)
    return count


def size_text(count: int) -> str:
    """Shortest text that parses back to this size: `10GiB`."""
    power = max(power for power in range(len(_UNITS)) if count % 1024**power == 0)
    return f"{count >> 10 * power}{_UNITS[power]}"


def size_of(count: int | None) -> str:
    """Bytes, rounded: `1.5 KiB`; a question mark where the store does not know."""
    if count is None:
        return "?"
    power = next((power for power in range(len(_UNITS)) if count < 1024 ** (power + 1)), len(_UNITS) - 1)
    return f"{count / 1024**power:.1f} {_UNITS[power]}" if power else f"{count} B"

"""Sizes in bytes, rounded for people."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size_of(count: int | None) -> str:
    """Bytes, rounded: `1.5 KiB`; a question mark where the store does not know."""
    if count is None:
        return "?"
    power = next((power for power in range(len(_UNITS)) if count < 1024 ** (power + 1)), len(_UNITS) - 1)
    return f"{count / 1024**power:.1f} {_UNITS[power]}" if power else f"{count} B"

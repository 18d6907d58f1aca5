"""Strips: bars so small that Dagster shows them in the table of an asset's numbers, without a click.

Belongs here: drawing one in less than a thousand characters, which is as much as Dagster's page shows at once.
Does not belong here: plots that want to be read (bars.py).
"""

from collections.abc import Sequence
from urllib.parse import quote

MOST = 990
_WIDTH, _HEIGHT, _TOP = 360, 46, 16
_BLUE = "%232a8fd0"


def strip(words: str, values: Sequence[int]) -> str:
    """Markdown that shows what is said in words above a bar for each value, of the newest ones as many as there is room for."""
    for most in range(len(values), -1, -1):
        shown = values[len(values) - most :]
        made = f"![{_plain(words)}](data:image/svg+xml,{_quoted(words, shown)})"
        if len(made) <= MOST:
            return made
    return _plain(words)


def _quoted(words: str, values: Sequence[int]) -> str:
    height, highest = _HEIGHT - _TOP, max(values, default=0)
    slot = _WIDTH // max(len(values), 12)
    bars = "".join(
        f"M{slot * place},{_HEIGHT}v-{max(1, round(height * value / highest))}h{slot - 2}V{_HEIGHT}"
        for place, value in enumerate(values)
        if value
    )
    svg = (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{_WIDTH}' height='{_HEIGHT}'>"
        f"<text y='11' font-family='sans-serif' font-size='12' fill='gray'>{_plain(words)}</text>"
        f"<path fill='@' d='{bars}M0,{_HEIGHT}h{slot * max(len(values), 1)}' stroke='@'/></svg>"
    )
    return quote(svg, safe="/:=',;@-.").replace("@", _BLUE)


def _plain(words: str) -> str:
    """What neither Markdown nor SVG takes for anything else."""
    return "".join(letter if letter.isalnum() or letter in " .,:-" else " " for letter in words)

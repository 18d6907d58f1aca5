"""The `where` line of a policy. Reads its text into a condition."""

import unicodedata

from retention_assets.errors import InvalidValue, quote
from retention_assets.policy.where.tree import MOST_CHARACTERS, Condition, columns_of


def parse_condition(text: str) -> Condition:
    """Read a condition, or raise InvalidValue with the piece that is wrong and what to write instead."""
    # Not at the top: it loads Lark, which most commands do not need.
    from retention_assets.policy.where.grammar import read

    text = text.strip()
    if not text:
        raise InvalidValue("is empty", "a condition, such as bytes > 0", "Leave `where` out to select by the other lines.")
    if len(text) > MOST_CHARACTERS:
        raise InvalidValue(f"is {len(text)} characters long", f"at most {MOST_CHARACTERS}")
    # Refuse characters that make a condition look different from what it is, or that no ledger can store.
    for char in text:
        hidden = unicodedata.category(char) in ("Cc", "Cs") and char not in " \t\r\n"
        if hidden or unicodedata.bidirectional(char) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"):
            raise InvalidValue(f"holds the invisible character {quote(char)}", "visible characters")
    condition = Condition(text, read(text))
    if not columns_of(condition):
        remedy = "For every transaction write `select: all`."
        raise InvalidValue("reads no column", "a condition that depends on the transaction", remedy)
    return condition

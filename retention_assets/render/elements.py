"""Elements of a page that refers to nothing else: a tree that is written out once, so every text in it is escaped.

Belongs here: making elements, and the document around them. What a page says is its own module's.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from xml.etree.ElementTree import Element, tostring

from retention_assets.policy.durations import text_of

# What even a name that got past all escaping could do in a reader's browser: nothing.
_FORBIDDEN = "default-src 'none'; style-src 'unsafe-inline'"
# What no text of a page may hold: control characters, and halves of characters, which can't be written.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def document(title: str, style: str, body: Element) -> str:
    """The whole page, as text."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_FORBIDDEN),
        element("title", title),
        element("style", style),
    )
    whole = element("html", head, element("body", body), lang="en")
    return f"<!DOCTYPE html>\n{tostring(whole, encoding='unicode', method='html')}\n"


def element(tag: str, *content: Element | str, **attributes: str) -> Element:
    """An element. Attributes whose name Python has for itself, or can't write, are spelled with underscores."""
    given = {name.strip("_").replace("_", "-"): _UNPRINTABLE.sub("\ufffd", value) for name, value in attributes.items()}
    element = Element(tag, given)
    for part in content:
        if isinstance(part, Element):
            element.append(part)
            continue
        text = _UNPRINTABLE.sub("\ufffd", part)
        if len(element):
            element[-1].tail = (element[-1].tail or "") + text
        else:
            element.text = (element.text or "") + text
    return element


def element_named(text: str) -> Element:
    """A name that somebody gave to something: what it does to the direction of writing ends with it."""
    return element("bdi", text)


def at(instant: datetime) -> Element:
    """An instant: to the second for people, exactly for programs."""
    return element("time", f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC", datetime=text_of(instant))


def table(
    columns: Sequence[str], numbers: Iterable[str], rows: Iterable[Sequence[Element]], last: Sequence[Element] = ()
) -> Element:
    """A table that scrolls by itself where the page is narrow; `last` is the row of sums."""
    right = set(numbers)
    heads = [element("th", name, scope="col", **({"class_": "number"} if name in right else {})) for name in columns]
    whole = element("table", element("thead", element("tr", *heads)), element("tbody", *(element("tr", *row) for row in rows)))
    if last:
        whole.append(element("tfoot", element("tr", *last)))
    return element("div", whole, class_="wide")

"""What files of metadata say, parsed once for as long as they hold the same bytes.

Belongs here: keeping what was parsed within bounds. A sweep asks for a table's metadata and manifests several times: each time
they are read, and if they are byte for byte what they were, not parsed again. So nothing rests on files staying as they are.
Does not belong here: reading, and what the parsed values are.
"""

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from threading import Lock
from typing import Any, TypeVar

_Value = TypeVar("_Value")

# Bytes of memory, as those who parse estimate them.
_MOST = 64 * 2**20
# What a value takes besides, its key among it.
_LEAST = 1_000


class ParsedFiles:
    """Values by their kind, their location and a digest of the content. Those that were not asked for the longest go first."""

    def __init__(self, most: int = _MOST) -> None:
        self._most, self._taken = most, 0
        self._kept: OrderedDict[tuple[str, str], tuple[bytes, Any, int]] = OrderedDict()
        self._lock = Lock()

    def of(
        self, kind: str, location: str, content: bytes, parse: Callable[[], _Value], size_of: Callable[[_Value], int]
    ) -> _Value:
        """What is parsed of a content. Nobody may change the value; what `parse` raises is raised."""
        key, digest = (kind, location), blake2b(content, digest_size=32).digest()
        with self._lock:
            known = self._kept.get(key)
            if known is not None and known[0] == digest:
                self._kept.move_to_end(key)
                found: _Value = known[1]
                return found
        value = parse()
        self._keep(key, digest, value, _LEAST + size_of(value))
        return value

    def _keep(self, key: tuple[str, str], digest: bytes, value: Any, size: int) -> None:
        with self._lock:
            if (before := self._kept.pop(key, None)) is not None:
                self._taken -= before[2]
            # One giant would drive out everything else.
            if size > self._most // 4:
                return
            self._kept[key] = digest, value, size
            self._taken += size
            while self._taken > self._most:
                self._taken -= self._kept.popitem(last=False)[1][2]


# For those who ask for each file once.
NOTHING_KEPT = ParsedFiles(0)

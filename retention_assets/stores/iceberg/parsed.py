"""A bounded cache of parsed metadata files.

A sweep asks for a table's metadata and manifests several times: each time they are read, and parsed again only if their bytes
differ. So nothing relies on files staying unchanged.
"""

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from threading import Lock
from typing import Any, TypeVar

_Value = TypeVar("_Value")

# bytes of memory, as estimated by callers
_MOST = 64 * 2**20
# overhead of a value, its key included
_LEAST = 1_000


class ParsedFiles:
    """LRU cache of values by kind, location and digest of the content."""

    def __init__(self, most: int = _MOST) -> None:
        self._most, self._taken = most, 0
        self._kept: OrderedDict[tuple[str, str], tuple[bytes, Any, int]] = OrderedDict()
        self._lock = Lock()

    def of(
        self, kind: str, location: str, content: bytes, parse: Callable[[], _Value], size_of: Callable[[_Value], int]
    ) -> _Value:
        """Return the parsed content, which must not be modified. Exceptions of `parse` pass through."""
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
            # one giant would evict everything else
            if size > self._most // 4:
                return
            self._kept[key] = digest, value, size
            self._taken += size
            while self._taken > self._most:
                self._taken -= self._kept.popitem(last=False)[1][2]


# for callers that read each file once
NOTHING_KEPT = ParsedFiles(0)

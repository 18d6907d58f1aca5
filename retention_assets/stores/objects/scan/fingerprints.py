"""Fingerprints: 64-bit keyed hashes of realm and key, which make references eight bytes each and collisions uncraftable. The
hash is SipHash-1-3, keyed by the salt of a scan, over an unambiguous text: the length of the realm plus one (0 without a realm;
highest bit set for a folder), the realm, zeros up to a multiple of eight bytes, and the key."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.frames.arrays import Bools, Ints, flags, integers

Hashes = npt.NDArray[np.uint64]

SALT_BYTES = 16
_WORD = 8
# rows per block, so that its arrays stay in a cache
_BLOCK = 8192
_MASK = (1 << 64) - 1
_START = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
_FINAL_ROUNDS = 3
_FOLDER = 1 << 63


class Fingerprints:
    def __init__(self, salt: bytes) -> None:
        if len(salt) != SALT_BYTES:
            raise ValueError(f"a salt has {SALT_BYTES} bytes, not {len(salt)}")
        first, second = int.from_bytes(salt[:8], "little"), int.from_bytes(salt[8:], "little")
        self._start = tuple(word ^ (second if number % 2 else first) for number, word in enumerate(_START))

    def of(
        self, keys: pa.Array, realms: pa.Array | None = None, ends: Ints | None = None, folders: Bools | None = None
    ) -> Hashes:
        """Fingerprint of each key in its realm, or in none. `ends` limits each key to that many bytes. `folders` marks rows
        that are folders of that name instead of keys."""
        starts, lengths, words = _text(keys)
        lengths = lengths if ends is None else ends
        names: list[str | None] = [None]
        codes = None
        if realms is not None and realms.null_count < len(realms):
            coded = realms if pa.types.is_dictionary(realms.type) else realms.dictionary_encode()
            names = [*coded.dictionary.to_pylist(), None]
            codes = integers(coded.indices, len(names) - 1).astype(np.intp)
        prefixes = [_prefix(name, False) for name in names]
        if folders is not None:
            prefixes += [_prefix(name, True) for name in names]
            codes = (0 if codes is None else codes) + folders * np.intp(len(names))
        return self._hash(starts, lengths, words, codes, prefixes)

    def _hash(
        self, starts: Ints, lengths: Ints, words: Hashes, codes: npt.NDArray[np.intp] | None, prefixes: Sequence[bytes]
    ) -> Hashes:
        states = np.array([self._after(prefix) for prefix in prefixes], dtype=np.uint64)
        widths = np.array([len(prefix) for prefix in prefixes], dtype=np.int64)
        out = np.empty(len(starts), dtype=np.uint64)
        if not len(out):
            return out
        count = lengths // _WORD
        most = int(count.max())
        # Rows are grouped by word count, so that nearly every block has rows of one length.
        order = None
        if most != int(count.min()):
            order = np.argsort(
                count.astype(np.uint8 if most < 1 << 8 else np.uint16 if most < 1 << 16 else np.int64), kind="stable"
            )
        block = _Block(min(_BLOCK, len(out)))
        for begin in range(0, len(out), _BLOCK):
            rows = slice(begin, begin + _BLOCK) if order is None else order[begin : begin + _BLOCK]
            own = None if codes is None else codes[rows]
            state = states[0] if own is None else states[own]
            total = lengths[rows] + (widths[0] if own is None else widths[own])
            out[rows] = block.hash(state, words, starts[rows], lengths[rows], count[rows], total)
        return out

    def _after(self, prefix: bytes) -> Sequence[int]:
        state: Sequence[int] = self._start
        for at in range(0, len(prefix), _WORD):
            state = _absorbed(state, int.from_bytes(prefix[at : at + _WORD], "little"))
        return state


def _absorbed(state: Sequence[int], word: int) -> Sequence[int]:
    v0, v1, v2, v3 = state
    v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ word)
    return v0 ^ word, v1, v2, v3


def _prefix(realm: str | None, is_folder: bool) -> bytes:
    said = b"" if realm is None else realm.encode()
    length = (0 if realm is None else len(said) + 1) | (_FOLDER if is_folder else 0)
    return length.to_bytes(_WORD, "little") + said + bytes(-len(said) % _WORD)


def _round(v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    v0 = (v0 + v1) & _MASK
    v1 = _turned(v1, 13) ^ v0
    v0 = _turned(v0, 32)
    v2 = (v2 + v3) & _MASK
    v3 = _turned(v3, 16) ^ v2
    v0 = (v0 + v3) & _MASK
    v3 = _turned(v3, 21) ^ v0
    v2 = (v2 + v1) & _MASK
    v1 = _turned(v1, 17) ^ v2
    return v0, v1, _turned(v2, 32), v3


def _turned(word: int, by: int) -> int:
    return ((word << by) | (word >> (64 - by))) & _MASK


def _text(keys: pa.Array) -> tuple[Ints, Ints, Hashes]:
    """Start and length of each text in bytes, and all bytes as 64-bit words."""
    if pa.types.is_dictionary(keys.type):
        keys = keys.dictionary_decode()
    if not (pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type)):
        keys = keys.cast(pa.large_string())
    if keys.null_count:
        raise ValueError("a key is missing")
    width = np.int64 if pa.types.is_large_string(keys.type) else np.int32
    _, offsets, data = keys.buffers()
    if not len(keys) or data is None:
        return np.zeros(len(keys), dtype=np.int64), np.zeros(len(keys), dtype=np.int64), np.zeros(2, dtype=np.uint64)
    places = np.frombuffer(offsets, dtype=width)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    first, last = int(places[0]) & ~(_WORD - 1), int(places[-1])
    held = np.frombuffer(data, dtype=np.uint8)
    # one more word, as each is read with the next
    end = first + (-(-(last - first) // _WORD) + 2) * _WORD
    if end <= len(held) and held.ctypes.data % _WORD == 0:
        part = held[first:end]
    else:
        part = np.zeros(end - first, dtype=np.uint8)
        part[: last - first] = held[first:last]
    return places[:-1] - first, np.diff(places), part.view(np.uint64)


class _Block:
    def __init__(self, rows: int) -> None:
        # v0 and v2 share an array, and so do v1 and v3: most of a round processes both at once.
        self._even = np.empty((2, rows), dtype=np.uint64)
        self._odd = np.empty((2, rows), dtype=np.uint64)
        self._spare = np.empty((2, rows), dtype=np.uint64)
        self._here, self._next, self._word = (np.empty(rows, dtype=np.uint64) for _ in range(3))

    def hash(
        self,
        state: Hashes,
        words: Hashes,
        starts: Ints,
        lengths: Ints,
        count: Ints,
        total: Ints,
    ) -> Hashes:
        """Hash rows, which must be sorted by word count."""
        rows = len(starts)
        even, odd, spare = self._even[:, :rows], self._odd[:, :rows], self._spare[:, :rows]
        place = starts >> 3
        shift = ((starts & 7) << 3).astype(np.uint64)
        back = np.uint64(64) - shift
        here, ahead, word = self._here[:rows], self._next[:rows], self._word[:rows]
        words.take(place, out=here, mode="clip")
        rest = ((lengths & 7) << 3).astype(np.uint64)
        mask = (np.uint64(1) << rest) - np.uint64(1)
        ends = (total.astype(np.uint64) & np.uint64(255)) << np.uint64(56)
        apart = False
        for number in range(int(count[-1]) + 1):
            # Rows that ended before this word stay; in a row's last word its length is mixed in.
            begin, end = np.searchsorted(count, (number, number + 1)).tolist()
            place[begin:] += 1
            words.take(place[begin:], out=ahead[begin:], mode="clip")
            now = word[begin:]
            np.right_shift(here[begin:], shift[begin:], now)
            # NumPy shifts by 64 give 0, as needed.
            np.left_shift(ahead[begin:], back[begin:], here[begin:])
            np.bitwise_or(now, here[begin:], now)
            here, ahead = ahead, here
            if end > begin:
                word[begin:end] &= mask[begin:end]
                word[begin:end] |= ends[begin:end]
            elif not apart and state.ndim == 1 and (now == now[0]).all():
                # While all rows have the same words, one state serves them all.
                state = np.array(_absorbed(state.tolist(), int(now[0])), dtype=np.uint64)
                continue
            if not apart:
                even[0], odd[0], even[1], odd[1] = state[..., 0], state[..., 1], state[..., 2], state[..., 3]
                apart = True
            _absorb(even[:, begin:], odd[:, begin:], spare[:, begin:], now)
        even[1] ^= np.uint64(255)
        for _ in range(_FINAL_ROUNDS):
            _rounds(even, odd, spare)
        result: Hashes = even[0] ^ even[1]
        result ^= odd[0]
        result ^= odd[1]
        return result


_FIRST_TURN = np.array([[13], [16]], dtype=np.uint64)
_SECOND_TURN = np.array([[17], [21]], dtype=np.uint64)
_WHOLE = np.uint64(64)
_FIRST_BACK, _SECOND_BACK = _WHOLE - _FIRST_TURN, _WHOLE - _SECOND_TURN
_HALF = np.uint64(32)


def _absorb(even: Hashes, odd: Hashes, spare: Hashes, word: Hashes) -> None:
    np.bitwise_xor(odd[1], word, odd[1])
    _rounds(even, odd, spare)
    np.bitwise_xor(even[0], word, even[0])


def _rounds(even: Hashes, odd: Hashes, spare: Hashes) -> None:
    add, xor, either, left, right = np.add, np.bitwise_xor, np.bitwise_or, np.left_shift, np.right_shift
    v0, v2, one, crossed = even[0], even[1], spare[0], even[::-1]
    add(even, odd, even)
    left(odd, _FIRST_TURN, spare)
    right(odd, _FIRST_BACK, odd)
    either(odd, spare, odd)
    xor(odd, even, odd)
    left(v0, _HALF, one)
    right(v0, _HALF, v0)
    either(v0, one, v0)
    add(crossed, odd, crossed)
    left(odd, _SECOND_TURN, spare)
    right(odd, _SECOND_BACK, odd)
    either(odd, spare, odd)
    xor(odd, crossed, odd)
    left(v2, _HALF, one)
    right(v2, _HALF, v2)
    either(v2, one, v2)


def folder_ends(keys: pa.Array, depth: int) -> Ints:
    """Bytes of each key up to and including its `depth`-th slash; 0 if it has fewer."""
    starts, lengths, words = _text(keys)
    slashes = np.flatnonzero(words.view(np.uint8) == ord("/"))
    if not len(slashes):
        return np.zeros(len(starts), dtype=np.int64)
    number = np.searchsorted(slashes, starts) + depth - 1
    place = slashes[np.minimum(number, len(slashes) - 1)] + 1
    there = (number < len(slashes)) & (place <= starts + lengths)
    return np.where(there, place - starts, 0)


def beginnings(keys: pa.Array, ends: Ints) -> pa.Array:
    starts, _, words = _text(keys)
    offsets = np.zeros(len(ends) + 1, dtype=np.int64)
    np.cumsum(ends, out=offsets[1:])
    places = np.repeat(starts - offsets[:-1], ends) + np.arange(offsets[-1])
    held = words.view(np.uint8)[places]
    return pa.LargeStringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(held)).cast(pa.string())


EVERYTHING = "/"


@dataclass(frozen=True)
class NamedBy:
    """Ways in which references name objects: in a realm, in all realms, or as folders of some depths (0 is everything)."""

    in_realms: bool = False
    in_all: bool = False
    depths: frozenset[int] = frozenset()

    def __or__(self, other: "NamedBy") -> "NamedBy":
        return NamedBy(self.in_realms or other.in_realms, self.in_all or other.in_all, self.depths | other.depths)


@dataclass(frozen=True)
class ReferredNames:
    """Realms and depths of folders by which the references of a share name objects. The realm None means every realm."""

    realms: set[str | None] = field(default_factory=set)
    depths: set[int] = field(default_factory=set)

    def note(self, references: pa.RecordBatch, names_folders: bool) -> Bools | None:
        """Return a mask of the references that name folders; None if there are none."""
        keys, realms = references["object"], references["realm"]
        if realms.null_count < len(realms):
            self.realms.update(pc.unique(realms).to_pylist())
        elif len(realms):
            self.realms.add(None)
        folders = flags(pc.ends_with(keys, "/")) if names_folders else np.zeros(0, dtype=bool)
        if not folders.any():
            return None
        names = keys.filter(pa.array(folders))
        depths = pc.if_else(pc.equal(names, EVERYTHING), 0, pc.count_substring(names, "/"))
        self.depths.update(pc.unique(depths).to_pylist())
        return folders

    @property
    def named_by(self) -> NamedBy:
        return NamedBy(any(realm is not None for realm in self.realms), None in self.realms, frozenset(self.depths))


@dataclass(frozen=True)
class Lookup:
    """Fingerprints under which rows may be named, and the names themselves."""

    hashes: Hashes
    # row of each fingerprint; None if they are all rows in order
    rows: Ints | None
    names: Callable[[], pa.Array]
    folders: bool = False


def lookups(
    fingerprints: Fingerprints, keys: pa.Array, realms: pa.Array | None, named_by: NamedBy, own: Hashes | None = None
) -> Iterator[Lookup]:
    """All lookups of some keys. `own` are their fingerprints in their realms, if known."""
    lonely = realms is None or realms.null_count == len(realms)
    spaces = [realms] if named_by.in_realms or lonely else []
    if named_by.in_all and not lonely:
        spaces.append(None)
    for number, space in enumerate(spaces):
        known = own if number == 0 and (space is not None or lonely) else None
        hashes = fingerprints.of(keys, space) if known is None else known
        yield Lookup(hashes, None, lambda: keys)
    for depth in sorted(named_by.depths):
        ends = folder_ends(keys, depth) if depth else np.ones(len(keys), dtype=np.int64)
        rows = np.flatnonzero(ends)
        if not len(rows):
            continue
        picked = pa.array(rows)
        some = keys.take(picked) if depth else pa.array([EVERYTHING], keys.type).take(pa.array(np.zeros_like(rows)))
        for space in spaces:
            inside = None if space is None else space.take(picked)
            yield Lookup(
                fingerprints.of(some, inside, ends[rows], np.ones(len(rows), dtype=bool)), rows,
                lambda some=some, ends=ends[rows]: beginnings(some, ends), True,  # type: ignore[misc]
            )  # fmt: skip

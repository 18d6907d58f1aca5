"""Maps locations of files to keys below the root of a listing. The same path under another scheme or authority is either the
same file, whose object would be taken for an orphan, or another file. That cannot be detected, so the settings must declare it.
Locations are compared literally, except on local disks, where links are resolved too."""

import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from retention_assets.settings.urls import mask_secrets
from retention_assets.stores.objects.references.source import SourceNotWhole

_LOCAL = "file"
# synonyms in every reader
_ALWAYS_EQUAL = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "wasb": "wasbs"}
_PLACE = r"(?s)^(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<authority>[^/]*))?)?(?P<path>.*)$"
_UNTIDY = r"//|/\.{1,2}(/|$)"
_FOLDER = r"(?s)^(?P<folder>.*)/(?P<name>[^/]*)$"
_ANYTHING = "+"


@dataclass(frozen=True)
class ListingRoot:
    """Root of a listing, and declared synonyms of schemes and authorities. A synonym of itself is a place of its own."""

    place: str
    equal_schemes: Mapping[str, str] = field(default_factory=dict)
    equal_authorities: Mapping[str, str] = field(default_factory=dict)

    def keys(self, locations: pa.Array, whose: str) -> pa.Array:
        """Keys of files below the root, some in two spellings. Raises SourceNotWhole for an ambiguous location."""
        paths = self._paths(locations, whose)
        return pa.concat_arrays([self._below(paths, root) for root in self._roots])

    def folders(self, locations: pa.Array, whose: str) -> pa.Array:
        """References to everything in folders: keys that end with /, or / alone if the root lies in one of them."""
        # A child is appended, so that a folder that is itself a link is resolved.
        inside = pc.binary_join_element_wise(pc.utf8_rtrim(locations, "/"), _ANYTHING, "/")
        paths = self._paths(inside, whose)
        keys = pa.concat_arrays([self._below(paths, root) for root in self._roots])
        above = sorted({f"{one}/{_ANYTHING}" for root in self._roots for one in _folders_above(root)})
        around = pc.any(pc.is_in(paths, pa.array(above, pa.string()))).as_py()
        # the root itself is covered by `above`
        keys = keys.filter(pc.not_equal(keys, _ANYTHING))
        return pa.concat_arrays([pc.utf8_slice_codeunits(keys, 0, -1), pa.array(["/"] if around else [], pa.string())])

    @cached_property
    def _origin(self) -> tuple[str, str, str]:
        found = re.match(_PLACE, self.place)
        scheme, authority, path = found.group("scheme", "authority", "path") if found else ("", "", self.place)
        mine = self._mapped(scheme or "", authority or "")
        return (*mine, _tidy(path) if mine[0] == _LOCAL else path.rstrip("/"))

    @cached_property
    def _roots(self) -> tuple[str, ...]:
        scheme, _, path = self._origin
        # Tables may record either the path through links or the real one.
        return tuple(dict.fromkeys((path, os.path.realpath(path)))) if scheme == _LOCAL else (path,)

    def _mapped(self, scheme: str, authority: str) -> tuple[str, str]:
        scheme = scheme.lower() or _LOCAL
        scheme = _declared(self.equal_schemes, scheme) or scheme
        scheme = _ALWAYS_EQUAL.get(scheme, scheme)
        if scheme == _LOCAL and authority == "localhost":
            authority = ""
        said = _declared(self.equal_authorities, authority)
        return scheme, authority if said is None else said

    def _is_elsewhere(self, scheme: str, authority: str) -> bool:
        scheme = scheme.lower() or _LOCAL
        return _declared(self.equal_schemes, scheme) == scheme or _declared(self.equal_authorities, authority) == authority

    def _paths(self, locations: pa.Array, whose: str) -> pa.Array:
        """Paths of the locations in the root's scheme and authority."""
        parts = pc.extract_regex(locations, _PLACE)
        path = pc.struct_field(parts, "path")
        spelled = pc.binary_join_element_wise(pc.struct_field(parts, "scheme"), pc.struct_field(parts, "authority"), "\0")
        encoded = spelled.dictionary_encode()
        inside = []
        for number, one in enumerate(encoded.dictionary.to_pylist()):
            scheme, _, authority = one.partition("\0")
            inside.append(self._mapped(scheme, authority) == self._origin[:2])
            if not inside[-1] and not self._is_elsewhere(scheme, authority):
                self._check_doubt(locations, path, pc.equal(encoded.indices, number), (scheme, authority), whose)
        if not all(inside):
            path = path.filter(pa.array(inside, pa.bool_()).take(encoded.indices))
        return _on_disk(path) if self._origin[0] == _LOCAL else path

    def _check_doubt(self, locations: pa.Array, paths: pa.Array, some: pa.Array, spelled: tuple[str, str], whose: str) -> None:
        """Raises SourceNotWhole if any of these paths would lie below the root in the root's scheme and authority."""
        begin = f"{self._origin[2]}/"
        doubtful = locations.filter(pc.and_(some, pc.starts_with(paths, begin)))
        if not len(doubtful):
            return
        scheme, authority = spelled
        mine, other = self._origin[:2], self._mapped(scheme, authority)
        if other[0] != mine[0]:
            setting, said, means = "equal_schemes", scheme.lower() or _LOCAL, mine[0]
        else:
            setting, said, means = "equal_authorities", authority, mine[1]
        location = doubtful[0].as_py().removesuffix(f"/{_ANYTHING}")
        raise SourceNotWhole(
            f"{whose} names {mask_secrets(location)}, whose path lies below that of {mask_secrets(self.place)}, in"
            f" another place. If the two are one, declare it in the source: {setting}: {{{said}: {means}}}; if they are not,"
            f" {setting}: {{{said}: {said}}}."
        )

    def _below(self, paths: pa.Array, root: str) -> pa.Array:
        begin = f"{root.rstrip('/')}/"
        keys = pc.utf8_slice_codeunits(paths.filter(pc.starts_with(paths, begin)), len(begin))
        return keys.filter(pc.not_equal(keys, ""))


def _declared(equal: Mapping[str, str], name: str) -> str | None:
    """Declared synonym of a name; a key may list several names separated by commas."""
    for names, meant in equal.items():
        if name in (one.strip() for one in names.split(",")):
            return meant
    return None


def _tidy(path: str) -> str:
    return posixpath.normpath(f"/{path.lstrip('/')}")


def _folders_above(root: str) -> list[str]:
    parts = root.rstrip("/").split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _on_disk(paths: pa.Array) -> pa.Array:
    """Normalized local paths, plus the resolved path where a folder is a link. Links are resolved once per folder."""
    untidy = pc.or_(pc.match_substring_regex(paths, _UNTIDY), pc.invert(pc.starts_with(paths, "/")))
    if pc.any(untidy).as_py():
        tidy = pa.array([_tidy(path) for path in paths.filter(untidy).to_pylist()], pa.string())
        paths = pc.replace_with_mask(paths, untidy, tidy)
    parts = pc.extract_regex(paths, _FOLDER)
    folders = pc.struct_field(parts, "folder").dictionary_encode()
    names = folders.dictionary.to_pylist()
    led = [os.path.realpath(folder or "/").rstrip("/") for folder in names]
    links = pa.array([one != other for one, other in zip(names, led, strict=True)], pa.bool_()).take(folders.indices)
    if not pc.any(links).as_py():
        return paths
    real = pa.array(led, pa.string()).take(folders.indices.filter(links))
    return pa.concat_arrays([paths, pc.binary_join_element_wise(real, pc.struct_field(parts, "name").filter(links), "/")])

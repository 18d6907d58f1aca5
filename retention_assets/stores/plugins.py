"""Kinds of store that other packages bring, by the entry point group `retention_assets.stores`.

A package writes into its pyproject.toml, where `KIND` is a `StoreKind` whose name is the entry point's:

    [project.entry-points."retention_assets.stores"]
    lance = "retention_lance.store:KIND"

Belongs here: finding the package of a kind, and saying what is wrong with it. A package is imported only when a settings file
names its kind, so that a broken one harms nobody who does not use it. A built-in kind is never looked up here: no package can
put itself in its place.
"""

from importlib.metadata import EntryPoint, entry_points

from retention_assets.errors import InvalidValue, nearest
from retention_assets.stores.kinds import BUILT_IN, StoreKind, StoreSettings

GROUP = "retention_assets.stores"


def kind_named(name: str) -> StoreKind:
    """The kind of that name. Raises Expected when there is none, or when the package that brings it is broken."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    found = {point.value: point for point in entry_points(group=GROUP, name=name)}
    if not found:
        known = known_kinds()
        guess = nearest(name, known)
        remedy = f"Did you mean {guess}?" if guess else "Other kinds come with packages; is one not installed?"
        raise InvalidValue("is not a known kind of store", f"one of {', '.join(known)}", remedy)
    if len(found) > 1:
        raise InvalidValue(
            f"is a kind that several packages bring: {', '.join(sorted(map(_label, found.values())))}", "one package per kind",
            "Uninstall all but one of them.",
        )  # fmt: skip
    return _loaded(*found.values())


def known_kinds() -> tuple[str, ...]:
    """The names of all kinds: the built-in ones, then those of installed packages, none of them imported."""
    return (*BUILT_IN, *sorted({point.name for point in entry_points(group=GROUP)} - BUILT_IN.keys()))


def _label(point: EntryPoint) -> str:
    return f"{point.dist.name if point.dist else 'unknown package'} ({point.value})"


def _loaded(point: EntryPoint) -> StoreKind:
    """Whatever a foreign module raises while it is imported is its own fault, and is reported as such."""
    try:
        kind = point.load()
    except Exception as fault:
        raise _broken(point, f"which cannot be loaded: {type(fault).__name__}: {fault}") from fault
    if not isinstance(kind, StoreKind) or not (isinstance(kind.settings, type) and issubclass(kind.settings, StoreSettings)):
        raise _broken(point, "which is no StoreKind")
    if kind.name in BUILT_IN:
        raise _broken(point, f"which calls itself {kind.name}, a built-in kind")
    if kind.name != point.name:
        raise _broken(point, f"which calls itself {kind.name}")
    return kind


def _broken(point: EntryPoint, why: str) -> InvalidValue:
    remedy = f"Mend or uninstall the package {point.dist.name}." if point.dist else None
    return InvalidValue(f"is brought by {_label(point)}, {why}", f"a StoreKind named {point.name} at {point.value}", remedy)

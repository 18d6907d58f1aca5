"""Which kinds of store there are, and opening a store from its settings.

Belongs here: what a kind is, the one line for each built-in kind, and finding the kinds that other packages bring. A kind is
imported when somebody names it, never before, so that a broken one harms nobody who does not use it, and reading settings needs
no driver.
Does not belong here: anything about one kind (its own folder).

A package brings a kind of its own by a line in its pyproject.toml, where `KIND` is a `StoreKind` whose name is the entry
point's. No package can put itself in the place of a built-in kind:

    [project.entry-points."retention_assets.stores"]
    lance = "retention_lance.store:KIND"
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from retention_assets.errors import InvalidValue, Refused, nearest
from retention_assets.stores.settings import StoreSettings

if TYPE_CHECKING:
    from retention_assets.stores.protocol import Store

GROUP = "retention_assets.stores"

# The module of each built-in kind, which has the kind as `KIND`.
BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "files": "retention_assets.stores.files",
        "iceberg": "retention_assets.stores.iceberg",
        "aspects": "retention_assets.stores.aspects",
        "records": "retention_assets.stores.records",
        "objects": "retention_assets.stores.objects",
    }
)


@dataclass(frozen=True)
class StoreKind:
    """A kind of store: the word behind `kind:`, the keys that it then takes, and how such a store is opened."""

    name: str
    settings: type[StoreSettings]
    # Takes the settings. Imports what the kind needs only when it is called.
    open: "Callable[[Any], Store]"


def open_store(settings: StoreSettings) -> "Store":
    """The store of some settings."""
    store = kind_named(settings.kind).open(settings)
    if settings.realm is not None and getattr(store, "settings", None) is not settings:
        # Nobody would know the realm of its datasets, and so purge it.
        raise Refused(
            f"The settings give the store {settings.name} a realm, and its kind {settings.kind} does not keep its settings as"
            " `settings`, where realms are looked for. Take `realm` out, or ask who wrote the kind."
        )
    return store


def kind_named(name: str) -> StoreKind:
    """The kind of that name. Raises InvalidValue when there is none, or when the package that brings it is broken."""
    if name in BUILT_IN:
        kind: StoreKind = import_module(BUILT_IN[name]).KIND
        return kind
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
    return _load(*found.values())


def known_kinds() -> tuple[str, ...]:
    """The names of all kinds: the built-in ones, then those of installed packages, none of them imported."""
    return (*BUILT_IN, *sorted({point.name for point in entry_points(group=GROUP)} - BUILT_IN.keys()))


def _load(point: EntryPoint) -> StoreKind:
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


def _label(point: EntryPoint) -> str:
    return f"{point.dist.name if point.dist else 'unknown package'} ({point.value})"
